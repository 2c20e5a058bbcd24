//! The state of a model on its nodes: OME's agents report it, the leader writes it to the model, and services follow it.

use crate::{
    model_claims,
    services::{Space, condition, fixed, home, own_cluster, with_model},
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use pointsman::permissions::{MODEL_AGENT_NAMESPACE, MODEL_REPORTS};
use pointsman_core::resource::{BASE_MODEL, CLUSTER_BASE_MODEL, DEPLOYMENT};
use pointsman_harness::workspace;
use pointsman_tests::{Host, TestCluster, eventually};
use serde_json::{Value, json};

/// The flag that makes a host write the reports of agents to models.
const REPORTS: [&str; 2] = ["--model-agent-namespace", MODEL_AGENT_NAMESPACE];

/// Grants hosts the right to read the agents' reports, and returns the flags for it.
pub(crate) fn reports_are_read(cluster: &TestCluster) -> [&'static str; 2] {
    cluster.kubectl(&["apply", "-k", workspace().join("deploy").join(MODEL_REPORTS).to_str().unwrap()]).ok();
    REPORTS
}

/// Writes the ConfigMap of a node's agent, with its reports by the models' keys.
pub(crate) fn report(cluster: &TestCluster, node: &str, reports: &[(&str, Value)]) {
    let data: serde_json::Map<String, Value> = reports.iter().map(|(key, report)| ((*key).to_owned(), report.to_string().into())).collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": node, "namespace": MODEL_AGENT_NAMESPACE,
            "labels": {"models.ome/basemodel-status": "true", "node": node},
            "annotations": {"models.ome.io/node-name": node, "models.ome.io/managed-by": "model-agent"},
        },
        "data": data,
    });
    cluster.apply(&map).ok();
}

/// Waits until the model's condition has this reason and a message with this text.
pub(crate) async fn explains(space: &Space<'_>, name: &str, reason: &str, text: &str) -> Value {
    let explained = |model: &Value| {
        let ready = condition(model, "Ready");
        ready["reason"] == reason && ready["message"].as_str().is_some_and(|message| message.contains(text))
    };
    space.becomes(&BASE_MODEL, name, &format!("{reason}: {text}"), explained).await
}

/// A ClusterBaseModel is written in the same way as a BaseModel.
async fn cluster_model_is_written(cluster: &TestCluster, space: &Space<'_>, config: &Value) {
    let api = Api::<DynamicObject>::all_with(space.0.client.clone(), &CLUSTER_BASE_MODEL.api_resource());
    let shared = json!({
        "apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "shared"},
        "spec": {"storage": {"storageUri": "hf://some/model", "path": "/raid/models/shared"}},
    });
    api.create(&PostParams::default(), &serde_json::from_value(shared).unwrap()).await.unwrap();
    let reported = json!({"name": "shared", "status": "Ready", "config": config});
    report(cluster, "cpu-2", &[("clusterbasemodel.shared", reported)]);
    eventually("the ClusterBaseModel is Ready and filled in, and has the finalizer", async || {
        let shared = serde_json::to_value(api.get("shared").await.unwrap()).unwrap();
        let done = shared["status"]["state"] == "Ready"
            && shared["spec"]["modelFormat"]["version"] == "1.0.0"
            && shared["metadata"]["finalizers"] == json!(["clusterbasemodels.ome.io/finalizer"]);
        done.then_some(())
    })
    .await;
    api.delete("shared", &DeleteParams::default()).await.unwrap();
    report(cluster, "cpu-2", &[("clusterbasemodel.shared", json!({"name": "shared", "status": "Deleted"}))]);
    eventually("the ClusterBaseModel is gone", async || api.get_opt("shared").await.unwrap().is_none().then_some(())).await;
}

