//! Which labels and annotations reach objects and pods: KServe's page, row by row, on what Kubernetes and LeaderWorkerSet made.

use super::{create, groups, pods, ready, with_model};
use crate::services::Space;
use pointsman::world::resource::{DEPLOYMENT, LEADER_WORKER_SET, LLM_INFERENCE_SERVICE, Resource};
use serde_json::{Value, json};

/// All keys that the tests put somewhere, so that what isn't expected is missed nowhere.
const KEYS: [&str; 10] = [
    "prometheus.io/scrape",
    "prometheus.io/port",
    "k8s.v1.cni.cncf.io/networks",
    "kueue.x-k8s.io/queue-name",
    "platform.example.com/team",
    "platform.example.com/monitored",
    "platform.example.com/role",
    "platform.example.com/slo",
    "my-team.example.com/owner",
    "internal.serving.kserve.io/secret",
];

fn metadata() -> Value {
    json!({
        "labels": {"kueue.x-k8s.io/queue-name": "gpu-queue", "my-team.example.com/owner": "me"},
        "annotations": {
            "prometheus.io/scrape": "true", "prometheus.io/port": "8000", "k8s.v1.cni.cncf.io/networks": "rdma-net",
            "kueue.x-k8s.io/queue-name": "annotated", "my-team.example.com/owner": "me", "internal.serving.kserve.io/secret": "x",
        },
    })
}

/// All four layers at once, on every workload there is.
fn spec(prefill: Value) -> Value {
    let mut prefill = prefill;
    prefill["labels"] = json!({"platform.example.com/role": "prefill", "platform.example.com/team": "prefill-team"});
    prefill["annotations"] = json!({"platform.example.com/slo": "latency-sensitive"});
    with_model(json!({
        "labels": {"platform.example.com/team": "ml-platform"},
        "annotations": {"platform.example.com/monitored": "true", "prometheus.io/port": "9000"},
        "prefill": prefill,
        "router": {"scheduler": {
            "labels": {"platform.example.com/role": "scheduler"}, "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
        }},
    }))
}

/// What an object has of the keys.
fn carried(object: &Value) -> (Value, Value) {
    let of = |map: &str| {
        let map = object["metadata"][map].as_object().cloned().unwrap_or_default();
        Value::Object(map.into_iter().filter(|(key, _)| KEYS.contains(&key.as_str())).collect())
    };
    (of("labels"), of("annotations"))
}

/// What the page says for each: of the workload objects, of decode, prefill and scheduler pods.
async fn check(space: &Space<'_>, workloads: [(&Resource, &str); 2]) {
    let annotations = |more: Value| {
        let mut all = json!({
            "prometheus.io/scrape": "true", "prometheus.io/port": "8000", "k8s.v1.cni.cncf.io/networks": "rdma-net",
            "kueue.x-k8s.io/queue-name": "annotated",
        });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let queue = json!({"kueue.x-k8s.io/queue-name": "gpu-queue"});
    for (resource, name) in workloads {
        assert_eq!(carried(&space.get(resource, name).await), (queue.clone(), annotations(json!({}))), "{} {name}", resource.kind);
    }
    let scheduler = space.get(&DEPLOYMENT, "llama-kserve-router-scheduler").await;
    assert_eq!(carried(&scheduler), (json!({}), json!({})));
    for (component, pods) in pods(space, "llama").await {
        let expected = match component.as_str() {
            "router-scheduler" => {
                (json!({"platform.example.com/role": "scheduler"}), json!({"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}))
            }
            prefill if prefill.ends_with("-prefill") => (
                json!({"kueue.x-k8s.io/queue-name": "gpu-queue", "platform.example.com/role": "prefill", "platform.example.com/team": "prefill-team"}),
                annotations(
                    json!({"platform.example.com/monitored": "true", "prometheus.io/port": "9000", "platform.example.com/slo": "latency-sensitive"}),
                ),
            ),
            _ => (
                json!({"kueue.x-k8s.io/queue-name": "gpu-queue", "platform.example.com/team": "ml-platform"}),
                annotations(json!({"platform.example.com/monitored": "true", "prometheus.io/port": "9000"})),
            ),
        };
        for pod in pods {
            assert_eq!(carried(&pod), expected, "{component}");
        }
    }
}

#[tokio::test]
async fn of_deployments_each_row_of_the_page_holds() {
    let space = Space::shared_bare("llm-rows").await;
    create(&space, "llama", metadata(), spec(json!({}))).await;
    ready(&space, "llama").await;
    check(&space, [(&DEPLOYMENT, "llama-kserve"), (&DEPLOYMENT, "llama-kserve-prefill")]).await;
}

#[tokio::test]
async fn of_leader_worker_sets_each_row_of_the_page_holds() {
    let space = Space::shared_bare("llm-lws-rows").await;
    let mut spec = spec(groups());
    spec.as_object_mut().unwrap().extend(groups().as_object().unwrap().clone());
    create(&space, "llama", metadata(), spec).await;
    ready(&space, "llama").await;
    check(&space, [(&LEADER_WORKER_SET, "llama-kserve-mn"), (&LEADER_WORKER_SET, "llama-kserve-mn-prefill")]).await;
}

#[tokio::test]
async fn a_changed_queue_rolls_the_pods_and_breaks_no_selector_and_a_removed_key_goes() {
    let space = Space::shared_bare("llm-queue").await;
    create(&space, "llama", metadata(), with_model(json!({}))).await;
    ready(&space, "llama").await;
    let before = space.get(&DEPLOYMENT, "llama-kserve").await;
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})).await;
    let queue = |deployment: &Value| deployment["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].clone();
    let rolled = |now: &Value| {
        queue(now) == "other"
            && now["status"]["observedGeneration"] == now["metadata"]["generation"]
            && now["status"]["updatedReplicas"] == 1
            && now["status"]["replicas"] == 1
    };
    let after = space.becomes(&DEPLOYMENT, "llama-kserve", "it has rolled", rolled).await;
    assert_eq!(before["spec"]["selector"], after["spec"]["selector"]);
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": null}}})).await;
    let gone = |now: &Value| queue(now).is_null() && now["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_null();
    space.becomes(&DEPLOYMENT, "llama-kserve", "the key is gone", gone).await;
    ready(&space, "llama").await;
}
