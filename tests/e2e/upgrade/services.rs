//! A hundred services of both kinds, and the state that an upgrade must keep.

use crate::services::{Space, accepted_writes, fixed, with_model};
use pointsman_core::resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE};
use pointsman_tests::eventually;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Services per kind.
const NUMBER: usize = 50;

pub(super) struct Services<'a>(Space<'a>);

impl<'a> Services<'a> {
    pub(super) fn create(space: Space<'a>) -> Self {
        let resources = [&INFERENCE_SERVICE, &LLM_INFERENCE_SERVICE];
        let specs = [with_model(json!({"engine": fixed(1)})), json!({"model": {"uri": "hf://example/llama"}})];
        let both = resources.into_iter().zip(&specs);
        let items: Vec<Value> = both
            .flat_map(|(resource, spec)| {
                (0..NUMBER).map(move |number| {
                    let metadata = json!({"name": format!("{}-{number}", resource.kind.to_lowercase()), "namespace": ""});
                    json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata, "spec": spec})
                })
            })
            .map(|mut service| {
                service["metadata"]["namespace"] = space.0.name.as_str().into();
                service
            })
            .collect();
        space.0.cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items})).ok();
        Self(space)
    }

    pub(super) fn number(&self) -> u64 {
        self.list("inferenceservices,llminferenceservices").len() as u64
    }

    fn list(&self, kinds: &str) -> Vec<Value> {
        let found = self.0.kubectl(&["get", kinds, "-o", "json"]);
        let list: Value = serde_json::from_str(&found.stdout).unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub(super) async fn all_ready(&self) {
        let is_ready = |service: &Value| {
            let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        eventually("all services are Ready", async || {
            let services = self.list("inferenceservices,llminferenceservices");
            (services.len() == 2 * NUMBER && services.iter().all(is_ready)).then_some(())
        })
        .await;
    }

    /// Pods and ReplicaSets with their uids.
    pub(super) fn state(&self) -> BTreeSet<String> {
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        self.list("pods,replicasets")
            .iter()
            .map(|object| format!("{} {} {}", object["kind"].as_str().unwrap_or_default(), text(object, "name"), text(object, "uid")))
            .collect()
    }

    /// The hosts' writes so far that the API server accepted, without those to the Lease.
    pub(super) fn writes(&self) -> Vec<String> {
        accepted_writes(self.0.0.cluster)
    }

    /// Whether a write is one to an object of a service.
    pub(super) fn is_object(write: &str) -> bool {
        let ours = ["inferenceservice-", "llminferenceservice-"].iter().any(|name| write.contains(&format!("/{name}")));
        ours && !write.ends_with("/status") && !write.contains("events/")
    }

    /// Deletes a service of each kind, for which no host is needed.
    pub(super) fn delete_one_per_kind(&self) {
        for kinds in ["inferenceservices", "llminferenceservices"] {
            let first = self.list(kinds).remove(0);
            self.0.kubectl(&["delete", kinds, first["metadata"]["name"].as_str().unwrap(), "--timeout", "600s"]).ok();
        }
    }
}
