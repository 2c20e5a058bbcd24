//! Runs this same program as a separate process, for work that may use any amount of time and memory, or crash.

use rustix::process::{Resource, Rlimit, setrlimit};
use std::{
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The result of a process.
pub(super) struct Ended {
    /// What it wrote to stdout.
    pub(super) output: Vec<u8>,
    /// What it wrote to stderr.
    pub(super) complaint: String,
    /// Its exit status, or none if we killed it because it took too long.
    pub(super) status: Option<ExitStatus>,
}

/// Runs a hidden subcommand of `program`. Blocks until it exits or its time is up.
pub(super) fn run(program: &Path, args: &[&str], input: &[u8], within: Duration) -> io::Result<Ended> {
    let mut command = Command::new(program);
    command.args(args).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A signal to our process group, such as Ctrl-C, must not also terminate this process: that would look like a failure of the plugin.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut process = command.spawn()?;
    let (output, complaint, status) = converse(&mut process, input, within)?;
    Ok(Ended { output, complaint, status })
}

/// Writes a process's input, reads its output, and kills it after `within`. Returns stdout, stderr and the exit status, or no status if we
/// killed it.
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

/// Reads to the end.
pub(super) fn read(from: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes).ok();
    }
    bytes
}

/// The maximum CPU time of the other process, in seconds, in case nothing is left to kill it.
const CPU_SECONDS: u64 = 1800;

/// In the other process: limits its address space and its CPU time, and lets the kernel kill it if the thread that waits for it terminates.
pub(super) fn bound(memory: u64) -> io::Result<()> {
    setrlimit(Resource::Cpu, Rlimit { current: Some(CPU_SECONDS), maximum: Some(CPU_SECONDS) })?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(setrlimit(Resource::As, Rlimit { current: Some(memory), maximum: Some(memory) })?)
}
