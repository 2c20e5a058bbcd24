//! Rules end to end: they check the objects of users, and the objects that policies change.

mod doors;
mod guardrails;
mod lookups;

use crate::{
    services::{LastSeen, Space},
    sets::{is, set_that},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE};
use pointsman_crds::policy::{
    rule::{ValidationRule, ValidationRuleStatus},
    set::{PolicySet, PolicySetPhase},
};
use pointsman_tests::{Host, PolicyCluster, eventually};
use serde_json::{Value, json};
use std::fs;

/// A host on only an API server, with all our CRDs.
pub(crate) async fn host<'a>(cluster: &'a PolicyCluster, flags: &[&str]) -> Host<'a> {
    let host = Host::start(cluster, flags).await;
    host.ready().await;
    host
}

/// Applies a rule.
async fn rule(cluster: &PolicyCluster, name: &str, spec: Value) {
    let rule = json!({"apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "ValidationRule", "metadata": {"name": name}, "spec": spec});
    let api = Api::<ValidationRule>::all(cluster.client().await);
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&rule)).await.unwrap();
}

/// Waits until the status of a rule is as expected for its newest generation.
async fn wait_for_rule_status(
    cluster: &PolicyCluster,
    name: &str,
    what: &str,
    expected: impl Fn(&ValidationRuleStatus) -> bool,
) -> ValidationRuleStatus {
    let api = Api::<ValidationRule>::all(cluster.client().await);
    let last = LastSeen::default();
    eventually(&format!("the rule {name}: {what}"), async || {
        let rule = api.get_opt(name).await.unwrap()?;
        last.note(format!("{:#?}", rule.status));
        let status = rule.status.clone().filter(|status| status.observed_generation == rule.metadata.generation)?;
        expected(&status).then_some(status)
    })
    .await
}

fn state(status: &ValidationRuleStatus, type_: &str) -> (String, String, String) {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_);
    found.map(|found| (found.status.clone(), found.reason.clone(), found.message.clone())).unwrap_or_default()
}

fn active(status: &ValidationRuleStatus) -> bool {
    state(status, "Active").0 == "True"
}

