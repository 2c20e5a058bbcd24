//! What runs pods: a Deployment, or a LeaderWorkerSet where a model is spread over several nodes.

use super::Metadata;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A Deployment's body.
pub fn deployment(
    metadata: Metadata,
    selector: &BTreeMap<String, String>,
    replicas: Option<i64>,
    strategy: Option<Value>,
    template: &Value,
) -> Value {
    let mut spec = json!({"selector": {"matchLabels": selector}, "template": template});
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
    }
    if let Some(strategy) = strategy {
        spec["strategy"] = strategy;
    }
    json!({"metadata": metadata.into_value(), "spec": spec})
}

/// A LeaderWorkerSet's body. A group is made anew as a whole when one of its pods restarts: what is left of it can't go on.
pub fn leader_worker_set(metadata: Metadata, replicas: Option<i64>, size: i64, leader: &Value, worker: &Value) -> Value {
    let mut spec = json!({
        "startupPolicy": "LeaderCreated",
        "leaderWorkerTemplate": {
            "leaderTemplate": leader, "workerTemplate": worker, "size": size, "restartPolicy": "RecreateGroupOnPodRestart",
        },
    });
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
    }
    json!({"metadata": metadata.into_value(), "spec": spec})
}

/// A LeaderWorkerSet's body with how many groups may be away or too many while it is rolled: the most unavailable, and the surge.
pub fn rolled(mut groups: Value, strategy: Option<(Option<IntOrString>, Option<IntOrString>)>) -> Value {
    if let Some((unavailable, surge)) = strategy {
        let mut rolling = json!({});
        for (field, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
            if let Some(value) = value {
                rolling[field] = json!(value);
            }
        }
        groups["spec"]["rolloutStrategy"] = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": rolling});
    }
    groups
}
