//! Which runtimes can serve a model, and how suitable they are.

use crate::{Entry, Fact, Reason, Role, Subject, image, reason};
use serde::{Deserialize, Serialize};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

/// A format or framework and its version.
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

/// The model to serve.
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
    /// Whether the model is disabled and must not be used.
    pub disabled: bool,
    /// The format of its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Versioned>,
    /// The library that it was built for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<Versioned>,
    /// Its family, such as `llama`.
    #[cfg_attr(feature = "host", component(name = "model-type"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,
    /// Its implementation, such as `LlamaForCausalLM`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The quantisation of its weights, such as `fp8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// The number of its parameters, as written, such as `8B`.
    #[cfg_attr(feature = "host", component(name = "parameter-size"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter_size: Option<String>,
    /// Its capabilities, such as `TEXT_GENERATION`.
    #[serde(deserialize_with = "image::list")]
    pub capabilities: Vec<String>,
    /// The parts of its diffusion pipeline, by name.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<Entry>,
}

enumeration! {
    /// How the version in a runtime is compared with the model's.
    #[derive(Default)]
    pub enum Comparison {
        /// The versions are equal.
        #[default]
        Equal = "equal",
        /// The runtime's version is greater.
        GreaterThan = "greater-than",
        /// The runtime's version is greater or equal.
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
    /// The weight of a match, if the runtime sets one.
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
    /// Whether the runtime may be selected for such a model if the subject doesn't name a runtime.
    #[cfg_attr(feature = "host", component(name = "auto-select"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_select: Option<bool>,
    /// The priority of the runtime for such a model; higher is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The parts that a model's diffusion pipeline must have, by name.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<Entry>,
}

/// A kind of accelerator in the cluster.
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
    /// The memory of one accelerator, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Its compute capability, such as `9.0`.
    #[cfg_attr(feature = "host", component(name = "compute-capability"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// Its features, such as `fp8`.
    #[serde(deserialize_with = "image::list")]
    pub features: Vec<String>,
    /// The specification of its class, as a JSON object.
    #[serde(with = "image::json")]
    pub spec: String,
    /// The number of nodes that have it.
    pub nodes: u32,
    /// The number of accelerators; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The number that no pod requests; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
}

/// Requirements for accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AcceleratorNeeds {
    /// The accepted classes, preferred first; empty if all are accepted.
    #[serde(deserialize_with = "image::list")]
    pub classes: Vec<String>,
    /// The excluded classes.
    #[cfg_attr(feature = "host", component(name = "excluded-classes"))]
    #[serde(deserialize_with = "image::list")]
    pub excluded_classes: Vec<String>,
    /// The accepted families; empty if all are accepted.
    #[serde(deserialize_with = "image::list")]
    pub families: Vec<String>,
    /// The minimum memory of one accelerator, in bytes.
    #[cfg_attr(feature = "host", component(name = "min-memory"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_memory: Option<u64>,
    /// The maximum memory of one accelerator, in bytes.
    #[cfg_attr(feature = "host", component(name = "max-memory"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<u64>,
    /// The minimum number of TFLOPS.
    #[cfg_attr(feature = "host", component(name = "min-tflops"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tflops: Option<u64>,
    /// The minimum compute capability.
    #[cfg_attr(feature = "host", component(name = "min-compute-capability"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_compute_capability: Option<String>,
    /// The required features.
    #[serde(deserialize_with = "image::list")]
    pub features: Vec<String>,
    /// The preferred precisions, most preferred first.
    #[serde(deserialize_with = "image::list")]
    pub precisions: Vec<String>,
}

/// The requirements of one group of the subject's pods for accelerators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(default, deny_unknown_fields)]
pub struct Demand {
    /// The group.
    pub role: Role,
    /// The name of the strategy for the choice, as in the subject, such as `BestFit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// The requirements.
    pub needs: AcceleratorNeeds,
}

/// The accelerator of one group of the subject's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The group.
    pub role: Role,
    /// The name of the accelerator.
    pub accelerator: String,
}

/// The runtime that serves the subject now.
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

/// A runtime that may be able to serve the model.
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
    /// Whether the runtime is disabled and must not be used.
    pub disabled: bool,
    /// The kinds of models that it supports, in the runtime's order.
    #[serde(deserialize_with = "image::list")]
    pub models: Vec<SupportedModel>,
    /// The minimum number of parameters, as written, such as `1B`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest: Option<String>,
    /// The maximum number of parameters, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<String>,
    /// The protocols that it supports.
    #[serde(deserialize_with = "image::list")]
    pub protocols: Vec<String>,
    /// Its requirements for accelerators; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<AcceleratorNeeds>,
}

request! {
    /// The question.
    [Default] {
        /// The subject of the decision.
        subject: Subject as &'a Subject,
        /// The model that the subject requests.
        model: Model as &'a Model,
        /// The runtimes, by kind, namespace and name.
        candidates: Vec<Candidate> as &'a [Candidate],
        /// Whether the subject names its runtime, which is then the only candidate.
        #[serde(default)]
        named: bool as bool,
        /// The accelerators of the cluster, by name.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        accelerators: Vec<Accelerator> as &'a [Accelerator],
        /// The subject's requirements for accelerators, one entry per group of pods.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        demands: Vec<Demand> as &'a [Demand],
        /// The runtime that serves the subject now; absent before the first choice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        current: Option<Current> as Option<&'a Current>,
        /// Seconds since 1970, rounded down to a minute. Set only if the plugin wants the time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now: Option<u64> as Option<u64>,
        /// Additional facts, by name. Ignore unknown ones.
        #[serde(default, skip_serializing_if = "image::is_empty")]
        facts: Vec<Fact> as &'a [Fact],
    }
}

/// The score of a runtime that can serve the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Eligible {
    /// How suitable the runtime is: higher is better.
    pub score: f64,
    /// Numbers that break ties between equal scores. They are compared in order, and the smallest comes first.
    #[cfg_attr(feature = "host", component(name = "tie-break"))]
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub tie_break: Vec<f64>,
    /// The parts of the score.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
    /// The accelerators that it would use, one per group of pods.
    #[serde(deserialize_with = "image::list", skip_serializing_if = "Vec::is_empty")]
    pub accelerators: Vec<Assignment>,
}

/// The verdict on one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(variant))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The runtime can serve the model.
    #[cfg_attr(feature = "host", component(name = "eligible"))]
    Eligible(Eligible),
    /// The runtime can't serve the model, or must not.
    #[cfg_attr(feature = "host", component(name = "excluded"))]
    Excluded(Reason),
    /// The plugin has no opinion on the runtime.
    #[cfg_attr(feature = "host", component(name = "abstain"))]
    Abstain,
}

/// A runtime that can serve the model; a higher score is better.
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
