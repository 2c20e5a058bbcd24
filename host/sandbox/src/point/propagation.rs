//! metadata-propagation: which labels and annotations of a subject reach the objects that are made for it.

use super::{Entry, Reason, Role, Subject, image};
use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

/// Somewhere that labels and annotations come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
#[serde(default, deny_unknown_fields)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Its labels, by key.
    #[serde(deserialize_with = "image::list")]
    pub labels: Vec<Entry>,
    /// Its annotations, by key.
    #[serde(deserialize_with = "image::list")]
    pub annotations: Vec<Entry>,
}

/// Which metadata of the target is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Place {
    /// The object's own.
    #[default]
    #[component(name = "object")]
    Object,
    /// That of the pods that it makes.
    #[component(name = "pod-template")]
    PodTemplate,
}

/// What the labels and annotations are for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Target {
    /// Its API group; empty for core kinds.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What its pods do, or what it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// For a leader or a worker: the role of its group.
    #[component(name = "group-role")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_role: Option<Role>,
    /// Its own metadata or that of its pods.
    pub place: Place,
}

/// A label or annotation on the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The name of the layer that it comes from, or `plugin`.
    pub layer: String,
}

/// The question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// What is to be served.
    pub subject: &'a Subject,
    /// What the labels and annotations are for.
    pub target: &'a Target,
    /// The layers, the weakest first.
    pub layers: &'a [Layer],
    /// The labels so far, by key.
    pub labels: &'a [Placed],
    /// The annotations so far, by key.
    pub annotations: &'a [Placed],
    /// Seconds since 1970, rounded down to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

/// Labels or annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Sort {
    /// A label.
    #[default]
    #[component(name = "label")]
    Label,
    /// An annotation.
    #[component(name = "annotation")]
    Annotation,
}

/// Something that a layer has and the target doesn't get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// What it is.
    pub sort: Sort,
    /// Its key.
    pub key: String,
    /// The name of the layer that has it.
    pub layer: String,
    /// Why.
    pub reason: Reason,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// All labels that the target gets, in place of those so far.
    #[serde(deserialize_with = "image::list")]
    pub labels: Vec<Placed>,
    /// All annotations that the target gets, in place of those so far.
    #[serde(deserialize_with = "image::list")]
    pub annotations: Vec<Placed>,
    /// What was left out.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
    /// Why.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}
