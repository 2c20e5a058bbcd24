//! From a stranger's bytes to machine code, once for each digest.
//!
//! Neither the compiler nor what reads a module's interfaces promises anything about strange input. They may take any time
//! and any memory, and one changed byte is enough to make the latter recurse without end, which ends the process. So both run
//! in a process of their own, which is this same program (`pointsman compile`), with a deadline and a bound on its memory.

use super::{
    artifacts::{Artifacts, FolderError},
    binary::{self, Accepted, BinaryForm, Exported, Refused, Version, accept},
    builtin,
    engine::{Engines, Use, compiler},
    limits::{COMPILE_WITHIN, COMPILER_MEMORY, COMPILERS, LARGEST_BINARY},
    slots::Slots,
};
use crate::{
    process::{self, Ended},
    text::printable_line,
};
use sha2::{Digest, Sha256};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};
use wasmtime::{Engine, Module, component::Component};

/// The hidden subcommand that compiles.
pub const SUBCOMMAND: &str = "compile";

/// Why there is no machine code.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// It is no plugin, or doesn't compile.
    #[error("{0}")]
    Refused(String),
    /// It ended the process that looked at it.
    #[error("it crashes the compiler ({0}), so it is broken or malicious")]
    Crash(String),
    /// It took too long.
    #[error("compiling it takes longer than {} s", .0.as_secs())]
    TooLong(Duration),
    /// The machine code can't be loaded.
    #[error("the compiled plugin can't be loaded: {0}")]
    Load(String),
    /// The other process can't be run.
    #[error("the compiler can't be run: {0}")]
    Process(#[from] io::Error),
    /// The cache would not be ours alone.
    #[error(
        "{0} can't be the cache of compiled plugins: it must belong to this process's user and be writable by no other user, because its \
         files are executed"
    )]
    Unsafe(PathBuf),
}

impl CompileError {
    /// One CamelCase word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => "NoPlugin",
            Self::Crash(_) => "CompilerCrashed",
            Self::TooLong(_) => "CompilingTookTooLong",
            Self::Load(_) => "NotLoaded",
            Self::Process(_) => "CompilerMissing",
            Self::Unsafe(_) => "CacheUnsafe",
        }
    }
}

impl From<FolderError> for CompileError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Io(error) => Self::Process(error),
            FolderError::Shared(folder) => Self::Unsafe(folder),
        }
    }
}

/// The layout of what is cached: another means another name.
const LAYOUT: u32 = 4;

/// Machine code that can be linked.
#[derive(Clone)]
#[allow(missing_debug_implementations)] // wasmtime's component has none.
pub enum Code {
    /// A component, which may have been made of a core module.
    Component(Component),
    /// A WASI command.
    Command(Module),
}

/// A version of the interfaces that a plugin exports, and the policy points that it answers in it.
type Exports = (Version, Vec<String>);

/// A plugin that can be linked.
#[allow(missing_debug_implementations)]
pub struct Compiled {
    /// Its machine code.
    pub code: Code,
    /// What was given.
    pub form: BinaryForm,
    /// The version that it is asked by: the newest that it exports and that it may be asked by. A command tells its own.
    pub version: Version,
    /// The policy points whose interfaces of that version it exports: none if it is a command, which tells them itself.
    pub points: Vec<String>,
    /// Whether it may be asked by a draft.
    pub drafts: bool,
}

/// Compiles, and keeps what it compiled.
#[derive(Debug)]
pub struct Compilers {
    program: PathBuf,
    cache: Artifacts,
    within: Duration,
    memory: u64,
    turns: Slots,
    drafts: bool,
}

impl Compilers {
    /// With `program`, which is this one unless a test says otherwise, and a folder for what it makes. The folder may be shared
    /// by hosts of one user, and deleted at any time.
    pub fn new(program: PathBuf, cache: &Path) -> Result<Self, CompileError> {
        Self::with_key(program, cache, b"")
    }

    /// The same where others of the same user id may write into the folder: only what was kept under this key is run.
    pub fn with_key(program: PathBuf, cache: &Path, key: &[u8]) -> Result<Self, CompileError> {
        Ok(Self {
            program,
            cache: Artifacts::open(cache, key)?,
            within: COMPILE_WITHIN,
            memory: COMPILER_MEMORY,
            turns: Slots::new(COMPILERS),
            drafts: false,
        })
    }

    /// The same with other bounds.
    #[must_use]
    pub fn bounded(self, within: Duration, memory: u64) -> Self {
        Self { within, memory, ..self }
    }

    /// The same where plugins may be asked by a draft of the interfaces. The built-in policies always may: they come with it.
    #[must_use]
    pub fn with_drafts(self, drafts: bool) -> Self {
        Self { drafts, ..self }
    }

