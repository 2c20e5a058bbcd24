//! Rules that read other objects, live: the webhook and the controller report the same.

use super::{active, host, llm, rule, wait_for_rule_status};
use crate::{
    admission::{ready, trusted, validating},
    objects::{Answer, Wish, ask},
    services::Space,
};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use pointsman_core::resource::{BASE_MODEL, DEPLOYMENT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE};
use pointsman_tests::{PolicyCluster, eventually};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn no_more_than_so_much_a_namespace_and_older_services_count_first() {
    let cluster = PolicyCluster::start().await;
    let (first, address) = ready(&cluster).await;
    let space = Space::bare(&cluster, "quota").await;
    let elsewhere = Space::bare(&cluster, "quota-elsewhere").await;
    let spec = json!({
        "strategy": {"type": "Immediate"}, "match": {"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]},
        "lookups": [{"name": "used", "subjects": {"sum": "object.spec.replicas"}}],
        "validations": [{"expression": "lookups.used + object.spec.replicas <= 10",
                         "messageExpression": "'older services have ' + string(lookups.used) + ' of 10, and it wants ' + string(object.spec.replicas)"}],
    });
    rule(&cluster, "quota", spec).await;
    wait_for_rule_status(&cluster, "quota", "it counts", active).await;
    let runs = async |name: &str| space.becomes(&DEPLOYMENT, &format!("{name}-kserve"), "it is there", |_| true).await;
    // Wait for each before the next one: services that are created within the same second are ordered by name.
    for (name, replicas) in [("a", 6), ("b", 3)] {
        let (name, more) = llm(name, replicas);
        space.create(&LLM_INFERENCE_SERVICE, &name, more).await;
        runs(&name).await;
    }
    // At admission, the same message appears before the service exists.
    let (name, more) = llm("c", 2);
    let tried = async || {
        let metadata = json!({"name": "c", "namespace": space.0.name});
        let object = json!({"apiVersion": LLM_INFERENCE_SERVICE.api_version(), "kind": LLM_INFERENCE_SERVICE.kind, "metadata": metadata, "spec": more["spec"]});
        ask(&space.0.client, &space.0.name, &object, &Wish::Make(PostParams { dry_run: true, ..PostParams::default() })).await
    };
    validating(&cluster, &address, "Ignore").await;
    trusted(&cluster).await;
    let wanted = "quota: older services have 9 of 10, and it wants 2";
    let denied = |answer: &Answer| answer.body["message"].as_str().is_some_and(|message| message.ends_with(wanted));
    eventually("the webhook refuses it", async || Some(tried().await).filter(denied)).await;
    Api::<ValidatingWebhookConfiguration>::all(space.0.client.clone()).delete("pointsman", &DeleteParams::default()).await.unwrap();
    eventually("nobody is asked any more", async || tried().await.success.then_some(())).await;
    space.create(&LLM_INFERENCE_SERVICE, &name, more.clone()).await;
    let message = space.says_of(&LLM_INFERENCE_SERVICE, "c", "Valid", "False", "RuleBroken").await;
    assert_eq!(message, "No object is created: quota: older services have 9 of 10, and it wants 2.");
    assert!(space.find(&DEPLOYMENT, "c-kserve").await.is_none());
    for older in ["a", "b"] {
        space.says_of(&LLM_INFERENCE_SERVICE, older, "Valid", "True", "Valid").await;
    }
    let (name, more) = llm("c", 9);
    elsewhere.create(&LLM_INFERENCE_SERVICE, &name, more).await;
    elsewhere.becomes(&DEPLOYMENT, "c-kserve", "another namespace has its own", |_| true).await;

    // A later host reports the same, and replicas that an older service releases go to the next one without an edit.
    first.stop();
    let second = host(&cluster, &[]).await;
    space.patch(&LLM_INFERENCE_SERVICE, "c", json!({"spec": {"replicas": 3}})).await;
    space
        .becomes(&LLM_INFERENCE_SERVICE, "c", "it is held as before", |service| {
            let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
            conditions.clone().any(|told| told["message"] == "No object is created: quota: older services have 9 of 10, and it wants 3.")
        })
        .await;
    space.patch(&LLM_INFERENCE_SERVICE, "a", json!({"spec": {"replicas": 4}})).await;
    runs("c").await;
    space.says_of(&LLM_INFERENCE_SERVICE, "c", "Valid", "True", "Valid").await;
    space.delete(&LLM_INFERENCE_SERVICE, "a").await;
    space.patch(&LLM_INFERENCE_SERVICE, "c", json!({"spec": {"replicas": 7}})).await;
    space.becomes(&DEPLOYMENT, "c-kserve", "it has 7 replicas", |deployment| deployment["spec"]["replicas"] == 7).await;
    second.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_names_a_model_that_comes_later_is_judged_again() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &[]).await;
    let space = Space::bare(&cluster, "models").await;
    let spec = json!({
        "strategy": {"type": "Immediate"}, "match": {"kinds": [{"group": "ome.io", "kind": "InferenceService"}]},
        "matchConditions": [{"name": "named", "expression": "has(object.spec.model)"}],
        "lookups": [{"name": "found", "models": {"name": "object.spec.model.name"}}],
        "validations": [{"expression": "lookups.found.exists(m, m.?labels['reviewed'].orValue('') == 'yes')", "message": "nobody has reviewed the model"}],
    });
    rule(&cluster, "reviewed", spec).await;
    wait_for_rule_status(&cluster, "reviewed", "it counts", active).await;
    space.create(&INFERENCE_SERVICE, "chat", json!({"spec": {"model": {"name": "lookups-later"}}})).await;
    // The condition omits warnings if another rule denies, but the counts include them.
    wait_for_rule_status(&cluster, "practice-known-models", "it misses the model", |status| {
        status.counts.as_ref().is_some_and(|counts| counts.rejected == 1)
            && status.rejects == [format!("InferenceService {}/chat", space.0.name)]
    })
    .await;
    let message = space.says("chat", "Valid", "False", "RuleBroken").await;
    assert_eq!(message, "No object is created: reviewed: nobody has reviewed the model.");
    let spec = json!({"modelFormat": {"name": "checkpoint"}, "modelParameterSize": "7B", "storage": {"storageUri": "hf://some/model"}});
    space.create(&BASE_MODEL, "lookups-later", json!({"spec": spec})).await;
    wait_for_rule_status(&cluster, "practice-known-models", "it is there", |status| status.rejects.is_empty()).await;
    space.patch(&BASE_MODEL, "lookups-later", json!({"metadata": {"labels": {"reviewed": "yes"}}})).await;
    space.says("chat", "Valid", "True", "Valid").await;
    host.stop();
}
