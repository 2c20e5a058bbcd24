//! A service that can't be served reports the reason and the remedy, existing objects stay, and the fix is enough.

use super::{
    BASE_MODEL, DEPLOYMENT, INFERENCE_SERVICE, SERVICE, SERVICE_ACCOUNT, SERVING_RUNTIME, Space, condition, fixed, is_ready,
    simple_runtime, with_model,
};
use pointsman_harness::Behaviour;
use pointsman_tests::eventually;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[tokio::test]
async fn a_service_waits_for_a_model_that_is_missing_or_on_its_way() {
    let space = Space::shared_bare("model").await;
    space.create(&SERVING_RUNTIME, "runtime", json!({"spec": simple_runtime()})).await;
    space.service("chat", with_model(json!({}))).await;
    let said = space.says("chat", "ModelReady", "False", "ModelNotFound").await;
    assert!(said.contains("no BaseModel model") && said.contains("create it, or correct spec.model.name"), "{said}");
    assert_eq!(space.says("chat", "Ready", "False", "ModelNotFound").await, said);
    assert_eq!(space.warned("chat", "ModelNotFound").await, said);
    let failure = space.get(&INFERENCE_SERVICE, "chat").await["status"]["modelStatus"]["lastFailureInfo"].clone();
    assert_eq!((&failure["reason"], &failure["message"]), (&json!("ModelLoadFailed"), &json!(said)));

    space.unready_model("model", json!({})).await;
    let said = space.says("chat", "ModelReady", "False", "ModelNotReady").await;
    let (namespace, label) = (&space.0.name, format!("models.ome.io/{}.basemodel.model=Ready", space.0.name));
    let remedy = format!("`kubectl patch basemodel model --namespace {namespace} --subresource status --type merge");
    let files = format!("the model's files in /mnt/models/model: `kubectl label node NODE {label}`");
    for words in ["has no state on any node yet. The model agents report it", &files, &remedy] {
        assert!(said.contains(words), "{words}: {said}");
    }
    space.patch_status(&BASE_MODEL, "model", json!({"state": "In_Transit"})).await;
    let in_transit =
        |service: &Value| condition(service, "ModelReady")["message"].as_str().is_some_and(|said| said.contains("is In_Transit"));
    space.becomes(&INFERENCE_SERVICE, "chat", "the model's state is told", in_transit).await;
    space.patch_status(&BASE_MODEL, "model", json!({"state": "Failed", "nodesFailed": ["cpu-1"]})).await;
    let said = space.says("chat", "ModelReady", "False", "ModelFailed").await;
    assert!(said.contains("it failed on cpu-1"), "{said}");
    assert!(space.made().await.is_empty());
    space.patch_status(&BASE_MODEL, "model", json!({"state": "Ready"})).await;
    let service = space.ready("chat").await;
    assert!(service["status"]["modelStatus"]["lastFailureInfo"].is_null(), "{:#}", service["status"]);
}

#[tokio::test]
async fn a_model_that_is_disabled_or_gone_while_it_is_served_stops_changes_and_no_pods() {
    let space = Space::shared("disabled").await;
    space.serves("chat", with_model(json!({}))).await;
    let (pods, made) = (space.pod_uids("chat").await, space.made().await);
    space.patch(&BASE_MODEL, "model", json!({"spec": {"disabled": true}})).await;
    let said = space.says("chat", "ModelReady", "False", "ModelDisabled").await;
    assert!(said.contains("enable it (spec.disabled)"), "{said}");
    space.says("chat", "Applied", "Unknown", "Held").await;
    space.patch(&BASE_MODEL, "model", json!({"spec": {"disabled": false}})).await;
    space.ready("chat").await;
    space.delete(&BASE_MODEL, "model").await;
    space.says("chat", "ModelReady", "False", "ModelNotFound").await;
    assert_eq!((space.pod_uids("chat").await, space.made().await), (pods, made));
}

