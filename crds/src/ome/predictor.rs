//! The predictor: the form of a service before engine, model and runtime. Deprecated upstream, still supported here.

use super::{
    component::{ComponentExtensionSpec, WorkerSpec},
    storage::STORAGE_URI_RULES,
};
use crate::{ContainerFields, PodFields};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The component that serves the model. Set `model` to have a runtime chosen for it, or `containers` for complete pods of your own. Its
/// fields include those of a pod spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictorSpec {
    /// The model, and overrides for the container that serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,

    #[serde(flatten)]
    pub pod: PodFields,

    #[serde(flatten)]
    pub extension: ComponentExtensionSpec,

    /// The workers of the predictor's own pods, if one model is spread over several nodes without Ray.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_spec: Option<WorkerSpec>,
}

/// The model of a predictor. Its fields include those of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// The name of the ServingRuntime or ClusterServingRuntime to use. If absent, the best runtime that supports the model is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,

    #[serde(flatten)]
    pub extension: PredictorExtensionSpec,

    /// The name of the BaseModel or ClusterBaseModel to serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_model: Option<String>,

    /// The names of the FineTunedWeights to serve with the model. They require `baseModel`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fine_tuned_weights: Vec<String>,
}

/// The fields that all predictors share, and those of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictorExtensionSpec {
    /// The location of the model, which is mounted into the pod. It requires `runtime`, unless `baseModel` is set. For the accepted forms,
    /// see `storage.storageUri` of a BaseModel.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = crate::schema::rules(STORAGE_URI_RULES)))]
    pub storage_uri: Option<String>,

    /// The version (image tag) of the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_version: Option<String>,

    /// The protocol of the predictor, such as v1, v2, grpc-v1, grpc-v2, openAI or cohere. The runtime must support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,

    #[serde(flatten)]
    pub container: ContainerFields,
}
