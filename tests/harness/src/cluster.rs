//! One running control plane.

use crate::{Error, cluster_dir};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::MetadataExt, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Longer than the supervisor itself waits for anything.
const ANSWERS_WITHIN: Duration = Duration::from_mins(3);

/// How a control plane is started; the default is all of it, with the default nodes and neighbours.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folder of the run; a fresh one below the system's temporary folder by default.
    pub dir: Option<PathBuf>,
    /// The nodes to play; a file of `tests/cluster`'s format.
    pub nodes: Option<PathBuf>,
    /// The neighbours whose CRDs are installed, instead of the default ones.
    pub neighbours: Option<Vec<String>>,
    /// The parts to start, instead of all.
    pub parts: Option<Vec<String>>,
    /// The API server's port; a free one by default.
    pub api_port: Option<u16>,
    /// The folder `etcd` of a control plane whose etcd was stopped: this one begins with a copy of it.
    pub etcd_data: Option<PathBuf>,
    /// The scheduler's configuration; it reads the file again whenever it starts.
    pub scheduler_config: Option<PathBuf>,
    /// Kubernetes' feature gates, and the API versions that are served beside the default ones, as its parts take them.
    pub features: Option<[String; 2]>,
    /// A folder of envtest's binaries to use, instead of the one that KUBEBUILDER_ASSETS names.
    pub kubebuilder_assets: Option<PathBuf>,
    /// Show the supervisor's progress on our stderr.
    pub progress: bool,
}

/// What a pod does instead of becoming Ready.
#[derive(Clone, Copy, Debug)]
pub enum Behaviour {
    /// It is scheduled and stays Pending.
    Pending,
    /// It ends with an error.
    Fail,
    /// It crashes again and again.
    Crash,
    /// It runs until it is deleted, a Job's as well.
    Run,
}

impl Behaviour {
    /// The name in the control protocol and in the pod annotation `cluster.pointsman.dev/behaviour`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Fail => "fail",
            Self::Crash => "crash",
            Self::Run => "run",
        }
    }
}

/// A running control plane; dropping it ends every process of it.
#[derive(Debug)]
pub struct Cluster {
    /// Unless somebody else started it.
    supervisor: Option<Child>,
    /// The supervisor ends when this closes, however we end.
    lifeline: Option<ChildStdin>,
    /// What the supervisor said when it was ready.
    ready: String,
    control: PathBuf,
    /// The folder of the run.
    pub dir: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The API server's audit log, a JSON event a line.
    pub audit_log: PathBuf,
    /// The API server's URL.
    pub server: String,
}

