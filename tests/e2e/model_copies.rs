//! Models that only some of their selected nodes hold: the policies at scheduling-scoring choose these nodes.

use crate::{
    model_nodes::{explains, report, reports_are_read},
    services::{Space, home, own_cluster},
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::DeleteParams};
use pointsman_core::{
    model_nodes::copies::{COPIES, COPY_NODES},
    resource::BASE_MODEL,
};
use pointsman_sandbox::{builtin, digest::Digest};
use pointsman_tests::{Host, PolicyCluster};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Two nodes in each of two zones. In each zone one has fewer accelerators; the last node is the cheapest.
fn nodes() -> Value {
    let node = |name: &str, zone: &str, gpus: u32, price: &str| {
        let labels = json!({"pool": "copies", "topology.kubernetes.io/zone": zone, "pointsman.dev/price": price});
        json!({"name": name, "labels": labels, "capacity": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": gpus.to_string()}})
    };
    json!({"nodes": [
        node("a-large", "a", 8, "4"), node("a-small", "a", 2, "3"), node("b-large", "b", 8, "2"), node("b-small", "b", 2, "1"),
    ]})
}

fn chosen(model: &Value) -> BTreeSet<&str> {
    let names = model["metadata"]["annotations"][COPY_NODES].as_str().unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).collect()
}

async fn create(space: &Space<'_>, name: &str, copies: &str) {
    let spec = json!({"storage": {"storageUri": "hf://some/model", "path": format!("/raid/{name}"), "nodeSelector": {"pool": "copies"}}});
    space.create(&BASE_MODEL, name, json!({"metadata": {"annotations": {COPIES: copies}}, "spec": spec})).await;
}

async fn has_copies_on(space: &Space<'_>, name: &str, nodes: &[&str]) {
    let nodes = nodes.iter().copied().collect::<BTreeSet<_>>();
    space.becomes(&BASE_MODEL, name, &format!("its copies are on {nodes:?}"), |model| chosen(model) == nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_choose_the_nodes_of_a_model_s_copies_and_what_is_chosen_stays() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    home(&cluster).await;
    cluster.add_nodes(&nodes().to_string()).unwrap();
    let host = Host::start(&cluster, &reports_are_read(&cluster)).await;
    host.ready().await;
    let space = Space::bare(&cluster, "copies").await;
    let key = |name: &str| format!("{}.basemodel.{name}", space.0.name);

    // One node per zone: the one with the most free accelerators.
    create(&space, "spread", "2").await;
    has_copies_on(&space, "spread", &["a-large", "b-large"]).await;
    explains(&space, "spread", "NoAgent", "from the 2 selected nodes (a-large, b-large)").await;
    for node in ["a-large", "b-large"] {
        report(&cluster, node, &[(&key("spread"), json!({"name": "spread", "status": "Ready"}))]);
    }
    explains(&space, "spread", "NodesReady", "2 of 2 selected nodes hold the model.").await;

    // If the node of a copy disappears, the copy moves to another node of the zone that lacks one.
    Api::<Node>::all(space.0.client.clone()).delete("a-large", &DeleteParams::default()).await.unwrap();
    has_copies_on(&space, "spread", &["a-small", "b-large"]).await;

    // Another policy chooses the nodes of later copies. Existing choices stay.
    let bytes = builtin::find("scheduling-scoring").unwrap().bytes;
    cluster.config_map("cheap-nodes", bytes).await;
    let more = json!({"mode": "Replace", "order": 200, "strategy": {"type": "Immediate"}, "config": {"nodePlacement": {"price": 1000}}});
    cluster.plugin_of_config_map("cheap-nodes", more).await;
    cluster.active("cheap-nodes", &Digest::hash(bytes).to_string()).await;
    create(&space, "cheap", "1").await;
    has_copies_on(&space, "cheap", &["b-small"]).await;
    space.patch(&BASE_MODEL, "spread", json!({"metadata": {"annotations": {COPIES: "3"}}})).await;
    has_copies_on(&space, "spread", &["a-small", "b-large", "b-small"]).await;

    // If there are too many copies, the nodes that hold the model stay. Copies without a node are reported.
    space.patch(&BASE_MODEL, "spread", json!({"metadata": {"annotations": {COPIES: "1"}}})).await;
    has_copies_on(&space, "spread", &["b-large"]).await;
    space.patch(&BASE_MODEL, "spread", json!({"metadata": {"annotations": {COPIES: "4"}}})).await;
    explains(&space, "spread", "NodesReady", "1 of 3 selected nodes hold the model. Copies without a node: 1.").await;

    create(&space, "mistaken", "two").await;
    explains(&space, "mistaken", "InvalidCopies", "The annotation pointsman.dev/copies is \"two\": set a number from 1 to 64").await;
    // A user who writes the node names takes the choice over.
    let by_hand = json!({"metadata": {"annotations": {COPIES: "1", COPY_NODES: "a-small"}}});
    space.patch(&BASE_MODEL, "mistaken", by_hand).await;
    explains(&space, "mistaken", "NoAgent", "from the 1 selected node (a-small)").await;
}
