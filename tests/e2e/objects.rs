//! Objects of any kind, as the API server sees them.

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use pointsman_crds::{KINDS, Served};
use serde_json::{Value, json};

fn served(kind: &str) -> &'static Served {
    KINDS.iter().find(|served| (served.resource)().kind == kind).unwrap_or_else(|| panic!("there is no kind {kind}"))
}

/// The API of a kind; in `namespace` where the kind has namespaces.
pub(crate) fn api_of(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let served = served(kind);
    let resource = (served.resource)();
    if (served.crd)().spec.scope == "Cluster" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// Our type's view of an object: what it keeps of it.
pub(crate) fn read(object: &Value) -> serde_json::Result<Value> {
    let kind = object["kind"].as_str().unwrap_or_default();
    (served(kind).read)(object.clone())
}

/// Creates an object, its status too, and returns it as it is stored.
pub(crate) async fn create(api: &Api<DynamicObject>, object: &Value) -> kube::Result<Value> {
    let made = api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await?;
    let Some(status) = object.get("status") else { return Ok(serde_json::to_value(made).unwrap()) };
    let patch = Patch::Merge(json!({ "status": status }));
    let made = api.patch_status(&made.name_any(), &PatchParams::default(), &patch).await?;
    Ok(serde_json::to_value(made).unwrap())
}

pub(crate) async fn delete(api: &Api<DynamicObject>, object: &Value) {
    api.delete(object["metadata"]["name"].as_str().unwrap(), &DeleteParams::default()).await.unwrap();
}