fn llm(name: &str, replicas: u32) -> (String, Value) {
    (name.to_owned(), json!({"spec": {"model": {"uri": "hf://example/llama"}, "replicas": replicas}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_running_services_break_waits_with_them_named_and_holds_for_all_after_an_approval() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &[]).await;
    let space = Space::bare(&cluster, "rules").await;
    for (name, more) in [llm("small", 1), llm("large", 9), llm("larger", 12)] {
        space.create(&LLM_INFERENCE_SERVICE, &name, more).await;
        space.becomes(&DEPLOYMENT, &format!("{name}-kserve"), "it is there", |_| true).await;
    }
    let before = space.get(&DEPLOYMENT, "large-kserve").await;

    let spec = |actions: Value| {
        json!({
            "match": {"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]}, "actions": actions,
            "validations": [{"expression": "!has(object.spec.replicas) || object.spec.replicas <= 8",
                             "messageExpression": "'8 replicas are the most, and it has ' + string(object.spec.replicas)"}],
        })
    };
    // As a warning, the rule is active at once, and reports the objects that it would reject.
    rule(&cluster, "few", spec(json!(["Warn"]))).await;
    let status = wait_for_rule_status(&cluster, "few", "it warns", |status| {
        active(status) && status.counts.as_ref().is_some_and(|counts| counts.matched == 3)
    })
    .await;
    assert_eq!(status.counts.unwrap().rejected, 2);
    let named: Vec<String> = ["large", "larger"].iter().map(|name| format!("LLMInferenceService {}/{name}", space.0.name)).collect();
    assert_eq!(status.rejects, named);
    let message = space.says_of(&LLM_INFERENCE_SERVICE, "large", "Valid", "True", "Warned").await;
    assert_eq!(message, "few: 8 replicas are the most, and it has 9.");

    // As a denial, it would stop two services, so it needs an approval.
    rule(&cluster, "few", spec(json!(["Deny"]))).await;
    let status = wait_for_rule_status(&cluster, "few", "it waits", |status| state(status, "Active").1 == "ApprovalNeeded").await;
    let (_, _, why) = state(&status, "Active");
    assert!(why.contains("planning would fail for 2 subjects"), "{why}");
    // The result of the comparison is written to the set without an action.
    let compared = |set: &PolicySet| {
        let radius = set.status.as_ref().and_then(|status| status.blast_radius.as_ref());
        is(set, PolicySetPhase::Candidate) && radius.is_some_and(|radius| radius.examples.len() == 2)
    };
    let candidate = set_that(&cluster, "the candidate names two", compared).await;
    let status = candidate.status.clone().unwrap();
    assert_eq!(status.summary.as_deref(), Some("rule few: other actions, by test"));
    let examples = status.blast_radius.unwrap().examples;
    assert!(examples.iter().all(|example| example.contains("8 replicas are the most")), "{examples:?}");

    cluster.pointsman(&["policy", "approve", &candidate.name_any()]).ok();
    wait_for_rule_status(&cluster, "few", "it denies", active).await;
    let message = space.says_of(&LLM_INFERENCE_SERVICE, "large", "Valid", "False", "RuleBroken").await;
    assert_eq!(message, "Existing objects stay unchanged: few: 8 replicas are the most, and it has 9.");
    // Later edits that violate the rule are held, until they are fixed.
    space.patch(&LLM_INFERENCE_SERVICE, "large", json!({"spec": {"replicas": 11}})).await;
    let message = space.says_of(&LLM_INFERENCE_SERVICE, "large", "Valid", "False", "RuleBroken").await;
    assert!(message.ends_with("and it has 11."), "{message}");
    assert_eq!(space.get(&DEPLOYMENT, "large-kserve").await["spec"], before["spec"]);
    space.patch(&LLM_INFERENCE_SERVICE, "large", json!({"spec": {"replicas": 7}})).await;
    space.says_of(&LLM_INFERENCE_SERVICE, "large", "Valid", "True", "Valid").await;
    space.becomes(&DEPLOYMENT, "large-kserve", "it has 7 replicas", |deployment| deployment["spec"]["replicas"] == 7).await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_with_a_typo_says_where_and_the_former_one_counts() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &[]).await;
    let space = Space::bare(&cluster, "typo").await;
    let spec = |expression: &str| json!({"strategy": {"type": "Immediate"}, "validations": [{"expression": expression, "message": "no"}]});
    rule(&cluster, "named", spec("object.metadata.name != 'bad'")).await;
    wait_for_rule_status(&cluster, "named", "it counts", active).await;
    rule(&cluster, "named", spec("object.metadata.nam != 'bad'")).await;
    let status = wait_for_rule_status(&cluster, "named", "it is refused", |status| state(status, "Compiled").0 == "False").await;
    let (_, reason, message) = state(&status, "Compiled");
    assert_eq!(reason, "InvalidExpression");
    assert!(message.starts_with("spec.validations[0].expression: column ") && message.contains("name"), "{message}");
    // `check` reports the same error before the rule is applied.
    let file = cluster.dir.join("named.json");
    let named = json!({
        "apiVersion": "policy.pointsman.dev/v1alpha1", "kind": "ValidationRule", "metadata": {"name": "named"},
        "spec": spec("object.metadata.nam != 'bad'"),
    });
    fs::write(&file, named.to_string()).unwrap();
    let checked = cluster.pointsman(&["check", "-f", &file.to_string_lossy()]);
    assert!(
        checked.stdout.contains(&format!("ValidationRule named: {}\n", message.trim_end_matches('.'))),
        "{message}: {}",
        checked.stdout
    );
    assert_eq!(state(&status, "Active").1, "LastGood");
    let (name, more) = llm("bad", 1);
    space.create(&LLM_INFERENCE_SERVICE, &name, more).await;
    let message = space.says_of(&LLM_INFERENCE_SERVICE, "bad", "Valid", "False", "RuleBroken").await;
    assert_eq!(message, "No object is created: named: no.");
    assert!(space.find(&DEPLOYMENT, "bad-kserve").await.is_none());

    // A deleted rule no longer applies.
    Api::<ValidationRule>::all(cluster.client().await).delete("named", &kube::api::DeleteParams::default()).await.unwrap();
    space.becomes(&DEPLOYMENT, "bad-kserve", "it is there", |_| true).await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_part_of_the_set_and_a_change_of_them_is_a_change_of_the_set() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &[]).await;
    let space = Space::bare(&cluster, "params").await;
    let map = |most: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits"}, "data": {"most": most}});
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(cluster.client().await, pointsman_core::settings::HOST_NAMESPACE);
    maps.create(&PostParams::default(), &serde_json::from_value(map("3")).unwrap()).await.unwrap();
    let spec = json!({
        "strategy": {"type": "Immediate"}, "params": {"configMap": {"name": "limits"}},
        "match": {"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]},
        "validations": [{"expression": "object.spec.replicas <= int(params.data.most)", "messageExpression": "'the most are ' + params.data.most"}],
    });
    rule(&cluster, "limited", spec).await;
    wait_for_rule_status(&cluster, "limited", "it counts", active).await;
    let (name, more) = llm("chat", 4);
    space.create(&LLM_INFERENCE_SERVICE, &name, more).await;
    let message = space.says_of(&LLM_INFERENCE_SERVICE, "chat", "Valid", "False", "RuleBroken").await;
    assert_eq!(message, "No object is created: limited: the most are 3.");
    maps.patch("limits", &PatchParams::default(), &Patch::Merge(map("4"))).await.unwrap();
    space.says_of(&LLM_INFERENCE_SERVICE, "chat", "Valid", "True", "Valid").await;
    space.becomes(&DEPLOYMENT, "chat-kserve", "it is there", |_| true).await;
    host.stop();
}

/// A rule of stage Output applies to every object, and a plugin is called under conditions.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_over_planned_objects_stops_the_plan_and_names_the_object() {
    let cluster = PolicyCluster::start().await;
    let host = host(&cluster, &[]).await;
    let space = Space::on(&cluster, "output").await;
    let spec = json!({
        "stage": "Output", "strategy": {"type": "Immediate"},
        "match": {"kinds": [{"group": "apps", "kind": "Deployment"}]},
        "validations": [{"expression": "object.spec.replicas < 3 || subject.metadata.?labels['big'].orValue('') == 'yes'", "message": "only big services have 3 replicas"}],
    });
    rule(&cluster, "big", spec).await;
    wait_for_rule_status(&cluster, "big", "it counts", active).await;
    let body = |labels: Value| json!({"metadata": {"labels": labels}, "spec": crate::services::with_model(json!({"engine": crate::services::fixed(3)}))});
    space.create(&INFERENCE_SERVICE, "small", body(json!({}))).await;
    let message = space.says("small", "Allowed", "False", "GuardrailBroken").await;
    assert!(message.contains("big: Deployment small-engine: only big services have 3 replicas"), "{message}");
    assert!(message.contains("pod-templating"), "{message}");
    assert!(space.made().await.is_empty());
    space.create(&INFERENCE_SERVICE, "large", body(json!({"big": "yes"}))).await;
    space.becomes(&DEPLOYMENT, "large-engine", "it is there", |_| true).await;
    host.stop();
}
