//! The predictor: how a service was described before engine, model and runtime. Deprecated upstream, still served here.

use super::{
    component::{ComponentExtensionSpec, WorkerSpec},
    storage::STORAGE_URI_RULES,
};
use crate::{ContainerFields, PodFields};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What serves the model: give `model` to have a runtime found for it, or `containers` to bring everything yourself.
/// Its own fields are those of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictorSpec {
    /// The model, and what to change in the container that serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,

    #[serde(flatten)]
    pub pod: PodFields,

    #[serde(flatten)]
    pub extension: ComponentExtensionSpec,

    /// The pods that follow the predictor's own, where one model is spread over several nodes without Ray.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_spec: Option<WorkerSpec>,
}

/// The model of a predictor. Its own fields are those of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// The name of the ServingRuntime or ClusterServingRuntime to use. Without one the best that supports the model is
    /// chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,

    #[serde(flatten)]
    pub extension: PredictorExtensionSpec,

    /// The name of the BaseModel or ClusterBaseModel to serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_model: Option<String>,

    /// The names of the FineTunedWeights to serve with the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fine_tuned_weights: Vec<String>,
}

/// What all predictors have in common. Its own fields are those of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictorExtensionSpec {
    /// Where the model comes from; it is mounted into the pod. See a BaseModel's `storage.storageUri` for what may stand
    /// here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = crate::schema::rules(STORAGE_URI_RULES)))]
    pub storage_uri: Option<String>,

    /// The version (image tag) of the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_version: Option<String>,

    /// The protocol that the predictor speaks, such as v1, v2, grpc-v1, grpc-v2, openAI or cohere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,

    #[serde(flatten)]
    pub container: ContainerFields,
}
