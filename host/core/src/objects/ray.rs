//! A RayCluster: a head that receives requests, and workers that share the work.

use super::{Metadata, network::all_ports};
use serde_json::{Value, json};

/// KubeRay's label for the type of a cluster's pod.
pub const NODE_TYPE: &str = "ray.io/node-type";

/// The default port of Ray's metrics, unless the pod uses it otherwise. KubeRay's own default is 8080, where engines listen.
const METRICS: i64 = 8090;

/// The port name by which KubeRay finds the metrics port.
const METRICS_NAME: &str = "metrics";

/// The spec of a cluster. It isn't scaled, because the model is split across a fixed number of pods.
pub fn spec(head: &Value, worker: &Value, workers: i64) -> Value {
    let port = |template: &Value| metrics_port(&template["spec"]).to_string();
    let mut groups = Vec::new();
    if workers > 0 {
        groups.push(json!({
            "groupName": "workers", "replicas": workers, "minReplicas": workers, "maxReplicas": workers,
            "rayStartParams": {"metrics-export-port": port(worker)}, "template": worker,
        }));
    }
    let head = json!({"rayStartParams": {"dashboard-host": "0.0.0.0", "metrics-export-port": port(head)}, "template": head});
    json!({"headGroupSpec": head, "workerGroupSpecs": groups})
}

/// A RayCluster's body.
pub fn cluster(metadata: Metadata, spec: &Value) -> Value {
    json!({"metadata": metadata.into_value(), "spec": spec})
}

/// A pod spec with Ray's container first, and with an unused port for Ray's metrics.
pub fn fitted(spec: &Value, main: &str) -> Value {
    let mut spec = spec.clone();
    let taken = all_ports(&spec["containers"]);
    let free = (METRICS..=65_535).find(|port| taken.iter().all(|taken| taken.port != *port)).unwrap_or(METRICS);
    if let Some(containers) = spec.get_mut("containers").and_then(Value::as_array_mut) {
        containers.sort_by_key(|container| container["name"] != main);
        if let Some(Value::Object(first)) = containers.first_mut() {
            let ports = first.entry("ports").or_insert_with(|| json!([]));
            if let Some(ports) = ports.as_array_mut()
                && !ports.iter().any(|port| port["name"] == METRICS_NAME)
            {
                ports.push(json!({"name": METRICS_NAME, "containerPort": free, "protocol": "TCP"}));
            }
        }
    }
    spec
}

/// The port for Ray's metrics in a fitted pod.
fn metrics_port(spec: &Value) -> i64 {
    let ports = spec["containers"][0]["ports"].as_array().into_iter().flatten();
    ports.filter(|port| port["name"] == METRICS_NAME).find_map(|port| port["containerPort"].as_i64()).unwrap_or(METRICS)
}