#[tokio::test]
async fn a_size_that_can_not_be_read_is_told_with_its_form() {
    let space = Space::shared("size").await;
    space.patch(&SERVING_RUNTIME, "runtime", json!({"spec": {"modelSizeRange": {"min": "1B", "max": "9B"}}})).await;
    space.serves("chat", with_model(json!({}))).await;
    let pods = space.pod_uids("chat").await;
    space.patch(&BASE_MODEL, "model", json!({"spec": {"modelParameterSize": "huge"}})).await;
    let said = space.says("chat", "RuntimeSelected", "False", "RuntimeUnsuitable").await;
    assert!(said.contains("`huge` can't be read") && said.contains("such as 8B"), "{said}");
    space.patch(&BASE_MODEL, "model", json!({"spec": {"modelParameterSize": "7B"}})).await;
    space.ready("chat").await;
    space.patch(&SERVING_RUNTIME, "runtime", json!({"spec": {"modelSizeRange": {"max": "lots"}}})).await;
    let said = space.says("chat", "RuntimeSelected", "False", "RuntimeUnsuitable").await;
    assert!(said.contains("`lots` can't be read"), "{said}");
    space.patch(&SERVING_RUNTIME, "runtime", json!({"spec": {"modelSizeRange": {"max": "9B"}}})).await;
    space.ready("chat").await;
    assert_eq!(space.pod_uids("chat").await, pods);
}

#[tokio::test]
async fn what_the_api_server_refuses_is_told_in_its_words_and_what_runs_stays() {
    let space = Space::shared("refused").await;
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    let pods = space.pod_uids("chat").await;
    // The CRD rejects an invalid quantity.
    let runner = |limit: &str| json!({"engine": {"runner": {"name": "ome-container", "resources": {"limits": {"nvidia.com/gpu": limit}}}}});
    let change = json!({"spec": runner("many")}).to_string();
    let said = space.kubectl(&["patch", "inferenceservice", "chat", "--type=merge", "-p", &change]).refused();
    assert!(said.contains("nvidia.com/gpu"), "{said}");
    // The policy rejects half a GPU.
    space.change("chat", runner("500m")).await;
    let said = space.says("chat", "Decided", "False", "PolicyFailed").await;
    assert!(said.contains("Existing objects stay") && said.contains("nvidia.com/gpu") && said.contains("such as 8"), "{said}");
    // Only the API server checks whether a mounted volume exists.
    let mounts = json!([{"name": "nothing", "mountPath": "/data"}]);
    space.change("chat", json!({"engine": {"runner": {"resources": null, "volumeMounts": mounts}}})).await;
    let said = space.says("chat", "Applied", "False", "Invalid").await;
    assert!(said.contains("Deployment") && said.contains("volumeMounts") && said.contains("nothing"), "{said}");
    assert_eq!(space.warned("chat", "Invalid").await, said);
    assert_eq!(space.says("chat", "Ready", "False", "Invalid").await, said);
    assert_eq!(space.pod_uids("chat").await, pods);
    space.change("chat", json!({"engine": {"runner": {"volumeMounts": null}}})).await;
    space.ready("chat").await;
    assert_eq!(space.pod_uids("chat").await, pods);
}

#[tokio::test]
async fn the_objects_of_others_are_left_alone_whatever_their_name() {
    let space = Space::shared("taken").await;
    space.kubectl(&["create", "deployment", "web-engine", "--image=example.com/theirs:1"]).ok();
    space.kubectl(&["create", "service", "clusterip", "shop", "--tcp=80:80"]).ok();
    space.kubectl(&["create", "serviceaccount", "talk-router"]).ok();
    let router = json!({"runner": {"name": "router", "image": "example.com/router:1"}});
    let taken: [(_, _, &str, Value); 3] = [
        ("web", &DEPLOYMENT, "web-engine", json!({"engine": fixed(1)})),
        ("shop", &SERVICE, "shop", json!({"engine": fixed(1)})),
        ("talk", &SERVICE_ACCOUNT, "talk-router", json!({"engine": fixed(1), "router": router})),
    ];
    for (service, resource, name, spec) in taken {
        let theirs = space.get(resource, name).await;
        space.service(service, with_model(spec)).await;
        let said = space.says(service, "Applied", "False", "NameTaken").await;
        assert!(said.contains(resource.kind) && said.contains("delete it or give the service another name"), "{said}");
        let now = space.get(resource, name).await;
        for part in ["uid", "ownerReferences", "labels"] {
            assert_eq!(now["metadata"][part], theirs["metadata"][part], "{name}");
        }
        assert_eq!(now["spec"], theirs["spec"], "{name}");
        space.delete(resource, name).await;
        space.ready(service).await;
    }
}

