//! TrainingJob: a training run in several pods. OME's labels speak of it, and none of its pages defines it; this is the
//! least that gives those labels a meaning.

use k8s_openapi::{
    api::core::v1::PodTemplateSpec,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const TRAINING_RULES: &[(&str, &str)] = &[(
    "self.framework != 'mpi' || has(self.launcher)",
    "the framework mpi needs a launcher: give spec.launcher with the pod that calls mpirun",
)];

/// Which pods train, and when to give up.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(TRAINING_RULES)))]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "TrainingJob",
    plural = "trainingjobs",
    shortname = "tjob",
    category = "pointsman",
    schema = "disabled",
    namespaced,
    status = "TrainingJobStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "TrainingJob is a training run in several pods.",
    printcolumn = r#"{"name":"Framework","type":"string","jsonPath":".spec.framework"}"#,
    printcolumn = r#"{"name":"Workers","type":"integer","jsonPath":".spec.worker.replicas"}"#,
    printcolumn = r#"{"name":"Suspended","type":"boolean","jsonPath":".spec.suspend","priority":1}"#,
    printcolumn = r#"{"name":"Succeeded","type":"string","jsonPath":".status.conditions[?(@.type==\"Succeeded\")].status"}"#,
    printcolumn = r#"{"name":"Failed","type":"string","jsonPath":".status.conditions[?(@.type==\"Failed\")].status"}"#,
    printcolumn = r#"{"name":"Started","type":"date","jsonPath":".status.startTime"}"#,
    printcolumn = r#"{"name":"Completed","type":"date","jsonPath":".status.completionTime"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct TrainingJobSpec {
    /// How the pods work together.
    pub framework: TrainingFramework,

    /// The pod that starts the run on the workers. mpi needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher: Option<ReplicaSpec>,

    /// The pods that train.
    pub worker: ReplicaSpec,

    /// How long the run may take, in seconds, before it is ended and counts as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// How often the run is started again after a failure; an absent number counts as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub backoff_limit: Option<i32>,

    /// Which pods are deleted when the run has ended; none where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<CleanPodPolicy>,

    /// How long the job itself is kept after its end, in seconds; for ever where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Whether the run is halted: its pods are deleted and come back when this is taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// How the pods of a training run work together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrainingFramework {
    /// The workers find each other by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, as torchrun has it.
    #[default]
    Pytorch,
    /// The launcher starts the run on the workers with mpirun.
    Mpi,
}

/// Pods of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSpec {
    /// How many of them there are; an absent number counts as 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,

    /// What they look like.
    pub template: PodTemplateSpec,
}

/// Which pods are deleted when a training run has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanPodPolicy {
    /// Every pod.
    All,
    /// Those that still run.
    Running,
    /// No pod, so that their logs can be read.
    #[default]
    None,
}

/// What is observed of a TrainingJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainingJobStatus {
    /// The state of the run. Known types: Running, Suspended, Succeeded, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// How many pods of each kind (launcher, worker) there are, and in which state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replica_statuses: BTreeMap<String, ReplicaStatus>,

    /// When the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the run ended, well or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// How many pods of a kind there are, and in which state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// Those that haven't ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<i32>,

    /// Those that ended well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<i32>,

    /// Those that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
}
