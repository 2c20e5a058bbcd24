#![allow(clippy::unnecessary_wraps, reason = "each gives a field that is optional")]

use super::*;
use crate::decide::{Policies, Standing, Unheard, propagation, selection, set::ActiveSet, templating};
use pointsman_crds::policy::set::PolicySetPlugin;
use pointsman_sandbox::point::describe::Description;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Parses a question from its image, as in golden cases.
fn read<Question: DeserializeOwned>(image: Value) -> Question {
    serde_json::from_value(image).unwrap()
}

fn subject() -> Value {
    let entries = |key: &str| json!([{"key": key, "value": "a"}]);
    json!({
        "group": "ome.io", "version": "v1beta1", "kind": "InferenceService", "namespace": "team", "name": "chat",
        "labels": entries("label"), "annotations": entries("annotation"), "namespaceLabels": entries("namespace-label"),
    })
}

/// A question with every field set.
fn selecting() -> selection::Inputs {
    let entries = json!([{"key": "a", "value": "b"}]);
    let supported = json!({"name": "safetensors", "version": "1", "comparison": "greater-than", "weight": 2});
    let needs = json!({
        "classes": ["h100"], "excludedClasses": ["l4"], "families": ["hopper"], "minMemory": 1, "maxMemory": 2, "minTflops": 3,
        "minComputeCapability": "9.0", "features": ["fp8"], "precisions": ["fp8"],
    });
    let assignment = json!({"role": "engine", "accelerator": "h100"});
    read(json!({
        "subject": subject(),
        "model": {
            "kind": "BaseModel", "namespace": "team", "name": "llama", "labels": entries, "annotations": entries, "disabled": false,
            "format": {"name": "safetensors", "version": "1"}, "framework": {"name": "transformers", "version": "1"},
            "modelType": "llama", "architecture": "LlamaForCausalLM", "quantization": "fp8", "parameterSize": "8B",
            "capabilities": ["TEXT_GENERATION"], "pipeline": entries,
        },
        "candidates": [{
            "kind": "ServingRuntime", "namespace": "team", "name": "vllm", "labels": entries, "annotations": entries, "disabled": false,
            "models": [{
                "format": supported, "framework": supported, "architecture": "LlamaForCausalLM", "quantization": "fp8", "autoSelect": true,
                "priority": 1, "pipeline": entries,
            }],
            "smallest": "1B", "largest": "13B", "protocols": ["openAI"], "accelerators": needs,
        }],
        "named": false,
        "accelerators": [{
            "name": "h100", "vendor": "nvidia", "family": "hopper", "model": "h100", "memory": 80, "computeCapability": "9.0",
            "features": ["fp8"], "spec": {"cost": "1"}, "nodes": 1, "total": 8, "free": 4,
        }],
        "demands": [{"role": "engine", "strategy": "BestFit", "needs": needs}],
        "current": {"kind": "ServingRuntime", "namespace": "team", "name": "vllm", "accelerators": [assignment]},
        "facts": [{"name": "budget", "value": 1}],
        "now": 60,
    }))
}

fn templating() -> templating::Inputs {
    read(json!({
        "subject": subject(), "role": "leader", "groupRole": "engine", "layers": [{"name": "runtime", "content": {"a": 1}}],
        "template": {"spec": {"b": 2}}, "facts": [{"name": "budget", "value": 1}], "now": 60,
    }))
}

fn propagating() -> propagation::Inputs {
    let placed = |key: &str| json!([{"key": key, "value": "a", "layer": "subject"}]);
    let target = json!({
        "group": "apps", "kind": "Deployment", "name": "chat", "role": "leader", "groupRole": "engine", "place": "pod-template",
    });
    let entries = json!([{"key": "a", "value": "b"}]);
    read(json!({
        "subject": subject(), "target": target, "layers": [{"name": "subject", "labels": entries, "annotations": entries}],
        "labels": placed("label"), "annotations": placed("annotation"), "facts": [{"name": "budget", "value": 1}], "now": 60,
    }))
}

/// The JSON pointers of all leaves of a document.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| leaves(value, &format!("{at}/{name}"), found)),
        Value::Array(items) => items.iter().enumerate().for_each(|(place, value)| leaves(value, &format!("{at}/{place}"), found)),
        _ => found.push(at.to_owned()),
    }
}

/// Other values of the same type, including other values of an enum.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::String(text) => vec![json!(format!("{text}x")), json!("worker"), json!("object"), json!("equal")],
        Value::Number(number) => vec![json!(number.as_i64().unwrap() + 60)],
        Value::Bool(value) => vec![json!(!value)],
        other => panic!("{other} is left unset"),
    }
}

/// Policies with one plugin at a point, which may want the time.
fn policies(point: PolicyPoint, wants_time: bool) -> Policies {
    let bound = PolicySetPlugin { name: "plugin".to_owned(), points: vec![point], ..PolicySetPlugin::default() };
    let member = Member::new(bound, Description { wants_time, ..Description::default() }, None, None).unwrap();
    Policies::new(ActiveSet::new(vec![Arc::new(member)]), Arc::new(Unheard))
}

/// Changes each value of a question in turn, and expects a different key each time.
fn each_value_is_in_the_key<Question: CachedQuestion + Serialize + DeserializeOwned>(question: &Question) {
    let [timed, timeless] = [true, false].map(|wants_time| policies(Question::POINT, wants_time));
    let keys = |question: &Question| [&timed, &timeless].map(|policies| policies.pin(Standing::New).key(question, &question.digest()));
    let json = serde_json::to_value(question).unwrap();
    let copy: Question = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(keys(question), keys(&copy), "the same question has the same key");
    let mut places = Vec::new();
    leaves(&json, "", &mut places);
    for place in places {
        let changed = others(json.pointer(&place).unwrap()).into_iter().find_map(|other| {
            let mut changed = json.clone();
            *changed.pointer_mut(&place).unwrap() = other;
            serde_json::from_value::<Question>(changed).ok()
        });
        let [before, after] = [question, &changed.unwrap_or_else(|| panic!("{place} can't be changed"))].map(keys);
        assert_ne!(before[0], after[0], "{place} isn't in the key");
        assert_eq!(before[1] != after[1], place != "/now", "only the time is left out, for plugins that don't want it: {place}");
    }
}

#[test]
fn each_value_of_a_question_is_in_its_key() {
    each_value_is_in_the_key(&selecting());
    each_value_is_in_the_key(&templating());
    each_value_is_in_the_key(&propagating());
}
