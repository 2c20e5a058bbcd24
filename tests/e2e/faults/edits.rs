//! The edits of users while faults are injected: they create, change and delete services of all kinds and shapes, and change the objects
//! that services depend on.

use crate::services::fixed;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PostParams},
};
use pointsman_core::resource::{INFERENCE_SERVICE, LLM_CONFIG, LLM_INFERENCE_SERVICE, Resource, SERVING_RUNTIME};
use serde_json::{Value, json};

/// The number of services of each kind.
const SERVICES: usize = 6;

/// The desired state of an object; `None` deletes it.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub(super) resource: &'static Resource,
    pub(super) name: String,
    body: Option<Value>,
}

impl Edit {
    fn new(resource: &'static Resource, name: impl Into<String>, body: Option<Value>) -> Self {
        Self { resource, name: name.into(), body }
    }

    /// Writes it to a namespace with the client of a user.
    pub(super) async fn apply(&self, client: &Client, namespace: &str) {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &self.resource.api_resource());
        let Some(body) = &self.body else {
            // It may not exist yet.
            api.delete(&self.name, &DeleteParams::background()).await.ok();
            return;
        };
        let mut object = json!({
            "apiVersion": self.resource.api_version(), "kind": self.resource.kind, "metadata": {"name": self.name, "namespace": namespace},
        });
        object.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        // Replaces the whole object: an apply would leave empty lists of the previous spec behind.
        loop {
            let version = api.get_opt(&self.name).await.unwrap().and_then(|found| found.metadata.resource_version);
            object["metadata"]["resourceVersion"] = version.clone().into();
            let object = serde_json::from_value(object.clone()).unwrap();
            let written = match version {
                Some(_) => api.replace(&self.name, &PostParams::default(), &object).await,
                None => api.create(&PostParams::default(), &object).await,
            };
            match written {
                // A host has written the status in between, or the deletion has completed.
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                written => return drop(written.unwrap_or_else(|error| panic!("{} {}: {error}", self.resource.kind, self.name))),
            }
        }
    }
}

fn container(name: &str, tick: u64) -> Value {
    json!({"name": name, "image": "example.com/engine:1", "command": ["serve"], "env": [{"name": "TICK", "value": tick.to_string()}]})
}

fn runtime(tick: u64, grouped: bool) -> Value {
    let runner = json!({"runner": container("ome-container", tick)});
    let engine = if grouped { json!({"leader": runner, "worker": runner}) } else { runner };
    json!({"spec": {
        // Services use the grouped runtime only if they name it.
        "supportedModelFormats": [{"modelFormat": {"name": "checkpoint"}, "autoSelect": !grouped}],
        "engineConfig": engine,
    }})
}

fn config(tick: u64) -> Value {
    json!({"spec": {"template": {"containers": [{"name": "main", "env": [{"name": "BASE", "value": tick.to_string()}]}]}}})
}

/// The objects that services depend on, except their model.
pub(super) fn furniture() -> Vec<Edit> {
    vec![
        Edit::new(&SERVING_RUNTIME, "runtime", Some(runtime(0, false))),
        Edit::new(&SERVING_RUNTIME, "grouped", Some(runtime(0, true))),
        Edit::new(&LLM_CONFIG, "base", Some(config(0))),
    ]
}

fn inference_service(shape: u64, tick: u64) -> Value {
    let keda = json!({"enableKeda": true, "promServerAddress": "http://prometheus:9090", "customPromQuery": "sum(queue)"});
    let router = json!({"runner": container("router", tick), "minReplicas": 1, "maxReplicas": 1});
    let mut spec = match shape % 7 {
        0 => json!({}),
        1 => json!({"engine": fixed(2)}),
        2 => json!({"kedaConfig": keda}),
        3 => json!({"engine": fixed(1), "router": router}),
        4 => json!({"runtime": {"name": "grouped"}, "engine": fixed(1)}),
        5 => json!({"engine": {"minReplicas": 0, "canaryTrafficPercent": 20}}),
        _ => json!({"runtime": {"name": "grouped"}, "engine": {"annotations": {"ome.io/deploymentMode": "MultiNodeRayVLLM"}}}),
    };
    spec["model"] = json!({"name": "model", "kind": "BaseModel"});
    spec["engine"]["labels"] = json!({"example.com/tick": tick.to_string()});
    json!({"spec": spec})
}

fn llm_inference_service(shape: u64, tick: u64) -> Value {
    let groups = json!({"parallelism": {"pipeline": 2}, "worker": {"containers": []}});
    let mut spec = match shape % 8 {
        0 => json!({}),
        1 => json!({"replicas": 2}),
        2 => groups,
        3 => json!({"prefill": {"replicas": 2}}),
        4 => json!({"prefill": groups}),
        5 => json!({"router": {"scheduler": {}}}),
        6 => json!({"scaling": {"minReplicas": 2, "maxReplicas": 8, "wva": {"hpa": {}}}}),
        _ => json!({"baseRefs": [{"name": "base"}]}),
    };
    spec["model"] = json!({"uri": "hf://example/llama", "name": "llama"});
    spec["template"] = json!({"containers": [{"name": "main", "env": [{"name": "TICK", "value": tick.to_string()}]}]});
    json!({"spec": spec})
}

/// Derives an edit from a random number.
pub(super) fn edit(random: u64) -> Edit {
    // One byte of the number for each choice.
    let part = |at: u32| (random >> (8 * at)) & 0xff;
    let (what, which, shape, tick) = (part(0), part(1) % SERVICES as u64, part(2), part(3) % 16);
    match what % 16 {
        0 => Edit::new(&SERVING_RUNTIME, "runtime", Some(runtime(tick, false))),
        1 => Edit::new(&LLM_CONFIG, "base", Some(config(tick))),
        2 => Edit::new(&INFERENCE_SERVICE, format!("ome-{which}"), None),
        3 => Edit::new(&LLM_INFERENCE_SERVICE, format!("llm-{which}"), None),
        4..10 => Edit::new(&INFERENCE_SERVICE, format!("ome-{which}"), Some(inference_service(shape, tick))),
        _ => Edit::new(&LLM_INFERENCE_SERVICE, format!("llm-{which}"), Some(llm_inference_service(shape, tick))),
    }
}
