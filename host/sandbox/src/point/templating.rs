//! pod-templating: what the pods of a subject look like.

use super::{Reason, Role, Subject, image};
use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

/// Something that has a say in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// What it says: a JSON object.
    #[serde(with = "image::json")]
    pub content: String,
}

/// The question. What the plugins before have made of the template is not in it: it changes from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// What is to be served.
    pub subject: &'a Subject,
    /// What the pod does for it.
    pub role: Role,
    /// For a leader or a worker: the role of its group.
    #[component(name = "group-role")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_role: Option<Role>,
    /// The layers, the weakest first.
    pub layers: &'a [Layer],
    /// The template so far.
    #[serde(serialize_with = "image::json::serialize")]
    pub template: &'a str,
    /// Seconds since 1970, rounded down to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

/// What is done at a place in the template, as in RFC 6902.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Action {
    /// Adds the value there, in place of what is there.
    #[component(name = "add")]
    Add,
    /// Takes away what is there, which must exist.
    #[component(name = "remove")]
    Remove,
    /// Puts the value in place of what is there, which must exist.
    #[component(name = "replace")]
    Replace,
}

/// One step on the way to the new template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// What is done.
    pub action: Action,
    /// Where: a JSON Pointer into the template.
    pub path: String,
    /// The JSON value; absent for `remove` alone.
    #[serde(default, with = "image::optional_json", skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The name of the layer that asked for it, or `plugin`.
    pub layer: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// The steps, in order.
    #[serde(deserialize_with = "image::list")]
    pub operations: Vec<Operation>,
    /// Why.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}
