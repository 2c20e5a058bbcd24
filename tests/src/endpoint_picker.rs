//! The endpoint picker, running against a test's cluster.

use crate::{TestNamespace, command::CACHE, compiled, eventually, pointsman};
use pointsman_core::resource::{INFERENCE_MODEL_REWRITE, INFERENCE_POOL, LLM_D_INFERENCE_OBJECTIVE, X_INFERENCE_POOL};
use pointsman_harness::{http_get, log_lines};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// The ServiceAccount that pickers run as.
const ACCOUNT: &str = "endpoint-picker";

/// A running `pointsman endpoint-picker`; it ends with its cluster.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct PickerProcess<'a> {
    space: &'a TestNamespace<'a>,
    part: String,
    /// Where it answers proxies.
    pub address: SocketAddr,
    /// Where it answers probes.
    pub probes: SocketAddr,
    pages: String,
    log: PathBuf,
}

impl<'a> PickerProcess<'a> {
    /// Starts it for a pool of a namespace, with the rights that a picker needs and no others, and waits until it answers.
    pub async fn start(space: &'a TestNamespace<'a>, pool: &str, flags: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let namespace = space.name.as_str();
        space.cluster.apply(&rights(namespace)).ok();
        let kubeconfig = space.cluster.kubeconfig_of_service_account(namespace, ACCOUNT).unwrap_or_else(|error| panic!("{error}"));
        let part = format!("picker-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let program = pointsman().display().to_string();
        let fixed = ["endpoint-picker", "--pool-name", pool, "--pool-namespace", namespace, "--address", "127.0.0.1"];
        let ports = ["--grpc-health-port", "0", "--metrics-port", "0"];
        let command: Vec<String> =
            [program.as_str()].into_iter().chain(fixed).chain(ports).chain(flags.iter().copied()).map(str::to_owned).collect();
        let environment = BTreeMap::from([
            ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
            (CACHE.to_owned(), compiled().display().to_string()),
        ]);
        let log = space.cluster.run(&part, &command, &environment).unwrap_or_else(|error| panic!("{error}"));
        let address_of = |what: &'static str| {
            let log = log.clone();
            async move || {
                log_lines(&log).iter().find(|line| line["message"].as_str().is_some_and(|message| message.starts_with(what)))?["address"]
                    .as_str()
                    .map(str::to_owned)
            }
        };
        let address = eventually("the picker answers proxies", address_of("answering proxies")).await;
        let probes = eventually("it answers probes", address_of("answering probes")).await;
        let pages = eventually("it has pages", address_of("answering /healthz")).await;
        let [address, probes] = [address, probes].map(|address| address.parse().expect("it is an address"));
        Self { space, part, address, probes, pages, log }
    }

    /// Waits until it knows of so many endpoints, and has a recent report of each.
    pub async fn knows(&self, endpoints: u32) {
        eventually(&format!("the picker knows of {endpoints} endpoints"), async || {
            let series = format!("llm_d_epp_ready_endpoints{{name=\"{}/", self.space.name);
            let known = self.page().lines().find_map(|line| line.strip_prefix(&series)?.split_once(' ')?.1.parse::<f64>().ok());
            (known == Some(endpoints.into())).then_some(())
        })
        .await;
    }

    /// Its page of metrics.
    pub fn page(&self) -> String {
        self.get("/metrics").map(|(_, page)| page).unwrap_or_default()
    }

    /// The status and the body of one of its pages.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        http_get(&self.pages, path).ok()
    }

    /// Where it answers with pages.
    pub fn pages(&self) -> &str {
        &self.pages
    }

    /// What /readyz says, with its status.
    pub fn ready(&self) -> Option<(u16, String)> {
        self.get("/readyz")
    }

    /// The lines of its log.
    pub fn log(&self) -> Vec<Value> {
        log_lines(&self.log)
    }

    /// Kills it.
    pub fn kill(&self) {
        self.space.cluster.kill_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Ends it as a kubelet does.
    pub fn stop(&self) {
        self.space.cluster.stop_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// What a picker may do, as the schedulers of LLMInferenceServices may.
fn rights(namespace: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    let rule =
        |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["get", "list", "watch"]});
    let groups = [X_INFERENCE_POOL.group, LLM_D_INFERENCE_OBJECTIVE.group];
    let rules = json!([
        // ConfigMaps for --policy-config-map.
        rule(&[""], &["pods", "configmaps"]),
        rule(&[INFERENCE_POOL.group, X_INFERENCE_POOL.group], &[INFERENCE_POOL.plural]),
        rule(&groups, &[LLM_D_INFERENCE_OBJECTIVE.plural, INFERENCE_MODEL_REWRITE.plural]),
    ]);
    let metadata = json!({"name": ACCOUNT, "namespace": namespace});
    let subject = json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": rules},
        {"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT}, "subjects": [subject]},
    ]})
}
