//! The model of a service: whether it is there and can be served.

use super::{MODEL_READY, PlanBuilder, PlanError};
use crate::{
    condition::Condition,
    kinds::questions,
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL, FINE_TUNED_WEIGHT},
    world::{
        ObjectKey, Read,
        ome::{ModelView, WeightView},
    },
};
use pointsman_crds::ome::model::LifeCycleState;
use serde_json::json;
use std::sync::Arc;

impl PlanBuilder<'_> {
    /// Looks the model up: one of kind BaseModel in the service's namespace, one of kind ClusterBaseModel cluster-wide first.
    pub(super) fn model(&mut self) -> Result<Option<Arc<ModelView>>, Box<PlanError>> {
        let Some(reference) = self.service.model.clone() else {
            self.conditions.push(match self.service.model_uri() {
                Some(uri) => Condition::satisfied(MODEL_READY, "StorageUri", format!("The model comes from {uri}.")),
                None => Condition::satisfied(MODEL_READY, "NoModel", "The service names no model, so its containers bring their own."),
            });
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
        let stopped = |reason, message| Err(PlanError::new(MODEL_READY, reason, message, "ModelLoadFailed"));
        let Some(model) = found else {
            return stopped("ModelNotFound", format!("{looked}: create it, or correct spec.model.name."));
        };
        let kind = &model.model.kind;
        if model.model.disabled {
            return stopped("ModelDisabled", format!("The {kind} {name} is disabled: enable it (spec.disabled), or name another model."));
        }
        if let Some(uri) = self.service.model_uri() {
            let message = format!("The {kind} {name} is taken from {uri}, whatever nodes have it.");
            self.conditions.push(Condition::satisfied(MODEL_READY, "StorageUri", message));
            return Ok(Some(Arc::clone(model)));
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
        self.conditions.push(Condition::satisfied(MODEL_READY, "ModelReady", format!("The {kind} {name} is ready.")));
        Ok(Some(Arc::clone(model)))
    }

    /// Looks up the fine-tuned weight that is served with the model. Its files are fetched by the pods, so it needn't be anywhere yet.
    pub(super) fn weight(&mut self, model: Option<&ModelView>) -> Result<Option<(String, Arc<WeightView>)>, Box<PlanError>> {
        let Some(name) = self.service.model.as_ref().and_then(|model| model.fine_tuned_weights.first()).cloned() else { return Ok(None) };
        let stopped = |reason, message| Err(PlanError::new(MODEL_READY, reason, message, "ModelLoadFailed"));
        if let Some((reason, message)) = questions::missing_kind(self.snapshot, "service", &FINE_TUNED_WEIGHT) {
            return stopped(reason, message);
        }
        let key = ObjectKey { resource: &FINE_TUNED_WEIGHT, namespace: String::new(), name: name.clone() };
        self.asking.reads.insert(Read::Object(key));
        let Some(weight) = self.snapshot.weights.get("", &name) else {
            return stopped(
                "WeightNotFound",
                format!("There is no FineTunedWeight {name}: create it, or correct spec.model.fineTunedWeights."),
            );
        };
        if weight.disabled {
            return stopped(
                "WeightDisabled",
                format!("The FineTunedWeight {name} is disabled: enable it (spec.disabled), or leave it out."),
            );
        }
        if weight.state == Some(LifeCycleState::Failed) {
            return stopped("WeightFailed", format!("The FineTunedWeight {name} has failed: its status says why."));
        }
        let (namespace, tuned) = &weight.tuned;
        let same = model.is_some_and(|model| {
            // One without a namespace may be meant of the service's own.
            model.model.name == *tuned && (namespace.is_empty() || model.model.namespace == *namespace)
        });
        if !same {
            let message =
                format!("The FineTunedWeight {name} was made of the model {tuned}: name that in spec.model.name, or another weight.");
            return stopped("WeightOfAnotherModel", message);
        }
        Ok(Some((name, Arc::clone(weight))))
    }
}
