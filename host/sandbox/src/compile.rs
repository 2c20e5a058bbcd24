//! Compiles untrusted bytes to machine code, once per digest.
//!
//! For malicious input, neither the compiler nor the code that parses a module's interfaces is safe. They may use any amount of time and
//! memory. One changed byte is enough to make the parser recurse without end, which crashes the process. Both therefore run in a separate
//! process of this same program (`pointsman compile`), with a deadline and a memory limit.

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
    /// The bytes are not a plugin, or don't compile.
    #[error("{0}")]
    Refused(String),
    /// The bytes crashed the process that compiled them.
    #[error("it crashes the compiler ({0}), so it is broken or malicious")]
    Crash(String),
    /// The compilation took too long.
    #[error("compiling it takes longer than {} s", .0.as_secs())]
    TooLong(Duration),
    /// The machine code can't be loaded.
    #[error("the compiled plugin can't be loaded: {0}")]
    Load(String),
    /// The process can't be run.
    #[error("the compiler can't be run: {0}")]
    Process(#[from] io::Error),
    /// The cache folder is accessible to other users.
    #[error(
        "{0} can't be the cache of compiled plugins: it must belong to this process's user and be writable by no other user, because its \
         files are executed"
    )]
    Unsafe(PathBuf),
}

impl CompileError {
    /// The error as one CamelCase word.
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

/// The version of the cached files' layout. It is part of their names.
const LAYOUT: u32 = 4;

/// Machine code, ready to be linked.
#[derive(Clone)]
#[allow(missing_debug_implementations)] // wasmtime's component doesn't implement it.
pub enum Code {
    /// A component, which may have been built from a core module.
    Component(Component),
    /// A WASI command.
    Command(Module),
}

/// A version of the interfaces that a plugin exports, and the policy points that the plugin exports in it.
type Exports = (Version, Vec<String>);

/// A compiled plugin, ready to be linked.
#[allow(missing_debug_implementations)]
pub struct Compiled {
    /// Its machine code.
    pub code: Code,
    /// The form of the original bytes.
    pub form: BinaryForm,
    /// The version for calls: the newest that it exports and that the host may use. A command reports its versions itself.
    pub version: Version,
    /// The policy points whose interfaces it exports in that version. Empty for a command, which reports its points itself.
    pub points: Vec<String>,
    /// Whether the host may call it with a draft.
    pub drafts: bool,
}

/// Compiles plugins and caches the results.
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
    /// Uses `program`, which is this program except in tests, and a folder for the compiled files. Hosts of the same user may share the
    /// folder, and it may be deleted at any time.
    pub fn new(program: PathBuf, cache: &Path) -> Result<Self, CompileError> {
        Self::with_key(program, cache, b"")
    }

    /// The same for a folder that other processes with the same user id can write to: only files that were stored under this key are
    /// executed.
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

    /// The same with other limits.
    #[must_use]
    pub fn bounded(self, within: Duration, memory: u64) -> Self {
        Self { within, memory, ..self }
    }

    /// The same, but with `drafts` the host may call all plugins with a draft of the interfaces. For built-in policies it always may,
    /// because they are built with it.
    #[must_use]
    pub fn with_drafts(self, drafts: bool) -> Self {
        Self { drafts, ..self }
    }

    /// Loads the machine code of a plugin for a use: from the cache, or by compiling it. Blocks during the compilation.
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

    /// The program that runs unsafe work in a separate process.
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

/// The newest version that the host may use, and the plugin's points in it.
fn newest(exports: &[Exports], drafts: bool) -> Result<(Version, Vec<String>), Refused> {
    match exports.iter().rfind(|(version, _)| drafts || !version.is_draft()) {
        Some(found) => Ok(found.clone()),
        None => match exports.first() {
            Some((draft, _)) => Err(Refused::Draft(draft.number())),
            // A command, or something that isn't a policy.
            None => Ok((Version::PUBLISHED, Vec::new())),
        },
    }
}

/// Parses the output of `serve`: a line, and machine code.
fn loaded(engine: &Engine, compiled: &[u8]) -> wasmtime::Result<(Code, BinaryForm, Vec<Exports>)> {
    let no_head = || wasmtime::Error::msg("it has no head");
    let end = compiled.iter().position(|byte| *byte == b'\n').ok_or_else(no_head)?;
    let head = String::from_utf8_lossy(&compiled[..end]);
    let mut words = head.split_whitespace();
    let form = words.next().and_then(BinaryForm::parse).ok_or_else(no_head)?;
    let code = &compiled[end + 1..];
    // SAFETY: this same program compiled the code, either just now or earlier. In the second case, it is from a folder that only this user
    // can write to (`artifacts`), its name contains the engine's settings, and its checksum is correct.
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

/// Runs in the other process: reads a plugin from stdin, and writes to stdout a line with its form and its exports per version, and then
/// the machine code.
pub fn serve(use_: Use, memory: u64) -> Result<(), CompileError> {
    process::bound(memory)?;
    let plugin = process::read(Some(io::stdin().lock()));
    // The evaluator isn't a policy, and it is trusted.
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
