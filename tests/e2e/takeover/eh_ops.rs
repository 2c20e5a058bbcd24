//! The adoption of an InferenceModel from eh-ops' own controller.

use super::{MANAGER, Other, adopt, host, looks_again, run, running, unmarked};
use crate::{
    models::reservations,
    services::{Space, condition, own_cluster},
};
use kube::api::{Patch, PatchParams};
use pointsman_core::{
    allocation::ObjectName,
    resource::{DEPLOYMENT, INFERENCE_MODEL, SERVICE},
};
use pointsman_tests::eventually;
use serde_json::json;

const FINALIZER: &str = "inference.eh-ops.io/finalizer";

/// The objects of eh-ops' controller for a model.
async fn made_by_eh_ops(space: &Space<'_>) {
    let spec = json!({
        "modelName": "llama", "memory": "60Gi", "backendUrl": "http://llama:8000", "containerImage": "example.com/vllm:1",
        "nodeSelector": {"inference-pool": "default"},
    });
    space.create(&INFERENCE_MODEL, "llama", json!({"spec": spec})).await;
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    space.api(&INFERENCE_MODEL).patch("llama", &params, &finalizers).await.unwrap();
    let other = Other::new(space, &INFERENCE_MODEL, "llama");
    let labels = json!({
        "app.kubernetes.io/name": "llama", "app.kubernetes.io/component": "inference-server", "inference.eh-ops.io/model": "llama",
        "inference.eh-ops.io/managed": "true",
    });
    let resources = json!({"requests": {"memory": "60Gi"}, "limits": {"memory": "60Gi"}});
    let container = json!({
        "name": "inference", "image": "example.com/vllm:1", "ports": [{"name": "http", "containerPort": 8080}], "resources": resources,
    });
    let annotations = json!({"inference.eh-ops.io/last-request-time": "2026-01-01T00:00:00Z"});
    let pod = json!({"containers": [container], "nodeSelector": {"inference-pool": "default"}});
    let selector = json!({"app.kubernetes.io/name": "llama"});
    let template = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": pod});
    let deployment = json!({"replicas": 1, "selector": {"matchLabels": selector}, "template": template});
    other.makes(&DEPLOYMENT, "llama", labels.clone(), json!({"spec": deployment})).await;
    let ports = json!([{"name": "http", "port": 8000, "targetPort": 8080, "protocol": "TCP"}]);
    other.makes(&SERVICE, "llama", labels, json!({"spec": {"selector": selector, "ports": ports}})).await;
    let ready =
        json!({"type": "Ready", "status": "True", "reason": "Deployed", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""});
    other.tells(json!({"conditions": [ready], "ready": true, "replicas": 1})).await;
}

/// The node with a reservation for the model, if there is one.
async fn reserved(space: &Space<'_>) -> Option<String> {
    let model = ObjectName(format!("{}/llama", space.0.name));
    let (nodes, _) = reservations(&space.0.client).await;
    nodes.into_iter().find_map(|(node, places)| places.contains_key(&model).then_some(node))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_model_of_eh_ops_own_controller_keeps_its_pod_and_its_node_and_is_given_back() {
    let cluster = own_cluster(Some(&[]));
    let node = |name: &str| json!({"name": name, "labels": {"inference-pool": "default"}, "capacity": {"cpu": "64", "memory": "100Gi"}});
    cluster.add_nodes(&json!({"nodes": [node("a"), node("b")]}).to_string()).unwrap();
    // If both nodes were free, our placement would choose the first one.
    cluster.kubectl(&["cordon", "a"]).ok();
    let space = Space::bare(&cluster, "from-eh-ops").await;
    made_by_eh_ops(&space).await;
    let pods = run(&space, 1).await;
    cluster.kubectl(&["uncordon", "a"]).ok();
    let host = host(&cluster).await;
    space.says_of(&INFERENCE_MODEL, "llama", "Contested", "True", "OtherController").await;
    assert_eq!(reserved(&space).await, None);

    let old = space.get(&DEPLOYMENT, "llama").await;
    let preview = adopt(&space, &["infmodel/llama", "--force"]).ok();
    assert!(preview.contains("InferenceModel") && preview.contains("/llama: 0 pods restart\n"), "{preview}");
    adopt(&space, &["infmodel/llama", "--yes", "--force"]).ok();
    space.says_of(&INFERENCE_MODEL, "llama", "Ready", "True", "Deployed").await;
    assert_eq!(reserved(&space).await.as_deref(), Some("b"));
    let now = space.get(&DEPLOYMENT, "llama").await;
    for part in ["/metadata/uid", "/spec/template", "/spec/selector", "/spec/replicas"] {
        assert_eq!(now.pointer(part), old.pointer(part), "{part}");
    }
    assert_eq!((running(&space).await, space.reached("llama").len()), (pods.clone(), 1));
    // Our finalizer has the same name, so either controller can remove it.
    let model =
        space.becomes(&INFERENCE_MODEL, "llama", "it has the finalizer", |model| model["metadata"]["finalizers"][0] == FINALIZER).await;
    assert_eq!(condition(&model, "Contested")["status"], "False");
    let before = space.writes();
    looks_again(&space, &host, &INFERENCE_MODEL, "llama").await;
    assert_eq!(space.writes(), before);

    // The model sleeps and wakes like any other: its next pod is ours.
    let replicas = |number: u32| json!({"spec": {"maxReplicas": number}});
    space.patch(&INFERENCE_MODEL, "llama", replicas(0)).await;
    eventually("its memory is free", async || reserved(&space).await.is_none().then_some(())).await;
    assert!(running(&space).await.is_empty());
    space.patch(&INFERENCE_MODEL, "llama", replicas(1)).await;
    space.says_of(&INFERENCE_MODEL, "llama", "Ready", "True", "Deployed").await;
    let place = reserved(&space).await.unwrap();
    let pods = run(&space, 1).await;
    let pod = space.pods_with("app.kubernetes.io/name=llama").await.into_values().next().unwrap();
    assert_eq!(
        (pod["spec"]["nodeName"].as_str(), &pod["metadata"]["labels"]["pointsman.dev/subject-kind"]),
        (Some(&*place), &json!("InferenceModel"))
    );

    adopt(&space, &["infmodel/llama", "--back", "--yes"]).ok();
    eventually("nothing is reserved for it", async || reserved(&space).await.is_none().then_some(())).await;
    let now = space.get(&DEPLOYMENT, "llama").await;
    assert!(unmarked(&now), "{:#}", now["metadata"]);
    assert_eq!((running(&space).await, space.reached("llama").len()), (pods, 1));
    assert_eq!(space.get(&INFERENCE_MODEL, "llama").await["metadata"]["finalizers"], json!([FINALIZER]));
    host.stop();
}
