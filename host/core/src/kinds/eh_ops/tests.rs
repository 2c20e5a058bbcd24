use super::*;
use crate::{
    allocation::{Held, Refusal, SleepReason, Waiting, amounts::Amounts},
    decide::{Policies, Standing, Unheard, set::ActiveSet},
    world::{ObjectKey, World},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const GIB: i64 = 1 << 30;

fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: name.to_owned() }
}

fn held(gib: i64, phase: Phase) -> Held {
    Held { node: "n1".to_owned(), amounts: Amounts { memory: gib * GIB, cpu: 0, gpus: 0, pods: 1 }, phase, since: 0 }
}

fn placed(phase: Phase) -> Entry {
    Entry::Placed { held: held(80, phase), unseen: false, starts_after: Vec::new() }
}

/// The plan for a model of 80 GiB with this entry, without policies.
fn planned(spec: &Value, entry: Option<Entry>) -> Plan {
    let mut world = World::default();
    let mut whole = json!({"modelName": "llama", "memory": "80Gi", "backendUrl": "http://llama:8000", "containerImage": "vllm"});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    world.put_subject_object(&INFERENCE_MODEL, &json!({"metadata": {"name": "llama", "namespace": "ml", "uid": "u"}, "spec": whole}));
    world.set_allocated(&entry.map(|entry| (key("llama"), entry)).into_iter().collect());
    let snapshot = world.snapshot(&key("llama"), 0).unwrap();
    let policies = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
    InferenceModels.plan(&snapshot, &policies.pin(Standing::New), &Settings::default())
}

/// A condition as text: status, reason and message.
fn condition_text(plan: &Plan, type_: &str) -> String {
    let condition = plan.status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    format!("{:?} {}: {}", condition.status, condition.reason, condition.message)
}

#[test]
fn each_state_of_a_place_has_its_reason() {
    let waiting = |is_coming| Entry::Waiting(Waiting { node: Some("n1".to_owned()), is_coming, ..Waiting::default() });
    let starts_after = Entry::Placed { held: held(80, Phase::Admitted), unseen: false, starts_after: vec![key("tokens")] };
    let unseen = Entry::Placed { held: held(80, Phase::Admitted), unseen: true, starts_after: Vec::new() };
    for (entry, expected) in [
        (Entry::Asleep, "Some(false) ScaledToZero: It sleeps, because it has no requests."),
        (placed(Phase::Admitted), "Some(true) Admitted: 80Gi are reserved for it on the node n1."),
        (unseen, "Some(true) Admitted: 80Gi are reserved for it on the node n1. It is never put to sleep, because no gateway"),
        (starts_after, "None Pending: It starts once its dependencies are Ready: ml/tokens."),
        (
            placed(Phase::Draining(SleepReason::Idle)),
            "Some(false) ScaledToZero: It goes to sleep once the requests in flight are answered.",
        ),
        (placed(Phase::Stopping), "Some(false) ScaledToZero: Its pod on the node n1 ends."),
        (waiting(true), "None Pending: It starts on the node n1 once others have ended. It needs 80Gi of memory (0 free)"),
        (waiting(false), "Some(false) InsufficientMemory: The closest fit is the node n1. It needs 80Gi of memory (0 free)"),
        (Entry::Refused(Refusal::NoNodes), "Some(false) InsufficientMemory: No node has the labels of spec.nodeSelector"),
        (Entry::Refused(Refusal::NameTaken(key("other"))), "Some(false) Failed: The older model ml/other has the same spec.modelName"),
    ] {
        let plan = planned(&json!({}), Some(entry));
        let text = condition_text(&plan, ALLOCATED);
        assert!(text.starts_with(expected), "{text}");
    }
    let off = planned(&json!({"maxReplicas": 0}), Some(Entry::Asleep));
    assert!(condition_text(&off, ALLOCATED).contains("spec.maxReplicas is 0"));
}

#[test]
fn nothing_changes_while_no_place_is_decided_or_what_it_needs_is_not_reserved() {
    let plan = planned(&json!({}), None);
    assert!(plan.objects.is_none() && condition_text(&plan, ALLOCATED).starts_with("None Pending"));
    let larger = Entry::Placed { held: held(40, Phase::Admitted), unseen: false, starts_after: Vec::new() };
    let plan = planned(&json!({}), Some(larger));
    let text = condition_text(&plan, ALLOCATED);
    assert!(plan.objects.is_none() && text.contains("InsufficientMemory") && text.contains("80Gi of memory (40Gi free)"), "{text}");
}

#[test]
fn an_external_model_has_no_objects_and_is_ready() {
    let plan = planned(&json!({"containerImage": ""}), Some(Entry::External));
    assert_eq!(plan.objects.as_ref().map(Vec::len), Some(0));
    assert!(condition_text(&plan, AVAILABLE).starts_with("Some(true) Deployed"));
    assert_eq!(plan.status.fields["ready"], json!(true));
    let (status, _) = crate::status::settle(
        &Value::Null,
        "model",
        plan.status,
        &crate::status::Applied::Done,
        Some(1),
        k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
    );
    let ready = status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == "Ready").unwrap().clone();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("Deployed")));
}

#[test]
fn the_objects_of_a_model_that_becomes_external_stay_until_its_pod_has_gone() {
    for phase in [Phase::Admitted, Phase::Draining(SleepReason::Off), Phase::Stopping] {
        assert!(planned(&json!({"containerImage": ""}), Some(placed(phase))).objects.is_none());
    }
}

#[test]
fn without_a_policy_the_objects_stay_and_the_condition_says_so() {
    let plan = planned(&json!({}), Some(placed(Phase::Admitted)));
    assert!(plan.objects.is_none() && condition_text(&plan, DECIDED).starts_with("Some(false)"));
    assert_eq!(plan.status.undecided, UndecidedSteps::Some(vec![DECIDED]));
}

#[test]
fn only_the_subjects_whose_entries_differ_are_touched_by_another_ledger() {
    let mut world = World::default();
    for name in ["a", "b"] {
        world.put_subject_object(&INFERENCE_MODEL, &json!({"metadata": {"name": name, "namespace": "ml", "uid": name}, "spec": {}}));
    }
    world.take_touched();
    let entries = |a: Entry| BTreeMap::from([(key("a"), a), (key("b"), Entry::Asleep), (key("gone"), Entry::Asleep)]);
    let mut touched = |a: Entry| {
        world.set_allocated(&entries(a));
        world.take_touched().now.into_iter().map(|key| key.name).collect::<Vec<_>>()
    };
    assert_eq!(touched(Entry::Asleep), ["a", "b"]);
    assert_eq!(touched(placed(Phase::Admitted)), ["a"]);
    assert_eq!(touched(placed(Phase::Admitted)), [""; 0]);
    world.set_allocated(&BTreeMap::new());
    assert_eq!(world.take_touched().now.len(), 2);
    assert!(world.snapshot(&key("a"), 0).unwrap().allocated.is_none());
}