impl Cluster {
    /// Starts a control plane and waits until it is ready.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let binary = cluster_dir().join("bin/pointsman-cluster");
        if !binary.exists() {
            return Err(Error::NotBuilt { path: binary.display().to_string() });
        }
        let dir = options.dir.clone().unwrap_or_else(fresh_dir);
        let mut supervisor = Command::new(&binary)
            .arg("up")
            .args(arguments(options, &dir))
            // Whose cluster an ambient kubeconfig names is none of our business.
            .env_remove("KUBECONFIG")
            .envs(options.kubebuilder_assets.iter().map(|folder| ("KUBEBUILDER_ASSETS", folder)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C in the terminal is for us; the supervisor ends in good order when its lifeline closes.
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Io { what: format!("starting {}", binary.display()), source })?;
        let lifeline = supervisor.stdin.take();
        let said = supervisor.stderr.take().map(|stderr| forward(stderr, options.progress));
        let mut line = String::new();
        if let Some(stdout) = supervisor.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(|source| Error::Io { what: "waiting until it is ready".into(), source })?;
        }
        let Ok(mut cluster) = Self::attach(line) else {
            drop(lifeline);
            supervisor.wait().ok();
            let why = said.and_then(|said| said.join().ok()).unwrap_or_default();
            return Err(Error::NotStarted { why: why.trim_start_matches("error: ").to_owned() });
        };
        cluster.supervisor = Some(supervisor);
        cluster.lifeline = lifeline;
        Ok(cluster)
    }

    /// A handle on a control plane that another process started, from what its `ready` told. It goes on without us.
    pub fn attach(ready: String) -> serde_json::Result<Self> {
        let told: Value = serde_json::from_str(&ready)?;
        let path = |field: &str| PathBuf::from(told[field].as_str().unwrap_or_default());
        Ok(Self {
            supervisor: None,
            lifeline: None,
            control: path("control"),
            dir: path("dir"),
            kubeconfig: path("kubeconfig"),
            audit_log: path("auditLog"),
            server: told["server"].as_str().unwrap_or_default().to_owned(),
            ready,
        })
    }

    /// What another process needs to `attach`.
    pub fn ready(&self) -> &str {
        &self.ready
    }

    /// One request to the supervisor and its answer; the protocol is in `tests/cluster/README.md`.
    pub fn control(&self, request: &Value) -> Result<Value, Error> {
        let asked = request["do"].as_str().unwrap_or_default();
        let io = |source| Error::Io { what: format!("asking it to {asked}"), source };
        let mut socket = UnixStream::connect(&self.control).map_err(io)?;
        socket.set_read_timeout(Some(ANSWERS_WITHIN)).map_err(io)?;
        writeln!(socket, "{request}").map_err(io)?;
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).map_err(io)?;
        let answer: Value = serde_json::from_str(&line).map_err(|error| io(error.into()))?;
        match answer["error"].as_str() {
            Some(why) => Err(Error::Refused { request: request.to_string(), why: why.to_owned() }),
            None => Ok(answer),
        }
    }

    fn part(&self, what: &str, part: &str) -> Result<(), Error> {
        self.control(&json!({ "do": what, "part": part })).map(drop)
    }

    /// Ends a part in good order; `start_part` brings it back.
    pub fn stop_part(&self, part: &str) -> Result<(), Error> {
        self.part("stop", part)
    }

    /// Kills a part as an outage would.
    pub fn kill_part(&self, part: &str) -> Result<(), Error> {
        self.part("kill", part)
    }

    /// Starts a stopped or killed part and waits until it is ready.
    pub fn start_part(&self, part: &str) -> Result<(), Error> {
        self.part("start", part)
    }

    /// Freezes a part: it neither answers nor ends.
    pub fn pause_part(&self, part: &str) -> Result<(), Error> {
        self.part("pause", part)
    }

    /// Lets a frozen part go on.
    pub fn resume_part(&self, part: &str) -> Result<(), Error> {
        self.part("resume", part)
    }

    /// Remembers all objects and files, for `restore`. Only an API server with its storage alone can do that.
    pub fn snapshot(&self) -> Result<(), Error> {
        self.control(&json!({ "do": "snapshot" })).map(drop)
    }

    /// Ends what was `run` and brings back what the snapshot holds; refused where the control plane isn't as it was in other ways.
    pub fn restore(&self) -> Result<(), Error> {
        self.control(&json!({ "do": "restore" })).map(drop)
    }

    /// Installs a neighbour's CRDs (for `lws` its webhooks and manager too, for `knative` its webhooks).
    pub fn install(&self, neighbour: &str) -> Result<(), Error> {
        self.control(&json!({ "do": "install", "neighbour": neighbour })).map(drop)
    }

    /// Removes a neighbour's CRDs.
    pub fn remove(&self, neighbour: &str) -> Result<(), Error> {
        self.control(&json!({ "do": "remove", "neighbour": neighbour })).map(drop)
    }

    /// A kubeconfig for a user in `groups`, signed by the cluster's own authority.
    pub fn kubeconfig_of_user(&self, user: &str, groups: &[&str]) -> Result<PathBuf, Error> {
        self.kubeconfig_of(&json!({ "do": "kubeconfig", "user": user, "groups": groups }))
    }

    /// A kubeconfig for a ServiceAccount that exists.
    pub fn kubeconfig_of_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        self.kubeconfig_of(&json!({ "do": "kubeconfig", "serviceAccount": format!("{namespace}/{name}") }))
    }

    fn kubeconfig_of(&self, request: &Value) -> Result<PathBuf, Error> {
        Ok(self.control(request)?["path"].as_str().unwrap_or_default().into())
    }

    /// Makes every pod that is created in `namespace` with these labels behave so, until `behave_normally(id)`.
    pub fn behave(&self, id: &str, namespace: &str, labels: &BTreeMap<&str, &str>, how: Behaviour) -> Result<(), Error> {
        self.control(&json!({
            "do": "behave", "name": id, "namespace": namespace, "selector": labels, "behaviour": how.name(),
        }))
        .map(drop)
    }

    /// Ends what `behave` with this id began, for pods that are created from now on.
    pub fn behave_normally(&self, id: &str) -> Result<(), Error> {
        self.control(&json!({ "do": "behave", "name": id, "remove": true })).map(drop)
    }

    /// Adds nodes described in `tests/cluster`'s format and waits until they are Ready.
    pub fn add_nodes(&self, yaml: &str) -> Result<(), Error> {
        self.control(&json!({ "do": "nodes", "yaml": yaml })).map(drop)
    }

    /// Runs a further process under the supervisor, which ends it with the cluster, even when it is killed itself.
    /// Returns where its output goes.
    pub fn run(&self, name: &str, command: &[String], environment: &BTreeMap<String, String>) -> Result<PathBuf, Error> {
        self.control(&json!({ "do": "run", "name": name, "command": command, "env": environment }))?;
        Ok(self.log_of(name))
    }

    /// Where a part's output goes.
    pub fn log_of(&self, part: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{part}.log"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        if let Some(mut supervisor) = self.supervisor.take() {
            supervisor.wait().ok();
        }
    }
}

