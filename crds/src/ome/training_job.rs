//! TrainingJob: a training run in several pods. OME's labels page mentions the kind but defines no fields. These are the fields of
//! Kubeflow's training operator that apply here.

use super::{fine_tuned_weight::ObjectReference, model::ModelExtensionSpec, storage::StorageSpec};
use crate::RawObject;
use k8s_openapi::{
    api::core::v1::PodTemplateSpec,
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const TRAINING_RULES: &[(&str, &str)] = &[
    ("self.framework != 'mpi' || has(self.launcher)", "the framework mpi needs a launcher: set spec.launcher to the pod that calls mpirun"),
    (
        "self.framework != 'pytorch' || !has(self.launcher)",
        "the framework pytorch has no launcher, because torchrun starts in each worker: remove spec.launcher",
    ),
    (
        "!has(self.launcher) || !has(self.launcher.replicas) || self.launcher.replicas == 1",
        "a job has only one launcher: remove spec.launcher.replicas, or set it to 1",
    ),
    (
        "!has(self.elasticPolicy) || self.framework == 'pytorch'",
        "only the framework pytorch supports elasticPolicy: remove spec.elasticPolicy, or set spec.framework to pytorch",
    ),
    (
        "!has(self.elasticPolicy) || (has(self.worker.replicas) ? self.worker.replicas : 1) >= (has(self.elasticPolicy.minReplicas) ? self.elasticPolicy.minReplicas : 1)",
        "spec.worker.replicas must be at least spec.elasticPolicy.minReplicas",
    ),
    (
        "!has(self.elasticPolicy) || !has(self.elasticPolicy.maxReplicas) || (has(self.worker.replicas) ? self.worker.replicas : 1) <= self.elasticPolicy.maxReplicas",
        "spec.worker.replicas must be at most spec.elasticPolicy.maxReplicas",
    ),
    (
        "!has(self.restartPolicy) || self.restartPolicy != 'Never' || !has(self.backoffLimit) || self.backoffLimit == 0",
        "with restartPolicy Never, the run never restarts: remove spec.backoffLimit, or set spec.restartPolicy to OnFailure or ExitCode",
    ),
    (
        // A rule of the field itself isn't evaluated when the field is added or removed.
        "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "managedBy can't be changed: create another TrainingJob",
    ),
    ("!has(self.mpiImplementation) || self.framework != 'pytorch'", "the framework pytorch doesn't use MPI: remove spec.mpiImplementation"),
];

const ELASTIC_RULES: &[(&str, &str)] = &[(
    "!has(self.maxReplicas) || self.maxReplicas >= (has(self.minReplicas) ? self.minReplicas : 1)",
    "maxReplicas must be at least minReplicas",
)];

/// A TrainingJob is a training run in several pods.
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
    printcolumn = r#"{"name":"Running","type":"string","jsonPath":".status.conditions[?(@.type==\"Running\")].status"}"#,
    printcolumn = r#"{"name":"Restarts","type":"integer","jsonPath":".status.restarts","priority":1}"#,
    printcolumn = r#"{"name":"Succeeded","type":"string","jsonPath":".status.conditions[?(@.type==\"Succeeded\")].status"}"#,
    printcolumn = r#"{"name":"Failed","type":"string","jsonPath":".status.conditions[?(@.type==\"Failed\")].status"}"#,
    printcolumn = r#"{"name":"Started","type":"date","jsonPath":".status.startTime"}"#,
    printcolumn = r#"{"name":"Completed","type":"date","jsonPath":".status.completionTime"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct TrainingJobSpec {
    /// The framework, which determines how the pods work together.
    pub framework: TrainingFramework,

    /// The pod that starts the run on the workers: required for mpi, optional for deepspeed, not allowed for pytorch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher: Option<ReplicaSpec>,

    /// The pods that run the training.
    pub worker: ReplicaSpec,

    /// The number of training processes in each worker: a number from 1 to 1024, gpu (one per GPU that the worker's main container
    /// requests), cpu (one per CPU), or auto (gpu if it requests any, otherwise cpu). By default one per GPU, or 1 without GPUs. torchrun
    /// gets it as PET_NPROC_PER_NODE, and the hostfile as slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^(auto|gpu|cpu)$", "minimum" = 1, "maximum" = 1024))]
    pub proc_per_node: Option<IntOrString>,

    /// The MPI implementation in the launcher's image, for mpi and deepspeed; OpenMPI by default. It determines the form of the hostfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_implementation: Option<MpiImplementation>,

    /// Allows the run to continue with fewer or more workers (torchrun's elastic launch). A lost worker is replaced while the others
    /// continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic_policy: Option<ElasticPolicy>,

    /// The failures after which the run restarts; OnFailure by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,

    /// The FineTunedWeight to create once the run has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fine_tuned_weight: Option<TrainedWeight>,

    /// The maximum duration of the run with its restarts, in seconds. After it, the run is terminated and counts as failed. No limit by
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// The maximum number of restarts after failures; 0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub backoff_limit: Option<i32>,

    /// The pods to delete when the run has ended. The default is None; with a launcher it is Running, because the workers wait for commands
    /// until they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<CleanPodPolicy>,

    /// The time, in seconds, from the end of the run until the job itself is deleted. By default, the job stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Whether the run is suspended: its pods are deleted. When this is false again, they are created from the current spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// The controller that manages the job; pointsman.dev/controller, which is Pointsman, by default. With another value, such as
    /// kueue.x-k8s.io/multikueue, Pointsman doesn't manage the job. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub managed_by: Option<String>,
}

