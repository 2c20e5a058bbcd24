//! Our own binaries and kubectl, run like a user runs them.

use pointsman_harness::{RUSTC_WORKSPACE_WRAPPER, cluster_dir, forget_our_package, target_dir, workspace};
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// The result of a command.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// Whether its exit code was 0.
    pub success: bool,
    /// Its exit code; `None` if a signal terminated it.
    pub code: Option<i32>,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl CommandOutput {
    /// Runs a command and waits for it.
    pub fn by(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { success: status.success(), code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// The stdout of a successful command. Panics if it failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.success, "exit code {:?}\n{}{}", self.code, self.stdout, self.stderr);
        self.stdout
    }

    /// The stderr of a command with exit code 1. Panics for any other exit code.
    #[track_caller]
    pub fn refused(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// The variable that names the cache of compiled plugins.
pub(crate) const CACHE: &str = "POINTSMAN_CACHE";

/// The default folder of hosts for compiled plugins. With an empty folder, each host would compile the built-in policies and the evaluator
/// again, which takes seconds.
pub fn compiled() -> PathBuf {
    cache_volume().join("plugins")
}

/// Replaces the volume of the shipped Deployment that contains this folder.
pub(crate) fn cache_volume() -> PathBuf {
    target_dir().join("tmp/cache")
}

/// The host's binary, up to date, or the one that `POINTSMAN_BINARY` names.
pub fn pointsman() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| std::env::var_os("POINTSMAN_BINARY").map_or_else(|| built("pointsman"), PathBuf::from)).clone()
}

/// The `cargo xtask` binary, up to date.
pub fn xtask() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("xtask")).clone()
}

/// Helm, built by the control plane's module.
pub fn helm() -> PathBuf {
    cluster_dir().join("bin/helm")
}

/// Redirects Helm's own files to a folder.
pub(crate) fn helm_folders<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    let folders = [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")];
    command.envs(folders.map(|(variable, name)| (variable, folder.join("helm").join(name))))
}

/// The cargo that runs us, with the environment of a user's shell.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_our_package(&mut cargo);
    cargo
}

fn built(program: &str) -> PathBuf {
    // A bench measures the shipped profile.
    let (profile, folder) = if cfg!(debug_assertions) { ("dev", "debug") } else { ("dist", "dist") };
    let mut cargo = cargo();
    // Uses the build of `cargo xtask test`, instead of a second one next to it.
    cargo.envs(std::env::var_os(RUSTC_WORKSPACE_WRAPPER).map(|wrapper| (RUSTC_WORKSPACE_WRAPPER, wrapper)));
    cargo.args(["build", "--quiet", "--workspace", "--profile", profile, "--bin", program]).current_dir(workspace());
    CommandOutput::by(&mut cargo).ok();
    target_dir().join(folder).join(program)
}
