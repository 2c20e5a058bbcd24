//! LLMInferenceServices end to end: what they become, on an embedded control plane with its real controllers.

mod configs;
mod propagation;
mod routing;
mod topologies;

use crate::services::{Space, condition};
use pointsman::world::resource::LLM_INFERENCE_SERVICE;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The spec of a service that leaves everything to the presets, plus more.
fn with_model(more: Value) -> Value {
    let Value::Object(mut spec) = more else { panic!("{more} is no spec") };
    spec.insert("model".to_owned(), json!({"uri": "hf://example/llama", "name": "llama"}));
    spec.into()
}

/// Groups of two pods.
fn groups() -> Value {
    json!({"parallelism": {"pipeline": 2}, "worker": {"containers": []}})
}

async fn create(space: &Space<'_>, name: &str, metadata: Value, spec: Value) -> Value {
    space.create(&LLM_INFERENCE_SERVICE, name, json!({"metadata": metadata, "spec": spec})).await
}

/// Waits until a service is Ready in its newest state, and tells it.
async fn ready(space: &Space<'_>, name: &str) -> Value {
    let expected = |service: &Value| {
        let ready = condition(service, "Ready");
        ready["status"] == "True" && ready["observedGeneration"] == service["metadata"]["generation"]
    };
    space.becomes(&LLM_INFERENCE_SERVICE, name, "it is Ready", expected).await
}

/// Makes a service and waits until it is Ready.
async fn serves(space: &Space<'_>, name: &str, spec: Value) -> Value {
    create(space, name, json!({}), spec).await;
    ready(space, name).await
}

/// The pods of a service, by upstream's word for what they do.
async fn pods(space: &Space<'_>, service: &str) -> BTreeMap<String, Vec<Value>> {
    let mut by_component: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pod in
        space.pods_with(&format!("app.kubernetes.io/name={service},app.kubernetes.io/part-of=llminferenceservice")).await.into_values()
    {
        let component = pod["metadata"]["labels"]["app.kubernetes.io/component"].as_str().unwrap();
        by_component.entry(component.strip_prefix("llminferenceservice-").unwrap().to_owned()).or_default().push(pod);
    }
    by_component
}