/// The framework of a training run, which determines how its pods work together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrainingFramework {
    /// The workers find each other through MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, or, with torchrun, through variables that begin
    /// with PET_.
    #[default]
    Pytorch,
    /// The launcher starts the run on the workers with mpirun.
    Mpi,
    /// The launcher starts the run on the workers with deepspeed. Without a launcher, each worker starts its own part, with the variables
    /// of pytorch.
    Deepspeed,
}

/// The MPI implementation in an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MpiImplementation {
    /// Open MPI 4 or 5.
    #[default]
    OpenMPI,
    /// Intel MPI.
    Intel,
    /// MPICH.
    MPICH,
}

/// The failures after which a run restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    /// The run never restarts.
    Never,
    /// The run restarts after each failure.
    #[default]
    OnFailure,
    /// The run restarts after exit codes from 128 to 255, which signals cause, and when a pod is evicted or preempted. Other exit codes end
    /// the run.
    ExitCode,
}

/// The limits of an elastic run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(ELASTIC_RULES)))]
pub struct ElasticPolicy {
    /// The minimum number of workers with which the run continues; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub min_replicas: Option<i32>,

    /// The maximum number of workers; spec.worker.replicas can be raised to it during the run. By default spec.worker.replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_replicas: Option<i32>,

    /// The maximum number of times that each worker is replaced after a failure, and that torchrun restarts its processes; 3 by default.
    /// With restartPolicy Never, no worker is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_restarts: Option<i32>,
}

/// The pods of one role: launcher or worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSpec {
    /// The number of pods; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: Option<i32>,

    /// The template of the pods. Its restartPolicy must be absent or Never: spec.restartPolicy determines what happens after a failure.
    pub template: PodTemplateSpec,
}

/// The FineTunedWeight that a run creates. Its trainingJobRef names the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainedWeight {
    /// The name of the weight: NAMESPACE.NAME with the namespace of the job, because FineTunedWeights are cluster-scoped.
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$"))]
    pub name: String,

    /// The base model: a BaseModel if a namespace is set, otherwise a ClusterBaseModel.
    pub base_model_ref: ObjectReference,

    /// The tuning method, such as LoRA, Adapter, Distillation or Tfew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,

    /// The hyperparameters of the tuning, as any JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyper_parameters: Option<RawObject>,

    #[serde(flatten)]
    pub extension: ModelExtensionSpec,

    /// The weight's configuration, as any JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<RawObject>,

    /// The location where the run stores the weight's files.
    pub storage: StorageSpec,
}

/// The pods to delete when a training run has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanPodPolicy {
    /// All pods.
    All,
    /// The pods of an unfinished Job, such as the workers of a launcher.
    Running,
    /// No pods, so that their logs stay available.
    #[default]
    None,
}

/// The observed state of a TrainingJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainingJobStatus {
    /// The state of the run. Known types: Valid, Accepted, Decided, Allowed, Contested, Applied, Created, Running, Restarting, Suspended,
    /// Succeeded, Failed, FineTunedWeightCreated, UpToDate and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The numbers of active, succeeded and failed pods, for launcher and worker.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replica_statuses: BTreeMap<String, ReplicaStatus>,

    /// The time when the run started, or was last resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// The time when the run succeeded or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The number of restarts after failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,

    /// The hash of the spec that the run was created from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The numbers of active, succeeded and failed pods of a role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// The number of pods that haven't ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<i32>,

    /// The number of pods that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded: Option<i32>,

    /// The number of pods that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<i32>,
}
