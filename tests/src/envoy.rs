//! Envoy, configured like a gateway for an InferencePool: it calls an endpoint picker for the endpoint of each request.

use crate::eventually;
use pointsman_harness::{envoy, http_get};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

/// The header, and the metadata key, with the picked endpoints.
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// The names of the listeners: the one with the picker, and the one without it.
const LISTENER: &str = "gateway";
const DIRECT: &str = "direct";

/// The names of the clusters.
const PICKER: &str = "picker";
const ENDPOINTS: &str = "endpoints";

/// Envoy's log, and the file with the address of its administration.
const LOG: &str = "envoy.log";
const ADMIN_FILE: &str = "envoy-admin";

/// Starts a program, and kills it when the pipe closes, even if we are killed. The program doesn't inherit the pipe.
const GUARD: &str = "\"$@\" & read -r _; kill -KILL $!; wait";

/// How gateways route a request to the picked endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvoyStyle {
    /// A cluster that connects to the address in the header, as Envoy Gateway does.
    OriginalDst,
    /// A cluster of these endpoints whose load balancer prefers those in the metadata, one after the other for retries, as Istio and GKE
    /// do. After the last of them, it uses any endpoint.
    OverrideHost(Vec<SocketAddr>),
}

/// The configuration of Envoy.
#[derive(Clone, Debug)]
pub struct EnvoySettings {
    /// The address of the endpoint picker.
    pub picker: SocketAddr,
    /// Whether to use TLS, with any certificate.
    pub picker_tls: bool,
    /// How a request reaches its endpoint.
    pub style: EnvoyStyle,
    /// Whether requests continue if the picker fails.
    pub failure_mode_allow: bool,
}

/// A running Envoy. It ends when it is dropped.
#[derive(Debug)]
pub struct Envoy {
    address: SocketAddr,
    _process: Process,
}

/// A process under a guard.
#[derive(Debug)]
struct Process {
    guard: Child,
    lifeline: Option<ChildStdin>,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        self.guard.wait().ok();
    }
}

impl Envoy {
    /// Starts Envoy with its files in a folder, and waits until it listens.
    pub async fn start(dir: &Path, settings: &EnvoySettings) -> Self {
        let listeners = [listener(LISTENER, settings, vec![processor(settings)])];
        Self::with_bootstrap(dir, &configuration(settings, &listeners), LISTENER).await
    }

    /// Starts Envoy with a second listener, and returns the listener's address: its requests take the same route without the picker, to the
    /// endpoint in their header.
    pub async fn start_with_direct(dir: &Path, settings: &EnvoySettings) -> (Self, SocketAddr) {
        let listeners = [listener(LISTENER, settings, vec![processor(settings)]), listener(DIRECT, settings, Vec::new())];
        let envoy = Self::with_bootstrap(dir, &configuration(settings, &listeners), LISTENER).await;
        (envoy, listening(dir, DIRECT).await)
    }

    /// Starts Envoy with a complete bootstrap, and waits for the listener with this name.
    pub async fn with_bootstrap(dir: &Path, bootstrap: &Value, listener: &str) -> Self {
        fs::create_dir_all(dir).unwrap_or_else(|error| panic!("making {}: {error}", dir.display()));
        let [config, log, admin_file] = ["envoy.json", LOG, ADMIN_FILE].map(|file| dir.join(file));
        fs::remove_file(&admin_file).ok();
        fs::write(&config, bootstrap.to_string()).expect("writing Envoy's configuration");
        let process = run(&config, &log, &admin_file);
        let address = listening(dir, listener).await;
        Self { address, _process: process }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The address of a listener, once Envoy listens there, from the files in this folder.
async fn listening(dir: &Path, listener: &str) -> SocketAddr {
    eventually("Envoy listens", async || {
        let said = fs::read_to_string(dir.join(LOG)).unwrap_or_default();
        assert!(!said.contains("[critical]"), "Envoy has ended:\n{said}");
        let (_, listeners) = http_get(fs::read_to_string(dir.join(ADMIN_FILE)).ok()?.trim(), "/listeners").ok()?;
        listeners.lines().find_map(|line| line.trim().strip_prefix(listener)?.strip_prefix("::")?.parse().ok())
    })
    .await
}

fn run(config: &Path, log: &Path, admin: &Path) -> Process {
    let program: PathBuf = envoy();
    assert!(program.exists(), "Envoy isn't installed: `cargo xtask test` and `cargo xtask bench endpoint_picker` install it");
    let file = File::create(log).expect("writing Envoy's log");
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "sh"]).arg(&program).arg("-c").arg(config).arg("--admin-address-path").arg(admin);
    command.args(["--concurrency", "1", "--disable-hot-restart"]);
    command.stdin(Stdio::piped()).stdout(file.try_clone().expect("a second handle")).stderr(file);
    // A Ctrl-C in the terminal is meant for us.
    let mut guard = command.process_group(0).spawn().unwrap_or_else(|error| panic!("starting {}: {error}", program.display()));
    let lifeline = guard.stdin.take();
    Process { guard, lifeline }
}

