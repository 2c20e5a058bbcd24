//! Istio's control plane for one Gateway, without a cluster: `tests/gateways`. Only `--full` builds it.

use pointsman_harness::istio;
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

/// A running Istio. It ends when it is dropped, and with this process.
#[derive(Debug)]
pub struct Istio {
    /// The bootstrap of an Envoy that Istio configures.
    pub bootstrap: Value,
    process: Child,
    lifeline: Option<ChildStdin>,
}

impl Drop for Istio {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        self.process.wait().ok();
    }
}

impl Istio {
    /// Starts it for a cluster with these objects, with its log in a folder, and waits until all pools are in use.
    pub fn start(dir: &Path, objects: &[Value]) -> Self {
        fs::create_dir_all(dir).unwrap_or_else(|error| panic!("making {}: {error}", dir.display()));
        let (program, log) = (istio(), dir.join("istio.log"));
        assert!(program.exists(), "Istio isn't built: `cargo xtask test --full` builds it");
        let mut command = Command::new(&program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).expect("writing Istio's log"));
        // A Ctrl-C in the terminal is meant for us.
        let mut process = command.process_group(0).spawn().unwrap_or_else(|error| panic!("starting {}: {error}", program.display()));
        let mut lifeline = process.stdin.take().expect("it is piped");
        let question = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        writeln!(lifeline, "{question}").expect("Istio reads its question");
        let mut answer = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut answer).expect("Istio's answer");
        let bootstrap = serde_json::from_str(&answer).unwrap_or_else(|_| {
            panic!("Istio has ended:\n{}", fs::read_to_string(&log).unwrap_or_default());
        });
        Self { bootstrap, process, lifeline: Some(lifeline) }
    }
}
