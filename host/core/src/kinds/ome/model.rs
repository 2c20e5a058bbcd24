//! The model of a service: whether it exists and can be served.

use super::{ACCEPTED, MODEL_READY, PlanBuilder, PlanError};
use crate::{
    condition::Condition,
    kinds::questions,
    model_nodes::names::node_label,
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL, FINE_TUNED_WEIGHT},
    world::{
        ObjectKey, Read,
        ome::{ModelView, WeightView},
    },
};
use pointsman_crds::ome::model::LifeCycleState;
use pointsman_sandbox::point::selection::Model;
use serde_json::json;
use std::sync::Arc;

impl PlanBuilder<'_> {
    /// Finds the model: for the kind BaseModel in the service's namespace; for ClusterBaseModel cluster-wide first.
    pub(super) fn model(&mut self) -> Result<Option<Arc<ModelView>>, Box<PlanError>> {
        let Some(reference) = self.service.model.clone() else {
            self.conditions.push(match self.service.model_uri() {
                Some(uri) => Condition::satisfied(MODEL_READY, "StorageUri", format!("The model comes from {uri}.")),
                None => Condition::satisfied(MODEL_READY, "NoModel", "The service names no model, so its containers provide their own."),
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
        // A model that appears in an earlier place takes precedence.
        self.asking.reads.extend(places.iter().cloned().map(Read::Object));
        let stopped = |reason, message| Err(PlanError::new(MODEL_READY, reason, message, "ModelLoadFailed"));
        let Some(model) = found else {
            return stopped("ModelNotFound", format!("{looked}: create it, or correct spec.model.name."));
        };
        let kind = &model.model.kind;
        if model.model.disabled {
            return stopped("ModelDisabled", format!("The {kind} {name} is disabled: enable it (spec.disabled), or name another model."));
        }
        let warning = model.is_deprecated.then(|| format!("The {kind} {name} is deprecated: plan to serve another model."));
        if let Some(uri) = self.service.model_uri() {
            let message = format!("The {kind} {name} is downloaded from {uri}, even if nodes hold it.");
            self.conditions.push(ready("StorageUri", message, warning));
            return Ok(Some(Arc::clone(model)));
        }
        if self.serves_merged_weight() {
            let message = format!("A merged weight is served in place of the {kind} {name}, even if nodes hold that model.");
            self.conditions.push(ready("MergedWeight", message, warning));
            return Ok(Some(Arc::clone(model)));
        }
        match model.state {
            Some(LifeCycleState::Ready) => {}
            Some(LifeCycleState::Failed) => {
                let message = match &model.nodes_failed[..] {
                    [] => format!("The {kind} {name} has failed: see its condition Ready."),
                    nodes => {
                        let nodes = nodes.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
                        format!("No node could download the {kind} {name}: it failed on {nodes}.")
                    }
                };
                return stopped("ModelFailed", message);
            }
            None => return stopped("ModelNotReady", unreported(model)),
            Some(state) => {
                let state = json!(state);
                let state = state.as_str().unwrap_or_default();
                let message = format!(
                    "The {kind} {name} is {state}: the service continues once its status.state is Ready. Run `kubectl describe {}` to see \
                     its progress.",
                    kubectl_name(model)
                );
                return stopped("ModelNotReady", message);
            }
        }
        self.conditions.push(ready("ModelReady", format!("The {kind} {name} is ready."), warning));
        Ok(Some(Arc::clone(model)))
    }

    /// Whether the service names a merged weight. From here on, the plan depends on the weights even if it fails because of the model.
    fn serves_merged_weight(&mut self) -> bool {
        let names: Vec<String> = self.service.weights().to_vec();
        self.asking.reads.extend(names.iter().map(|name| Read::Object(weight_key(name))));
        names.iter().any(|name| self.snapshot.weights.get("", name).is_some_and(|weight| weight.is_merged))
    }

    /// Finds the fine-tuned weights that are served with the model. The pods download their files, so they needn't be on a node.
    pub(super) fn weights(&mut self, model: Option<&ModelView>) -> Result<Vec<(String, Arc<WeightView>)>, Box<PlanError>> {
        let names = self.service.weights().to_vec();
        let stopped = |reason, message| Err(PlanError::new(MODEL_READY, reason, message, "ModelLoadFailed"));
        if let Some((reason, message)) = questions::missing_kind(self.snapshot, "service", &FINE_TUNED_WEIGHT).filter(|_| !names.is_empty())
        {
            return stopped(reason, message);
        }
        self.asking.reads.extend(names.iter().map(|name| Read::Object(weight_key(name))));
        let mut weights = Vec::new();
        for name in names {
            let Some(weight) = self.snapshot.weights.get("", &name) else {
                return stopped(
                    "WeightNotFound",
                    format!("There is no FineTunedWeight {name}: create it, or correct spec.model.fineTunedWeights."),
                );
            };
            if let Some((reason, message)) = unusable(&name, weight, model) {
                return stopped(reason, message);
            }
            weights.push((name, Arc::clone(weight)));
        }
        if let Some((name, _)) = weights.iter().find(|(_, weight)| weight.is_merged) {
            let whole = format!("The FineTunedWeight {name} is a whole model (configuration.merged_weights)");
            let refused = |message| Err(PlanError::new(ACCEPTED, "NotSupported", message, "InvalidPredictorSpec"));
            if weights.len() > 1 {
                let remedy = "name only this one in spec.model.fineTunedWeights";
                return refused(format!("{whole}, which replaces the base model and can't be combined with other weights: {remedy}."));
            }
            if let Some(uri) = self.service.model_uri() {
                return refused(format!("{whole}, and the service takes its model from {uri}: remove one of the two."));
            }
        }
        let deprecated: Vec<_> = weights.iter().filter(|(_, weight)| weight.is_deprecated).map(|(name, _)| name.as_str()).collect();
        if !deprecated.is_empty()
            && let Some(condition) = self.conditions.iter_mut().find(|condition| condition.type_ == MODEL_READY)
        {
            let warning = format!("These FineTunedWeights are deprecated: {}. Plan to serve others.", deprecated.join(", "));
            *condition = ready("Deprecated", condition.message.clone(), Some(warning));
        }
        Ok(weights)
    }
}

/// The condition for a model that can be served, with a warning if there is one.
fn ready(reason: &str, message: String, warning: Option<String>) -> Condition {
    match warning {
        None => Condition::satisfied(MODEL_READY, reason, message),
        Some(warning) => Condition::satisfied(MODEL_READY, "Deprecated", format!("{message} {warning}")).with_event(),
    }
}

/// A model as arguments for kubectl.
fn kubectl_name(model: &ModelView) -> String {
    let Model { kind, namespace, name, .. } = &*model.model;
    let scope = if namespace.is_empty() { String::new() } else { format!(" --namespace {namespace}") };
    format!("{} {name}{scope}", kind.to_lowercase())
}

/// The message for a model without a state: who reports it, and what to do if nobody does.
fn unreported(model: &ModelView) -> String {
    let Model { kind, namespace, name, .. } = &*model.model;
    let object = kubectl_name(model);
    let set_state = format!("`kubectl patch {object} --subresource status --type merge --patch '{{\"status\":{{\"state\":\"Ready\"}}}}'`");
    if model.live.object.scheme() == "pvc" {
        return format!(
            "The {kind} {name} has no state yet. The controller inspects the model on its claim and reports its state if the flag \
             --model-agent-namespace is set. Without the flag, set the state: {set_state}."
        );
    }
    format!(
        "The {kind} {name} has no state on any node yet. The model agents report it, and the controller writes it if the flag \
         --model-agent-namespace is set. If no agent runs, label each node that has the model's files in {}: `kubectl label node NODE \
         {}=Ready`. Then set the state: {set_state}.",
        model.files_path(),
        node_label(namespace, name)
    )
}

fn weight_key(name: &str) -> ObjectKey {
    ObjectKey { resource: &FINE_TUNED_WEIGHT, namespace: String::new(), name: name.to_owned() }
}

/// Why a weight can't be served with a model, as a reason and a message.
fn unusable(name: &str, weight: &WeightView, model: Option<&ModelView>) -> Option<(&'static str, String)> {
    if weight.disabled {
        return Some(("WeightDisabled", format!("The FineTunedWeight {name} is disabled: enable it (spec.disabled), or remove it.")));
    }
    if weight.state == Some(LifeCycleState::Failed) {
        return Some(("WeightFailed", format!("The FineTunedWeight {name} has failed: its status gives the reason.")));
    }
    let (namespace, tuned) = &weight.tuned;
    let same = model.is_some_and(|model| {
        // A reference without a namespace may mean the service's own.
        model.model.name == *tuned && (namespace.is_empty() || model.model.namespace == *namespace)
    });
    (!same).then(|| {
        let message = format!(
            "The FineTunedWeight {name} was tuned from the model {tuned}: set spec.model.name to that model, or use another weight."
        );
        ("WeightOfAnotherModel", message)
    })
}
