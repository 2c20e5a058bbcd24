//! Services that change while they run, with our CRDs and with KServe's own CRDs.

use super::{SHAPES, Shape, create, groups, pods, ready, with_model};
use crate::services::{Space, condition, own_cluster, set};
use futures::future::join_all;
use pointsman_core::resource::{DEPLOYMENT, LEADER_WORKER_SET, LLM_INFERENCE_SERVICE, SERVICE};
use pointsman_tests::{Host, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// The uids of pods, which tell replaced pods apart.
fn uids<'a>(pods: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    pods.into_iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

/// The queue of a service is changed and then removed: each time all pods are replaced, and all selectors stay the same.
async fn a_queue_changes(space: &Space<'_>, shape: Shape) {
    let service = json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService",
        "metadata": {"labels": {QUEUE: "gpu-queue"}}, "spec": with_model(json!({})),
    });
    let name = shape.apply(space, "queue", service);
    ready(space, &name).await;
    let reached = format!("{name}-kserve-workload-svc");
    let selectors = async || {
        let mut selectors = vec![space.get(&SERVICE, &reached).await["spec"]["selector"].clone()];
        for (resource, workload) in shape.workloads(&name) {
            let object = space.get(resource, &workload).await;
            // A LeaderWorkerSet has no selector in its spec: its controller chooses the labels.
            selectors.extend([object["metadata"]["uid"].clone(), object["spec"]["selector"].clone()]);
        }
        selectors
    };
    let (before, mut old) = (selectors().await, uids(pods(space, &name).await.values().flatten()));
    for queue in [json!("other-queue"), Value::Null] {
        space.patch(&LLM_INFERENCE_SERVICE, &name, json!({"metadata": {"labels": {QUEUE: &queue}}})).await;
        let rolled = eventually(&format!("the pods of {name} are of the queue {queue}"), async || {
            let pods = pods(space, &name).await;
            let renewed = |pod: &Value| pod["metadata"]["labels"][QUEUE] == queue && condition(pod, "Ready")["status"] == "True";
            let whole = pods.keys().cloned().collect::<BTreeSet<_>>() == shape.components();
            let now = uids(pods.values().flatten());
            (whole && pods.values().flatten().all(renewed) && now.is_disjoint(&old)).then_some(now)
        })
        .await;
        assert_eq!(rolled.len(), old.len(), "{name}: each pod is replaced by one");
        assert_eq!(selectors().await, before, "{name}");
        for (resource, workload) in shape.workloads(&name) {
            assert_eq!(space.get(resource, &workload).await["metadata"]["labels"][QUEUE], queue, "{workload}");
        }
        let found: Vec<String> =
            before[0].as_object().unwrap().iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
        let found = uids(space.pods_with(&found.join(",")).await.values());
        assert!(!found.is_empty() && found.is_subset(&rolled), "{name}: its Service reaches {found:?} of {rolled:?}");
        ready(space, &name).await;
        old = rolled;
    }
}

/// Changes a service from one node to several and back.
async fn a_service_changes_its_shape(space: &Space<'_>) {
    // Objects of other controllers that depend on ours are garbage-collected with them.
    let goes = async |kinds: &'static str| {
        eventually(&format!("no {kinds} are left"), async || {
            let left = space.kubectl(&["get", kinds, "--output=name", "--selector=app.kubernetes.io/name=llama"]).ok();
            left.is_empty().then_some(())
        })
        .await;
    };
    create(space, "llama", json!({}), with_model(json!({}))).await;
    ready(space, "llama").await;
    let single = space.made().await;
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": groups()})).await;
    ready(space, "llama").await;
    space.goes(&DEPLOYMENT, "llama-kserve").await;
    assert_eq!(space.made().await, set(["LeaderWorkerSet llama-kserve-mn", "Service llama-kserve-workload-svc"]));
    goes("deployments,replicasets").await;
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"worker": null, "parallelism": null}})).await;
    let service = ready(space, "llama").await;
    space.goes(&LEADER_WORKER_SET, "llama-kserve-mn").await;
    assert_eq!(space.made().await, single);
    assert_eq!(condition(&service, "WorkerWorkloadReady"), Value::Null, "there are no workers any more");
    goes("leaderworkersets,statefulsets,controllerrevisions").await;
    eventually("only the pods of the Deployment are left", async || {
        (pods(space, "llama").await.keys().collect::<Vec<_>>() == ["workload"]).then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_changed_queue_rolls_the_pods_and_breaks_no_selector_and_a_removed_key_goes() {
    let space = Space::shared_bare("llm-queue").await;
    join_all(SHAPES.map(|shape| a_queue_changes(&space, shape))).await;
}

#[tokio::test]
async fn a_service_changes_its_shape_and_back_and_leaves_nothing_behind() {
    a_service_changes_its_shape(&Space::shared_bare("llm-shape").await).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn with_kserve_s_own_crds_queues_and_shapes_change_as_with_ours() {
    let cluster = own_cluster(Some(&["kserve", "lws"]));
    let said = cluster.pointsman(&["crds", "check", "LLMInferenceService"]).stdout;
    assert!(said.contains("not managed"), "{said}");
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let (queues, shapes) = (Space::bare(&cluster, "llm-queue").await, Space::bare(&cluster, "llm-shape").await);
    join_all(SHAPES.map(|shape| a_queue_changes(&queues, shape))).await;
    a_service_changes_its_shape(&shapes).await;
    host.stop();
}
