//! BaseModel and ClusterBaseModel: a model for services of one namespace or of all.

use super::{
    model::{ModelExtensionSpec, ModelFormat, ModelFrameworkSpec, ModelStatusSpec},
    storage::StorageSpec,
};
use crate::RawObject;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A BaseModel is a model that services of its namespace can serve. You can omit fields that the model's own config.json specifies: the
/// controller fills them in once a node has read that file.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "BaseModel",
    plural = "basemodels",
    shortname = "bm",
    category = "pointsman",
    schema = "disabled",
    namespaced,
    status = "ModelStatusSpec",
    derive = "PartialEq",
    derive = "Default",
    doc = "BaseModel is a model that services of its namespace can serve.",
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".spec.version"}"#,
    printcolumn = r#"{"name":"Vendor","type":"string","jsonPath":".spec.vendor"}"#,
    printcolumn = r#"{"name":"Framework","type":"string","jsonPath":".spec.modelFramework.name"}"#,
    printcolumn = r#"{"name":"FrameworkVersion","type":"string","jsonPath":".spec.modelFramework.version","priority":1}"#,
    printcolumn = r#"{"name":"ModelFormat","type":"string","jsonPath":".spec.modelFormat.name"}"#,
    printcolumn = r#"{"name":"Architecture","type":"string","jsonPath":".spec.modelArchitecture"}"#,
    printcolumn = r#"{"name":"Capabilities","type":"string","jsonPath":".spec.modelCapabilities[*]","priority":1}"#,
    printcolumn = r#"{"name":"Size","type":"string","jsonPath":".spec.modelParameterSize"}"#,
    printcolumn = r#"{"name":"CompartmentID","type":"string","jsonPath":".spec.compartmentID","priority":1}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct BaseModelSpec {
    /// The format in which the model is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_format: Option<ModelFormat>,

    /// The family of architectures that the model belongs to, such as llama or bert: `model_type` in a Hugging Face
    /// config.json.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,

    /// The framework of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_framework: Option<ModelFrameworkSpec>,

    /// The class that implements the model, such as LlamaForCausalLM: `architectures` in a Hugging Face config.json.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_architecture: Option<String>,

    /// The quantization of the weights, such as fp8, fbgemm_fp8 or int4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,

    /// The number of parameters of the model, with the suffix M, B or T, such as 70B. A runtime with a modelSizeRange serves the model only
    /// if the range includes this size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_parameter_size: Option<String>,

    /// The capabilities of the model, such as TEXT_GENERATION or TEXT_EMBEDDINGS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub model_capabilities: Vec<String>,

    /// The model's configuration, as any JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_configuration: Option<RawObject>,

    /// The location of the model's files.
    pub storage: StorageSpec,

    #[serde(flatten)]
    pub extension: ModelExtensionSpec,

    /// The ways in which the model may be offered, such as On-demand or Dedicated. Stored for users and tools; no effect on services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub serving_mode: Vec<String>,

    /// The maximum number of tokens in the model's context. If you set it, vLLM and SGLang use it as their context limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i32>,

    /// Additional information about the model, stored for users and tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_metadata: BTreeMap<String, String>,
}

/// A ClusterBaseModel is a model that services of all namespaces can serve. It has the same fields as a BaseModel.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ClusterBaseModel",
    plural = "clusterbasemodels",
    shortname = "cbm",
    category = "pointsman",
    schema = "disabled",
    status = "ModelStatusSpec",
    derive = "PartialEq",
    derive = "Default",
    doc = "ClusterBaseModel is a model that services of all namespaces can serve.",
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".spec.version"}"#,
    printcolumn = r#"{"name":"Vendor","type":"string","jsonPath":".spec.vendor"}"#,
    printcolumn = r#"{"name":"Framework","type":"string","jsonPath":".spec.modelFramework.name"}"#,
    printcolumn = r#"{"name":"FrameworkVersion","type":"string","jsonPath":".spec.modelFramework.version","priority":1}"#,
    printcolumn = r#"{"name":"ModelFormat","type":"string","jsonPath":".spec.modelFormat.name"}"#,
    printcolumn = r#"{"name":"Architecture","type":"string","jsonPath":".spec.modelArchitecture"}"#,
    printcolumn = r#"{"name":"Capabilities","type":"string","jsonPath":".spec.modelCapabilities[*]","priority":1}"#,
    printcolumn = r#"{"name":"Size","type":"string","jsonPath":".spec.modelParameterSize"}"#,
    printcolumn = r#"{"name":"CompartmentID","type":"string","jsonPath":".spec.compartmentID","priority":1}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct ClusterBaseModelSpec(pub BaseModelSpec);
