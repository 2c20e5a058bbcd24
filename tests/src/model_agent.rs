//! Model agents as processes instead of their DaemonSet's pods, each with its pod's token and a folder instead of its node's disk.

use crate::{Host, TestCluster, eventually, pointsman};
use pointsman::permissions::{MODEL_AGENT, MODEL_AGENT_ACCOUNT, MODEL_AGENT_NAMESPACE};
use pointsman_harness::workspace;
use serde_json::{Value, json};
use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
};

/// A running agent. It ends with its cluster.
#[derive(Debug)]
pub struct ModelAgent<'a> {
    process: Host<'a>,
    /// The folder that replaces the node's.
    pub root: PathBuf,
}

impl<'a> Deref for ModelAgent<'a> {
    type Target = Host<'a>;

    fn deref(&self) -> &Host<'a> {
        &self.process
    }
}

impl<'a> ModelAgent<'a> {
    /// Installs the objects that agents need.
    pub fn install(cluster: &TestCluster) {
        cluster.apply_from(&["-k", workspace().join("deploy").join(MODEL_AGENT).to_str().expect("a path")]).ok();
    }

    /// Starts the agent of a node, like the DaemonSet's pod there. The folder stays between starts.
    pub async fn start(cluster: &'a TestCluster, node: &str, flags: &[&str]) -> Self {
        let pod = eventually("the DaemonSet has a pod on the node", async || agent_pod(cluster, node)).await;
        let root = cluster.dir.join("nodes").join(node).join("models");
        fs::create_dir_all(&root).expect("making a folder for a node");
        let container = &pod["spec"]["containers"][0];
        let mut arguments: Vec<String> =
            container["args"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        arguments.extend(["--mount".to_owned(), root.display().to_string()]);
        let always = ["--allow-loopback", "--disk-reserve=1", "--progress-interval=1s", "--retry-delay=1s", "--peer-listen=127.0.0.1:0"];
        arguments.extend(always.map(str::to_owned));
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let environment = [("NODE_NAME", node), ("POD_NAMESPACE", MODEL_AGENT_NAMESPACE), ("POD_IP", "127.0.0.1")];
        let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let kubeconfig = kubeconfig(cluster, node, pod["metadata"]["name"].as_str().unwrap_or_default());
        Self { process: Host::launch(cluster, &pointsman(), &kubeconfig, arguments, environment).await, root }
    }

    /// Stops it gracefully.
    pub fn stop(self) {
        self.process.stop();
    }

    /// Kills it, as if the node lost power.
    pub fn kill(self) {
        self.cluster().kill_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn agent_pod(cluster: &TestCluster, node: &str) -> Option<Value> {
    let field = format!("--field-selector=spec.nodeName={node}");
    let pods = cluster.kubectl(&["get", "pods", "-n", MODEL_AGENT_NAMESPACE, &field, "-o", "json"]).ok();
    let pods: Value = serde_json::from_str(&pods).expect("kubectl prints JSON");
    pods["items"].as_array()?.first().cloned()
}

/// A kubeconfig with the token of the agent's pod.
pub fn kubeconfig(cluster: &TestCluster, node: &str, pod: &str) -> PathBuf {
    let token = cluster.kubectl(&[
        "create",
        "token",
        MODEL_AGENT_ACCOUNT,
        "-n",
        MODEL_AGENT_NAMESPACE,
        "--bound-object-kind=Pod",
        "--bound-object-name",
        pod,
    ]);
    let own = cluster.kubectl(&["config", "view", "--raw", "-o", "json"]).ok();
    let mut config: Value = serde_json::from_str(&own).expect("kubectl prints JSON");
    config["users"] = json!([{"name": "agent", "user": {"token": token.ok().trim()}}]);
    for context in config["contexts"].as_array_mut().into_iter().flatten() {
        context["context"]["user"] = "agent".into();
    }
    let file: &Path = &cluster.dir.join(format!("agent-{node}.kubeconfig"));
    fs::write(file, config.to_string()).expect("writing a kubeconfig");
    file.to_owned()
}
