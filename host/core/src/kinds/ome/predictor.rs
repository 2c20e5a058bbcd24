//! Converts the deprecated `predictor` into an engine, a model and a runtime.

use super::{PlanError, component::invalid};
use crate::{
    subject_kind::OME_CONTAINER,
    world::ome::{Component, PodLayer},
};
use pointsman_crds::ome::inference_service::{ModelRef, ServingRuntimeRef};
use serde_json::{Map, Value, json};

/// A predictor's contents in the current fields.
#[derive(Debug, Default)]
pub(super) struct Predictor {
    pub(super) model: Option<ModelRef>,
    pub(super) runtime: Option<ServingRuntimeRef>,
    pub(super) engine: Component,
    pub(super) storage_uri: Option<String>,
    pub(super) runtime_version: Option<String>,
    pub(super) protocol: Option<String>,
}

/// The fields of a predictor's model that don't belong to a container.
const OF_MODEL: [&str; 6] = ["runtime", "baseModel", "fineTunedWeights", "storageUri", "runtimeVersion", "protocolVersion"];

impl Predictor {
    /// Parses a predictor, unless it is empty.
    pub(super) fn from_spec(spec: &Value) -> Result<Option<Self>, Box<PlanError>> {
        let Some(predictor) = spec.get("predictor").filter(|predictor| says_something(predictor)).and_then(Value::as_object) else {
            return Ok(None);
        };
        if ["model", "runtime", "engine", "decoder"].iter().any(|field| spec.get(field).is_some_and(|value| !value.is_null())) {
            return Err(invalid(
                "The service sets the deprecated spec.predictor with engine, decoder, model or runtime: move its fields there, and remove \
                 it."
                .to_owned(),
            ));
        }
        let model = predictor.get("model").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut engine: Map<String, Value> =
            predictor.iter().filter(|(field, _)| !["model", "workerSpec"].contains(&field.as_str())).map(cloned).collect();
        let runner: Map<String, Value> = model.iter().filter(|(field, _)| !OF_MODEL.contains(&field.as_str())).map(cloned).collect();
        if runner.values().any(says_something) {
            engine.insert("runner".to_owned(), runner.into());
        }
        if let Some(worker) = predictor.get("workerSpec").filter(|worker| says_something(worker)) {
            engine.insert("worker".to_owned(), worker.clone());
        }
        let text = |field: &str| model.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let weights = model.get("fineTunedWeights").and_then(Value::as_array).into_iter().flatten();
        let weights: Vec<String> = weights.filter_map(Value::as_str).map(str::to_owned).collect();
        let group = || "ome.io".to_owned();
        let base = text("baseModel");
        if base.is_none() && !weights.is_empty() {
            return Err(invalid(
                "spec.predictor.model names fineTunedWeights but no baseModel: set it to the model that was tuned.".to_owned(),
            ));
        }
        Ok(Some(Self {
            model: base.map(|name| ModelRef { name, kind: "ClusterBaseModel".to_owned(), api_group: group(), fine_tuned_weights: weights }),
            // A reference with only a name may be of either kind.
            runtime: text("runtime").map(|name| ServingRuntimeRef { name, kind: String::new(), api_group: group() }),
            engine: Component::parse(&Value::Object(engine)).map_err(|error| {
                PlanError::new(super::ACCEPTED, "Unreadable", format!("spec.predictor can't be read: {error}."), "InvalidPredictorSpec")
            })?,
            storage_uri: text("storageUri"),
            runtime_version: text("runtimeVersion"),
            protocol: text("protocolVersion"),
        }))
    }
}

fn cloned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// Go clients write a predictor even if none is set: empty, or with an empty list of containers.
fn says_something(predictor: &Value) -> bool {
    match predictor {
        Value::Object(fields) => fields.values().any(says_something),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Null => false,
        _ => true,
    }
}

/// Sets another version of the image in the main containers of a runtime's component.
pub(super) fn set_version(runtime: &mut Component, version: &str) {
    let parts = [Some(&mut runtime.part), runtime.leader.as_mut(), runtime.worker.as_mut()];
    for PodLayer(part) in parts.into_iter().flatten() {
        if let Some(runner) = part.get_mut("runner") {
            set_image(runner, version);
        }
        let Some(containers) = part.get_mut("pod").and_then(|pod| pod.get_mut("containers")?.as_array_mut()) else { continue };
        let main = containers.iter().position(|container| container["name"] == OME_CONTAINER).unwrap_or_default();
        if let Some(container) = containers.get_mut(main) {
            set_image(container, version);
        }
    }
}

fn set_image(container: &mut Value, version: &str) {
    let Some(image) = container.get("image").and_then(Value::as_str) else { return };
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    // A colon before the last slash belongs to a registry's port.
    let at = name.rfind('/').unwrap_or_default();
    let end = name[at..].find(':').map_or(name.len(), |colon| at + colon);
    container["image"] = json!(format!("{}:{version}", &name[..end]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_takes_the_place_of_a_tag_and_of_a_digest() {
        for (image, expected) in [
            ("vllm/vllm-openai", "vllm/vllm-openai:v2"),
            ("registry:5000/engine", "registry:5000/engine:v2"),
            ("registry:5000/engine:v1@sha256:00", "registry:5000/engine:v2"),
            ("engine:v1", "engine:v2"),
        ] {
            let mut runtime = Component::parse(&json!({"runner": {"image": image}})).unwrap();
            set_version(&mut runtime, "v2");
            assert_eq!(runtime.part.0["runner"]["image"], expected);
        }
    }

    #[test]
    fn an_empty_predictor_is_none() {
        for predictor in [json!({}), json!({"containers": []}), json!({"model": {"resources": {}, "name": ""}})] {
            assert!(Predictor::from_spec(&json!({"predictor": predictor, "model": {"name": "llama"}})).unwrap().is_none());
        }
        assert!(Predictor::from_spec(&json!({"predictor": {"minReplicas": 1}, "model": {"name": "llama"}})).is_err());
    }
}
