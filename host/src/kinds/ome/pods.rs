//! What the pods of a component look like: the question that is put to pod-templating.

use super::{
    DECIDED, Making, Stop,
    component::{Deployed, Mode, Part},
};
use crate::{
    plan::Decided,
    policy::{
        decide::templating::Inputs,
        digest::Digested,
        point::{Role, templating::Layer},
    },
    world::{
        ObjectKey,
        ome::{ModelView, Part as Content},
    },
};
use serde_json::{Value, json};
use std::sync::Arc;

/// A pod of a component: its role, and for a leader or a worker that of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) role: Role,
    pub(super) group: Option<Role>,
}

impl Place {
    /// The places of a component: one, or a leader's and its workers'.
    pub(super) fn of(component: &Deployed) -> Vec<Self> {
        let role = component.part.role();
        match component.mode {
            Mode::Raw => vec![Self { role, group: None }],
            Mode::MultiNode(_) => [Role::Leader, Role::Worker].map(|place| Self { role: place, group: Some(role) }).to_vec(),
        }
    }
}

impl Making<'_> {
    /// The template of the pods in a place, as `metadata` and `spec`.
    pub(super) fn template(
        &mut self,
        component: &Deployed,
        place: Place,
        model: Option<&ModelView>,
        workload: &ObjectKey,
    ) -> Result<Value, Box<Stop>> {
        let mut frame = json!({"metadata": {}, "spec": {}});
        if component.part == Part::Router {
            frame["spec"]["serviceAccountName"] = component.name.as_str().into();
        }
        let inputs = Inputs {
            subject: self.service.subject.clone(),
            role: place.role,
            group_role: place.group,
            layers: Digested::new(layers(component, place, model)).unwrap_or_default(),
            template: Digested::new(frame).unwrap_or_default(),
            now: Some(self.snapshot.now),
        };
        let decision = self.policies.template(&inputs).map_err(|undecided| self.undecided(DECIDED, &undecided))?;
        let template = decision.answer.template.clone();
        self.decisions.push(Decided::Template(workload.clone(), inputs, Arc::clone(&decision)));
        Ok(template)
    }
}

/// Who has a say, the weakest first.
fn layers(component: &Deployed, place: Place, model: Option<&ModelView>) -> Vec<Layer> {
    let mut layers = Vec::new();
    let mut add = |name: String, content: Value| layers.push(Layer { name, content: content.to_string() });
    for (name, side) in [("runtime", &component.runtime), ("user", &component.user)] {
        let content = |part: &Content| Value::Object(part.0.clone());
        add(name.to_owned(), content(&side.part));
        let of_place = match place.role {
            Role::Leader => Some(("leader", &side.leader)),
            Role::Worker => Some(("worker", &side.worker)),
            _ => None,
        };
        if let Some((role, Some(part))) = of_place {
            add(format!("{name}-{role}"), content(part));
        }
    }
    if let Some(model) = model.filter(|_| component.part != Part::Router) {
        add("model".to_owned(), facts(model));
    }
    if let Mode::MultiNode(nodes) = component.mode {
        add("group".to_owned(), json!({"nodes": nodes}));
    }
    layers
}

fn facts(view: &ModelView) -> Value {
    let model = &view.model;
    let mut facts = json!({
        "kind": model.kind, "namespace": model.namespace, "name": model.name, "storageUri": view.storage_uri, "nodeLabel": node_label(view),
    });
    if let Some(path) = &view.path {
        facts["path"] = path.as_str().into();
    }
    facts
}

/// The label of the nodes that hold a model, as their agent sets it.
fn node_label(view: &ModelView) -> String {
    let model = &view.model;
    let name = match model.namespace.as_str() {
        "" => format!("clusterbasemodel.{}", model.name),
        namespace => format!("{namespace}.basemodel.{}", model.name),
    };
    format!("models.ome.io/{}", crate::objects::label_value(&name))
}
