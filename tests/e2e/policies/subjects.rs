//! One plugin for subjects of all systems.

use crate::services::{Space, fixed, own_cluster, with_model};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource};
use pointsman_tests::{Host, TestCluster, eventually, example_plugin, plugin_bytes};
use serde_json::json;
use std::path::Path;

const LABEL: &str = "cost-centre";

/// The Deployments of an InferenceService and an LLMInferenceService, and the selectors of their pods.
const MADE: [(&Resource, &str, &str); 2] = [
    (&INFERENCE_SERVICE, "chat-engine", "serving.ome.io/inferenceservice=chat"),
    (&LLM_INFERENCE_SERVICE, "llama-kserve", "app.kubernetes.io/name=llama"),
];

async fn number(space: &Space<'_>, centre: &str) {
    let change = Patch::Merge(json!({"metadata": {"labels": {LABEL: centre}}}));
    Api::<Namespace>::all(space.0.client.clone()).patch(&space.0.name, &PatchParams::default(), &change).await.unwrap();
}

fn push(cluster: &TestCluster, file: &Path) {
    let file = file.to_string_lossy();
    let at_once = ["--strategy", "Immediate", "--order", "100"];
    cluster.pointsman(&[&["plugin", "push", &file, "--name", "cost-centre"][..], &at_once].concat()).ok();
}

/// Waits until the Deployments of both services, and all their pods, have the expected values of the label.
async fn carry(space: &Space<'_>, on_objects: Option<&str>, on_pods: Option<&str>) {
    for (kind, deployment, selector) in MADE {
        eventually(&format!("{}: {on_objects:?} is on objects and {on_pods:?} on pods", kind.kind), async || {
            let object = space.get(&DEPLOYMENT, deployment).await;
            let pods = space.pods_with(selector).await;
            let carried = pods.values().all(|pod| pod["metadata"]["labels"][LABEL].as_str() == on_pods);
            (!pods.is_empty() && carried && object["metadata"]["labels"][LABEL].as_str() == on_objects).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_label_of_the_namespace_reaches_both_systems_by_one_plugin_and_so_does_its_next_version() {
    let cluster = own_cluster(Some(&[]));
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let space = Space::on(&cluster, "labels").await;
    number(&space, "4711").await;
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    space.create(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"model": {"uri": "hf://example/llama"}}})).await;
    space.says_of(&LLM_INFERENCE_SERVICE, "llama", "Ready", "True", "Ready").await;
    carry(&space, None, None).await;

    let first = cluster.dir.join("first.wasm");
    std::fs::write(&first, plugin_bytes("pointsman-example-rust-labels")).unwrap();
    push(&cluster, &first);
    carry(&space, None, Some("4711")).await;
    push(&cluster, &example_plugin("pointsman-example-rust-labels", "pointsman-example-rust-labels-next"));
    carry(&space, Some("centre-4711"), Some("centre-4711")).await;
    number(&space, "815").await;
    carry(&space, Some("centre-815"), Some("centre-815")).await;
    cluster.kubectl(&["delete", "policyplugin", "cost-centre"]).ok();
    carry(&space, None, None).await;
    space.ready("chat").await;
    space.says_of(&LLM_INFERENCE_SERVICE, "llama", "Ready", "True", "Ready").await;
    host.stop();
}
