//! The host as a process, for a test's cluster.

use crate::{
    CommandOutput, TestCluster,
    command::{CACHE, cache_volume, compiled},
    eventually, pointsman,
};
use pointsman_harness::{http_get, listening_address, log_lines};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

/// A running `pointsman controller`. It ends with its cluster.
#[derive(Debug)]
pub struct Host<'a> {
    cluster: &'a TestCluster,
    /// The name of its part in the cluster.
    pub part: String,
    /// Its address.
    pub address: String,
    log: PathBuf,
}

impl<'a> Host<'a> {
    /// Starts it as the ServiceAccount of hosts, and waits until it listens.
    pub async fn start(cluster: &'a TestCluster, flags: &[&str]) -> Self {
        Self::start_as(cluster, &cluster.host_kubeconfig(), flags).await
    }

    /// Starts it with another kubeconfig.
    pub async fn start_as(cluster: &'a TestCluster, kubeconfig: &Path, flags: &[&str]) -> Self {
        let arguments = ["controller"].iter().chain(flags).map(ToString::to_string).collect();
        Self::launch(cluster, &pointsman(), kubeconfig, arguments, BTreeMap::new()).await
    }

    /// Starts it as the ServiceAccount of hosts with environment variables and without flags.
    pub async fn start_in(cluster: &'a TestCluster, environment: &[(&str, &str)]) -> Self {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::launch(cluster, &pointsman(), &cluster.host_kubeconfig(), vec!["controller".to_owned()], environment).await
    }

    /// Starts the program of a Deployment, as its first pod.
    pub async fn start_as_deployed(cluster: &'a TestCluster, deployment: &Value) -> Self {
        let mut pod = deployment["spec"]["template"].clone();
        pod["metadata"]["namespace"] = deployment["metadata"]["namespace"].clone();
        pod["metadata"]["name"] = format!("{}-0", deployment["metadata"]["name"].as_str().unwrap_or_default()).into();
        Self::start_as_pod(cluster, &pointsman(), &pod).await
    }

    /// Starts the program of a pod's first container, with its arguments, its environment and its ServiceAccount. Folders of the cluster
    /// replace its mounts, and free ports its ports.
    pub async fn start_as_pod(cluster: &'a TestCluster, program: &Path, pod: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
        let container = &pod["spec"]["containers"][0];
        let mounts: Vec<(String, String)> = list(&container["volumeMounts"])
            .iter()
            .map(|mount| {
                // All pods share the compiled plugins.
                let shared = (mount["name"] == "cache").then(cache_volume);
                let folder = shared.unwrap_or_else(|| cluster.dir.join("mounts").join(text(&mount["name"])));
                std::fs::create_dir_all(&folder).expect("making a folder for a mount");
                (text(&mount["mountPath"]), folder.display().to_string())
            })
            .collect();
        let mounted = |argument: String| mounts.iter().fold(argument, |argument, (path, folder)| argument.replace(path, folder));
        // In tests, servers listen on loopback, with free ports.
        let local = |argument: String| argument.replace("0.0.0.0:9443", "127.0.0.1:0").replace("0.0.0.0:9444", "127.0.0.1:0");
        let arguments = list(&container["args"]).iter().map(|argument| local(mounted(text(argument)))).collect();
        let value = |variable: &Value| match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            None => mounted(text(&variable["value"])),
            Some("metadata.namespace") => namespace.clone(),
            Some("metadata.name") => name.clone(),
            Some(other) => panic!("a variable from {other}"),
        };
        let environment = list(&container["env"]).iter().map(|variable| (text(&variable["name"]), value(variable))).collect();
        let account = cluster.kubeconfig_of_service_account(&namespace, &text(&pod["spec"]["serviceAccountName"]));
        Self::launch(cluster, program, &account.unwrap_or_else(|error| panic!("{error}")), arguments, environment).await
    }

    /// The cluster.
    pub(crate) fn cluster(&self) -> &'a TestCluster {
        self.cluster
    }

    pub(crate) async fn launch(
        cluster: &'a TestCluster,
        program: &Path,
        kubeconfig: &Path,
        arguments: Vec<String>,
        mut environment: BTreeMap<String, String>,
    ) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let part = format!("host-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = vec![program.display().to_string()];
        command.extend(arguments);
        command.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        let always = [("KUBECONFIG", kubeconfig.to_owned()), (CACHE, compiled())];
        environment.extend(always.map(|(name, path)| (name.to_owned(), path.display().to_string())));
        // Without a pod, a host doesn't know its own image.
        environment.entry("POINTSMAN_PICKER_IMAGE".to_owned()).or_insert_with(|| "pointsman:test".to_owned());
        let log = cluster.run(&part, &command, &environment).unwrap_or_else(|error| panic!("{error}"));
        let address = eventually("the host tells where it listens", async || listening_address(&log)).await;
        Self { cluster, part, address, log }
    }

    /// The value of a series on its metrics page, by the exact text of the series.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let (_, page) = self.get("/metrics").ok()?;
        page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// The number of its reconciles.
    pub fn reconciles(&self) -> u64 {
        let Ok((_, page)) = self.get("/metrics") else { return 0 };
        let counts = page.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total"));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// The supervisor's status of its process.
    fn process(&self) -> Value {
        let status = self.cluster.control(&json!({"do": "status"})).unwrap_or_else(|error| panic!("{error}"));
        let parts = status["parts"].as_array().cloned().unwrap_or_default();
        parts.into_iter().find(|part| part["name"] == *self.part).expect("it was started")
    }

    /// Stops it like a kubelet, waits for its end, and returns its exit code.
    pub async fn terminate(&self) -> i64 {
        let pid = self.process()["pid"].to_string();
        CommandOutput::by(Command::new("kill").args(["-TERM", &pid])).ok();
        eventually("the host has ended", async || self.process()["exit"].as_i64()).await
    }

    /// The status code and body of one of its pages.
    pub fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        http_get(&self.address, path)
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        eventually("the host is ready", async || matches!(self.get("/readyz"), Ok((200, _))).then_some(())).await;
    }

    /// The address of its admission webhook, which it chose itself.
    pub async fn webhook(&self) -> String {
        self.logged_address("webhook").await
    }

    /// The address of its external metrics API, which it chose itself.
    pub async fn external_metrics(&self) -> String {
        self.logged_address("external_metrics").await
    }

    async fn logged_address(&self, field: &str) -> String {
        let told = || self.logged().iter().find_map(|line| Some(line[field].as_str()?.to_owned()));
        eventually(&format!("the host logs the address {field}"), async || told()).await
    }

    /// The lines of its log.
    pub fn logged(&self) -> Vec<Value> {
        log_lines(&self.log)
    }

    /// The file of its log, which stays after its end.
    pub fn log(&self) -> PathBuf {
        self.log.clone()
    }

    /// Stops it gracefully.
    pub fn stop(self) {
        self.cluster.stop_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }
}
