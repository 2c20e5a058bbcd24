//! The choice of a runtime: it is kept, or the service names one; and the effects of an edit of a runtime.

use super::{DEPLOYMENT, INFERENCE_SERVICE, SERVICE, SERVING_RUNTIME, Space, condition, fixed, generation, simple_runtime, with_model};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The annotation that requests a new choice.
const CHOOSE: &str = "pointsman.dev/choose-runtime";

/// A runtime that is chosen before those with a lower priority, with an image of the same name.
fn runtime(name: &str, priority: i64) -> Value {
    let mut spec = simple_runtime();
    spec["supportedModelFormats"][0]["priority"] = priority.into();
    spec["engineConfig"]["runner"]["image"] = format!("example.com/{name}:1").into();
    json!({ "spec": spec })
}

fn image(deployment: &Value) -> &str {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

#[tokio::test]
async fn of_two_runtimes_that_suit_equally_well_the_first_by_name_is_taken_and_the_tie_is_told() {
    let space = Space::shared_bare("tie").await;
    space.model("model").await;
    for name in ["beta", "alpha"] {
        space.create(&SERVING_RUNTIME, name, runtime(name, 1)).await;
    }
    let service = space.serves("chat", with_model(json!({}))).await;
    assert_eq!(service["status"]["runtime"]["name"], "alpha");
    let said = space.says("chat", "RuntimeSelected", "True", "Tie").await;
    assert!(said.contains("ServingRuntime alpha") && said.contains("ServingRuntime beta"), "{said}");
    assert_eq!(space.warned("chat", "Tie").await, said);
    assert_eq!(image(&space.get(&DEPLOYMENT, "chat-engine").await), "example.com/alpha:1");
}

#[tokio::test]
async fn a_named_runtime_that_does_not_suit_is_refused_with_the_reason_until_it_is_mended() {
    let space = Space::shared("named").await;
    let mut other = runtime("other", 1);
    other["spec"]["supportedModelFormats"][0]["modelFormat"]["name"] = "another".into();
    other["spec"]["modelSizeRange"] = json!({"min": "70B"});
    space.create(&SERVING_RUNTIME, "other", other).await;
    space.service("chat", with_model(json!({"runtime": {"name": "other"}}))).await;
    let said = space.says("chat", "RuntimeSelected", "False", "FormatMismatch").await;
    assert!(said.contains("ServingRuntime other") && said.contains("another") && said.contains("checkpoint"), "{said}");
    assert_eq!(space.warned("chat", "FormatMismatch").await, said);
    let service = space.get(&INFERENCE_SERVICE, "chat").await;
    assert_eq!(service["status"]["modelStatus"]["transitionStatus"], "InvalidSpec");
    assert_eq!(condition(&service, "Ready")["reason"], "FormatMismatch");
    assert!(space.made().await.is_empty());

    let formats = json!([{"modelFormat": {"name": "checkpoint"}}]);
    space.patch(&SERVING_RUNTIME, "other", json!({"spec": {"supportedModelFormats": formats}})).await;
    let said = space.says("chat", "RuntimeSelected", "False", "SizeOutOfRange").await;
    assert!(said.contains("70B") && said.contains("7B"), "{said}");
    // A runtime that the service names needs no autoSelect.
    space.patch(&SERVING_RUNTIME, "other", json!({"spec": {"modelSizeRange": null}})).await;
    space.ready("chat").await;
    space.says("chat", "RuntimeSelected", "True", "Named").await;
    assert_eq!(image(&space.get(&DEPLOYMENT, "chat-engine").await), "example.com/other:1");
}

#[tokio::test]
async fn a_better_runtime_is_told_and_taken_only_when_asked_for() {
    let space = Space::shared("sticky").await;
    let first = space.serves("chat", with_model(json!({}))).await;
    let pods = space.pod_uids("chat").await;
    space.create(&SERVING_RUNTIME, "better", runtime("better", 5)).await;
    let said = space.says("chat", "RuntimeUpToDate", "False", "BetterRuntime").await;
    assert!(said.contains("ServingRuntime better") && said.contains(CHOOSE), "{said}");
    assert_eq!(space.warned("chat", "BetterRuntime").await, said);
    let service = space.get(&INFERENCE_SERVICE, "chat").await;
    assert_eq!((&condition(&service, "Ready")["status"], &service["status"]["runtime"]), (&json!("True"), &first["status"]["runtime"]));
    assert_eq!(space.pod_uids("chat").await, pods);

    // The annotation requests a new choice ...
    space.annotate("chat", json!({CHOOSE: "now"})).await;
    space.says("chat", "RuntimeUpToDate", "True", "Best").await;
    let service = space.ready("chat").await;
    assert_eq!(
        (&service["status"]["runtime"]["name"], &service["status"]["runtime"]["chosenOnRequest"]),
        (&json!("better"), &json!("now"))
    );
    assert_eq!(image(&space.get(&DEPLOYMENT, "chat-engine").await), "example.com/better:1");

    // ... and so does a change of the service.
    space.create(&SERVING_RUNTIME, "best", runtime("best", 9)).await;
    space.says("chat", "RuntimeUpToDate", "False", "BetterRuntime").await;
    space.change("chat", json!({"engine": fixed(1)})).await;
    let service = space.ready("chat").await;
    assert_eq!(service["status"]["runtime"]["name"], "best");
    assert_eq!(image(&space.get(&DEPLOYMENT, "chat-engine").await), "example.com/best:1");
}

#[tokio::test]
async fn explain_tells_from_the_cluster_what_the_host_has_done_and_why() {
    let space = Space::shared("explain").await;
    space.serves("chat", with_model(json!({}))).await;
    space.create(&SERVING_RUNTIME, "better", runtime("better", 5)).await;
    space.create(&SERVING_RUNTIME, "off", json!({"spec": {"disabled": true, "supportedModelFormats": []}})).await;
    space.says("chat", "RuntimeUpToDate", "False", "BetterRuntime").await;
    // Otherwise the status could change between the two reads that are compared.
    space.ready("chat").await;
    let wrote = space.writes().len();
    let explain = |words: &[&str]| space.0.cluster.pointsman(&[&["explain", "-n", &space.0.name], words].concat());
    let told: Value = serde_json::from_str(&explain(&["isvc/chat", "-o", "json"]).ok()).unwrap();
    assert_eq!(told["subject"], json!({"kind": "InferenceService", "namespace": space.0.name, "name": "chat"}));

    let decisions = told["decisions"].as_array().unwrap();
    let selection = decisions.iter().find(|decision| decision["point"] == "runtime-selection").unwrap();
    assert_eq!(selection["selected"]["name"], "runtime");
    assert_eq!(selection["ranked"][0]["name"], "better");
    let off = selection["excluded"].as_array().unwrap().iter().find(|excluded| excluded["name"] == "off").unwrap();
    assert_eq!(off["code"], "Disabled");
    assert!(selection["plugins"][0]["digest"].as_str().unwrap().starts_with("sha256:"));

    // These are the host's own decisions: the labels are those of the object, and the conditions are those of the status.
    let of_service = |decision: &&Value| decision["target"]["kind"] == "Service" && decision["target"]["name"] == "chat-engine";
    let labels = decisions.iter().find(of_service).unwrap()["labels"].as_array().unwrap();
    let labels: BTreeMap<&str, &Value> = labels.iter().map(|label| (label["key"].as_str().unwrap(), &label["value"])).collect();
    assert_eq!(json!(labels), space.get(&SERVICE, "chat-engine").await["metadata"]["labels"]);
    let service = space.get(&INFERENCE_SERVICE, "chat").await;
    for condition in told["conditions"].as_array().unwrap() {
        let live = super::condition(&service, condition["type"].as_str().unwrap());
        for field in ["status", "reason", "message"] {
            assert_eq!(condition[field], live[field], "{condition}");
        }
    }

    assert_eq!(told["storedConditions"], json!([]));

    // The text output is a summary, with more details on request.
    let said = explain(&["isvc/chat"]).ok();
    let line = |begins: &str| said.lines().find(|line| line.trim_start().starts_with(begins)).unwrap_or_else(|| panic!("{begins}: {said}"));
    assert!(line(&format!("ServingRuntime {}/runtime ", space.0.name)).contains("selected"), "{said}");
    assert!(line(&format!("ServingRuntime {}/better ", space.0.name)).contains(" more, for the next choice"), "{said}");
    assert!(line("RuntimeUpToDate").contains("False, BetterRuntime"), "{said}");
    let said = explain(&["isvc/chat", "--why", "spec.containers[0].image"]).ok();
    assert!(said.contains("runtime (ServingRuntime runtime)"), "{said}");

    // A pod can be explained by its own name and by that of its subject.
    let pods = space.pods("chat").await;
    let pod = pods.keys().find(|name| name.starts_with("chat-engine-")).unwrap();
    let said = explain(&[&format!("pod/{pod}")]).ok();
    assert!(said.starts_with(&format!("Pod {0}/{pod} of InferenceService {0}/chat\n", space.0.name)), "{said}");
    assert!(said.contains("Deployment chat-engine makes it\n") && said.contains("pod-templating"), "{said}");
    assert_eq!(explain(&["isvc/chat", "--pod", pod]).ok(), said);
    let refused = explain(&["isvc/absent", "--pod", pod]).refused();
    assert!(refused.contains("belongs to the InferenceService chat: specify that one"), "{refused}");
    assert_eq!(space.writes().len(), wrote, "explaining writes nothing");

    let said = explain(&["isvc/absent"]).refused();
    assert!(said.contains("there is no InferenceService absent in the namespace"), "{said}");
}

#[tokio::test]
async fn an_edit_of_a_runtime_rolls_the_services_that_use_it_and_no_others() {
    let space = Space::shared("edit").await;
    space.create(&SERVING_RUNTIME, "other", runtime("other", 1)).await;
    let services = ["uses-it", "uses-it-too", "uses-the-other"];
    for (service, runtime) in services.into_iter().zip(["runtime", "runtime", "other"]) {
        space.service(service, with_model(json!({"runtime": {"name": runtime}}))).await;
    }
    for service in services {
        space.ready(service).await;
    }
    let untouched = space.get(&DEPLOYMENT, "uses-the-other-engine").await;
    let wrote = space.writes().len();
    let runner = json!({"name": "ome-container", "image": "example.com/engine:2"});
    space.patch(&SERVING_RUNTIME, "runtime", json!({"spec": {"engineConfig": {"runner": runner}}})).await;
    for service in ["uses-it", "uses-it-too"] {
        let rolled = |now: &Value| now["status"]["components"]["engine"]["latestRolledoutRevision"] == format!("{service}-engine-00002");
        space.becomes(&INFERENCE_SERVICE, service, "it has rolled", rolled).await;
        assert_eq!(image(&space.get(&DEPLOYMENT, &format!("{service}-engine")).await), "example.com/engine:2");
    }
    assert_eq!(generation(&space.get(&DEPLOYMENT, "uses-the-other-engine").await), generation(&untouched));
    let wrote = space.writes().split_off(wrote);
    assert!(wrote.iter().all(|write| !write.contains("uses-the-other")), "{wrote:#?}");
}

#[tokio::test]
async fn a_runtime_that_goes_while_it_is_used_is_missed_and_what_runs_stays() {
    let space = Space::shared("gone").await;
    space.service("named", with_model(json!({"runtime": {"name": "runtime"}}))).await;
    space.service("chosen", with_model(json!({}))).await;
    let mut running = Vec::new();
    for service in ["named", "chosen"] {
        space.ready(service).await;
        running.push((space.pod_uids(service).await, generation(&space.get(&DEPLOYMENT, &format!("{service}-engine")).await)));
    }
    // Another suitable runtime doesn't replace that of running services.
    space.create(&SERVING_RUNTIME, "worse", runtime("worse", 1)).await;
    space.delete(&SERVING_RUNTIME, "runtime").await;
    let said = space.says("named", "RuntimeSelected", "False", "RuntimeNotFound").await;
    assert!(said.contains("create it, or correct spec.runtime.name"), "{said}");
    let said = space.says("chosen", "RuntimeSelected", "False", "RuntimeUnsuitable").await;
    assert!(said.contains("Existing objects stay unchanged") && said.contains(CHOOSE), "{said}");

    space.create(&SERVING_RUNTIME, "runtime", json!({"spec": simple_runtime()})).await;
    for (service, (pods, generation_before)) in ["named", "chosen"].into_iter().zip(running) {
        space.ready(service).await;
        assert_eq!(space.pod_uids(service).await, pods);
        assert_eq!(generation(&space.get(&DEPLOYMENT, &format!("{service}-engine")).await), generation_before);
    }
}

#[tokio::test]
async fn where_no_runtime_suits_each_is_told_with_its_reason() {
    let space = Space::shared_bare("none").await;
    space.model("model").await;
    let mut manual = runtime("manual", 1);
    manual["spec"]["supportedModelFormats"][0]["autoSelect"] = false.into();
    let mut disabled = runtime("disabled", 1);
    disabled["spec"]["disabled"] = true.into();
    space.create(&SERVING_RUNTIME, "manual", manual).await;
    space.create(&SERVING_RUNTIME, "disabled", disabled).await;
    space.service("chat", with_model(json!({}))).await;
    let said = space.says("chat", "RuntimeSelected", "False", "NoSupportingRuntime").await;
    assert!(
        said.contains("manual: The runtime is for services that name it") && said.contains("disabled: The runtime is disabled."),
        "{said}"
    );
    space.patch(&SERVING_RUNTIME, "disabled", json!({"spec": {"disabled": false}})).await;
    let service = space.ready("chat").await;
    assert_eq!(service["status"]["runtime"]["name"], "disabled");
}
