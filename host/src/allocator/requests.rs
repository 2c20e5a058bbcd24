//! Requests for single models.

use super::places::MANAGER;
use crate::problem::sentence;
use futures::{StreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use pointsman_core::{allocation::inputs::PodUsage, objects::label_value, subject_kind::APP_NAME, world::ObjectKey};
use serde_json::{Value, json};

/// The maximum number of concurrent requests for models.
const AT_ONCE: usize = 8;

/// Sends requests, a limited number at a time.
pub(crate) async fn some_at_once<T>(requests: Vec<impl Future<Output = T>>) -> Vec<T> {
    stream::iter(requests).buffer_unordered(AT_ONCE).collect().await
}

/// The objects of a key's kind, in its namespace if it has one.
pub(crate) fn objects(client: Client, key: &ObjectKey) -> Api<DynamicObject> {
    let resource = key.resource.api_resource();
    if key.namespace.is_empty() { Api::all_with(client, &resource) } else { Api::namespaced_with(client, &key.namespace, &resource) }
}

/// Whether a request has failed because the object changed meanwhile.
pub(super) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Annotates a model's Deployment, if there is one.
pub(crate) async fn annotate(client: Client, model: &ObjectKey, manager: &str, annotations: Value) -> kube::Result<()> {
    let api: Api<Deployment> = Api::namespaced(client, &model.namespace);
    let patch = json!({"metadata": {"annotations": annotations}});
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    match api.patch_metadata(&model.name, &params, &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop),
    }
}

/// Replaces a model's finalizers in the known version. Returns false if the model is gone or has changed; in the latter case it is
/// reconciled again.
pub(super) async fn set_finalizers(client: Client, key: ObjectKey, version: u64, finalizers: Vec<String>) -> bool {
    let api = objects(client, &key);
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": version.to_string()}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_metadata(&key.name, &params, &Patch::Merge(patch)).await {
        Ok(_) => true,
        Err(error) => {
            let is_expected = is_conflict(&error) || matches!(&error, kube::Error::Api(status) if status.code == 404);
            if !is_expected {
                tracing::warn!(subject = %key, error = sentence(&error), "its finalizers can't be written; trying again");
            }
            false
        }
    }
}

/// Whether a model certainly has no pod that uses memory.
pub(super) async fn has_ended(client: Client, model: &ObjectKey) -> kube::Result<bool> {
    let api: Api<Pod> = Api::namespaced(client, &model.namespace);
    let name = label_value(&model.name);
    let pods = api.list(&ListParams::default().labels(&format!("{APP_NAME}={name}"))).await?;
    let has_ended = |text: &str| PodUsage::from_object(text).is_none_or(|pod| pod.model.is_none_or(|(_, model)| model != name));
    Ok(pods.iter().all(|pod| serde_json::to_string(pod).is_ok_and(|text| has_ended(&text))))
}
