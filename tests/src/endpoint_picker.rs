//! The endpoint picker as a process, for a test's cluster.

use crate::{TestNamespace, command::CACHE, compiled, eventually, pointsman};
use axum::body::{Body, to_bytes};
use http::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use pointsman_core::resource::{INFERENCE_MODEL_REWRITE, INFERENCE_POOL, LLM_D_INFERENCE_OBJECTIVE, X_INFERENCE_POOL};
use pointsman_harness::{http_get, log_lines};
use pointsman_picker::protocol::{
    framing::{self, Framing},
    health::{HealthCheckRequest, HealthCheckResponse, ServingStatus},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};
use tokio::net::TcpStream;

/// The ServiceAccount of pickers.
pub const ACCOUNT: &str = "endpoint-picker";

/// A running `pointsman endpoint-picker`. It ends with its cluster.
#[allow(missing_debug_implementations)] // A Kubernetes client has no Debug.
pub struct PickerProcess<'a> {
    space: &'a TestNamespace<'a>,
    /// The name of its part in the cluster.
    pub part: String,
    /// The address for proxies.
    pub address: SocketAddr,
    /// The address for probes.
    pub probes: SocketAddr,
    pages: String,
    log: PathBuf,
}

impl<'a> PickerProcess<'a> {
    /// Starts it for a pool of a namespace with only the rights that a picker needs, and waits until it serves.
    pub async fn start(space: &'a TestNamespace<'a>, pool: &str, flags: &[&str]) -> Self {
        Self::start_with(space, &[&["--pool-name", pool], flags].concat()).await
    }

    /// Starts it with flags that name its pools.
    pub async fn start_with(space: &'a TestNamespace<'a>, flags: &[&str]) -> Self {
        let namespace = space.name.as_str();
        Self::grant(space, space);
        let kubeconfig = space.cluster.kubeconfig_of_service_account(namespace, ACCOUNT).unwrap_or_else(|error| panic!("{error}"));
        let fixed = ["--pool-namespace", namespace, "--grpc-health-port", "0", "--metrics-port", "0"];
        let flags = fixed.iter().chain(flags).map(ToString::to_string).collect();
        Self::launch(space, &kubeconfig, flags).await
    }

    /// Starts the program of a scheduler's Deployment as its ServiceAccount, with free ports.
    pub async fn start_as_deployed(space: &'a TestNamespace<'a>, deployment: &Value) -> Self {
        let pod = &deployment["spec"]["template"]["spec"];
        let main = &pod["containers"][0];
        assert_eq!(main["command"], json!(["/pointsman", "endpoint-picker"]));
        let account = pod["serviceAccountName"].as_str().expect("it has a ServiceAccount");
        let kubeconfig = space.cluster.kubeconfig_of_service_account(&space.name, account).unwrap_or_else(|error| panic!("{error}"));
        let flag = |argument: &Value| -> Option<String> {
            let argument = argument.as_str().expect("an argument is a text");
            match argument.split_once('=') {
                Some((port, _)) if port.ends_with("-port") => Some(format!("{port}=0")),
                // Reuses the compiled plugins.
                Some(("--cache", _)) => None,
                _ => Some(argument.to_owned()),
            }
        };
        let flags = main["args"].as_array().expect("it has arguments").iter().filter_map(flag).collect();
        Self::launch(space, &kubeconfig, flags).await
    }

