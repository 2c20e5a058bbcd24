//! The scheduler's extender as a process, for a test's cluster whose scheduler has the shipped configuration.

use crate::{TestCluster, command::CACHE, compiled, eventually, pointsman};
use pointsman_harness::{http_get, log_lines, workspace};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, AtomicU32, Ordering},
};

/// The ServiceAccount of `deploy/scheduler`.
const ACCOUNT: &str = "pointsman-scheduler";

/// The namespace of `deploy/scheduler`.
const NAMESPACE: &str = "pointsman-system";

/// A running `pointsman scheduler-extender`. It ends with its cluster.
#[derive(Debug)]
pub struct SchedulerExtender<'c> {
    cluster: &'c TestCluster,
    /// The name of its part in the cluster.
    pub part: String,
    /// The address of `/readyz`, `/metrics` and `/placements`.
    pub pages: String,
}

/// The address at which a cluster's scheduler calls an extender.
#[derive(Debug)]
pub struct ExtenderAddress(SocketAddr);

/// The ports of extenders: below those that control planes choose, and those that the system assigns to connections, because an extender
/// starts long after its port was chosen, and restarts on the same port.
const PORTS: Range<u16> = 12_000..20_000;

impl ExtenderAddress {
    /// A free address.
    pub fn free() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Processes start their search at different ports.
        let first = u16::try_from(std::process::id() % u32::from(PORTS.end - PORTS.start)).unwrap_or_default();
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let port = std::iter::repeat_with(|| {
            let at = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
            PORTS.start + at
        });
        let port = port.take(PORTS.len()).find(is_free).expect("a free port");
        Self((Ipv4Addr::LOCALHOST, port).into())
    }

    /// The socket address.
    pub fn socket(&self) -> SocketAddr {
        self.0
    }

    /// Writes the scheduler's shipped configuration to a folder, for an extender at this address. `edit` changes it.
    pub fn write_config(&self, folder: &Path, edit: impl FnOnce(&mut Value)) -> PathBuf {
        let shipped = fs::read_to_string(workspace().join("deploy/scheduler/config-map.yaml")).expect("it is shipped");
        let map: Value = serde_saphyr::from_str(&shipped).expect("it is YAML");
        let text = map["data"]["scheduler.yaml"].as_str().expect("it has the scheduler's configuration");
        let mut config: Value = serde_saphyr::from_str(text).expect("it is YAML");
        config["extenders"][0]["urlPrefix"] = format!("http://{}", self.0).into();
        // The harness runs only one scheduler.
        config.as_object_mut().expect("it is a mapping").remove("leaderElection");
        edit(&mut config);
        fs::create_dir_all(folder).expect("a folder");
        let file = folder.join("scheduler.yaml");
        fs::write(&file, config.to_string()).expect("writing the configuration");
        file
    }
}

impl<'c> SchedulerExtender<'c> {
    /// Grants the rights of `deploy/scheduler`, starts the extender with these settings, and waits until it serves.
    pub async fn start(cluster: &'c TestCluster, address: &ExtenderAddress, settings: &str, flags: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let part = format!("extender-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let deploy = workspace().join("deploy");
        for path in ["host/namespace.yaml", "scheduler/roles.yaml"] {
            cluster.apply_from(&["-f", &deploy.join(path).to_string_lossy()]).ok();
        }
        let kubeconfig = cluster.kubeconfig_of_service_account(NAMESPACE, ACCOUNT).unwrap_or_else(|error| panic!("{error}"));
        let config = cluster.dir.join("placement.yaml");
        fs::write(&config, settings).expect("writing the settings");
        let (bind, config) = (address.0.to_string(), config.display().to_string());
        let fixed = ["scheduler-extender", "--bind", &bind, "--listen", "127.0.0.1:0", "--config", &config];
        let mut command = vec![pointsman().display().to_string()];
        command.extend(fixed.iter().chain(flags).map(ToString::to_string));
        let environment = BTreeMap::from([
            ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
            (CACHE.to_owned(), compiled().display().to_string()),
        ]);
        let log = cluster.run(&part, &command, &environment).unwrap_or_else(|error| panic!("{error}"));
        let _shown = ShownAtPanic(&log);
        let pages = eventually("the extender has pages", async || {
            let answers = |line: &&Value| line["message"].as_str().is_some_and(|message| message.starts_with("answering /healthz"));
            log_lines(&log).iter().find(answers)?["address"].as_str().map(str::to_owned)
        })
        .await;
        let extender = Self { cluster, part, pages };
        eventually("the extender is ready", async || extender.get("/readyz").filter(|(status, _)| *status == 200)).await;
        extender
    }

    /// The status and the body of one of its pages.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        http_get(&self.pages, path).ok()
    }

    /// Kills it.
    pub fn kill(self) {
        self.cluster.kill_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The log of an extender. Its end is printed if a test fails while this exists.
struct ShownAtPanic<'l>(&'l Path);

impl Drop for ShownAtPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines = log_lines(self.0);
            eprintln!("the end of the extender's log: {:#?}", &lines[lines.len().saturating_sub(5)..]);
        }
    }
}
