//! The real endpoint picker with a pool of 100 pods: the latency that it adds to a request through Envoy, its throughput without Envoy, the
//! cost of the record of decisions and of flow control, and the growth of its memory.
//!
//! Clients and model servers are in this process, on one thread each; their CPU is printed. `POINTSMAN_ROUNDS=60` and
//! `POINTSMAN_REQUESTS=1000000` (for memory) measure longer.
#![allow(clippy::unwrap_used, clippy::panic)]

mod added;
mod chats;
mod memory;
mod other;
mod pace;
mod servers;
mod streams;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use pointsman_core::resource::INFERENCE_POOL;
use pointsman_tests::{
    PICKER_ACCOUNT, PickerProcess, TestCluster, TestNamespace, eventually,
    measure::{is_quick, number_in},
};
use serde_json::json;
use std::net::SocketAddr;

/// The number of endpoints in the pool.
const ENDPOINTS: u8 = 100;

/// The name of the pool.
const POOL: &str = "llama";

/// A deadline much longer than a policy needs, so that the fallback policy isn't measured instead if the machine is busy.
const FLAGS: [&str; 4] = ["--grpc-port", "0", "--policy-deadline", "100ms"];

/// Measurements without Envoy are also without TLS.
const WITHOUT_TLS: &str = "--secure-serving=false";

fn main() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let cluster = TestCluster::bare(&["inference-pool"]);
        let space = cluster.namespace("bench").await;
        let servers = servers::start(ENDPOINTS);
        create_pool(&space, &servers).await;
        added::measure(&space, &servers).await;
        pace::measure(&space).await;
        memory::measure(&space).await;
    });
}

/// The number of rounds of each variant.
fn rounds(all: usize, quick: usize) -> usize {
    number_in("POINTSMAN_ROUNDS").unwrap_or(if is_quick() { quick } else { all })
}

/// Creates the pool, and a pod for each server. No kubelet runs the pods, so only this function reports them as ready.
async fn create_pool(space: &TestNamespace<'_>, servers: &[SocketAddr]) {
    // The API server requires the ServiceAccount of a pod, and no controller creates the default one.
    PickerProcess::grant(space, space);
    let pool = json!({
        "apiVersion": format!("{}/{}", INFERENCE_POOL.group, INFERENCE_POOL.version), "kind": INFERENCE_POOL.kind,
        "metadata": {"name": POOL, "namespace": space.name},
        "spec": {
            "selector": {"matchLabels": {"app": POOL}}, "targetPorts": [{"number": servers[0].port()}],
            "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
        },
    });
    space.cluster.apply(&pool).ok();
    let pods = Api::<Pod>::namespaced(space.client.clone(), &space.name);
    for (number, server) in servers.iter().enumerate() {
        let name = format!("server-{number}");
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": POOL}},
            "spec": {
                "schedulerName": "nobody", "serviceAccountName": PICKER_ACCOUNT,
                "containers": [{"name": "main", "image": "example.com/engine:1"}],
            },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let address = server.ip().to_string();
        let ready = json!({"type": "Ready", "status": "True"});
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.unwrap();
    }
}

/// Starts a picker, and waits until it knows all endpoints.
async fn start<'a>(space: &'a TestNamespace<'a>, flags: &[&str]) -> PickerProcess<'a> {
    let picker = PickerProcess::start(space, POOL, &[&FLAGS[..], flags].concat()).await;
    wait_for_reports(&picker).await;
    picker
}

/// Waits until it knows all endpoints and has reports from most of them: an endpoint without a recent report counts as full, and none is
/// full.
async fn wait_for_reports(picker: &PickerProcess<'_>) {
    picker.knows(ENDPOINTS.into()).await;
    eventually("the picker has recent reports", async || {
        let series = "llm_d_epp_flow_control_pool_saturation{";
        let value = picker.page().lines().find_map(|line| line.strip_prefix(series)?.rsplit_once(' ')?.1.parse::<f64>().ok());
        value.filter(|saturation| *saturation < 0.5)
    })
    .await;
}

/// Prints how often a policy other than the measured one was used.
fn tell_failures(name: &str, picker: &PickerProcess<'_>) {
    for line in picker.page().lines().filter(|line| line.starts_with("pointsman_picker_policy_failures_total{")) {
        println!("  {name}: ANOTHER POLICY WAS USED: {line}");
    }
}