    async fn launch(space: &'a TestNamespace<'a>, kubeconfig: &Path, flags: Vec<String>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let part = format!("picker-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = vec![pointsman().display().to_string()];
        command.extend(["endpoint-picker", "--address", "127.0.0.1"].map(str::to_owned));
        command.extend(flags);
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

    /// Grants the pickers of one namespace the rights for pools of another.
    pub fn grant(space: &TestNamespace<'_>, pickers: &TestNamespace<'_>) {
        space.cluster.apply(&rights(&space.name, &pickers.name)).ok();
    }

    /// Waits until it knows this many endpoints, with a recent report from each.
    pub async fn knows(&self, endpoints: u32) {
        self.knows_of(&format!("{}/", self.space.name), endpoints).await;
    }

    /// Waits for one of its pools, by the prefix of NAMESPACE/NAME.
    pub async fn knows_of(&self, pool: &str, endpoints: u32) {
        eventually(&format!("the picker knows of {endpoints} endpoints"), async || {
            let series = format!("llm_d_epp_ready_endpoints{{name=\"{pool}");
            let known = self.page().lines().find_map(|line| line.strip_prefix(&series)?.split_once(' ')?.1.parse::<f64>().ok());
            (known == Some(endpoints.into())).then_some(())
        })
        .await;
    }

    /// The address for proxies of one of its pools, by NAMESPACE/NAME.
    pub async fn address_of(&self, pool: &str) -> SocketAddr {
        let address = eventually("the picker answers proxies about the pool", async || {
            let answers = |line: &&Value| line["message"] == "answering proxies" && line["pool"] == pool;
            self.log().iter().find(answers)?["address"].as_str().map(str::to_owned)
        });
        address.await.parse().expect("it is an address")
    }

    /// Whether a service is serving, by gRPC's health protocol; or the code of the gRPC error.
    pub async fn health(&self, service: &str) -> Result<bool, String> {
        let stream = TcpStream::connect(self.probes).await.expect("it answers probes");
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let question = framing::encode(&[HealthCheckRequest { service: service.to_owned() }]);
        let request = Request::post(format!("http://{}/grpc.health.v1.Health/Check", self.probes));
        let request = request.header("content-type", "application/grpc").body(Body::from(question)).expect("a request");
        let answer = sender.send_request(request).await.expect("it answers");
        if let Some(code) = answer.headers().get("grpc-status") {
            return Err(code.to_str().unwrap_or_default().to_owned());
        }
        let mut framing = Framing::new(1024);
        framing.push(to_bytes(Body::new(answer.into_body()), 1024).await.expect("a short answer"));
        let message = framing.next_message().ok().flatten().expect("a whole message");
        let response: HealthCheckResponse = framing::decode(message).expect("a response");
        Ok(response.status == i32::from(ServingStatus::Serving))
    }

    /// The address of its pages.
    pub fn pages(&self) -> &str {
        &self.pages
    }

    /// The last decisions, newest first.
    pub fn decisions(&self) -> Vec<Value> {
        let (_, lines) = http_get(&self.pages, "/decisions").expect("it answers /decisions");
        lines.lines().map(|line| serde_json::from_str(line).expect("a decision")).collect()
    }

    /// Its page of metrics.
    pub fn page(&self) -> String {
        self.get("/metrics").map(|(_, page)| page).unwrap_or_default()
    }

    /// The status and the body of one of its pages.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        http_get(&self.pages, path).ok()
    }

    /// The status and the body of /readyz.
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

    /// Stops it like a kubelet.
    pub fn stop(&self) {
        self.space.cluster.stop_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The rights of a picker, like those of LLMInferenceServices' schedulers.
fn rights(namespace: &str, pickers: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    let rule =
        |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["get", "list", "watch"]});
    let groups = [X_INFERENCE_POOL.group, LLM_D_INFERENCE_OBJECTIVE.group];
    let rules = json!([
        // ConfigMaps are for --policy-config-map.
        rule(&[""], &["pods", "configmaps"]),
        rule(&[INFERENCE_POOL.group, X_INFERENCE_POOL.group], &[INFERENCE_POOL.plural]),
        rule(&groups, &[LLM_D_INFERENCE_OBJECTIVE.plural, INFERENCE_MODEL_REWRITE.plural]),
    ]);
    let metadata = json!({"name": ACCOUNT, "namespace": namespace});
    let subject = json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": pickers});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": rules},
        {"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT}, "subjects": [subject]},
    ]})
}
