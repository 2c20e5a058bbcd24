//! The cases that this policy answers alike in every language, from `../labels-cases.json`.
#![allow(clippy::panic)]

use pointsman_example_rust_labels::{Config, propagate};
use pointsman_plugin::{
    Entry, Role, Subject, entry,
    metadata_propagation::{Answer, Layer, Place, Placed, Request, Target},
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Config,
    request: Value,
    answer: Value,
}

fn text(record: &Value, field: &str) -> String {
    record[field].as_str().unwrap_or_else(|| panic!("{field} is a text in {record}")).to_owned()
}

fn list<T>(record: &Value, field: &str, of: impl Fn(&Value) -> T) -> Vec<T> {
    record[field].as_array().unwrap_or_else(|| panic!("{field} is a list in {record}")).iter().map(of).collect()
}

fn entries(record: &Value, field: &str) -> Vec<Entry> {
    list(record, field, |item| entry(text(item, "key"), text(item, "value")))
}

fn placed(record: &Value, field: &str) -> Vec<Placed> {
    list(record, field, |item| Placed { key: text(item, "key"), value: text(item, "value"), layer: text(item, "layer") })
}

fn role(name: &Value) -> Option<Role> {
    name.as_str().map(|name| match name {
        "engine" => Role::Engine,
        "decoder" => Role::Decoder,
        "worker" => Role::Worker,
        other => panic!("no case has had the role {other} so far: add it here"),
    })
}

fn request(image: &Value) -> Request {
    let (subject, target) = (&image["subject"], &image["target"]);
    Request {
        subject: Subject {
            group: text(subject, "group"),
            version: text(subject, "version"),
            kind: text(subject, "kind"),
            namespace: text(subject, "namespace"),
            name: text(subject, "name"),
            labels: entries(subject, "labels"),
            annotations: entries(subject, "annotations"),
            namespace_labels: entries(subject, "namespaceLabels"),
        },
        target: Target {
            group: text(target, "group"),
            kind: text(target, "kind"),
            name: text(target, "name"),
            role: role(&target["role"]),
            group_role: role(&target["groupRole"]),
            place: if target["place"] == "pod-template" { Place::PodTemplate } else { Place::Object },
        },
        layers: list(image, "layers", |layer| Layer {
            name: text(layer, "name"),
            labels: entries(layer, "labels"),
            annotations: entries(layer, "annotations"),
        }),
        labels: placed(image, "labels"),
        annotations: placed(image, "annotations"),
        now: image["now"].as_u64(),
    }
}

/// The image in JSON leaves out what was dropped, and why, where that is nothing.
fn image(answer: &Answer) -> Value {
    let placed = |items: &[Placed]| -> Value {
        items.iter().map(|item| json!({"key": item.key, "value": item.value, "layer": item.layer})).collect()
    };
    assert!(answer.dropped.is_empty(), "this policy drops nothing");
    let mut image = json!({"labels": placed(&answer.labels), "annotations": placed(&answer.annotations)});
    if !answer.reasons.is_empty() {
        image["reasons"] = answer.reasons.iter().map(|reason| json!({"code": reason.code, "message": reason.message})).collect();
    }
    image
}

#[test]
fn the_policy_answers_like_the_same_one_in_other_languages() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../labels-cases.json")).expect("the cases are a list of cases");
    assert!(!cases.is_empty());
    for Case { name, config, request: asked, answer } in cases {
        let said = propagate(&config, request(&asked)).unwrap_or_else(|failure| panic!("{name}: {}", failure.message));
        assert_eq!(image(&said), answer, "{name}");
    }
}
