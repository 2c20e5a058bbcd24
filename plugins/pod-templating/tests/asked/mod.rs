//! Questions to the policy, and the resulting templates.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(dead_code)] // Each test uses a part of it.

use pointsman_plugin::{
    Role, Subject,
    pod_templating::{Action, Answer, Layer, Operation, Request},
};
use pointsman_pod_templating::{Config, template};
use serde_json::{Value, json};

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct TestRequest {
    pub(crate) config: Value,
    pub(crate) request: Request,
}

/// An engine of the service `chat` in the namespace `prod`, with these layers.
pub(crate) fn ask<const N: usize>(layers: [(&str, Value); N]) -> TestRequest {
    let layer = |(name, content): (&str, Value)| Layer { name: name.to_owned(), content: content.to_string() };
    let request = Request {
        subject: Subject {
            group: "ome.io".into(),
            version: "v1beta1".into(),
            kind: "InferenceService".into(),
            namespace: "prod".into(),
            name: "chat".into(),
            labels: vec![("team", "a&b").into(), ("example.com/tier", "gold").into()],
            annotations: vec![("note", "\"hi\"").into()],
            ..Subject::default()
        },
        layers: layers.into_iter().map(layer).collect(),
        template: json!({"metadata": {}, "spec": {}}).to_string(),
        ..Request::default()
    };
    TestRequest { config: json!({}), request }
}

/// The main pods of the LLMInferenceService `chat` in the namespace `prod`, with these layers.
pub(crate) fn llm<const N: usize>(layers: [(&str, Value); N]) -> TestRequest {
    let mut asked = ask(layers).role(Role::Main);
    let Subject { group, version, kind, .. } = &mut asked.request.subject;
    (*group, *version, *kind) = ("serving.kserve.io".into(), "v1alpha1".into(), "LLMInferenceService".into());
    asked
}

/// A pod layer whose container `main` has an image and these fields.
pub(crate) fn main(fields: Value) -> Value {
    let mut main = runner(fields)["runner"].take();
    main["name"] = json!("main");
    json!({"pod": {"containers": [main]}})
}

impl TestRequest {
    /// A pod of a group.
    pub(crate) fn of_group(mut self, role: Role, of: Role) -> Self {
        self.request.role = role;
        self.request.group_role = Some(of);
        self
    }

    pub(crate) fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    pub(crate) fn role(mut self, role: Role) -> Self {
        self.request.role = role;
        self.request.group_role = matches!(role, Role::Leader | Role::Worker).then_some(Role::Engine);
        self
    }

    pub(crate) fn template(mut self, template: &Value) -> Self {
        self.request.template = template.to_string();
        self
    }

    pub(crate) fn answer(&self) -> Result<Answer, String> {
        let config: Config = serde_json::from_value(self.config.clone()).unwrap();
        template(&config, self.request.clone()).map_err(|failure| failure.message)
    }

    /// The finished template.
    pub(crate) fn finished(&self) -> Value {
        let mut template = serde_json::from_str(&self.request.template).unwrap();
        for operation in self.answer().unwrap().operations {
            apply(&mut template, &operation).unwrap_or_else(|error| panic!("{operation:?}: {error}\n{template}"));
        }
        template
    }

    pub(crate) fn spec(&self) -> Value {
        self.finished()["spec"].take()
    }

    /// The first container.
    pub(crate) fn container(&self) -> Value {
        self.spec()["containers"][0].take()
    }

    /// The operations, one per line: the layer, the path, the value.
    pub(crate) fn steps(&self) -> Vec<String> {
        let told = |operation: &Operation| {
            let sign = match operation.action {
                Action::Add => '+',
                Action::Remove => '-',
                Action::Replace => '~',
                Action::Extend => '&',
            };
            format!("{} {sign} {} {}", operation.layer, operation.path, operation.value.as_deref().unwrap_or_default()).trim().to_owned()
        };
        self.answer().unwrap().operations.iter().map(told).collect()
    }

    pub(crate) fn codes(&self) -> Vec<String> {
        self.answer().unwrap().reasons.into_iter().map(|reason| reason.code).collect()
    }

    pub(crate) fn said(&self, code: &str) -> String {
        let answer = self.answer().unwrap();
        answer.reasons.into_iter().find(|reason| reason.code == code).map(|reason| reason.message).unwrap_or_default()
    }

    pub(crate) fn failure(&self) -> String {
        self.answer().unwrap_err()
    }
}

/// Applies one operation as specified in RFC 6902.
pub(crate) fn apply(document: &mut Value, operation: &Operation) -> Result<(), String> {
    let value = operation.value.as_deref().map(|text| serde_json::from_str::<Value>(text).unwrap());
    let (way, last) = operation.path.rsplit_once('/').ok_or("no pointer")?;
    let last = last.replace("~1", "/").replace("~0", "~");
    match (document.pointer_mut(way).ok_or("no way")?, operation.action, value) {
        (Value::Object(fields), Action::Add, Some(value)) => drop(fields.insert(last, value)),
        (Value::Object(fields), Action::Replace, Some(value)) => *fields.get_mut(&last).ok_or("not there")? = value,
        (Value::Object(fields), Action::Remove, None) => drop(fields.remove(&last).ok_or("not there")?),
        (Value::Array(items), Action::Add, Some(value)) if last == "-" => items.push(value),
        _ => return Err("this policy has no such operation".to_owned()),
    }
    Ok(())
}

/// A runtime whose runner has an image and these fields.
pub(crate) fn runner(fields: Value) -> Value {
    let mut runner = json!({"image": "engine:1"});
    runner.as_object_mut().unwrap().extend(match fields {
        Value::Object(fields) => fields,
        _ => panic!("fields are an object"),
    });
    json!({"runner": runner})
}
