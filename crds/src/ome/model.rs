//! What models, weights and runtimes say about a model.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The format in which a model is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelFormat {
    /// The format's name, such as safetensors, ONNX or PyTorch.
    pub name: String,

    /// The format's version: MAJOR, MAJOR.MINOR or MAJOR.MINOR.PATCH. A runtime that gives one serves only models that
    /// give a compatible one, and the other way round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// How a runtime's version is compared with the model's: by default they must be equal. Counts on a runtime only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<VersionOperator>,

    /// How much a match of the format counts towards a runtime's score. Counts on a runtime only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// The library that a model is made for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelFrameworkSpec {
    /// The library's name, such as transformers, ONNXRuntime or TensorRTLLM.
    pub name: String,

    /// The library's version: MAJOR, MAJOR.MINOR or MAJOR.MINOR.PATCH. A runtime that gives one serves only models that
    /// give a compatible one, and the other way round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// How a runtime's version is compared with the model's: by default they must be equal. Counts on a runtime only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<VersionOperator>,

    /// How much a match of the framework counts towards a runtime's score. Counts on a runtime only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// How a runtime's version is compared with a model's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VersionOperator {
    /// The versions are the same.
    #[default]
    Equal,
    /// The runtime's version is the newer one.
    GreaterThan,
    /// The runtime's version is the newer one, or they are the same.
    GreaterThanOrEqual,
}

/// What is said of base models and fine-tuned weights alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelExtensionSpec {
    /// The name that people are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,

    /// The model's own version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Whether the model is switched off, so that no service may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,

    /// Who made the model, such as meta or nvidia.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,

    /// The OCI compartment that the model belongs to.
    #[serde(rename = "compartmentID", skip_serializing_if = "Option::is_none")]
    pub compartment_id: Option<String>,
}

/// What is observed of a model or a weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatusSpec {
    /// How mature the model is: Deprecated, Experiment, Public or Internal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,

    /// How far the model has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<LifeCycleState>,

    /// The nodes that hold the model, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub nodes_ready: Vec<String>,

    /// The nodes on which fetching the model failed, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub nodes_failed: Vec<String>,

    /// The state of the model in detail. Known types: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// How far a model or a weight has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LifeCycleState {
    /// It is being set up.
    #[default]
    Creating,
    /// It is being brought into the storage.
    Importing,
    /// It is on its way to the nodes.
    #[serde(rename = "In_Transit")]
    InTransit,
    /// The job that makes it still runs.
    #[serde(rename = "In_Training")]
    InTraining,
    /// At least one node holds it.
    Ready,
    /// No node holds it, and at least one failed to fetch it.
    Failed,
}
