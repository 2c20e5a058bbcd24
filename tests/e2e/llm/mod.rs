//! LLMInferenceServices end to end: their objects, on an embedded control plane with its real controllers.

mod changes;
mod configs;
mod propagation;
mod routing;
mod scheduler;
mod topologies;

use crate::services::{Space, condition};
use pointsman_core::resource::{DEPLOYMENT, LEADER_WORKER_SET, LLM_INFERENCE_SERVICE, Resource};
use pointsman_tests::fixtures::put;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The spec of a service that only uses presets, plus more.
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

/// Waits until a service is Ready in its newest generation, and returns it.
async fn ready(space: &Space<'_>, name: &str) -> Value {
    // KServe's own CRDs only have an `observedGeneration` for the whole status.
    let expected = |service: &Value| {
        condition(service, "Ready")["status"] == "True" && service["status"]["observedGeneration"] == service["metadata"]["generation"]
    };
    space.becomes(&LLM_INFERENCE_SERVICE, name, "it is Ready", expected).await
}

/// Creates a service and waits until it is Ready.
async fn serves(space: &Space<'_>, name: &str, spec: Value) -> Value {
    create(space, name, json!({}), spec).await;
    ready(space, name).await
}

/// The pods of a service, by upstream's name for their component.
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

/// One of the four topologies.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    apart: bool,
    grouped: bool,
}

const SHAPES: [Shape; 4] = [
    Shape { name: "single", apart: false, grouped: false },
    Shape { name: "groups", apart: false, grouped: true },
    Shape { name: "apart", apart: true, grouped: false },
    Shape { name: "apart-groups", apart: true, grouped: true },
];

impl Shape {
    /// Changes a service to this shape, and only that.
    fn shape(&self, service: &mut Value) {
        let workload = if self.grouped { groups() } else { json!({}) };
        put(service, "spec", &workload);
        put(service, "spec.prefill", &if self.apart { workload } else { Value::Null });
    }

    /// The objects that create its pods.
    fn workloads(&self, service: &str) -> Vec<(&'static Resource, String)> {
        let (resource, infix) = if self.grouped { (&LEADER_WORKER_SET, "-mn") } else { (&DEPLOYMENT, "") };
        let parts = ["", "-prefill"].iter().take(1 + usize::from(self.apart));
        parts.map(|part| (resource, format!("{service}-kserve{infix}{part}"))).collect()
    }

    /// The components of its pods, without the scheduler.
    fn components(&self) -> BTreeSet<String> {
        let main = if self.grouped { &["workload-leader", "workload-worker"][..] } else { &["workload"] };
        let of_main = main.iter().map(|&component| component.to_owned());
        let of_prefill = main.iter().filter(|_| self.apart).map(|component| format!("{component}-prefill"));
        of_main.chain(of_prefill).collect()
    }

    /// Applies a service in this shape under its own name, as users do.
    fn apply(&self, space: &Space<'_>, what: &str, mut service: Value) -> String {
        let name = format!("{what}-{}", self.name);
        (service["metadata"]["name"], service["metadata"]["namespace"]) = (name.as_str().into(), space.0.name.as_str().into());
        self.shape(&mut service);
        let file = space.0.cluster.dir.join(format!("{}-{name}.json", space.0.name));
        std::fs::write(&file, service.to_string()).unwrap();
        space.kubectl(&["apply", "-f", &file.to_string_lossy()]).ok();
        name
    }
}
