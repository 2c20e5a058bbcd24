//! The golden cases, without a host.
#![allow(clippy::unwrap_used, clippy::panic)]

mod asked;

use asked::{TestRequest, ask};
use pointsman_plugin::pod_templating::{Action, Layer, Operation};
use pointsman_pod_templating::Config;
use serde_json::{Value, json};

fn asked(case: &Value) -> TestRequest {
    let mut asked = ask([]).config(case.get("config").cloned().unwrap_or_else(|| json!({})));
    let mut request = case["request"].clone();
    let layers = request["layers"].take();
    let (role, group_role) = (request["role"].take(), request.get("groupRole").cloned().unwrap_or_default());
    let text = |field: &str| request["subject"][field].as_str().unwrap().to_owned();
    let subject = &mut asked.request.subject;
    (subject.group, subject.version, subject.kind) = (text("group"), text("version"), text("kind"));
    (subject.namespace, subject.name) = (text("namespace"), text("name"));
    asked.request.role = serde_json::from_value(role).unwrap();
    asked.request.group_role = serde_json::from_value(group_role).unwrap();
    let layer = |layer: &Value| Layer { name: layer["name"].as_str().unwrap().to_owned(), content: layer["content"].to_string() };
    asked.request.layers = layers.as_array().unwrap().iter().map(layer).collect();
    asked.template(&request["template"])
}

fn operation_json(operation: &Operation) -> Value {
    let value = operation.value.as_deref().map(|text| serde_json::from_str::<Value>(text).unwrap());
    let action = match operation.action {
        Action::Add => "add",
        Action::Remove => "remove",
        Action::Replace => "replace",
        Action::Extend => "extend",
    };
    let mut told = json!({"action": action, "path": operation.path, "layer": operation.layer});
    if let Some(value) = value {
        told["value"] = value;
    }
    told
}

#[test]
fn the_golden_cases_hold() {
    let cases: Vec<Value> = serde_saphyr::from_multiple(include_str!("../cases.yaml")).unwrap();
    assert!(cases.len() > 5);
    for case in cases {
        let name = &case["name"];
        let asked = asked(&case);
        let answer = match serde_json::from_value::<Config>(asked.config.clone()) {
            Ok(_) => asked.answer(),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Err(sentence) => assert!(case["error"].as_str().is_some_and(|says| sentence.contains(says)), "{name}: {sentence}"),
            Ok(answer) => {
                let operations: Vec<_> = answer.operations.iter().map(operation_json).collect();
                let reasons: Vec<_> = answer.reasons.iter().map(|reason| json!({"code": reason.code, "message": reason.message})).collect();
                assert_eq!(case["answer"]["operations"], json!(operations), "{name}");
                assert_eq!(case["answer"].get("reasons").cloned().unwrap_or_else(|| json!([])), json!(reasons), "{name}");
            }
        }
    }
}
