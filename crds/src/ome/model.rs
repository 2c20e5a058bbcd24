//! Fields about models that models, weights and runtimes share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The format in which a model is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelFormat {
    /// The format's name, such as safetensors, ONNX or PyTorch.
    pub name: String,

    /// The format's version: MAJOR, MAJOR.MINOR or MAJOR.MINOR.PATCH. A runtime with a version serves only models with a compatible
    /// version; a runtime without one serves only models without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The operator that compares the runtime's version with the model's; Equal by default. Used only in a runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<VersionOperator>,

    /// The score that a matching format gives a runtime. If absent or 0, the policy's weight applies (10 by default). Used only in a
    /// runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// The framework of a model: the library that it was made for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelFrameworkSpec {
    /// The framework's name, such as transformers, ONNXRuntime or TensorRTLLM.
    pub name: String,

    /// The framework's version: MAJOR, MAJOR.MINOR or MAJOR.MINOR.PATCH. A runtime with a version serves only models with a compatible
    /// version; a runtime without one serves only models without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The operator that compares the runtime's version with the model's; Equal by default. Used only in a runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<VersionOperator>,

    /// The score that a matching framework gives a runtime. If absent or 0, the policy's weight applies (5 by default). Used only in a
    /// runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
}

/// An operator that compares a runtime's version with a model's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VersionOperator {
    /// The versions are equal.
    #[default]
    Equal,
    /// The runtime's version is newer than the model's.
    GreaterThan,
    /// The runtime's version is newer than the model's, or equal.
    GreaterThanOrEqual,
}

/// The fields that base models and fine-tuned weights share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelExtensionSpec {
    /// The name to show to users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,

    /// The version of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Whether the model is disabled. No service may use a disabled model; running pods stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,

    /// The vendor of the model, such as meta or nvidia.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,

    /// The OCI compartment that the model belongs to.
    #[serde(rename = "compartmentID", skip_serializing_if = "Option::is_none")]
    pub compartment_id: Option<String>,
}

/// The observed state of a model or a weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatusSpec {
    /// The maturity of the model: Deprecated, Experiment, Public or Internal. Services that use a Deprecated model get a warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<String>,

    /// The state of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<LifeCycleState>,

    /// The names of the nodes that have the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub nodes_ready: Vec<String>,

    /// The names of the nodes on which the download failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub nodes_failed: Vec<String>,

    /// The detailed state of the model. Known types: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The state of a model or a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LifeCycleState {
    /// The model is being set up.
    #[default]
    Creating,
    /// The model is being imported into the storage.
    Importing,
    /// The model is being downloaded to the nodes.
    #[serde(rename = "In_Transit")]
    InTransit,
    /// The job that creates the model is still running.
    #[serde(rename = "In_Training")]
    InTraining,
    /// At least one node has the model, or the model can be served without nodes, for example from a claim.
    Ready,
    /// No node has the model, and the download failed on at least one.
    Failed,
}