#[tokio::test]
async fn what_agents_report_becomes_a_model_s_status_and_spec_and_its_services_follow() {
    let cluster = own_cluster(Some(&[]));
    home(&cluster).await;
    let host = Host::start(&cluster, &reports_are_read(&cluster)).await;
    host.ready().await;
    let space = Space::on(&cluster, "reported").await;
    let key = |name: &str| format!("{}.basemodel.{name}", space.0.name);

    // No agent reports on the model whose state the test set, so the state stays.
    space.serves("by-hand", with_model(json!({"engine": fixed(1)}))).await;

    let storage =
        json!({"storageUri": "hf://some/model", "path": "/raid/models/llama", "nodeSelector": {"kubernetes.io/hostname": "nobody"}});
    let spec = json!({"spec": {"modelFormat": {"name": "checkpoint"}, "storage": storage}});
    space.create(&BASE_MODEL, "llama", spec).await;
    explains(&space, "llama", "NoNodeSelected", "is selected by spec.storage.nodeSelector: label the nodes").await;
    let change = json!({"spec": {"storage": {"nodeSelector": null, "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cpu-1"]}]},
            {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L4"]}]}],
    }}}}});
    space.patch(&BASE_MODEL, "llama", change).await;
    let waits = explains(&space, "llama", "NoAgent", "from the 3 selected nodes (cpu-1, l4-0, l4-1)").await;
    assert_eq!((&waits["status"]["state"], &waits["metadata"]["finalizers"]), (&json!("In_Transit"), &Value::Null));

    let service = json!({"model": {"name": "llama"}, "engine": fixed(1)});
    space.service("chat", service).await;
    space.says("chat", "ModelReady", "False", "ModelNotReady").await;

    report(&cluster, "l4-0", &[]);
    explains(&space, "llama", "WaitingForAgents", "haven't started").await;
    let progress = json!({"phase": "Downloading", "totalBytes": 1_000_000, "completedBytes": 480_000, "speedBytesPerSec": 1000.0});
    report(&cluster, "l4-0", &[(&key("llama"), json!({"name": "llama", "status": "Updating", "progress": progress}))]);
    let loads = explains(&space, "llama", "Downloading", "l4-0 has 45 %, about 9m left.").await;
    assert_eq!(loads["status"]["state"], "In_Transit");
    space
        .becomes(&BASE_MODEL, "llama", "it has the finalizer", |model| {
            model["metadata"]["finalizers"] == json!(["basemodels.ome.io/finalizer"])
        })
        .await;

    report(&cluster, "l4-1", &[(&key("llama"), json!({"name": "llama", "status": "Failed", "message": "the disk is full"}))]);
    let config = json!({
        "modelType": "llama", "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": "8.03B", "maxTokens": 131_072,
        "modelFormat": {"name": "safetensors", "version": "1.0.0"}, "modelCapabilities": ["TEXT_TO_TEXT"],
    });
    report(&cluster, "l4-0", &[(&key("llama"), json!({"name": "llama", "status": "Ready", "config": &config}))]);
    let ready = explains(&space, "llama", "NodesReady", "1 of 3 selected nodes hold the model. It failed on l4-1: the disk is full.").await;
    assert_eq!(
        (&ready["status"]["state"], &ready["status"]["nodesReady"], &ready["status"]["nodesFailed"]),
        (&json!("Ready"), &json!(["l4-0"]), &json!(["l4-1"]))
    );
    let filled = space
        .becomes(&BASE_MODEL, "llama", "its spec is filled in", |model| model["spec"]["modelArchitecture"] == "LlamaForCausalLM")
        .await;
    let spec = &filled["spec"];
    assert_eq!(
        (&spec["modelFormat"], &spec["maxTokens"], &spec["modelCapabilities"]),
        (&json!({"name": "checkpoint"}), &json!(131_072), &json!(["TEXT_TO_TEXT"]))
    );
    // The service becomes Ready without an edit.
    space.says("chat", "ModelReady", "True", "ModelReady").await;
    space.becomes(&DEPLOYMENT, "chat-engine", "it is there", |_| true).await;

    // A field that a user has set stays the user's.
    let mine = json!({"apiVersion": "ome.io/v1beta1", "kind": "BaseModel", "metadata": {"name": "llama", "namespace": space.0.name}, "spec": {"maxTokens": 4096}});
    let params = PatchParams::apply("a-user").force();
    space.api(&BASE_MODEL).patch("llama", &params, &Patch::Apply(mine)).await.unwrap();
    report(&cluster, "cpu-1", &[(&key("llama"), json!({"name": "llama", "status": "Ready"}))]);
    let both = explains(&space, "llama", "NodesReady", "2 of 3 selected nodes").await;
    assert_eq!((&both["spec"]["maxTokens"], &both["spec"]["modelType"]), (&json!(4096), &json!("llama")));

    cluster_model_is_written(&cluster, &space, &config).await;

    // A new leader finds nothing to write.
    host.stop();
    let before = space.get(&BASE_MODEL, "llama").await;
    let host = Host::start(&cluster, &[&REPORTS[..], &["--identity", "pointsman-0"]].concat()).await;
    host.ready().await;
    space.unready_model("later", json!({})).await;
    explains(&space, "later", "WaitingForAgents", "").await;
    let after = space.get(&BASE_MODEL, "llama").await;
    assert_eq!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"], "{after:#}");

    // An agent's report about a deleted node is ignored.
    let nodes = Api::<Node>::all(space.0.client.clone());
    for node in ["l4-0", "cpu-1"] {
        nodes.delete(node, &DeleteParams::default()).await.unwrap();
    }
    let gone = explains(&space, "llama", "DownloadFailed", "It failed on l4-1: the disk is full.").await;
    assert_eq!((&gone["status"]["state"], &gone["status"]["nodesReady"]), (&json!("Failed"), &json!([])));

    // The model is deleted once the agents of existing nodes have deleted its files.
    space.delete(&BASE_MODEL, "llama").await;
    let deleted = space.get(&BASE_MODEL, "llama").await;
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    report(&cluster, "l4-1", &[]);
    space.goes(&BASE_MODEL, "llama").await;
    model_claims::are_inspected_in_the_host_s_image(&cluster, &space, "pointsman-0").await;
    let is_by_hand = |model: &Value| model["status"]["state"] == "Ready" && model["status"]["conditions"].is_null();
    space.becomes(&BASE_MODEL, "model", "its state is by hand, and nothing else is said of it", is_by_hand).await;
    let logged = host.logged();
    assert!(!logged.iter().any(|line| line["target"] == "pointsman::model_status"), "{logged:#?}");
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_host_that_may_not_read_reports_says_what_to_apply_and_writes_nothing() {
    let cluster = own_cluster(Some(&[]));
    home(&cluster).await;
    let flags = [&REPORTS[..], &["--model-inspect-image", "example.com/pointsman:1"]].concat();
    let host = Host::start(&cluster, &flags).await;
    host.ready().await;
    let space = Space::on(&cluster, "unread").await;
    let expected = format!(
        "the status of models isn't written: the host has no right to list configmaps of model agents: apply deploy/model-reports to the namespace {MODEL_AGENT_NAMESPACE}"
    );
    eventually("it says so", async || host.logged().iter().any(|line| line["message"] == *expected).then_some(())).await;
    space.unready_model("waits", json!({})).await;
    reports_are_read(&cluster);
    explains(&space, "waits", "NoAgent", "").await;
    model_claims::are_inspected(&cluster, &space).await;
}
