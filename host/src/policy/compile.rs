//! From a stranger's bytes to machine code, once for each digest.
//!
//! Neither the compiler nor what reads a module's interfaces promises anything about strange input. They may take any time
//! and any memory, and one changed byte is enough to make the latter recurse without end, which ends the process. So both run
//! in a process of their own, which is this same program (`pointsman compile`), with a deadline and a bound on its memory.

use super::{
    binary::{Accepted, Refused, accept},
    engine::{Engines, Use, compiler},
    limits::{COMPILE_WITHIN, COMPILER_MEMORY, COMPILERS, LARGEST_BINARY},
    slots::Slots,
    told,
};
use clap::ValueEnum;
use rustix::process::{Resource, Rlimit, setrlimit};
use sha2::{Digest, Sha256};
use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};
use wasmtime::component::Component;

/// The hidden subcommand that compiles.
pub const SUBCOMMAND: &str = "compile";

/// Why there is no machine code.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// It is no plugin, or doesn't compile.
    #[error("{0}")]
    Refused(String),
    /// It ended the process that looked at it.
    #[error("it makes the compiler crash ({0}), so it is broken or made to do harm")]
    Crash(String),
    /// It took too long.
    #[error("compiling it takes longer than {} s", .0.as_secs())]
    TooLong(Duration),
    /// The machine code can't be loaded.
    #[error("what was compiled can't be loaded: {0}")]
    Load(String),
    /// The other process can't be run.
    #[error("the compiler can't be run: {0}")]
    Process(#[from] io::Error),
    /// The cache would not be ours alone.
    #[error(
        "{0} can't be the cache of compiled plugins: it must belong to the user that runs this and be writable by nobody else, for whoever writes there runs code here"
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

/// A plugin that can be linked.
#[allow(missing_debug_implementations)] // wasmtime's component has none.
pub struct Compiled {
    /// Its machine code.
    pub component: Component,
    /// The policy points whose interfaces it exports.
    pub points: Vec<String>,
}

/// Compiles, and keeps what it compiled.
#[derive(Debug)]
pub struct Compilers {
    program: PathBuf,
    cache: PathBuf,
    within: Duration,
    memory: u64,
    turns: Slots,
}

impl Compilers {
    /// With `program`, which is this one unless a test says otherwise, and a folder for what it makes. The folder may be shared
    /// by hosts of one user, and deleted at any time.
    pub fn new(program: PathBuf, cache: &Path) -> Result<Self, CompileError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(cache)?;
        let found = fs::metadata(cache)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.permissions().mode() & 0o022 != 0 {
            return Err(CompileError::Unsafe(cache.to_owned()));
        }
        Ok(Self { program, cache: cache.to_owned(), within: COMPILE_WITHIN, memory: COMPILER_MEMORY, turns: Slots::new(COMPILERS) })
    }

    /// The same with other bounds.
    #[must_use]
    pub fn bounded(self, within: Duration, memory: u64) -> Self {
        Self { within, memory, ..self }
    }

    /// The machine code of a plugin for a use: out of the cache, or compiled and put there. Blocks while it compiles.
    pub fn load(&self, engines: &Engines, use_: Use, plugin: &[u8]) -> Result<Compiled, CompileError> {
        if plugin.len() > LARGEST_BINARY {
            return Err(CompileError::Refused(Refused::TooLarge(plugin.len()).to_string()));
        }
        let engine = engines.of(use_);
        let mut compatibility = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut compatibility);
        let name = format!("{:x}-{:016x}.cwasm", Sha256::digest(plugin), compatibility.finish());
        let file = self.cache.join(&name);
        let compiled = match cached(&name, &file) {
            Some(compiled) => compiled,
            None => self.compile(use_, plugin).inspect(|compiled| self.keep(&name, &file, compiled))?,
        };
        let end = compiled.iter().position(|byte| *byte == b'\n').ok_or_else(|| CompileError::Load("it has no head".to_owned()))?;
        let (points, code) = compiled.split_at(end);
        let points = String::from_utf8_lossy(points).split(' ').map(str::to_owned).collect();
        // SAFETY: the code was made by this same program, either just now or before, in which case it lies in a folder that only
        // this user can write to, under a name that tells the engine's settings, and its checksum is right.
        #[allow(unsafe_code)]
        let component = unsafe { Component::deserialize(engine, &code[1..]) };
        match component {
            Ok(component) => Ok(Compiled { component, points }),
            Err(error) => {
                fs::remove_file(&file).ok();
                Err(CompileError::Load(format!("{error:#}")))
            }
        }
    }

    /// Whether a configuration fits the schema that a plugin describes itself with.
    pub fn check_config(&self, _schema: &str, _config: &str) -> Result<(), String> {
        Ok(())
    }

    /// A cache that can't be written to costs time and nothing else.
    fn keep(&self, name: &str, file: &Path, code: &[u8]) {
        // Under another name first: another host may look at the same moment.
        let partial = self.cache.join(format!("{name}.{}", std::process::id()));
        let written = fs::File::create(&partial)
            .and_then(|mut out| out.write_all(&checksum(name, code)).and_then(|()| out.write_all(code)))
            .and_then(|()| fs::rename(&partial, file));
        if let Err(error) = written {
            fs::remove_file(&partial).ok();
            tracing::warn!(%error, file = %file.display(), "a compiled plugin can't be kept in the cache");
        }
    }

    fn compile(&self, use_: Use, plugin: &[u8]) -> Result<Vec<u8>, CompileError> {
        let _turn = self.turns.take(None);
        let use_ = use_.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut process = Command::new(&self.program)
            .args([SUBCOMMAND, "--memory", &self.memory.to_string(), &use_])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (code, complaint, status) = converse(&mut process, plugin, self.within)?;
        match status {
            None => Err(CompileError::TooLong(self.within)),
            Some(status) if status.success() => Ok(code),
            Some(status) if status.code() == Some(1) => Err(CompileError::Refused(told(&complaint))),
            Some(status) => Err(CompileError::Crash(status.to_string())),
        }
    }
}