#[tokio::test]
async fn pods_that_crash_are_told_with_exit_code_and_time_and_a_working_version_goes_on() {
    let space = Space::shared("crash").await;
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    let before = space.pods("chat").await.into_keys().next().unwrap();
    let id = format!("{}-crash", space.0.name);
    let next = BTreeMap::from([("serving.ome.io/revision", "00002")]);
    space.0.cluster.behave(&id, &space.0.name, &next, Behaviour::Crash).unwrap();
    let image = |version: u32| json!({"engine": {"runner": {"name": "ome-container", "image": format!("example.com/engine:{version}")}}});
    space.change("chat", image(2)).await;
    let blocked = |service: &Value| service["status"]["modelStatus"]["transitionStatus"] == "BlockedByFailedLoad";
    let service = space.becomes(&INFERENCE_SERVICE, "chat", "it is blocked", blocked).await;
    // The service is Ready with its previous pod, and names the pod that blocks the update.
    let stuck = space.says("chat", "Ready", "True", "UpdateStuck").await;
    assert!(stuck.contains("its update is stuck: the pod chat-engine-") && stuck.contains("CrashLoopBackOff"), "{stuck}");
    let status = &service["status"]["modelStatus"];
    assert_eq!(status["modelRevisionStates"], json!({"activeModelState": "Loaded", "targetModelState": "FailedToLoad"}));
    assert_eq!(status["modelCopies"], json!({"failedCopies": 1, "totalCopies": 1}));
    let failure = &status["lastFailureInfo"];
    assert_eq!((&failure["exitCode"], &failure["reason"]), (&json!(1), &json!("ModelLoadFailed")));
    assert_eq!(failure["modelRevisionName"], "chat-engine-00002");
    assert!(failure["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{failure}");
    assert!(failure["message"].as_str().unwrap().contains("CrashLoopBackOff"), "{failure}");
    let pods = space.pods("chat").await;
    assert!(is_ready(&pods[&before]), "the working version serves on");
    assert_eq!(service["status"]["components"]["engine"]["latestCreatedRevision"], "chat-engine-00002");
    assert_eq!(service["status"]["components"]["engine"]["latestReadyRevision"], "chat-engine-00001");

    // A working version fixes it.
    space.change("chat", image(3)).await;
    let service = space.ready("chat").await;
    assert!(service["status"]["modelStatus"]["lastFailureInfo"].is_null());
    space.0.cluster.behave_normally(&id).unwrap();
}

#[tokio::test]
async fn an_engine_that_only_crashes_is_not_ready() {
    let space = Space::shared("crashing").await;
    let id = format!("{}-crash", space.0.name);
    let all = BTreeMap::from([("serving.ome.io/inferenceservice", "chat")]);
    space.0.cluster.behave(&id, &space.0.name, &all, Behaviour::Crash).unwrap();
    space.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    let said = space.says("chat", "EngineReady", "False", "PodsFailing").await;
    assert!(said.contains("CrashLoopBackOff") && said.contains("exit code 1"), "{said}");
    assert_eq!(space.says("chat", "Ready", "False", "PodsFailing").await, said);
    assert_eq!(space.warned("chat", "PodsFailing").await, said);
    space.0.cluster.behave_normally(&id).unwrap();
    space.kubectl(&["delete", "pods", "--all", "--wait=false"]).ok();
    space.ready("chat").await;
}

/// The nodes without a model, by the command in the condition's message.
fn without(space: &Space<'_>, label: &str) -> BTreeSet<String> {
    let selector = format!("{label}!=Ready");
    space.kubectl(&["get", "nodes", "--selector", &selector, "-o", "name"]).ok().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_service_whose_model_is_on_no_node_waits_and_says_for_what() {
    let space = Space::shared("homeless").await;
    let place = |node: &str, state: &str| {
        let label = format!("models.ome.io/{}.basemodel.model{state}", space.0.name);
        space.0.cluster.kubectl(&["label", "node", node, &label, "--overwrite"]).ok()
    };
    for node in ["cpu-0", "cpu-1", "cpu-2"] {
        place(node, "=Updating");
    }
    space.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    let said = space.says("chat", "EngineReady", "Unknown", "Unschedulable").await;
    let label = format!("models.ome.io/{}.basemodel.model", space.0.name);
    for words in [
        "has no node",
        &format!("The pod requires a node with the label {label}=Ready, which the model agent sets"),
        &format!("`kubectl label node NODE {label}=Ready`"),
        &format!("`kubectl get nodes --selector '{label}!=Ready'`"),
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(without(&space, &label).contains("node/cpu-2"), "the command lists the nodes without the label");
    space.says("chat", "Ready", "Unknown", "Unschedulable").await;
    assert!(eventually("its pod is there", async || space.pods("chat").await.into_values().next()).await["spec"]["nodeName"].is_null());
    place("cpu-2", "=Ready");
    assert!(!without(&space, &label).contains("node/cpu-2"));
    space.ready("chat").await;
    assert_eq!(space.pods("chat").await.into_values().next().unwrap()["spec"]["nodeName"], "cpu-2");
}