/// The address of a socket.
fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

/// An extension with its configuration.
fn extension(name: &str, kind: &str, config: Value) -> Value {
    let mut typed = json!({"@type": format!("type.googleapis.com/envoy.extensions.{kind}")});
    if let (Value::Object(typed), Value::Object(config)) = (&mut typed, config) {
        typed.extend(config);
    }
    json!({"name": name, "typed_config": typed})
}

fn any_port() -> Value {
    socket(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn configuration(settings: &EnvoySettings, listeners: &[Value]) -> Value {
    json!({
        "admin": {"address": any_port()},
        "static_resources": {"listeners": listeners, "clusters": [picker_cluster(settings), endpoints(&settings.style)]},
    })
}

/// A listener at any port whose requests pass through these filters to the endpoints.
fn listener(name: &str, settings: &EnvoySettings, mut filters: Vec<Value>) -> Value {
    let mut route = json!({"cluster": ENDPOINTS, "timeout": "0s"});
    if matches!(settings.style, EnvoyStyle::OverrideHost(_)) {
        route["retry_policy"] = json!({"retry_on": "connect-failure,refused-stream,reset-before-request", "num_retries": 2});
    }
    filters.push(extension("envoy.filters.http.router", "filters.http.router.v3.Router", json!({})));
    let manager = json!({
        "stat_prefix": name,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]},
        "http_filters": filters,
    });
    let manager = extension(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        manager,
    );
    json!({"name": name, "address": any_port(), "filter_chains": [{"filters": [manager]}]})
}

/// The filter that calls the picker, with the modes that the protocol requires. Gateways set an almost unlimited timeout for the picker.
fn processor(settings: &EnvoySettings) -> Value {
    let config = json!({
        "grpc_service": {"envoy_grpc": {"cluster_name": PICKER, "authority": "picker"}},
        "failure_mode_allow": settings.failure_mode_allow,
        "message_timeout": "1000s",
        "processing_mode": {
            "request_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND",
            "response_header_mode": "SEND", "response_body_mode": "FULL_DUPLEX_STREAMED", "response_trailer_mode": "SEND",
        },
        "metadata_options": {
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    });
    extension("envoy.filters.http.ext_proc", "filters.http.ext_proc.v3.ExternalProcessor", config)
}

/// Endpoints in the format of a cluster.
fn assignment(cluster: &str, addresses: &[SocketAddr]) -> Value {
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"endpoint": {"address": socket(*address)}})).collect();
    json!({"cluster_name": cluster, "endpoints": [{"lb_endpoints": endpoints}]})
}

fn picker_cluster(settings: &EnvoySettings) -> Value {
    let http2 = json!({"explicit_http_config": {"http2_protocol_options": {}}});
    let mut cluster = json!({
        "name": PICKER, "type": "STATIC", "connect_timeout": "10s", "load_assignment": assignment(PICKER, &[settings.picker]),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions":
                extension("", "upstreams.http.v3.HttpProtocolOptions", http2)["typed_config"],
        },
    });
    if settings.picker_tls {
        let context = json!({"common_tls_context": {"alpn_protocols": ["h2"]}});
        cluster["transport_socket"] = extension("envoy.transport_sockets.tls", "transport_sockets.tls.v3.UpstreamTlsContext", context);
    }
    cluster
}

fn endpoints(style: &EnvoyStyle) -> Value {
    match style {
        EnvoyStyle::OriginalDst => json!({
            "name": ENDPOINTS, "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "10s",
            "original_dst_lb_config": {"use_http_header": true, "http_header_name": DESTINATION},
        }),
        EnvoyStyle::OverrideHost(addresses) => {
            let metadata = |key: &str| json!({"key": "envoy.lb", "path": [{"key": key}]});
            let fallback =
                extension("envoy.load_balancing_policies.round_robin", "load_balancing_policies.round_robin.v3.RoundRobin", json!({}));
            let policy = json!({
                "override_host_sources": [{"metadata": metadata(DESTINATION)}],
                "selected_host_key": metadata("x-gateway-destination-endpoint-served"),
                "fallback_policy": {"policies": [{"typed_extension_config": fallback}]},
            });
            let policy =
                extension("envoy.load_balancing_policies.override_host", "load_balancing_policies.override_host.v3.OverrideHost", policy);
            json!({
                "name": ENDPOINTS, "type": "STATIC", "connect_timeout": "10s", "load_assignment": assignment(ENDPOINTS, addresses),
                "load_balancing_policy": {"policies": [{"typed_extension_config": policy}]},
            })
        }
    }
}
