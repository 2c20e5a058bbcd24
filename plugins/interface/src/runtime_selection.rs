//! Which runtimes can serve a model, and how well.

use crate::{Entry, Fact, Reason, Role, Subject, image, reason};
use serde::{Deserialize, Serialize};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

/// A format or framework with its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Versioned {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The model that is to be served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
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
    #[cfg_attr(feature = "host", component(name = "model-type"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Its implementation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// How its weights are quantised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// The number of its parameters as it is written.
    #[cfg_attr(feature = "host", component(name = "parameter-size"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter_size: Option<String>,
    /// What it can do.
    #[serde(deserialize_with = "image::list")]
    pub capabilities: Vec<String>,
    /// The parts of its diffusion pipeline, by name.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<Entry>,
}

enumeration! {
    /// How a version that a runtime names is compared with a model's.
    #[derive(Default)]
    pub enum Comparison {
        /// The versions are equal.
        #[default]
        Equal = "equal",
        /// The runtime's is greater.
        GreaterThan = "greater-than",
        /// The runtime's is greater or equal.
        GreaterThanOrEqual = "greater-than-or-equal",
    }
}

/// A format or framework that a runtime supports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
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
    #[cfg_attr(feature = "host", component(name = "auto-select"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_select: Option<bool>,
    /// How much it is to be preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The parts that a model's diffusion pipeline must have, by name.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<Entry>,
}

/// A kind of accelerator that the cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Accelerator {
    /// Its name.
    pub name: String,
    /// Its vendor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The memory of one, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// The version of what it computes.
    #[cfg_attr(feature = "host", component(name = "compute-capability"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// What it can do.
    #[serde(deserialize_with = "image::list")]
    pub features: Vec<String>,
    /// The specification of its class, as a JSON object.
    #[serde(with = "image::json")]
    pub spec: String,
    /// How many nodes have it.
    pub nodes: u32,
    /// How many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// How many of them no pod has asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
}

/// What accelerators must have to be of use to somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AcceleratorNeeds {
    /// The classes that will do, the preferred first; empty if any will.
    #[serde(deserialize_with = "image::list")]
    pub classes: Vec<String>,
    /// The classes that won't.
    #[cfg_attr(feature = "host", component(name = "excluded-classes"))]
    #[serde(deserialize_with = "image::list")]
    pub excluded_classes: Vec<String>,
    /// The families that will do; empty if any will.
    #[serde(deserialize_with = "image::list")]
    pub families: Vec<String>,
    /// The least memory of one, in bytes.
    #[cfg_attr(feature = "host", component(name = "min-memory"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<u64>,
    /// The most memory of one, in bytes.
    #[cfg_attr(feature = "host", component(name = "max-memory"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<u64>,
    /// The least number of TFLOPS.
    #[cfg_attr(feature = "host", component(name = "min-tflops"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tflops: Option<u64>,
    /// The least version of what it computes.
    #[cfg_attr(feature = "host", component(name = "min-compute-capability"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_compute_capability: Option<String>,
    /// What it must be able to do.
    #[serde(deserialize_with = "image::list")]
    pub features: Vec<String>,
    /// The precisions that are preferred, the first most.
    #[serde(deserialize_with = "image::list")]
    pub precisions: Vec<String>,
}

/// What a group of the subject's pods asks of accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(default, deny_unknown_fields)]
pub struct Demand {
    /// The group.
    pub role: Role,
    /// The strategy to choose by, as the subject names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// What they must have.
    pub needs: AcceleratorNeeds,
}

/// An accelerator for a group of the subject's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The group.
    pub role: Role,
    /// The name of the accelerator.
    pub accelerator: String,
}

/// What serves the subject now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(default, deny_unknown_fields)]
pub struct Current {
    /// The runtime's kind.
    pub kind: String,
    /// The runtime's namespace; empty for a cluster-scoped runtime.
    pub namespace: String,
    /// The runtime's name.
    pub name: String,
    /// The accelerators that were chosen with it.
    #[serde(deserialize_with = "image::list")]
    pub accelerators: Vec<Assignment>,
}

/// A runtime that might serve the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
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
    /// What it requires of accelerators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<AcceleratorNeeds>,
}

request! {
    /// The question.
    [Default] {
        /// What is to be served.
        subject: Subject as &'a Subject,
        /// The model that it asks for.
        model: Model as &'a Model,
        /// The runtimes, by kind, namespace and name.
        candidates: Vec<Candidate> as &'a [Candidate],
        /// Whether the subject names its runtime.
        #[serde(default)]
        named: bool as bool,
        /// The accelerators of the cluster, by name.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        accelerators: Vec<Accelerator> as &'a [Accelerator],
        /// What the subject asks of accelerators, a group of pods each.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        demands: Vec<Demand> as &'a [Demand],
        /// What serves the subject now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        current: Option<Current> as Option<&'a Current>,
        /// Seconds since 1970, rounded down to a minute.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now: Option<u64> as Option<u64>,
        /// What is told beside these fields.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        facts: Vec<Fact> as &'a [Fact],
    }
}

/// What speaks for a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Eligible {
    /// How well it suits.
    pub score: f64,
    /// Compared in order among equal scores, the smallest first.
    #[cfg_attr(feature = "host", component(name = "tie-break"))]
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub tie_break: Vec<f64>,
    /// What the score is made of.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
    /// The accelerators that it would run on, a group of pods each.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub accelerators: Vec<Assignment>,
}

/// What became of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(variant))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It can serve the model.
    #[cfg_attr(feature = "host", component(name = "eligible"))]
    Eligible(Eligible),
    /// It can't, or must not.
    #[cfg_attr(feature = "host", component(name = "excluded"))]
    Excluded(Reason),
    /// The plugin has nothing to say of it.
    #[cfg_attr(feature = "host", component(name = "abstain"))]
    Abstain,
}

/// A runtime that can serve the model; the higher the score, the better.
pub fn eligible(score: f64, reasons: Vec<Reason>) -> Verdict {
    Verdict::Eligible(Eligible { score, reasons, ..Eligible::default() })
}

/// A runtime that can't serve the model, or must not.
pub fn excluded(code: impl Into<String>, message: impl Into<String>) -> Verdict {
    Verdict::Excluded(reason(code, message))
}

impl From<Eligible> for Verdict {
    fn from(eligible: Eligible) -> Self {
        Self::Eligible(eligible)
    }
}

impl From<Reason> for Verdict {
    fn from(reason: Reason) -> Self {
        Self::Excluded(reason)
    }
}

impl From<&str> for Versioned {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), version: None }
    }
}

impl From<(&str, &str)> for Versioned {
    fn from((name, version): (&str, &str)) -> Self {
        Self { name: name.to_owned(), version: Some(version.to_owned()) }
    }
}

impl From<&str> for Supported {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

impl From<(&str, &str)> for Supported {
    fn from((name, version): (&str, &str)) -> Self {
        Self { name: name.to_owned(), version: Some(version.to_owned()), ..Self::default() }
    }
}