fn arguments(options: &Options, dir: &Path) -> Vec<OsString> {
    let built = cluster_dir();
    let mut arguments: Vec<OsString> = vec![
        "--dir".into(),
        dir.into(),
        "--bin".into(),
        built.join("bin").into(),
        "--neighbours-dir".into(),
        built.join("neighbours").into(),
    ];
    let mut add = |flag: &str, value: OsString| arguments.extend([OsString::from(flag), value]);
    if let Some(nodes) = &options.nodes {
        add("--nodes", nodes.into());
    }
    if let Some(neighbours) = &options.neighbours {
        add("--neighbours", if neighbours.is_empty() { "none".into() } else { neighbours.join(",").into() });
    }
    if let Some(parts) = &options.parts {
        add("--parts", parts.join(",").into());
    }
    if let Some(data) = &options.etcd_data {
        add("--etcd-data", data.into());
    }
    if let Some(file) = &options.scheduler_config {
        add("--scheduler-config", file.into());
    }
    if let Some([gates, versions]) = &options.features {
        add("--feature-gates", gates.into());
        add("--runtime-config", versions.into());
    }
    if let Some(port) = options.api_port {
        add("--api-port", port.to_string().into());
    }
    arguments
}

/// Passes the supervisor's progress on, and keeps its last line: where it fails, that is the reason.
fn forward(stderr: impl Read + Send + 'static, show: bool) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut last = String::new();
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // The reason is for whoever gets the error.
            if show && !line.starts_with("error: ") {
                eprintln!("  {line}");
            }
            last = line;
        }
        last
    })
}

/// Short, because a unix socket's path lies in it.
fn fresh_dir() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // A folder a user: the first one would own it.
    let user = std::fs::metadata("/proc/self").map_or(0, |own| own.uid());
    std::env::temp_dir().join(format!("pointsman-{user}")).join(format!("{}-{count}", std::process::id()))
}