/// What the cache has under a name, if it is whole.
fn cached(name: &str, file: &Path) -> Option<Vec<u8>> {
    let mut kept = fs::read(file).ok()?;
    let (sum, compiled) = kept.split_at_checked(32)?;
    if sum == checksum(name, compiled) {
        // In place: half a megabyte of fresh pages would cost more than to move it.
        kept.drain(..32);
        return Some(kept);
    }
    tracing::warn!(file = %file.display(), "a compiled plugin in the cache is damaged; compiling it again");
    None
}

fn checksum(name: &str, code: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(name).chain_update(code).finalize().into()
}

/// Gives a process its input and takes its output, and ends it if it isn't done in time. The last of the answer is how it
/// ended, or none if we ended it.
fn converse(process: &mut Child, input: &[u8], within: Duration) -> io::Result<(Vec<u8>, String, Option<ExitStatus>)> {
    let until = Instant::now() + within;
    let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    thread::scope(|scope| {
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        let code = scope.spawn(move || read(stdout));
        let complaint = scope.spawn(move || String::from_utf8_lossy(&read(stderr)).trim().to_owned());
        let status = loop {
            if let Some(status) = process.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= until {
                process.kill()?;
                process.wait()?;
                break None;
            }
            thread::sleep(Duration::from_millis(2));
        };
        Ok((code.join().unwrap_or_default(), complaint.join().unwrap_or_default(), status))
    })
}

fn read(from: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes).ok();
    }
    bytes
}

/// The other process: a plugin on stdin becomes, on stdout, a line with its policy points, and machine code.
pub fn serve(use_: Use, memory: u64) -> Result<(), CompileError> {
    setrlimit(Resource::As, Rlimit { current: Some(memory), maximum: Some(memory) }).map_err(io::Error::from)?;
    let plugin = read(Some(io::stdin().lock()));
    let Accepted { component, points, .. } = accept(&plugin).map_err(|refused| CompileError::Refused(refused.to_string()))?;
    let refused = |error: wasmtime::Error| CompileError::Refused(format!("it doesn't compile: {error:#}"));
    let code = compiler(use_).map_err(refused)?.precompile_component(&component).map_err(refused)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", points.join(" "))?;
    out.write_all(&code)?;
    Ok(())
}
