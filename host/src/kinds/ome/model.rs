//! The model of a service: whether it is there and can be served.

use super::{MODEL_READY, Making, Stop};
use crate::{
    plan::Condition,
    world::{
        ObjectKey, Read,
        ome::ModelView,
        resource::{BASE_MODEL, CLUSTER_BASE_MODEL},
    },
};
use pointsman_crds::ome::model::LifeCycleState;
use serde_json::json;
use std::sync::Arc;

impl Making<'_> {
    /// Looks the model up: one of kind BaseModel in the service's namespace, one of kind ClusterBaseModel cluster-wide first.
    pub(super) fn model(&mut self) -> Result<Option<Arc<ModelView>>, Box<Stop>> {
        let Some(reference) = self.service.model.clone() else {
            self.conditions.push(Condition::yes(MODEL_READY, "NoModel", "The service names no model, so its containers bring their own."));
            return Ok(None);
        };
        let (name, namespace) = (&reference.name, &self.service.namespace);
        let own = ObjectKey { resource: &BASE_MODEL, namespace: namespace.clone(), name: name.clone() };
        let of_all = ObjectKey { resource: &CLUSTER_BASE_MODEL, namespace: String::new(), name: name.clone() };
        let (places, looked) = if reference.kind == "BaseModel" {
            (vec![own], format!("There is no BaseModel {name} in the namespace {namespace}"))
        } else {
            (vec![of_all, own], format!("There is neither a ClusterBaseModel {name} nor a BaseModel {name} in the namespace {namespace}"))
        };
        let found = places.iter().find_map(|place| self.snapshot.models.get(&place.namespace, &place.name));
        // One that comes to a place that was looked at first counts.
        self.asking.reads.extend(places.iter().cloned().map(Read::Object));
        let stopped = |reason, message| Err(Stop::new(MODEL_READY, reason, message, "ModelLoadFailed"));
        let Some(model) = found else {
            return stopped("ModelNotFound", format!("{looked}: create it, or correct spec.model.name."));
        };
        let kind = &model.model.kind;
        if model.model.disabled {
            return stopped("ModelDisabled", format!("The {kind} {name} is disabled: enable it (spec.disabled), or name another model."));
        }
        match model.state {
            Some(LifeCycleState::Ready) => {}
            Some(LifeCycleState::Failed) => {
                let nodes = match &model.nodes_failed[..] {
                    [] => "its status says why".to_owned(),
                    nodes => format!("it failed on {}", nodes.iter().take(5).cloned().collect::<Vec<_>>().join(", ")),
                };
                return stopped("ModelFailed", format!("No node could fetch the {kind} {name}: {nodes}."));
            }
            state => {
                let state = state
                    .map_or_else(|| "has no state yet".to_owned(), |state| format!("is {}", json!(state).as_str().unwrap_or_default()));
                let message = format!("The {kind} {name} {state}: the service goes on once its status.state is Ready.");
                return stopped("ModelNotReady", message);
            }
        }
        self.conditions.push(Condition::yes(MODEL_READY, "ModelReady", format!("The {kind} {name} is ready.")));
        Ok(Some(Arc::clone(model)))
    }
}
