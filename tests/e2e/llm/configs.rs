//! The configurations that services build on, in their own namespace or cluster-wide, and errors in them.

use super::{create, groups, pods, ready, with_model};
use crate::services::{Space, condition};
use pointsman_core::resource::{DEPLOYMENT, LLM_CONFIG, LLM_INFERENCE_SERVICE};
use serde_json::{Value, json};

fn image(deployment: &Value) -> &str {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

fn main(image: &str) -> Value {
    json!({"containers": [{"name": "main", "image": image}]})
}

#[tokio::test]
async fn base_configurations_count_in_their_order_and_the_service_last() {
    let space = Space::shared_bare("llm-bases").await;
    space.create(&LLM_CONFIG, "first", json!({"spec": {"replicas": 1, "template": main("example.com/first:1")}})).await;
    let args = json!({"containers": [{"name": "main", "args": ["--name={{ .Spec.Model.Name }}", "--of={{ .ObjectMeta.Name }}"]}]});
    space.create(&LLM_CONFIG, "second", json!({"spec": {"replicas": 2, "template": args}})).await;
    let bases = json!([{"name": "first"}, {"name": "second"}]);
    create(&space, "chat", json!({}), with_model(json!({"baseRefs": bases}))).await;
    ready(&space, "chat").await;
    let deployment = space.get(&DEPLOYMENT, "chat-kserve").await;
    assert_eq!((image(&deployment), &deployment["spec"]["replicas"]), ("example.com/first:1", &json!(2)));
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["args"],
        json!(["--name=llama", "--of=chat", "--served-model-name", "llama"])
    );

    // An edit of a configuration changes the services that use it, and the service's own fields take precedence.
    space.patch(&LLM_CONFIG, "first", json!({"spec": {"template": main("example.com/first:2")}})).await;
    space.becomes(&DEPLOYMENT, "chat-kserve", "it has the new image", |now| image(now) == "example.com/first:2").await;
    space.patch(&LLM_INFERENCE_SERVICE, "chat", json!({"spec": {"replicas": 3, "template": main("example.com/own:1")}})).await;
    ready(&space, "chat").await;
    let deployment = space.get(&DEPLOYMENT, "chat-kserve").await;
    assert_eq!((image(&deployment), &deployment["spec"]["replicas"]), ("example.com/own:1", &json!(3)));
}

#[tokio::test]
async fn what_is_wrong_with_a_configuration_is_told_what_runs_stays_and_mending_it_heals() {
    let space = Space::shared_bare("llm-broken").await;
    create(&space, "chat", json!({}), with_model(json!({"baseRefs": [{"name": "base"}]}))).await;
    let said = space.says_of(&LLM_INFERENCE_SERVICE, "chat", "PresetsCombined", "False", "ConfigNotFound").await;
    assert!(said.contains("LLMInferenceServiceConfig base") && said.contains(&space.0.name), "{said}");
    assert!(space.made().await.is_empty());
    space.create(&LLM_CONFIG, "base", json!({"spec": {"template": main("example.com/base:1")}})).await;
    ready(&space, "chat").await;
    let before: Vec<Value> = pods(&space, "chat").await.into_values().flatten().map(|pod| pod["metadata"]["uid"].clone()).collect();

    space.patch(&LLM_CONFIG, "base", json!({"spec": {"template": main("example.com/{{ .Spec.Nothing }}:1")}})).await;
    let said = space.says_of(&LLM_INFERENCE_SERVICE, "chat", "PresetsCombined", "False", "InvalidConfig").await;
    assert!(said.contains("spec.template.containers[0].image") && said.contains(".Spec.Nothing"), "{said}");
    let after: Vec<Value> = pods(&space, "chat").await.into_values().flatten().map(|pod| pod["metadata"]["uid"].clone()).collect();
    assert_eq!(before, after);
    space.patch(&LLM_CONFIG, "base", json!({"spec": {"template": main("example.com/base:1")}})).await;
    ready(&space, "chat").await;
}

#[tokio::test]
async fn while_a_configuration_is_missing_the_parts_tell_how_they_fare() {
    let space = Space::shared_bare("llm-stays").await;
    let mut spec = groups();
    spec["baseRefs"] = json!([{"name": "base"}]);
    spec["router"] = json!({"scheduler": {}, "route": {}});
    space.create(&LLM_CONFIG, "base", json!({"spec": {"template": main("example.com/base:1")}})).await;
    create(&space, "chat", json!({}), with_model(spec)).await;
    space.says_of(&LLM_INFERENCE_SERVICE, "chat", "WorkloadsReady", "True", "Ready").await;
    space.says_of(&LLM_INFERENCE_SERVICE, "chat", "SchedulerWorkloadReady", "True", "Available").await;
    space.says_of(&LLM_INFERENCE_SERVICE, "chat", "RouterReady", "False", "NoGateway").await;
    space.delete(&LLM_CONFIG, "base").await;
    space.says_of(&LLM_INFERENCE_SERVICE, "chat", "PresetsCombined", "False", "ConfigNotFound").await;
    let service = space.get(&LLM_INFERENCE_SERVICE, "chat").await;
    for (type_, status) in [
        ("MainWorkloadReady", "True"),
        ("WorkerWorkloadReady", "True"),
        ("WorkloadsReady", "True"),
        ("SchedulerWorkloadReady", "True"),
        ("InferencePoolReady", "True"),
        ("GatewaysReady", "False"),
        ("RouterReady", "False"),
    ] {
        assert_eq!(condition(&service, type_)["status"], status, "{type_}");
    }
    assert_eq!(condition(&service, "Ready")["reason"], "ConfigNotFound");
}

#[tokio::test]
async fn what_a_policy_refuses_is_told_apart_from_what_works() {
    let space = Space::shared_bare("llm-refused").await;
    create(&space, "chat", json!({}), with_model(json!({}))).await;
    ready(&space, "chat").await;
    space.patch(&LLM_INFERENCE_SERVICE, "chat", json!({"spec": {"model": {"uri": "pvc://elsewhere:claim/llama"}}})).await;
    let said = space.says_of(&LLM_INFERENCE_SERVICE, "chat", "Decided", "False", "PolicyFailed").await;
    assert!(said.contains("the namespace elsewhere") && said.contains("Existing objects stay unchanged"), "{said}");
    let service = space.get(&LLM_INFERENCE_SERVICE, "chat").await;
    assert_eq!(
        (&condition(&service, "MainWorkloadReady")["status"], &condition(&service, "Ready")["reason"]),
        (&json!("True"), &json!("PolicyFailed"))
    );
    space.patch(&LLM_INFERENCE_SERVICE, "chat", json!({"spec": {"model": {"uri": "hf://example/llama"}}})).await;
    ready(&space, "chat").await;
}
