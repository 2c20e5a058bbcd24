//! The launch agent of training jobs, as a process in the worker and one in the launcher.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

const AGENT: &str = include_str!("../core/src/kinds/ome/training_job/agent.py");

/// A worker that accepts commands from a launcher, until it is dropped.
struct Worker {
    folder: TempDir,
    port: String,
    process: Child,
}

impl Worker {
    fn start(launcher: &str) -> Self {
        let folder = folder("the key");
        // The listener is dropped at once, so the port is free again.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let process = agent(folder.path(), &port).args(["serve", launcher]).spawn().unwrap();
        Self { folder, port, process }
    }

    /// Runs a command like ssh.
    fn run(&self, folder: &Path, words: &[&str], input: &str) -> Output {
        let mut agent = agent(folder, &self.port);
        agent.arg("run").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = agent.spawn().unwrap();
        // If the command is refused, its input isn't read.
        let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
        process.wait_with_output().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn folder(key: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("agent.py"), AGENT).unwrap();
    fs::write(folder.path().join("key"), key).unwrap();
    folder
}

fn agent(folder: &Path, port: &str) -> Command {
    let mut agent = Command::new("python3");
    agent.arg(folder.join("agent.py")).env("POINTSMAN_AGENT_PORT", port).env("POINTSMAN_AGENT_TIMEOUT", "60");
    agent
}

#[test]
fn a_command_runs_on_the_worker_with_its_input_its_output_and_its_code() {
    let worker = Worker::start("localhost");
    let words = ["-x", "-o", "ConnectTimeout=5", "-lroot", "user@localhost", "cat;", "echo aside >&2;", "exit 7"];
    let output = worker.run(worker.folder.path(), &words, "through");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "through".to_owned()), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "aside\n");
    let again = worker.run(worker.folder.path(), &["localhost", "kill -TERM $$"], "");
    assert_eq!(again.status.code(), Some(128 + 15));
}

#[test]
fn a_command_with_another_key_is_refused() {
    let worker = Worker::start("localhost");
    let file = worker.folder.path().join("ran");
    // If the worker doesn't read the input, the connection is reset.
    for input in ["", &"x".repeat(1 << 20)] {
        let output = worker.run(folder("another").path(), &["localhost", &format!("touch {}", file.display())], input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(255), "{said}");
        assert!(said.starts_with("ssh: the connection to localhost has broken off") && said.lines().count() == 1, "{said}");
    }
    assert!(!file.exists());
}

#[test]
fn nobody_but_the_launcher_is_answered() {
    // By RFC 6761, no address has this name.
    let worker = Worker::start("launcher.invalid");
    let mut agent = agent(worker.folder.path(), &worker.port);
    let output = agent.env("POINTSMAN_AGENT_TIMEOUT", "3").args(["run", "localhost", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&output.stderr).contains("can't be reached"));
}
