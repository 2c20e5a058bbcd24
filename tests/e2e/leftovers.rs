//! However a command of ours terminates, it leaves no process behind. On invalid input, it terminates with a one-line error.

use pointsman_harness::{RUN_MARK, processes_of_run};
use pointsman_tests::{CommandOutput, OwnClusterPermit, TestCluster, eventually, xtask};
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A run of `cargo xtask` that can be told apart from all others.
struct Run {
    mark: String,
    command: Command,
    /// Most runs start a control plane.
    _place: OwnClusterPermit,
}

impl Run {
    fn new(args: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(xtask());
        command.args(args).env(RUN_MARK, &mark).stdin(Stdio::null());
        Self { mark, command, _place: OwnClusterPermit::take() }
    }

    fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    fn finish(mut self) -> CommandOutput {
        let said = CommandOutput::by(&mut self.command);
        assert_eq!(processes_of_run(&self.mark), [], "left behind");
        said
    }

    /// Starts it and reads its output up to a line that contains `what`.
    fn until(&mut self, what: &str) -> Running {
        let mut running = Running(self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut said = Vec::new();
        for line in BufReader::new(running.0.stdout.as_mut().unwrap()).lines().map_while(Result::ok) {
            if line.contains(what) {
                return running;
            }
            said.push(line);
        }
        let mut stderr = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        panic!("it ended before it said {what:?}:\n{}\n{stderr}", said.join("\n"));
    }

    /// The id of the one process whose command line contains `what`.
    fn process(&self, what: &str) -> u32 {
        let running = processes_of_run(&self.mark);
        running.iter().find(|(_, command)| command.contains(what)).unwrap_or_else(|| panic!("{what} isn't among {running:?}")).0
    }

    async fn is_gone(&self) {
        eventually("every process of the run is gone", async || processes_of_run(&self.mark).is_empty().then_some(())).await;
    }

    async fn leaves_nothing_when_killed(mut self, at: &str, expected: &[&str]) {
        let running = self.until(at);
        for part in expected {
            self.process(part);
        }
        drop(running);
        self.is_gone().await;
    }
}

/// A command that is killed at the end of the test, even if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn signal(signal: &str, pid: u32) {
    CommandOutput::by(Command::new("kill").args([signal, &pid.to_string()])).ok();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_demo_shows_the_host_and_leaves_no_process() {
    // The kubeconfig of another cluster, which the demo must not use.
    let said = Run::new(&["demo", "--exit"]).env("KUBECONFIG", "/nowhere/kubeconfig").finish().ok();
    for expected in ["the host is ready", "inferenceservice.ome.io/llama-chat", "h100-0"] {
        assert!(said.contains(expected), "{expected:?} isn't in:\n{said}");
    }
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_killed_demo_leaves_no_process() {
    Run::new(&["demo"])
        .leaves_nothing_when_killed("export KUBECONFIG=", &["pointsman-cluster up", "part apiserver", "pointsman controller"])
        .await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn ctrl_c_ends_the_demo_and_leaves_no_process() {
    let mut run = Run::new(&["demo"]);
    let mut demo = run.until("export KUBECONFIG=");
    signal("-INT", demo.0.id());
    assert!(demo.0.wait().unwrap().success());
    assert_eq!(processes_of_run(&run.mark), [], "left behind");
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_killed_supervisor_takes_its_control_plane_with_it() {
    let mut run = Run::new(&["cluster"]);
    let cluster = run.until("export KUBECONFIG=");
    signal("-KILL", run.process("pointsman-cluster up"));
    eventually("the parts are gone", async || {
        processes_of_run(&run.mark).iter().all(|(_, command)| !command.contains("pointsman-cluster")).then_some(())
    })
    .await;
    drop(cluster);
    run.is_gone().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_guard_ends_even_a_command_whose_children_will_not() {
    let mut run = Run::new(&["guarded", "--", "sh", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo started; exec sleep 1000"]);
    run.command.stdin(Stdio::piped());
    let mut guard = run.until("started");
    drop(guard.0.stdin.take());
    guard.0.wait().unwrap();
    run.is_gone().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_test_run_leaves_no_process() {
    Run::new(&["test", "kubectl_knows_the_server_s_version"]).finish().ok();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_killed_test_run_leaves_no_process() {
    let mut run = Run::new(&["test", HOLDING]);
    let marker = std::env::temp_dir().join(format!("pointsman-held-{}", run.mark));
    run.command.env(HELD, &marker);
    let running = Running(run.command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("its cluster is up", async || marker.exists().then_some(())).await;
    run.process("part apiserver");
    drop(running);
    fs::remove_file(&marker).unwrap();
    run.is_gone().await;
}

const HOLDING: &str = "a_run_that_is_killed_holds_its_cluster";
const HELD: &str = "POINTSMAN_TEST_HOLD";

/// The inner half of the test above. On its own it does nothing.
#[tokio::test]
async fn a_run_that_is_killed_holds_its_cluster() {
    if let Some(marker) = std::env::var_os(HELD).map(PathBuf::from) {
        let _cluster = TestCluster::bare(&[]);
        fs::write(marker, "").unwrap();
        std::future::pending::<()>().await;
    }
}

/// The last line of stderr, which is the error. Fails if a backtrace precedes it.
fn sentence(said: CommandOutput) -> String {
    let stderr = said.refused();
    assert!(!stderr.contains("backtrace") && !stderr.contains("panicked") && !stderr.contains("goroutine"), "{stderr}");
    stderr.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn an_unparsable_node_file_is_refused_with_file_and_line() {
    let file = std::env::temp_dir().join(format!("pointsman-nodes-{}.yaml", std::process::id()));
    fs::write(&file, "nodes:\n- name: a\n  capacity: {cpu: lots}\n").unwrap();
    let said = sentence(Run::new(&["cluster", "--nodes", &file.to_string_lossy()]).finish());
    assert!(said.starts_with("error: ") && said.contains(&format!("{}:3", file.display())) && said.contains("lots"), "{said}");
    fs::remove_file(file).unwrap();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = sentence(Run::new(&["cluster", "--api-port", &port]).finish());
    assert!(said.starts_with("error: ") && said.contains(&port), "{said}");
}

/// A PATH with all programs except `tool`.
fn path_without(tool: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pointsman-path-{tool}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for from in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for entry in fs::read_dir(from).into_iter().flatten().flatten() {
            if entry.file_name() != tool {
                std::os::unix::fs::symlink(entry.path(), folder.join(entry.file_name())).ok();
            }
        }
    }
    folder
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_missing_tool_is_named_with_the_version_that_is_needed() {
    for (tool, version) in [("go", "1.26.4"), ("kubectl", "1.30.0")] {
        let path = path_without(tool);
        for command in ["test", "demo"] {
            let said = sentence(Run::new(&[command]).env("PATH", &path).finish());
            assert!(said.starts_with(&format!("error: {tool} {version} or newer is needed")), "{said}");
        }
        fs::remove_dir_all(path).unwrap();
    }
}

/// The small file system is mounted in a private mount namespace, so it disappears with the process.
#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_full_disk_is_named() {
    let own_namespace = ["--user", "--map-root-user", "--mount"];
    if !CommandOutput::by(Command::new("unshare").args(own_namespace).arg("true")).success {
        println!("skipped: this machine lets nobody have a mount namespace of their own (unshare --user --mount)");
        return;
    }
    // The smaller disk is rejected before anything starts. The larger one is filled up while etcd starts.
    let nothing = "true";
    let filler = "(until ls \"$0\"/*/*/etcd >/dev/null 2>&1; do sleep 0.05; done; dd if=/dev/zero of=\"$0/filler\" bs=1M 2>/dev/null) &";
    for (size, meanwhile) in [("256k", nothing), ("100m", filler)] {
        let folder = std::env::temp_dir().join(format!("pointsman-full-{}-{size}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut run = Run::new(&[]);
        let script = format!("mount -t tmpfs -o size={size} none \"$0\" || exit 9\n{meanwhile}\nexec \"$1\" cluster");
        let mut inside = Command::new("unshare");
        inside.args(own_namespace).args(["sh", "-c", &script]);
        inside.arg(&folder).arg(xtask()).env("TMPDIR", &folder).env(RUN_MARK, &run.mark);
        run.command = inside;
        let said = sentence(run.finish());
        assert!(said.starts_with("error: ") && said.contains(" is full"), "{size}: {said}");
        fs::remove_dir(folder).unwrap();
    }
}
