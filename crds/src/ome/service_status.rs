//! What is observed of an InferenceService.

use crate::{Addressable, DuckCondition, TrafficTarget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is observed of an InferenceService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The state of the service. Known types: Accepted, ModelReady, RuntimeSelected, RuntimeUpToDate, Decided and Applied on the way to
    /// its objects; EngineReady, DecoderReady, RouterReady and IngressReady for its parts; and Ready for all of them together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<DuckCondition>,

    /// What else is known of the service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// Where the service can be reached within the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Addressable>,

    /// Where the service can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The state of each component, by its name: predictor, engine, decoder or router.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, ComponentStatusSpec>,

    /// How far loading the model has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_status: Option<ModelStatus>,

    /// The runtime that was chosen. It stays until it no longer suits the service, so that a new runtime doesn't restart
    /// what runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeChoice>,
}

/// The runtime that was chosen for a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeChoice {
    /// The runtime's name.
    pub name: String,

    /// The runtime's kind: ServingRuntime or ClusterServingRuntime.
    pub kind: String,

    /// The runtime's API group; ome.io where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,

    /// The generation of the service's spec for which it was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen_at_generation: Option<i64>,

    /// The value that the annotation pointsman.dev/choose-runtime had when it was chosen. Another value asks for a new choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen_on_request: Option<String>,
}

/// What is observed of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatusSpec {
    /// The newest revision that is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_ready_revision: Option<String>,

    /// The newest revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_created_revision: Option<String>,

    /// The revision that had all the traffic before the one that has it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_rolledout_revision: Option<String>,

    /// The newest revision that has had all the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_rolledout_revision: Option<String>,

    /// How the traffic is shared between revisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub traffic: Vec<TrafficTarget>,

    /// Where the component can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// Where the component's REST interface can be reached, if it has one.
    #[serde(rename = "restURL", skip_serializing_if = "Option::is_none")]
    pub rest_url: Option<String>,

    /// Where the component can be reached within the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Addressable>,
}

/// How far loading the model has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelStatus {
    /// Whether what answers requests is already what the spec asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transition_status: Option<TransitionStatus>,

    /// The state of the model that answers requests, and of the one that shall take its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_revision_states: Option<ModelRevisionStates>,

    /// The last failure to load the wanted model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure_info: Option<FailureInfo>,

    /// How many copies of the model there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_copies: Option<ModelCopies>,
}

/// Whether what answers requests is already what the spec asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TransitionStatus {
    // Upstream's clients write it when it isn't known; a doc comment would show up in `kubectl explain` without a name.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// It is.
    UpToDate,
    /// The wanted model isn't loaded yet.
    InProgress,
    /// The wanted model failed to load.
    BlockedByFailedLoad,
    /// The spec asks for what can't be.
    InvalidSpec,
}

/// The states of the model that answers requests, and of the one that shall take its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRevisionStates {
    /// The state of the model that answers requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_model_state: Option<ModelState>,

    /// The state of the model that shall take its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_model_state: Option<ModelState>,
}

/// The state of a model in a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModelState {
    // Upstream's clients write it when it isn't known; a doc comment would show up in `kubectl explain` without a name.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// No pod was asked to load it yet.
    Pending,
    /// It will be loaded when it is used.
    Standby,
    /// It is being loaded.
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
    /// What failed, mostly a pod's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,

    /// The kind of failure: ModelLoadFailed, RuntimeUnhealthy, RuntimeDisabled, NoSupportingRuntime,
    /// RuntimeNotRecognized, InvalidPredictorSpec and the like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// What happened, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The revision of the model that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_revision_name: Option<String>,

    /// When it failed, or when that was noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,

    /// The exit code with which the container ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// How many copies of a model there are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelCopies {
    /// How many copies failed to load of late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_copies: Option<i32>,

    /// How many copies are loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_copies: Option<i32>,
}
