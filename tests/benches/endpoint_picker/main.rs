//! The real endpoint picker of a pool of 100 pods: what it adds to a request through Envoy, how many requests it places when it is asked
//! without Envoy, what of that the record of decisions and flow control cost, and whether its memory stays what it is.
//!
//! Clients and model servers are in this process, a thread each; what they take of the machine is printed. `POINTSMAN_ROUNDS=60` measures
//! longer, and `POINTSMAN_REQUESTS=1000000` watches memory for longer.
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

/// How many endpoints the pool has.
const ENDPOINTS: u8 = 100;

/// The pool.
const POOL: &str = "llama";

/// Far more than a policy needs: what else the machine does shouldn't change which policy is measured.
const FLAGS: [&str; 4] = ["--grpc-port", "0", "--policy-deadline", "100ms"];

/// What is asked without Envoy is asked without TLS too.
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

/// How often each is measured, in turn with the others.
fn rounds(all: usize, quick: usize) -> usize {
    number_in("POINTSMAN_ROUNDS").unwrap_or(if is_quick() { quick } else { all })
}

/// Creates the pool, and a pod of it for each server. Nothing runs them, so that nobody but this says that they are ready.
async fn create_pool(space: &TestNamespace<'_>, servers: &[SocketAddr]) {
    // The API server wants the ServiceAccount of a pod to be there, and no controller creates the default one.
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

/// Starts a picker that knows of all endpoints.
async fn start<'a>(space: &'a TestNamespace<'a>, flags: &[&str]) -> PickerProcess<'a> {
    let picker = PickerProcess::start(space, POOL, &[&FLAGS[..], flags].concat()).await;
    wait_for_reports(&picker).await;
    picker
}

/// Waits until it knows of all endpoints, and how full most of them are: one without a recent report counts as full, and none is.
async fn wait_for_reports(picker: &PickerProcess<'_>) {
    picker.knows(ENDPOINTS.into()).await;
    eventually("the picker has recent reports", async || {
        let series = "llm_d_epp_flow_control_pool_saturation{";
        let value = picker.page().lines().find_map(|line| line.strip_prefix(series)?.rsplit_once(' ')?.1.parse::<f64>().ok());
        value.filter(|saturation| *saturation < 0.5)
    })
    .await;
}

/// Prints how often another policy than the one that is measured has decided.
fn tell_failures(name: &str, picker: &PickerProcess<'_>) {
    for line in picker.page().lines().filter(|line| line.starts_with("pointsman_picker_policy_failures_total{")) {
        println!("  {name}: ANOTHER POLICY HAS DECIDED: {line}");
    }
}
