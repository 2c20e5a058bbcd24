//! Parses and checks a service's spec.

use super::{ACCEPTED, PlanError, predictor::Predictor};
use crate::{kinds::questions::Questions, objects::strings, rules::ome_keys::STORAGE_URI, world::ome::Component};
use pointsman_crds::ome::{
    component::KedaConfig,
    inference_service::{ModelRef, ServingRuntimeRef},
};
use pointsman_sandbox::{digest::Digested, point, words};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The maximum length of a service's name: with the suffix `-decoder`, a Service's name has at most 63 characters.
const MAX_NAME_LENGTH: usize = 55;

/// The maximum number of fine-tuned weights: an init container downloads each of them.
const MAX_WEIGHTS: usize = 16;

/// A service.
#[derive(Debug, Default)]
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) model: Option<ModelRef>,
    pub(super) runtime: Option<ServingRuntimeRef>,
    pub(super) engine: Option<Component>,
    pub(super) decoder: Option<Component>,
    pub(super) router: Option<Component>,
    pub(super) keda: KedaConfig,
    /// Its whole spec, as JSON.
    pub(super) spec: String,
    /// The URI of a predictor's model, instead of the nodes' copy.
    pub(super) storage_uri: Option<String>,
    /// A predictor's version of its runtime, and its protocol.
    pub(super) runtime_version: Option<String>,
    pub(super) protocol: Option<String>,
    /// The subject for policies.
    pub(super) subject: Digested<point::Subject>,
}

impl Service {
    /// Reads the service.
    pub(super) fn read(asking: &Questions<'_>) -> Result<Self, Box<PlanError>> {
        let subject = &asking.snapshot.subject;
        let content = subject.content();
        let spec = &content["spec"];
        let given = |name: &str| spec.get(name).filter(|value| !value.is_null());
        let wrong = |field: &str, error: serde_json::Error| {
            PlanError::new(ACCEPTED, "Unreadable", format!("spec.{field} can't be read: {error}."), "InvalidPredictorSpec")
        };
        let component = |name: &str| given(name).map(Component::parse).transpose().map_err(|error| wrong(name, error));
        let labels = strings(&content["metadata"]["labels"]);
        let annotations = strings(&content["metadata"]["annotations"]);
        let keda = given("kedaConfig").map(KedaConfig::deserialize).transpose().map_err(|error| wrong("kedaConfig", error))?;
        let service = Self {
            namespace: subject.key.namespace.clone(),
            name: subject.key.name.clone(),
            subject: asking.subject(&labels, &annotations),
            labels,
            annotations,
            model: given("model").map(ModelRef::deserialize).transpose().map_err(|error| wrong("model", error))?,
            // Templating tools write an empty name if none is set.
            runtime: given("runtime")
                .map(ServingRuntimeRef::deserialize)
                .transpose()
                .map_err(|error| wrong("runtime", error))?
                .filter(|runtime| !runtime.name.is_empty()),
            engine: component("engine")?,
            decoder: component("decoder")?,
            router: component("router")?,
            keda: keda.unwrap_or_default(),
            spec: spec.to_string(),
            storage_uri: None,
            runtime_version: None,
            protocol: None,
        };
        Ok(match Predictor::from_spec(spec)? {
            None => service,
            Some(Predictor { model, runtime, engine, storage_uri, runtime_version, protocol }) => {
                Self { model, runtime, engine: Some(engine), storage_uri, runtime_version, protocol, ..service }
            }
        })
    }

    /// Whether its engine specifies its own containers.
    pub(super) fn brings_containers(&self) -> bool {
        let parts = self.engine.iter().flat_map(|engine| [Some(&engine.part), engine.leader.as_ref()]).flatten();
        parts.into_iter().any(|part| part.0.get("pod").is_some_and(|pod| pod.get("containers").is_some()) || part.0.contains_key("runner"))
    }

    /// The URI of the engine's model, if it isn't on the nodes.
    pub(super) fn model_uri(&self) -> Option<&String> {
        let own = self.engine.as_ref().and_then(|engine| engine.settings.annotations.get(STORAGE_URI.key));
        own.or_else(|| self.annotations.get(STORAGE_URI.key)).or(self.storage_uri.as_ref())
    }

    /// The fine-tuned weights that it names.
    pub(super) fn weights(&self) -> &[String] {
        self.model.as_ref().map_or(&[], |model| &model.fine_tuned_weights)
    }

    /// Checks whether the service can be served at all.
    pub(super) fn check(&self) -> Result<(), Box<PlanError>> {
        let refused = |reason: &str, message: String| Err(PlanError::new(ACCEPTED, reason, message, "InvalidPredictorSpec"));
        let name = &self.name;
        if name.len() > MAX_NAME_LENGTH || !words::service_name(name) {
            let message = format!(
                "The name {name} is not valid for a Service: it must start with a lower-case letter, and consist of at most \
                 {MAX_NAME_LENGTH} lower-case letters, digits and -. Recreate the service under another name."
            );
            return refused("InvalidName", message);
        }
        if let Some(model) = &self.model {
            let weights = &model.fine_tuned_weights;
            if weights.len() > MAX_WEIGHTS {
                let message = format!(
                    "spec.model.fineTunedWeights names {} weights; the limit is {MAX_WEIGHTS}: create another service for some of them.",
                    weights.len()
                );
                return refused("NotSupported", message);
            }
            if let Some((at, name)) = weights.iter().enumerate().find(|(at, name)| weights[..*at].contains(name)) {
                let message = format!("spec.model.fineTunedWeights[{at}] names {name} again: remove it.");
                return refused("InvalidValue", message);
            }
            if !["ClusterBaseModel", "BaseModel"].contains(&model.kind.as_str()) || model.api_group != "ome.io" {
                let message = format!(
                    "spec.model names the kind {} of {}: it must be ClusterBaseModel or BaseModel of ome.io.",
                    model.kind, model.api_group
                );
                return refused("InvalidReference", message);
            }
        }
        if let Some(runtime) = &self.runtime
            && (!["ClusterServingRuntime", "ServingRuntime", ""].contains(&runtime.kind.as_str()) || runtime.api_group != "ome.io")
        {
            let message = format!(
                "spec.runtime names the kind {} of {}: it must be ClusterServingRuntime or ServingRuntime of ome.io.",
                runtime.kind, runtime.api_group
            );
            return refused("InvalidReference", message);
        }
        if self.model.is_none() && self.runtime.is_none() && self.engine.is_none() {
            return refused("NothingToServe", "The service has neither a model nor a runtime nor an engine: set spec.model.".to_owned());
        }
        Ok(())
    }
}
