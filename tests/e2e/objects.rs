//! Objects of any kind, as the API server sees them.

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    client::Body,
    core::Request,
};
use pointsman_crds::{KINDS, Served};
use serde_json::{Value, json};

fn served(kind: &str) -> &'static Served {
    KINDS.iter().find(|served| (served.resource)().kind == kind).unwrap_or_else(|| panic!("there is no kind {kind}"))
}

/// The API of a kind, in `namespace` if the kind is namespaced.
pub(crate) fn api_of(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let served = served(kind);
    let resource = (served.resource)();
    if (served.crd)().spec.scope == "Cluster" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// An object after a round trip through our type.
pub(crate) fn read(object: &Value) -> serde_json::Result<Value> {
    let kind = object["kind"].as_str().unwrap_or_default();
    (served(kind).read)(object.clone())
}

/// Creates an object with its status, and returns the stored object.
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

/// A request to the API server.
pub(crate) enum Wish {
    /// Creates the object.
    Make(PostParams),
    /// Changes an existing object.
    Change(PatchParams),
}

/// The response of the API server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) success: bool,
    /// The texts of the warnings.
    pub(crate) warnings: Vec<String>,
    /// The object, or a Status.
    pub(crate) body: Value,
}

/// Sends an object exactly as it is written here: a client's types would normalize it first.
pub(crate) async fn ask(client: &Client, namespace: &str, object: &Value, wish: &Wish) -> Answer {
    let [kind, name] = [&object["kind"], &object["metadata"]["name"]].map(|text| text.as_str().unwrap_or_default());
    let requests = Request::new(api_of(client, kind, namespace).resource_url());
    let request = match wish {
        Wish::Make(parameters) => requests.create(parameters, object.to_string().into_bytes()),
        Wish::Change(parameters) => requests.patch(name, parameters, &Patch::Merge(object)),
    };
    let answer = client.send(request.unwrap().map(Body::from)).await.unwrap();
    let warnings = answer.headers().get_all("warning").iter().map(|header| unquoted(header.as_bytes())).collect();
    let success = answer.status().is_success();
    let body = answer.into_body().collect_bytes().await.unwrap();
    let read = serde_json::from_slice(&body);
    let body = read.unwrap_or_else(|error| panic!("{kind} {name}: {error}: {}", String::from_utf8_lossy(&body)));
    Answer { success, warnings, body }
}

/// The text of a Warning header: `299 - "text"`, in which a backslash precedes quotes and backslashes.
fn unquoted(header: &[u8]) -> String {
    let header = String::from_utf8_lossy(header);
    let quoted = header.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')).unwrap_or_else(|| panic!("{header}"));
    let mut characters = quoted.chars();
    let mut text = String::new();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}
