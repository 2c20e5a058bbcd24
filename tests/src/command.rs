//! Our own binaries and kubectl, run as a user runs them.

use pointsman_harness::{RUSTC_WORKSPACE_WRAPPER, cluster_dir, forget_our_package, target_dir, workspace};
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// What a command said and how it ended.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// Whether its exit code was 0.
    pub success: bool,
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl CommandOutput {
    /// Runs a command to its end.
    pub fn by(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { success: status.success(), code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// What it printed, if it succeeded; else the test ends.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.success, "exit code {:?}\n{}{}", self.code, self.stdout, self.stderr);
        self.stdout
    }

    /// What it complained of, if it failed with exit code 1; else the test ends.
    #[track_caller]
    pub fn refused(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// The variable that names the cache of compiled plugins.
pub(crate) const CACHE: &str = "POINTSMAN_CACHE";

/// Where hosts keep what they compile, unless a test gives them another folder: with an empty one, each compiles the built-in policies and
/// the evaluator anew, for seconds.
pub fn compiled() -> PathBuf {
    cache_volume().join("plugins")
}

/// What stands for the volume of the shipped Deployment in which that folder is.
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

/// Helm, as the control plane's module builds it.
pub fn helm() -> PathBuf {
    cluster_dir().join("bin/helm")
}

/// Keeps what Helm stores about itself in a folder.
pub(crate) fn helm_folders<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    let folders = [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")];
    command.envs(folders.map(|(variable, name)| (variable, folder.join("helm").join(name))))
}

/// The cargo that runs us, in the environment of a user's shell.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_our_package(&mut cargo);
    cargo
}

fn built(program: &str) -> PathBuf {
    // A bench measures what is shipped.
    let (profile, folder) = if cfg!(debug_assertions) { ("dev", "debug") } else { ("dist", "dist") };
    let mut cargo = cargo();
    // The program that `cargo xtask test` has built, and not another one beside it.
    cargo.envs(std::env::var_os(RUSTC_WORKSPACE_WRAPPER).map(|wrapper| (RUSTC_WORKSPACE_WRAPPER, wrapper)));
    cargo.args(["build", "--quiet", "--workspace", "--profile", profile, "--bin", program]).current_dir(workspace());
    CommandOutput::by(&mut cargo).ok();
    target_dir().join(folder).join(program)
}
