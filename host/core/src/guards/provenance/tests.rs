mod builtin;
mod hostile;
mod select;

use super::*;
use crate::{
    decide::{AskedPlugin as Plugin, Decision, templating},
    resource::{DEPLOYMENT, JOB},
    world::ObjectKey,
};
use pointsman_sandbox::{
    digest::{Digest, Digested},
    point::{
        Entry, Subject,
        templating::{Action, Layer, Operation},
    },
};
use std::sync::Arc;

fn subject(group: &str, kind: &str) -> Subject {
    let labels = vec![Entry { key: "team".into(), value: "search".into() }];
    let (group, kind, namespace, name) = (group.into(), kind.into(), "prod".into(), "chat".into());
    Subject { group, version: "v1".into(), kind, namespace, name, labels, ..Subject::default() }
}

/// A question: layers, the host's frame, and the subject.
struct Question {
    subject: Subject,
    role: Role,
    group: Option<Role>,
    layers: Vec<(String, Value)>,
    frame: Value,
    admin_layers: Vec<String>,
    configs: Vec<(String, Value)>,
}

/// A question for the engine of an InferenceService.
fn ome<const N: usize>(layers: [(&str, Value); N]) -> Question {
    Question {
        subject: subject("ome.io", "InferenceService"),
        role: Role::Engine,
        group: None,
        layers: layers.map(|(name, content)| (name.to_owned(), content)).to_vec(),
        frame: json!({"metadata": {}, "spec": {}}),
        admin_layers: Vec::new(),
        configs: vec![(
            "pod-templating".to_owned(),
            json!({"modelRoot": "/mnt/models", "storageInitializer": "init:1", "adapterInitializer": "init:2"}),
        )],
    }
}

/// A question for the main pods of an LLMInferenceService.
fn llm<const N: usize>(layers: [(&str, Value); N]) -> Question {
    Question { subject: subject("serving.kserve.io", "LLMInferenceService"), role: Role::Main, ..ome(layers) }
}

impl Question {
    fn of_group(self, role: Role, group: Role) -> Self {
        Self { role, group: Some(group), ..self }
    }

    fn inputs(&self) -> templating::Inputs {
        let layers = self.layers.iter().map(|(name, content)| Layer { name: name.clone(), content: content.to_string() }).collect();
        templating::Inputs {
            subject: Digested::new(self.subject.clone()).unwrap(),
            role: self.role,
            group_role: self.group,
            layers: Digested::new(layers).unwrap(),
            template: Digested::new(self.frame.clone()).unwrap(),
            admin_layers: self.admin_layers.clone(),
            ..templating::Inputs::default()
        }
    }

    fn decided(&self, key: &ObjectKey, template: &Value, steps: Vec<templating::Step>) -> Decided {
        let answer = templating::Templated { template: template.to_string(), steps, reasons: Vec::new() };
        Decided::Template(key.clone(), self.inputs(), Arc::new(decision(answer, &["hostile"])))
    }

    /// The provenance of this spec, if it is the plugins' answer and the host changed nothing.
    fn planned(&self, spec: &Value) -> FieldProvenance {
        self.planned_by(spec, vec![step("hostile", Action::Replace, "/spec", spec)])
    }

    fn planned_by(&self, spec: &Value, steps: Vec<templating::Step>) -> FieldProvenance {
        let template = json!({"metadata": {}, "spec": spec});
        let key = key("chat-engine");
        let object = Object::new(key.clone(), json!({"spec": {"template": template}}));
        field_provenance(&object, &[self.decided(&key, &template, steps)], &AdminConfigs { configs: &self.configs })
    }
}

fn decision<A>(answer: A, plugins: &[&str]) -> Decision<A> {
    let plugin = |name: &&str| Plugin { plugin: (*name).to_owned(), digest: String::new() };
    Decision { answer: Arc::new(answer), inputs: Digest::hash(b""), plugins: plugins.iter().map(plugin).collect(), failed: Vec::new() }
}

fn step(plugin: &str, action: Action, path: &str, value: &Value) -> templating::Step {
    let operation = Operation { action, path: path.to_owned(), value: Some(value.to_string()), layer: "runtime".to_owned() };
    templating::Step { plugin: plugin.to_owned(), operation }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { resource: &DEPLOYMENT, namespace: "prod".to_owned(), name: name.to_owned() }
}

impl FieldProvenance {
    /// The provenance of a field in the pods' spec.
    fn by(&self, field: &str) -> Vec<&str> {
        let field = format!("spec.template.spec.{field}");
        let found = self.fields.iter().find(|other| other.field == field);
        let Some(found) = found else {
            panic!("{field} isn't among {:?}", self.fields.iter().map(|field| &field.field).collect::<Vec<_>>())
        };
        found.by.iter().map(String::as_str).collect()
    }

    /// The fields in the pods' spec that nobody requested.
    fn nobodys(&self) -> Vec<&str> {
        let fields = self.fields.iter().filter(|field| field.by.is_empty());
        fields.map(|field| field.field.trim_start_matches("spec.template.spec.")).collect()
    }
}

fn runner(fields: &Value) -> Value {
    let mut runner = json!({"name": "ome-container", "image": "vllm:1"});
    for (name, value) in fields.as_object().unwrap() {
        runner[name] = value.clone();
    }
    json!({ "runner": runner })
}

#[test]
fn the_template_of_a_job_that_exists_is_the_host_s_and_of_a_new_one_somebody_must_have_asked_for_it() {
    let key = ObjectKey { resource: &JOB, ..key("run") };
    let body = json!({"spec": {"template": {"spec": {"hostNetwork": true}}}});
    let by = |object: &Object| field_provenance(object, &[], &AdminConfigs::default()).by("hostNetwork").len();
    assert_eq!(by(&Object::new(key.clone(), body.clone())), 0);
    assert_eq!(by(&Object { keeps_template: true, ..Object::new(key, body) }), 1);
}
