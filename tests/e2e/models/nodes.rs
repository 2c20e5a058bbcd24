//! Nodes that disappear, shrink or are cordoned, and the memory that other pods use on them.

use super::{ModelActivity, PlayedGateway, Pool, now, shared_space};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use pointsman_core::{
    allocation::inputs::MEMORY_BUDGET,
    resource::{INFERENCE_MODEL, POD},
};
use serde_json::{Value, json};

fn nodes(pool: &Pool<'_, '_>) -> Api<Node> {
    Api::all(pool.space.0.client.clone())
}

async fn patch(pool: &Pool<'_, '_>, at: usize, change: Value) {
    nodes(pool).patch(&pool.node(at), &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// Changes the memory of a node, as a kubelet would report it.
async fn resize(pool: &Pool<'_, '_>, at: usize, memory: &str) {
    let status = json!({"status": {"allocatable": {"memory": memory}, "capacity": {"memory": memory}}});
    nodes(pool).patch_status(&pool.node(at), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cordoned_or_whose_budget_is_used_takes_no_model_until_that_is_over() {
    let space = shared_space("cordoned").await;
    let pool = Pool::new(&space, &["100Gi"]);
    let with_budget =
        |budget: &str, cordoned: bool| json!({"spec": {"unschedulable": cordoned}, "metadata": {"annotations": {MEMORY_BUDGET: budget}}});
    pool.create("llama", "120Gi", json!({})).await;
    pool.explains("llama", "it needs 120Gi of memory (100Gi free)").await;
    patch(&pool, 0, with_budget("50Gi", false)).await;
    pool.explains("llama", "it needs 120Gi of memory (50Gi free)").await;
    space.patch(&INFERENCE_MODEL, "llama", json!({"spec": {"memory": "60Gi"}})).await;
    pool.explains("llama", "it needs 60Gi of memory (50Gi free)").await;
    patch(&pool, 0, with_budget("80Gi", true)).await;
    pool.explains("llama", "None of its nodes accepts new pods: they are cordoned, not Ready, or have taints").await;
    patch(&pool, 0, with_budget("80Gi", false)).await;
    pool.ready("llama").await;
    // A running model stays while its node is cordoned, and no other model starts there.
    pool.create("mistral", "30Gi", json!({})).await;
    pool.explains("mistral", "It needs 30Gi of memory (20Gi free)").await;
    patch(&pool, 0, with_budget("80Gi", true)).await;
    pool.explains("mistral", "None of its nodes accepts new pods").await;
    space.patch(&INFERENCE_MODEL, "mistral", json!({"spec": {"memory": "10Gi"}})).await;
    pool.says("mistral", "Allocated", "False", "InsufficientMemory").await;
    pool.ready("llama").await;
    pool.reserves("only one has a place", &[("llama", 0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_others_take_memory_and_a_node_that_shrinks_has_a_model_sleep_that_nobody_asks_for() {
    let space = shared_space("shrinks").await;
    let pool = Pool::new(&space, &["100Gi"]);
    let requests = json!({"requests": {"memory": "50Gi"}});
    let foreign = json!({"spec": {
        "nodeName": pool.node(0), "containers": [{"name": "other", "image": "example.com/other:1", "resources": requests}],
    }});
    space.create(&POD, "other", foreign).await;
    pool.create("llama", "40Gi", json!({})).await;
    pool.ready("llama").await;
    pool.create("mistral", "40Gi", json!({})).await;
    pool.explains("mistral", "It needs 40Gi of memory (10Gi free)").await;
    space.api(&POD).delete("other", &DeleteParams::default().grace_period(0)).await.unwrap();
    pool.ready("mistral").await;

    let gateway = PlayedGateway::new(&pool);
    let seen = ModelActivity { last_request: Some(now() + 2), ..ModelActivity::default() };
    let busy = ModelActivity { in_flight: 1, ..seen.clone() };
    gateway.writes(&[("llama", busy.clone()), ("mistral", seen.clone())]);
    resize(&pool, 0, "60Gi").await;
    let message = pool.says("mistral", "Allocated", "False", "ScaledToZero").await;
    assert!(message.contains("Its node has less memory for models than they have reserved"), "{message}");
    let (_, place) = pool.reserved().await["mistral"].clone();
    gateway.writes(&[("llama", busy), ("mistral", ModelActivity { drained: Some(place.since), ..seen })]);
    pool.reserves("the other stays", &[("llama", 0)]).await;
    pool.ready("llama").await;
    gateway.leaves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_pools_share_their_nodes_and_models_of_a_node_that_is_gone_come_elsewhere() {
    let space = shared_space("overlap").await;
    let pool = Pool::new(&space, &["100Gi", "40Gi"]);
    let first = json!({"nodeSelector": {"inference-pool": pool.name, "at": "0"}});
    pool.create("llama", "60Gi", first.clone()).await;
    pool.ready("llama").await;
    // Two selectors match the node, but its memory is allocated only once.
    pool.create("whole", "40Gi", json!({})).await;
    pool.ready("whole").await;
    pool.reserves("the smallest hole that fits is taken", &[("llama", 0), ("whole", 0)]).await;
    pool.create("more", "40Gi", first).await;
    pool.explains("more", "(0 free)").await;
    space.delete(&INFERENCE_MODEL, "more").await;

    nodes(&pool).delete(&pool.node(0), &DeleteParams::default()).await.unwrap();
    pool.reserves("the one that may run on the other node is there", &[("whole", 1)]).await;
    pool.ready("whole").await;
    pool.explains("llama", "No node has the labels of spec.nodeSelector").await;
}
