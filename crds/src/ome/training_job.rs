//! TrainingJob: a training run in several pods. OME's labels speak of it, and none of its pages defines it: the fields are those that users
//! know from Kubeflow's training operator, as far as they have a meaning here.

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
        "there is one launcher: remove spec.launcher.replicas, or set it to 1",
    ),
    (
        "!has(self.elasticPolicy) || self.framework == 'pytorch'",
        "only the framework pytorch is elastic: remove spec.elasticPolicy, or set spec.framework to pytorch",
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
        "with restartPolicy Never no run is started again: remove spec.backoffLimit, or set spec.restartPolicy to OnFailure or ExitCode",
    ),
    (
        // A rule of the field itself isn't evaluated when the field is added or removed.
        "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "managedBy can't be changed: create another TrainingJob",
    ),
    ("!has(self.mpiImplementation) || self.framework != 'pytorch'", "the framework pytorch uses no MPI: remove spec.mpiImplementation"),
];

const ELASTIC_RULES: &[(&str, &str)] = &[(
    "!has(self.maxReplicas) || self.maxReplicas >= (has(self.minReplicas) ? self.minReplicas : 1)",
    "maxReplicas must be at least minReplicas",
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
    printcolumn = r#"{"name":"Running","type":"string","jsonPath":".status.conditions[?(@.type==\"Running\")].status"}"#,
    printcolumn = r#"{"name":"Restarts","type":"integer","jsonPath":".status.restarts","priority":1}"#,
    printcolumn = r#"{"name":"Succeeded","type":"string","jsonPath":".status.conditions[?(@.type==\"Succeeded\")].status"}"#,
    printcolumn = r#"{"name":"Failed","type":"string","jsonPath":".status.conditions[?(@.type==\"Failed\")].status"}"#,
    printcolumn = r#"{"name":"Started","type":"date","jsonPath":".status.startTime"}"#,
    printcolumn = r#"{"name":"Completed","type":"date","jsonPath":".status.completionTime"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct TrainingJobSpec {
    /// How the pods work together.
    pub framework: TrainingFramework,

    /// The pod that starts the run on the workers. mpi needs one, deepspeed may have one, pytorch has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher: Option<ReplicaSpec>,

    /// The pods that train.
    pub worker: ReplicaSpec,

    /// How many processes train in each worker: a number, gpu (one for each GPU that the worker's main container requests), cpu (one for
    /// each of its CPUs), or auto (gpu if it requests any, else cpu). Absent: one for each GPU, and one without GPUs. torchrun gets it as
    /// PET_NPROC_PER_NODE, the hostfile as slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^(auto|gpu|cpu)$", "minimum" = 1, "maximum" = 1024))]
    pub proc_per_node: Option<IntOrString>,

    /// Whose MPI the launcher's image has, for mpi and deepspeed: the hostfile has its form. OpenMPI if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_implementation: Option<MpiImplementation>,

    /// The run continues with fewer or more workers: torchrun's elastic launch. A lost worker is replaced, and the others continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic_policy: Option<ElasticPolicy>,

    /// After which failures the run is started again; OnFailure if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,

    /// The FineTunedWeight to create once the run has succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fine_tuned_weight: Option<TrainedWeight>,

    /// How long the run may take, in seconds, its restarts included, before it is ended and counts as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// How often the run is started again after a failure; an absent number counts as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub backoff_limit: Option<i32>,

    /// Which pods are deleted when the run has ended. Absent: None; with a launcher Running, because its workers wait for commands until
    /// they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_pod_policy: Option<CleanPodPolicy>,

    /// How long the job itself is kept after its end, in seconds; for ever if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Whether the run is halted: its pods are deleted, and created again from the current spec when this is false again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// The controller that runs the job, such as kueue.x-k8s.io/multikueue: Pointsman leaves the job alone. Absent, or
    /// pointsman.dev/controller: Pointsman.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub managed_by: Option<String>,
}

/// How the pods of a training run work together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrainingFramework {
    /// The workers find each other by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, and torchrun by PET_ variables.
    #[default]
    Pytorch,
    /// The launcher starts the run on the workers with mpirun.
    Mpi,
    /// The launcher starts the run on the workers with deepspeed. Without a launcher each worker starts its own part, and has the variables of
    /// pytorch.
    Deepspeed,
}

/// Whose MPI an image has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MpiImplementation {
    /// Open MPI, 4 and 5.
    #[default]
    OpenMPI,
    /// Intel MPI.
    Intel,
    /// MPICH.
    MPICH,
}

/// After which failures a run is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    /// After none.
    Never,
    /// After each.
    #[default]
    OnFailure,
    /// After those with an exit code from 128 to 255, which is what a signal leaves, and when a pod is evicted or preempted. Other exit codes
    /// end the run.
    ExitCode,
}

/// How many workers an elastic run may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(ELASTIC_RULES)))]
pub struct ElasticPolicy {
    /// The minimum of workers with which the run continues; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub min_replicas: Option<i32>,

    /// The maximum, up to which spec.worker.replicas may be raised during the run; spec.worker.replicas if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_replicas: Option<i32>,

    /// How often each worker is replaced after a failure, and how often torchrun starts its processes again; 3 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_restarts: Option<i32>,
}

/// Pods of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSpec {
    /// How many of them there are; an absent number counts as 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub replicas: Option<i32>,

    /// What they look like. Their restartPolicy is absent or Never: spec.restartPolicy decides what happens after a failure.
    pub template: PodTemplateSpec,
}

/// The FineTunedWeight that a run makes. Its trainingJobRef names the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainedWeight {
    /// Its name. FineTunedWeights belong to the whole cluster, so it is NAMESPACE.NAME with the namespace of the job.
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$"))]
    pub name: String,

    /// The model that is tuned: a BaseModel if a namespace is given, else a ClusterBaseModel.
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

    /// Where the run leaves the weight's files.
    pub storage: StorageSpec,
}

/// Which pods are deleted when a training run has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanPodPolicy {
    /// Every pod.
    All,
    /// The pods of a Job that hasn't ended, such as the workers of a launcher.
    Running,
    /// No pod, so that their logs can be read.
    #[default]
    None,
}

/// What is observed of a TrainingJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrainingJobStatus {
    /// The state of the run. Known types: Created, Running, Restarting, Suspended, Succeeded, Failed, FineTunedWeightCreated, UpToDate,
    /// Accepted, Decided, Applied and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// How many pods of each kind (launcher, worker) there are, and in which state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replica_statuses: BTreeMap<String, ReplicaStatus>,

    /// When the run started; after it was suspended, when it was resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the run ended, well or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// How often the run was started again after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i32>,

    /// The hash of the spec that the run was created from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,

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
