//! The measured proxies: the real gateway, with and without the access log, and Envoy as a plain proxy.

use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::{envoy, http_get};
use pointsman_tests::{GatewayProcess, TestCluster, eventually};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, net::SocketAddr, num::NonZero, thread};

/// The model's namespace.
const NAMESPACE: &str = "bench";

/// The name of the model in requests.
pub(crate) const MODEL: &str = "llama";

/// The name of Envoy's listener, and of its part in the cluster.
const ENVOY: &str = "envoy";

/// Envoy's maximum number of connections to the backend: effectively none, instead of the default of 1024.
const ANY_NUMBER: u32 = 1_000_000;

/// A proxy, or the backend itself, to which clients send requests.
pub(crate) struct Asked {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// Its name among the cluster's parts, if it is one.
    pub(crate) part: Option<String>,
}

/// Returns all of them, the backend first.
pub(crate) async fn start(cluster: &TestCluster, backend: SocketAddr) -> [Asked; 4] {
    cluster.pointsman(&["crds", "install"]).ok();
    for name in [HOST_NAMESPACE, NAMESPACE] {
        cluster.kubectl(&["create", "namespace", name]).ok();
    }
    // A model without an image is external: no host has to wake it, and it gets requests immediately.
    let model = json!({
        "apiVersion": "inference.eh-ops.io/v1alpha1", "kind": "InferenceModel", "metadata": {"name": "llama", "namespace": NAMESPACE},
        "spec": {"modelName": MODEL, "memory": "1Gi", "backendUrl": "http://llama:8000"},
    });
    cluster.apply(&model).ok();
    let mut flags: Vec<String> = ["--allow-loopback", "--resolve"].map(str::to_owned).to_vec();
    flags.push(format!("llama.{NAMESPACE}.svc.cluster.local:8000:{backend}"));
    let gateway = GatewayProcess::start(cluster, 0, &flags).await;
    flags.extend(["--log-level", "info,pointsman::access=off"].map(str::to_owned));
    let quiet = GatewayProcess::start(cluster, 1, &flags).await;
    let asked = |name, gateway: GatewayProcess<'_>| Asked { name, address: gateway.address.parse().unwrap(), part: Some(gateway.part) };
    [
        Asked { name: "the backend itself", address: backend, part: None },
        Asked { name: "Envoy", address: start_envoy(cluster, backend).await, part: Some(ENVOY.to_owned()) },
        asked("gateway", gateway),
        asked("gateway, no access log", quiet),
    ]
}

/// Starts Envoy with as many threads as tokio uses by default.
async fn start_envoy(cluster: &TestCluster, backend: SocketAddr) -> SocketAddr {
    let (config, admin) = (cluster.dir.join("envoy.json"), cluster.dir.join("envoy-admin"));
    fs::write(&config, configuration(backend).to_string()).unwrap();
    let threads = thread::available_parallelism().map_or(1, NonZero::get).to_string();
    let (program, config, admin_file) = (envoy().display().to_string(), config.display().to_string(), admin.display().to_string());
    let command = [&program, "-c", &config, "--concurrency", &threads, "--admin-address-path", &admin_file, "--disable-hot-restart"];
    cluster.run(ENVOY, &command.map(str::to_owned), &BTreeMap::new()).unwrap();
    eventually("Envoy listens", async || {
        let (_, listeners) = http_get(fs::read_to_string(&admin).ok()?.trim(), "/listeners").ok()?;
        listeners.lines().find_map(|line| line.trim().strip_prefix(ENVOY)?.strip_prefix("::")?.parse().ok())
    })
    .await
}

/// One listener, one cluster with one backend over HTTP/1.1, no access log, and no timeouts or limits that would affect the result.
fn configuration(backend: SocketAddr) -> Value {
    let socket = |address: String, port: u16| json!({"socket_address": {"address": address, "port_value": port}});
    let any_port = socket("127.0.0.1".to_owned(), 0);
    let extension = "type.googleapis.com/envoy.extensions.filters";
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "backend", "timeout": "0s", "idle_timeout": "0s"}});
    let manager = json!({
        "@type": format!("{extension}.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "bench", "stream_idle_timeout": "0s", "request_timeout": "0s",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": format!("{extension}.http.router.v3.Router")}}],
    });
    let limits = json!({"max_connections": ANY_NUMBER, "max_pending_requests": ANY_NUMBER, "max_requests": ANY_NUMBER});
    let endpoint = json!({"endpoint": {"address": socket(backend.ip().to_string(), backend.port())}});
    json!({
        "admin": {"address": any_port},
        "static_resources": {
            "listeners": [{
                "name": ENVOY, "address": any_port,
                "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
            }],
            "clusters": [{
                "name": "backend", "type": "STATIC", "connect_timeout": "5s", "circuit_breakers": {"thresholds": [limits]},
                "load_assignment": {"cluster_name": "backend", "endpoints": [{"lb_endpoints": [endpoint]}]},
            }],
        },
    })
}