    /// The machine code of a plugin for a use: out of the cache, or compiled and put there. Blocks while it compiles.
    pub fn load(&self, engines: &Engines, use_: Use, plugin: &[u8]) -> Result<Compiled, CompileError> {
        if plugin.len() > LARGEST_BINARY {
            return Err(CompileError::Refused(Refused::TooLarge(plugin.len()).to_string()));
        }
        let engine = engines.for_use(use_);
        let mut compatibility = DefaultHasher::new();
        (LAYOUT, engine.precompile_compatibility_hash()).hash(&mut compatibility);
        let name = format!("{:x}-{:016x}.cwasm", Sha256::digest(plugin), compatibility.finish());
        let compiled = match self.cache.read(&name) {
            Some(compiled) => compiled,
            None => self.compile(use_, plugin).inspect(|compiled| self.cache.keep(&name, compiled))?,
        };
        let (code, form, exports) = loaded(engine, &compiled).map_err(|error| {
            self.cache.remove(&name);
            CompileError::Load(format!("{error:#}"))
        })?;
        let drafts = self.drafts || builtin::BUILTINS.iter().any(|builtin| builtin.bytes == plugin);
        let (version, points) = newest(&exports, drafts).map_err(|refused| CompileError::Refused(refused.to_string()))?;
        Ok(Compiled { code, form, version, points, drafts })
    }

    /// The program that does what must not be done in this process.
    pub fn program(&self) -> &Path {
        &self.program
    }

    fn compile(&self, use_: Use, plugin: &[u8]) -> Result<Vec<u8>, CompileError> {
        let _turn = self.turns.take(None);
        let args = [SUBCOMMAND, "--memory", &self.memory.to_string(), use_.name()];
        let Ended { output, complaint, status } = process::run(&self.program, &args, plugin, self.within)?;
        match status {
            None => Err(CompileError::TooLong(self.within)),
            Some(status) if status.success() => Ok(output),
            Some(status) if status.code() == Some(1) => Err(CompileError::Refused(printable_line(&complaint))),
            Some(status) => Err(CompileError::Crash(status.to_string())),
        }
    }
}

/// The newest version that a plugin may be asked by, and its points.
fn newest(exports: &[Exports], drafts: bool) -> Result<(Version, Vec<String>), Refused> {
    match exports.iter().rfind(|(version, _)| drafts || !version.is_draft()) {
        Some(found) => Ok(found.clone()),
        None => match exports.first() {
            Some((draft, _)) => Err(Refused::Draft(draft.number())),
            // A command, or what is no policy.
            None => Ok((Version::PUBLISHED, Vec::new())),
        },
    }
}

/// What `serve` made: a line, and machine code.
fn loaded(engine: &Engine, compiled: &[u8]) -> wasmtime::Result<(Code, BinaryForm, Vec<Exports>)> {
    let no_head = || wasmtime::Error::msg("it has no head");
    let end = compiled.iter().position(|byte| *byte == b'\n').ok_or_else(no_head)?;
    let head = String::from_utf8_lossy(&compiled[..end]);
    let mut words = head.split_whitespace();
    let form = words.next().and_then(BinaryForm::parse).ok_or_else(no_head)?;
    let code = &compiled[end + 1..];
    // SAFETY: the code was made by this same program, either just now or before, in which case it lies in a folder that only
    // this user can write to (`artifacts`), under a name that tells the engine's settings, and its checksum is right.
    #[allow(unsafe_code)]
    let code = unsafe {
        match form {
            BinaryForm::Component | BinaryForm::Module => Code::Component(Component::deserialize(engine, code)?),
            BinaryForm::Command => Code::Command(Module::deserialize(engine, code)?),
        }
    };
    let exports = words.map(|word| {
        let (version, points) = word.split_once('=')?;
        Some((Version::parse(version)?, points.split(',').map(str::to_owned).collect()))
    });
    Ok((code, form, exports.collect::<Option<_>>().ok_or_else(no_head)?))
}

/// The other process: a plugin on stdin becomes, on stdout, a line with its form and what it exports of each version, and machine code.
pub fn serve(use_: Use, memory: u64) -> Result<(), CompileError> {
    process::bound(memory)?;
    let plugin = process::read(Some(io::stdin().lock()));
    // The evaluator is no policy, and nobody else's.
    let accepted = if plugin == builtin::EVALUATOR { binary::of_ours(&plugin) } else { accept(&plugin) };
    let Accepted { wasm, form, exports } = accepted.map_err(|refused| CompileError::Refused(refused.to_string()))?;
    let refused = |error: wasmtime::Error| CompileError::Refused(format!("it doesn't compile: {error:#}"));
    let engine = compiler(use_).map_err(refused)?;
    let code = match form {
        BinaryForm::Component | BinaryForm::Module => engine.precompile_component(&wasm),
        BinaryForm::Command => engine.precompile_module(&wasm),
    };
    let mut out = io::stdout().lock();
    let exports = exports.into_iter().map(|Exported { version, points }| format!(" {}={}", version.number(), points.join(",")));
    writeln!(out, "{}{}", form.name(), exports.collect::<String>())?;
    out.write_all(&code.map_err(refused)?)?;
    Ok(())
}
