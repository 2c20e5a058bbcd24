//! runtime-selection: which runtimes can serve a model, and how well.

use super::{Entry, Reason, Subject, image};
use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

/// A format or framework with its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
#[serde(deny_unknown_fields)]
pub struct Versioned {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The model that is to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Model {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for a cluster-scoped model.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels, by key.
    #[serde(deserialize_with = "image::list")]
    pub labels: Vec<Entry>,
    /// Its annotations, by key.
    #[serde(deserialize_with = "image::list")]
    pub annotations: Vec<Entry>,
    /// Whether it must not be used.
    pub disabled: bool,
    /// The format of its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Versioned>,
    /// The library that it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<Versioned>,
    /// Its family.
    #[component(name = "model-type")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Its implementation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// How its weights are quantised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// The number of its parameters as it is written.
    #[component(name = "parameter-size")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter_size: Option<String>,
    /// What it can do.
    #[serde(deserialize_with = "image::list")]
    pub capabilities: Vec<String>,
}

/// How a version that a runtime names is compared with a model's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(enum)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Comparison {
    /// The versions are equal.
    #[default]
    #[component(name = "equal")]
    Equal,
    /// The runtime's is greater.
    #[component(name = "greater-than")]
    GreaterThan,
    /// The runtime's is greater or equal.
    #[component(name = "greater-than-or-equal")]
    GreaterThanOrEqual,
}

/// A format or framework that a runtime supports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
#[serde(default, deny_unknown_fields)]
pub struct Supported {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How the versions are compared.
    pub comparison: Comparison,
    /// How much a match counts, where the runtime says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// One kind of model that a runtime supports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SupportedModel {
    /// The format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Supported>,
    /// The framework.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<Supported>,
    /// The implementation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The quantisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Whether the runtime may be chosen for such a model without being named.
    #[component(name = "auto-select")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_select: Option<bool>,
    /// How much it is to be preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// A runtime that might serve the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ComponentType, Lower)]
#[component(record)]
#[serde(default, deny_unknown_fields)]
pub struct Candidate {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for a cluster-scoped runtime.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels, by key.
    #[serde(deserialize_with = "image::list")]
    pub labels: Vec<Entry>,
    /// Its annotations, by key.
    #[serde(deserialize_with = "image::list")]
    pub annotations: Vec<Entry>,
    /// Whether it must not be used.
    pub disabled: bool,
    /// The kinds of model that it supports, in its own order.
    #[serde(deserialize_with = "image::list")]
    pub models: Vec<SupportedModel>,
    /// The smallest number of parameters as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest: Option<String>,
    /// The largest number of parameters as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<String>,
    /// The protocols that it speaks.
    #[serde(deserialize_with = "image::list")]
    pub protocols: Vec<String>,
}

/// The question, as it lies in the snapshot: it is borrowed, because the runtimes are shared by all subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ComponentType, Lower)]
#[component(record)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// What is to be served.
    pub subject: &'a Subject,
    /// The model that it asks for.
    pub model: &'a Model,
    /// The runtimes, by kind, namespace and name.
    pub candidates: &'a [Candidate],
    /// Whether the subject names its runtime.
    pub named: bool,
    /// Seconds since 1970, rounded down to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
}

/// What speaks for a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ComponentType, Lift)]
#[component(record)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Eligible {
    /// How well it suits.
    pub score: f64,
    /// Compared in order among equal scores, the smallest first.
    #[component(name = "tie-break")]
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub tie_break: Vec<f64>,
    /// What the score is made of.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

/// What became of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ComponentType, Lift)]
#[component(variant)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It can serve the model.
    #[component(name = "eligible")]
    Eligible(Eligible),
    /// It can't, or must not.
    #[component(name = "excluded")]
    Excluded(Reason),
    /// The plugin has nothing to say of it.
    #[component(name = "abstain")]
    Abstain,
}
