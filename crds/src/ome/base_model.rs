//! BaseModel and ClusterBaseModel: a model that services can be made from, for one namespace or for all.

use super::{
    model::{ModelExtensionSpec, ModelFormat, ModelFrameworkSpec, ModelStatusSpec},
    storage::StorageSpec,
};
use crate::RawObject;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a model is, and where its files are. A field that the model's own config.json answers may be left out: it is
/// filled in once a node has read that file.
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
    doc = "BaseModel is a model that the services of its namespace can be made from.",
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

    /// The library that the model is made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_framework: Option<ModelFrameworkSpec>,

    /// The class that implements the model, such as LlamaForCausalLM: `architectures` in a Hugging Face config.json.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_architecture: Option<String>,

    /// How the weights are quantized, such as fp8, fbgemm_fp8 or int4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,

    /// How many parameters the model has: a number with the suffix M, B or T, such as 70B. Runtimes are chosen by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_parameter_size: Option<String>,

    /// What the model can do, such as TEXT_GENERATION or TEXT_EMBEDDINGS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub model_capabilities: Vec<String>,

    /// The model's configuration, as any JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_configuration: Option<RawObject>,

    /// Where the model's files are.
    pub storage: StorageSpec,

    #[serde(flatten)]
    pub extension: ModelExtensionSpec,

    /// In which ways the model may be offered, such as On-demand or Dedicated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub serving_mode: Vec<String>,

    /// The most tokens that the model can work on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<i32>,

    /// Whatever else is to be kept with the model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_metadata: BTreeMap<String, String>,
}

/// What a ClusterBaseModel says: the same as a BaseModel.
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
    doc = "ClusterBaseModel is a model that services of every namespace can be made from.",
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
