//! Child processes that never outlive this program.
//!
//! A killed process can't clean up, and without unsafe code a parent can't have the kernel do it. So every command runs under a guard: this
//! same program in its own process group, with a pipe from its parent. When the pipe closes, for whatever reason, the guard ends the
//! command's whole process group.

use anyhow::{Context, Result, bail};
use pointsman_harness::forget_our_package;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub(crate) const SUBCOMMAND: &str = "guarded";

/// How long a command may take to shut down before it is killed.
const GRACE: Duration = Duration::from_secs(8);

/// A command that ends when this program does.
pub(crate) struct Guarded {
    command: Command,
    name: String,
}

impl Guarded {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Result<Self> {
        let mut command = Command::new(own_executable()?);
        command.arg(SUBCOMMAND).arg("--").arg(program.as_ref()).stdin(Stdio::piped()).process_group(0);
        // No command may use the cluster of the user's kubeconfig by accident: a caller that needs a cluster sets the variable.
        command.env_remove("KUBECONFIG");
        forget_our_package(&mut command);
        Ok(Self { command, name: program.as_ref().to_string_lossy().into_owned() })
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sends the command's output to a file.
    pub(crate) fn log(mut self, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("writing {}", log.display()))?;
        self.command.stdout(file.try_clone()?).stderr(file);
        Ok(self)
    }

    pub(crate) fn start(mut self) -> Result<Running> {
        let mut child = self.command.spawn().with_context(|| format!("starting {}", self.name))?;
        // Take the pipe out of the child: waiting for a child closes the pipe that it holds.
        let lifeline = child.stdin.take();
        Ok(Running { child, lifeline })
    }

    /// Runs the command and waits for it to end.
    pub(crate) fn run(self) -> Result<ExitStatus> {
        let name = self.name.clone();
        self.start()?.child.wait().with_context(|| format!("waiting for {name}"))
    }

    /// Runs the command, and fails if the command does.
    pub(crate) fn succeed(self, what: &str) -> Result<()> {
        let status = self.run()?;
        if !status.success() {
            bail!("{what} failed ({status})");
        }
        Ok(())
    }
}

/// This program, even if cargo has replaced its file in the meantime: on Linux this path still refers to the running program.
fn own_executable() -> Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe().context("finding this program") }
}

/// A guarded command that is running; dropping it ends it.
pub(crate) struct Running {
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Running {
    /// The command's status if it has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        self.child.wait().ok();
    }
}

/// Runs a command as its guard.
pub(crate) fn keep(command: &[OsString]) -> ExitCode {
    let Some((program, args)) = command.split_first() else { return ExitCode::FAILURE };
    let mut child = match Command::new(program).args(args).stdin(Stdio::null()).process_group(0).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("error: {} can't be run: {error}", program.to_string_lossy());
            return ExitCode::FAILURE;
        }
    };
    let group = Pid::from_child(&child);
    let lost = Arc::new(AtomicBool::new(false));
    let watch = {
        let lost = Arc::clone(&lost);
        thread::spawn(move || {
            std::io::stdin().read_to_end(&mut Vec::new()).ok();
            lost.store(true, Ordering::SeqCst);
            end(group);
        })
    };
    let status = child.wait();
    if lost.load(Ordering::SeqCst) {
        // The command may have left children that take longer to end than the command itself.
        watch.join().ok();
        return ExitCode::FAILURE;
    }
    match status.ok().and_then(|status| status.code()) {
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => ExitCode::FAILURE,
    }
}

fn end(group: Pid) {
    kill_process_group(group, Signal::TERM).ok();
    let started = Instant::now();
    while started.elapsed() < GRACE {
        if test_kill_process_group(group).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    kill_process_group(group, Signal::KILL).ok();
}
