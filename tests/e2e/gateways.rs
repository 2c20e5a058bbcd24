//! The endpoint picker's protocol with a real Envoy that Istio's own control plane configures. Only `--full` builds Istio.

use crate::proxies::{NAMES, Scene, ask, certificate, nobody, overrides_hosts, post_to, server};
use axum::body::Body;
use http::Request;
use pointsman_harness::target_dir;
use pointsman_tests::{Envoy, Istio, is_full, model_server::ModelServer};
use serde_json::{Value, json};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::atomic::{AtomicU8, Ordering},
};

const NAMESPACE: &str = "models";

/// The port of the Gateway, and the name of its listener in Istio.
const PORT: u16 = 80;
const LISTENER: &str = "0.0.0.0_80";

/// The folder of a test.
fn folder(name: &str) -> PathBuf {
    target_dir().join("tmp/gateways").join(name)
}

/// The servers of all places. Each has its own address, because the pods of a pool share their port numbers.
fn servers() -> Vec<ModelServer> {
    static SUBNET: AtomicU8 = AtomicU8::new(0);
    let subnet = SUBNET.fetch_add(1, Ordering::Relaxed);
    let mut port = 0;
    let start = |place: usize| {
        let last = u8::try_from(place + 1).unwrap();
        let started = server(SocketAddr::from((Ipv4Addr::new(127, 1, subnet, last), port)), place);
        port = started.address().port();
        started
    };
    (0..NAMES.len()).map(start).collect()
}

fn pod(name: &str, app: &str, address: SocketAddr) -> Value {
    let ip = address.ip().to_string();
    let container = json!({"name": "main", "image": "example.com/main:1", "ports": [{"name": "grpc", "containerPort": address.port()}]});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": app}},
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A Gateway of Istio, and the pods of all pools.
fn gateway(endpoints: &[SocketAddr]) -> Vec<Value> {
    let group = "gateway.networking.k8s.io/v1";
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": group, "kind": "GatewayClass", "metadata": {"name": "istio"},
            "spec": {"controllerName": "istio.io/gateway-controller"},
        }),
        json!({
            "apiVersion": group, "kind": "Gateway", "metadata": {"name": "inference", "namespace": NAMESPACE},
            "spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": PORT, "protocol": "HTTP"}]},
        }),
    ];
    objects.extend(endpoints.iter().enumerate().map(|(place, address)| pod(NAMES[place], "llama", *address)));
    objects
}

/// A pool of all servers, behind the host name `name`. The gateway calls its picker over TLS, as docs/endpoint-picker.md describes. The
/// picker may have no ready pod.
fn pool(name: &str, picker: Option<SocketAddr>, failure_mode: &str, endpoints: &[SocketAddr]) -> Vec<Value> {
    let picker_name = format!("{name}-picker");
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    let backend = json!({"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name});
    let picker_ref = json!({"name": picker_name, "port": {"number": 9002}, "failureMode": failure_mode});
    let port = json!({"name": "grpc", "port": 9002, "targetPort": "grpc", "appProtocol": "http2"});
    let mut objects = vec![
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(&picker_name),
            "spec": {"clusterIP": "192.0.2.9", "selector": {"app": picker_name}, "ports": [port]},
        }),
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": metadata(&picker_name),
            "spec": {"host": picker_name, "trafficPolicy": {"tls": {"mode": "SIMPLE", "insecureSkipVerify": true, "sni": picker_name}}},
        }),
        json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": metadata(name),
            "spec": {
                "selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": endpoints[0].port()}],
                "endpointPickerRef": picker_ref,
            },
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata(name),
            "spec": {"parentRefs": [{"name": "inference"}], "hostnames": [name], "rules": [{"backendRefs": [backend]}]},
        }),
    ];
    objects.extend(picker.map(|address| pod(&picker_name, &picker_name, address)));
    objects
}

async fn start_envoy(name: &str, istio: &Istio) -> Envoy {
    Envoy::with_bootstrap(&folder(name), &istio.bootstrap, LISTENER).await
}

#[tokio::test(flavor = "multi_thread")]
async fn istio_s_gateway_passes_on_what_the_picker_decides_and_retries_down_the_list() {
    if !is_full() {
        return;
    }
    let mut istio = None;
    let envoy = async |endpoints: Vec<SocketAddr>, picker| {
        let mut objects = gateway(&endpoints);
        objects.extend(pool("models", Some(picker), "FailClose", &endpoints));
        let istio = istio.insert(Istio::start(&folder("live"), &objects));
        start_envoy("live", istio).await
    };
    let scene = Scene::around(servers(), Some(certificate()), envoy).await;
    overrides_hosts(scene).await;
}

/// The pickers are unreachable or have no pod. Each pool is reached by its name.
#[tokio::test(flavor = "multi_thread")]
async fn istio_s_gateway_without_its_picker_fails_requests_unless_the_pool_is_to_fail_open() {
    if !is_full() {
        return;
    }
    let servers: Vec<ModelServer> = servers().into_iter().take(2).collect();
    let endpoints: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
    let nobody = Some(nobody().await);
    let mut objects = gateway(&endpoints);
    for (name, picker, failure_mode) in [
        ("closed", nobody, "FailClose"),
        ("closed-alone", None, "FailClose"),
        ("open", nobody, "FailOpen"),
        ("open-alone", None, "FailOpen"),
    ] {
        objects.extend(pool(name, picker, failure_mode, &endpoints));
    }
    // A rule with a CORS filter makes Istio ignore the picker.
    let mut with_cors = pool("cors", nobody, "FailClose", &endpoints);
    let route = with_cors.iter_mut().find(|object| object["kind"] == "HTTPRoute").unwrap();
    route["spec"]["rules"][0]["filters"] = json!([{"type": "CORS", "cors": {"allowOrigins": ["https://example.com"]}}]);
    objects.extend(with_cors);
    let istio = Istio::start(&folder("dead"), &objects);
    let envoy = start_envoy("dead", &istio).await;
    let bodyless = |host: &str| Request::get("/v1/models").header("host", host).body(Body::empty()).unwrap();
    let body = json!({"model": "llama", "max_tokens": 1, "messages": [{"role": "user", "content": "Say something."}]});
    let chat = |host: &str| post_to(host, &body);
    for (what, request, status) in [
        ("closed, bodyless", bodyless("closed"), 500),
        ("closed, chat", chat("closed"), 500),
        ("closed-alone, chat", chat("closed-alone"), 500),
        // Envoy continues without the picker only until it has sent a part of the body, which can happen before the connection is refused.
        ("open, bodyless", bodyless("open"), 200),
        ("open-alone, chat", chat("open-alone"), 200),
        ("cors, chat", chat("cors"), 200),
    ] {
        let answer = ask(envoy.address(), request).await.whole().await;
        assert_eq!(answer.status, status, "{what}: {:?}", answer.body);
    }
}
