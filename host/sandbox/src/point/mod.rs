//! The policy points: the records that questions and answers are made of, as `wit/` defines them. Only this module knows their
//! form: in memory as a component takes them, and as JSON, which is what commands, golden cases and `explain` speak.
//!
//! The image in JSON is that of docs/plugin-abi.md: a record is an object with names in camelCase, an enum its name, a variant an
//! object with one field (or its name alone), an absent option is left out, the type `json` is the value itself, and NaN is null.

// wasmtime's derive implements its traits, which are unsafe to implement by hand.
#![allow(unsafe_code, unused_qualifications, clippy::missing_fields_in_debug)]

pub mod describe;
pub mod image;
pub mod propagation;
pub mod scoring;
pub mod selection;
pub mod templating;

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

/// One label or annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// The custom resource that a decision is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Subject {
    /// Its API group.
    pub group: String,
    /// Its API version.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// The namespace that it is in; empty for a cluster-scoped kind.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels, by key.
    #[serde(deserialize_with = "image::list")]
    pub labels: Vec<Entry>,
    /// Its annotations, by key.
    #[serde(deserialize_with = "image::list")]
    pub annotations: Vec<Entry>,
    /// The labels of its namespace, by key.
    #[component(name = "namespace-labels")]
    #[serde(deserialize_with = "image::list")]
    pub namespace_labels: Vec<Entry>,
}

/// What a pod does for its subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
#[allow(missing_docs)] // wit/types.wit tells them.
pub enum Role {
    #[default]
    #[component(name = "engine")]
    Engine,
    #[component(name = "decoder")]
    Decoder,
    #[component(name = "router")]
    Router,
    #[component(name = "leader")]
    Leader,
    #[component(name = "worker")]
    Worker,
    #[component(name = "main")]
    Main,
    #[component(name = "prefill")]
    Prefill,
    #[component(name = "scheduler")]
    Scheduler,
    #[component(name = "job")]
    Job,
    #[component(name = "server")]
    Server,
}

/// What scores are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Question {
    /// Which node a pod is to run on.
    #[component(name = "node-placement")]
    NodePlacement,
    /// Which model gets memory when there isn't enough for all.
    #[component(name = "memory-admission")]
    MemoryAdmission,
    /// Which endpoint is to answer a request.
    #[component(name = "endpoint-pick")]
    EndpointPick,
}

/// Why an answer is what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// One CamelCase word that a program may rely on.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// Why a question can't be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lift, Lower)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// A sentence that says what is wrong and what to do about it.
    pub message: String,
}
