//! FineTunedWeight: what fine-tuning made of a base model.

use super::{
    model::{ModelExtensionSpec, ModelStatusSpec},
    storage::StorageSpec,
};
use crate::RawObject;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which model was tuned, how, and where the outcome is.
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
    doc = "FineTunedWeight is what fine-tuning made of a base model: an adapter that is served with the model, or a whole model.",
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
    /// The model that was tuned: a BaseModel where a namespace is given, else a ClusterBaseModel.
    pub base_model_ref: ObjectReference,

    /// The kind of tuning, such as LoRA, Adapter, Distillation or Tfew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,

    /// The parameters of the tuning, as any JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyper_parameters: Option<RawObject>,

    #[serde(flatten)]
    pub extension: ModelExtensionSpec,

    /// The weight's configuration, as any JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<RawObject>,

    /// Where the weight's files are.
    pub storage: StorageSpec,

    /// The TrainingJob that made the weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_job_ref: Option<ObjectReference>,
}

/// An object by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// The object's name.
    pub name: String,

    /// The object's namespace; absent for an object of the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}
