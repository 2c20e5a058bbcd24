//! Sends the writes for a model: its status, its fields, its finalizers and annotations, and the Jobs that inspect it.

use super::inspections;
use crate::allocator::objects;
use kube::{
    Client, ResourceExt,
    api::{Patch, PatchParams},
};
use pointsman_core::{
    model_nodes::{
        copies::COPY_NODES,
        inspection::Step,
        live::{FACTS_MANAGER, STATUS_MANAGER},
    },
    world::ObjectKey,
};
use serde_json::{Value, json};

/// The writes for a model.
#[derive(Default)]
pub(super) struct Writes {
    /// The model's uid, so that a later model of the same name isn't written.
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) finalizers: Option<Vec<String>>,
    /// The nodes that are chosen for it.
    pub(super) copy_nodes: Option<String>,
    pub(super) facts: Option<Value>,
    pub(super) status: Option<Value>,
    /// Whether other writers' fields of its status are overwritten.
    pub(super) overwrites: bool,
    /// Whether a Job inspects it rather than agents.
    pub(super) inspected: bool,
    /// The steps of its inspection.
    pub(super) steps: Vec<Step>,
}

impl Writes {
    pub(super) fn is_empty(&self) -> bool {
        self.finalizers.is_none() && self.copy_nodes.is_none() && self.facts.is_none() && self.status.is_none() && self.steps.is_empty()
    }
}

/// Whether the object has changed, or is gone.
pub(super) fn is_outdated(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}

/// Sends the writes. Returns the version they were based on, if there is a newer one now, and the result of creating a Job, if that was a
/// step.
pub(super) async fn send(
    client: Client,
    model: ObjectKey,
    writes: Writes,
) -> (ObjectKey, kube::Result<Option<String>>, Option<Result<(), String>>) {
    let resource = model.resource.api_resource();
    let api = objects(client.clone(), &model);
    let Writes { uid, resource_version, finalizers, copy_nodes, facts, status, overwrites, inspected, steps } = writes;
    let (mut created, mut failure) = (None, None);
    for step in steps {
        match inspections::take(&client, step).await {
            Ok(answer) => created = answer.or(created),
            Err(error) => failure = Some(error),
        }
    }
    // With the uid, an apply creates nothing. A Job's result is for this version, and a state that a user sets meanwhile takes precedence.
    let object = |part: &str, value: &Value, newest: Option<&String>| {
        let mut object =
            json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": model.name, "uid": uid}, part: value});
        if inspected {
            object["metadata"]["resourceVersion"] = newest.unwrap_or(&resource_version).as_str().into();
        }
        object
    };
    let answer = async {
        let mut newest = None;
        // The status is the record of an inspection, so its results are written first.
        for is_status in [!inspected, inspected] {
            if let Some(status) = status.as_ref().filter(|_| is_status) {
                let params = PatchParams { force: overwrites, ..PatchParams::apply(STATUS_MANAGER) };
                let object = object("status", status, newest.as_ref());
                newest = api.patch_status(&model.name, &params, &Patch::Apply(object)).await?.resource_version();
            }
            // Values that somebody sets meanwhile aren't overwritten: without force, that is a conflict.
            if let Some(facts) = facts.as_ref().filter(|_| !is_status) {
                let params = PatchParams::apply(FACTS_MANAGER);
                match api.patch(&model.name, &params, &Patch::Apply(object("spec", facts, newest.as_ref()))).await {
                    Ok(written) => newest = written.resource_version(),
                    // A model whose fields are rejected may still be available.
                    Err(error) if inspected && !is_outdated(&error) => failure = Some(error),
                    Err(error) => return Err(error),
                }
            }
        }
        // Lists are replaced as a whole, so only in the known version. After another write, the watch brings that first.
        let is_newest = newest.as_ref().is_none_or(|newest| *newest == resource_version);
        if is_newest && (finalizers.is_some() || copy_nodes.is_some()) {
            let params = PatchParams { field_manager: Some(STATUS_MANAGER.to_owned()), ..PatchParams::default() };
            let mut patch = json!({"metadata": {"resourceVersion": resource_version, "uid": uid}});
            if let Some(finalizers) = finalizers {
                patch["metadata"]["finalizers"] = json!(finalizers);
            }
            if let Some(nodes) = copy_nodes {
                patch["metadata"]["annotations"][COPY_NODES] = nodes.into();
            }
            newest = api.patch_metadata(&model.name, &params, &Patch::Merge(patch)).await?.metadata.resource_version;
        }
        Ok(newest.is_some_and(|newest| newest != resource_version).then(|| resource_version.clone()))
    };
    let answer = answer.await.and_then(|written| failure.map_or(Ok(written), Err));
    (model, answer, created)
}
