//! FineTunedWeight: the result of fine-tuning a base model.

use super::{
    model::{ModelExtensionSpec, ModelStatusSpec},
    storage::StorageSpec,
};
use crate::RawObject;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A FineTunedWeight is the result of fine-tuning a base model: an adapter that is served with the model, or a whole model that is served
/// instead of it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "FineTunedWeight",
    plural = "finetunedweights",
    shortname = "ftw",
    category = "pointsman",
    schema = "disabled",
    status = "ModelStatusSpec",
    derive = "PartialEq",
    derive = "Default",
    doc = "FineTunedWeight is the result of fine-tuning a base model: an adapter that is served with the model, or a whole model.",
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".spec.version"}"#,
    printcolumn = r#"{"name":"Vendor","type":"string","jsonPath":".spec.vendor"}"#,
    printcolumn = r#"{"name":"BaseModel","type":"string","jsonPath":".spec.baseModelRef.name"}"#,
    printcolumn = r#"{"name":"ModelType","type":"string","jsonPath":".spec.modelType"}"#,
    printcolumn = r#"{"name":"CompartmentID","type":"string","jsonPath":".spec.compartmentID","priority":1}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct FineTunedWeightSpec {
    /// The base model: a BaseModel if a namespace is set. Otherwise a ClusterBaseModel or, if there is none with this name, the BaseModel
    /// of the service's namespace.
    pub base_model_ref: ObjectReference,

    /// The tuning method, such as LoRA, Adapter, Distillation or Tfew; `hyperParameters.strategy` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,

    /// The hyperparameters of the tuning, as any JSON object. The rank for vLLM is read from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyper_parameters: Option<RawObject>,

    #[serde(flatten)]
    pub extension: ModelExtensionSpec,

    /// The weight's configuration, as any JSON object. `merged_weights: true` marks a whole model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<RawObject>,

    /// The location of the weight's files.
    pub storage: StorageSpec,

    /// The TrainingJob that created the weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_job_ref: Option<ObjectReference>,
}

/// A reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// The object's name.
    pub name: String,

    /// The object's namespace; absent for a cluster-scoped object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}
