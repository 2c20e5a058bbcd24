//! Objects that run pods: a Deployment, or a LeaderWorkerSet if a model is spread over several nodes.

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

/// A LeaderWorkerSet's body. If a pod restarts, its whole group is recreated: the remaining pods can't continue.
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

/// A LeaderWorkerSet's body with limits for a rolling update: the maximum number of unavailable groups, and of surplus groups.
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
