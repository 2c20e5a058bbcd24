//! The observed state of an InferenceService.

use crate::{Addressable, DuckCondition, TrafficTarget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The observed state of an InferenceService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The state of the service. Known types: Valid, Accepted, ModelReady, RuntimeSelected, RuntimeUpToDate, Decided, Allowed, Contested
    /// and Applied for the plan and its objects; EngineReady, DecoderReady, RouterReady and IngressReady for the components; and Ready for
    /// all of them together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<DuckCondition>,

    /// Additional information about the service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The address of the service within the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Addressable>,

    /// The URL of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The state of each component, by its name: predictor, engine, decoder or router.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, ComponentStatusSpec>,

    /// The progress of loading the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_status: Option<ModelStatus>,

    /// The runtime in use. A chosen runtime is retained until the spec changes or another choice is requested, so that a new runtime
    /// doesn't restart running pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeChoice>,
}

/// The runtime of a service, and when it was chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeChoice {
    /// The runtime's name.
    pub name: String,

    /// The runtime's kind: ServingRuntime or ClusterServingRuntime.
    pub kind: String,

    /// The runtime's API group; ome.io by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,

    /// The generation of the service's spec for which the runtime was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen_at_generation: Option<i64>,

    /// The value of the annotation pointsman.dev/choose-runtime when the runtime was chosen. Another value requests a new choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen_on_request: Option<String>,
}

/// The observed state of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatusSpec {
    /// The newest revision that is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_ready_revision: Option<String>,

    /// The newest revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_created_revision: Option<String>,

    /// The revision that had all traffic before the latest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_rolledout_revision: Option<String>,

    /// The latest revision that got all traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_rolledout_revision: Option<String>,

    /// The distribution of the traffic among revisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub traffic: Vec<TrafficTarget>,

    /// The URL of the component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The URL of the component's REST interface, if it has one.
    #[serde(rename = "restURL", skip_serializing_if = "Option::is_none")]
    pub rest_url: Option<String>,

    /// The address of the component within the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Addressable>,
}

/// The progress of loading the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatus {
    /// Whether the model that serves requests is the one that the spec requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transition_status: Option<TransitionStatus>,

    /// The states of the model that serves requests and of the model that will replace it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_revision_states: Option<ModelRevisionStates>,

    /// The last failure to load the requested model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure_info: Option<FailureInfo>,

    /// The numbers of loaded and failed copies of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_copies: Option<ModelCopies>,
}

/// Whether the model that serves requests is the one that the spec requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TransitionStatus {
    // Upstream's clients write this value if the state is unknown. A doc comment would appear in `kubectl explain` without a name.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// The model that serves requests is the requested one.
    UpToDate,
    /// The requested model isn't loaded yet.
    InProgress,
    /// The requested model failed to load.
    BlockedByFailedLoad,
    /// The spec requests something impossible.
    InvalidSpec,
}

/// The states of the model that serves requests and of the model that will replace it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRevisionStates {
    /// The state of the model that serves requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_model_state: Option<ModelState>,

    /// The state of the model that will replace it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_model_state: Option<ModelState>,
}

/// The state of a model in a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModelState {
    // Upstream's clients write this value if the state is unknown. A doc comment would appear in `kubectl explain` without a name.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// No pod is loading the model yet.
    Pending,
    /// The model will be loaded when it is used.
    Standby,
    /// The model is being loaded.
    Loading,
    /// At least one copy is loaded.
    Loaded,
    /// No copy could be loaded.
    FailedToLoad,
}

/// A failure to load a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureInfo {
    /// The location of the failure, usually a pod's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,

    /// The type of failure, such as ModelLoadFailed, RuntimeUnhealthy, RuntimeDisabled, NoSupportingRuntime, RuntimeNotRecognized or
    /// InvalidPredictorSpec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The details of the failure, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The revision of the model that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_revision_name: Option<String>,

    /// The time when the failure occurred or was detected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,

    /// The exit code of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// The numbers of loaded and failed copies of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelCopies {
    /// The number of copies that recently failed to load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_copies: Option<i32>,

    /// The number of loaded copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_copies: Option<i32>,
}
