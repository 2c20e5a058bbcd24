#![allow(clippy::unnecessary_wraps, reason = "each gives a field that is optional")]

use super::*;
use crate::decide::{Policies, Standing, Unheard, propagation, selection, set::ActiveSet, templating};
use pointsman_crds::policy::set::PolicySetPlugin;
use pointsman_sandbox::{
    digest::Digested,
    point::{
        Entry, Role,
        describe::Description,
        propagation::{Layer, Place, Placed, Target},
        selection::{Candidate, Comparison, Model, Supported, SupportedModel, Versioned},
        templating::Layer as TemplateLayer,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn entries(key: &str) -> Vec<Entry> {
    vec![Entry { key: key.to_owned(), value: "a".to_owned() }]
}

fn subject() -> Digested<Subject> {
    let subject = Subject {
        group: "ome.io".to_owned(),
        version: "v1beta1".to_owned(),
        kind: "InferenceService".to_owned(),
        namespace: "team".to_owned(),
        name: "chat".to_owned(),
        labels: entries("label"),
        annotations: entries("annotation"),
        namespace_labels: entries("namespace-label"),
    };
    Digested::new(subject).unwrap()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn versioned(name: &str) -> Option<Versioned> {
    Some(Versioned { name: name.to_owned(), version: text("1") })
}

fn supported(name: &str) -> Option<Supported> {
    Some(Supported { name: name.to_owned(), version: text("1"), comparison: Comparison::GreaterThan, weight: Some(2) })
}

/// A question in which every field is set.
fn selecting() -> selection::Inputs {
    let model = Model {
        kind: "BaseModel".to_owned(),
        namespace: "team".to_owned(),
        name: "llama".to_owned(),
        labels: entries("label"),
        annotations: entries("annotation"),
        disabled: false,
        format: versioned("safetensors"),
        framework: versioned("transformers"),
        model_type: text("llama"),
        architecture: text("LlamaForCausalLM"),
        quantization: text("fp8"),
        parameter_size: text("8B"),
        capabilities: vec!["TEXT_GENERATION".to_owned()],
    };
    let supports = SupportedModel {
        format: supported("safetensors"),
        framework: supported("transformers"),
        architecture: text("LlamaForCausalLM"),
        quantization: text("fp8"),
        auto_select: Some(true),
        priority: Some(1),
    };
    let candidate = Candidate {
        kind: "ServingRuntime".to_owned(),
        namespace: "team".to_owned(),
        name: "vllm".to_owned(),
        labels: entries("label"),
        annotations: entries("annotation"),
        disabled: false,
        models: vec![supports],
        smallest: text("1B"),
        largest: text("13B"),
        protocols: vec!["openAI".to_owned()],
    };
    selection::Inputs {
        subject: subject(),
        model: Digested::new(model).unwrap(),
        candidates: Digested::new(vec![candidate]).unwrap(),
        named: false,
        now: Some(60),
    }
}

fn templating() -> templating::Inputs {
    let layer = TemplateLayer { name: "runtime".to_owned(), content: r#"{"a":1}"#.to_owned() };
    templating::Inputs {
        subject: subject(),
        role: Role::Leader,
        group_role: Some(Role::Engine),
        layers: Digested::new(vec![layer]).unwrap(),
        template: Digested::new(json!({"spec": {"b": 2}})).unwrap(),
        now: Some(60),
    }
}

fn propagating() -> propagation::Inputs {
    let target = Target {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        name: "chat".to_owned(),
        role: Some(Role::Leader),
        group_role: Some(Role::Engine),
        place: Place::PodTemplate,
    };
    let placed = |key: &str| Placed { key: key.to_owned(), value: "a".to_owned(), layer: "subject".to_owned() };
    let layer = Layer { name: "subject".to_owned(), labels: entries("label"), annotations: entries("annotation") };
    propagation::Inputs {
        subject: subject(),
        target: Digested::new(target).unwrap(),
        layers: Digested::new(vec![layer]).unwrap(),
        labels: Digested::new(vec![placed("label")]).unwrap(),
        annotations: Digested::new(vec![placed("annotation")]).unwrap(),
        now: Some(60),
    }
}

/// The places of all values in a JSON document that hold no others.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| leaves(value, &format!("{at}/{name}"), found)),
        Value::Array(items) => items.iter().enumerate().for_each(|(place, value)| leaves(value, &format!("{at}/{place}"), found)),
        _ => found.push(at.to_owned()),
    }
}

/// Other values of the same type: one of them is another value of an enum, too.
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

/// Changes each value of a question in turn, and expects another key each time.
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
