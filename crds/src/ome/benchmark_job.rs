//! BenchmarkJob: a measurement of a service under load.

use super::storage::StorageSpec;
use k8s_openapi::{
    api::core::v1::{Affinity, EnvFromSource, EnvVar, ResourceRequirements, Toleration, Volume, VolumeMount},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What to measure, with which load, and where to leave the results.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "BenchmarkJob",
    plural = "benchmarkjobs",
    shortname = "bmj",
    category = "pointsman",
    schema = "disabled",
    namespaced,
    status = "BenchmarkJobStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "BenchmarkJob is a measurement of a service under load.",
    printcolumn = r#"{"name":"Task","type":"string","jsonPath":".spec.task"}"#,
    printcolumn = r#"{"name":"Service","type":"string","jsonPath":".spec.endpoint.inferenceService.name"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.state"}"#,
    printcolumn = r#"{"name":"Started","type":"date","jsonPath":".status.startTime"}"#,
    printcolumn = r#"{"name":"Completed","type":"date","jsonPath":".status.completionTime"}"#,
    printcolumn = r#"{"name":"Failure","type":"string","jsonPath":".status.failureMessage","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct BenchmarkJobSpec {
    /// The Secret with the Hugging Face API key, where one is needed to fetch a tokenizer or a dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugging_face_secret_reference: Option<HuggingFaceSecretReference>,

    /// What is measured. It can't be changed afterwards.
    pub endpoint: EndpointSpec,

    /// What serves the model, to be kept with the results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_metadata: Option<ServiceMetadata>,

    /// What the model is asked to do, as INPUT-to-OUTPUT, such as text-to-text or image-to-text.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*-to-[a-z0-9]+(-[a-z0-9]+)*$"))]
    pub task: String,

    /// The kinds of traffic to try, in the notation of genai-bench, such as "D(100,100)". genai-bench has defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub traffic_scenarios: Vec<String>,

    /// How many requests to keep under way, one measurement a number. genai-bench has defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = 1)), extend("x-kubernetes-list-type" = "atomic"))]
    pub num_concurrency: Vec<i32>,

    /// The tokenizer that counts tokens: a Hugging Face repository, or a path in the container. Without one it is that of the service's
    /// model, or of a model name that is a repository's (ORG/MODEL). OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub tokenizer: Option<String>,

    /// How long one measurement (a kind of traffic with a concurrency) may take, in minutes.
    #[schemars(range(min = 1))]
    pub max_time_per_iteration: i32,

    /// How many requests one measurement (a kind of traffic with a concurrency) may send.
    #[schemars(range(min = 1))]
    pub max_requests_per_iteration: i32,

    /// What else to put into each request, such as a temperature.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_request_params: BTreeMap<String, String>,

    /// Where the requests' contents come from. Tasks whose input isn't text need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<StorageSpec>,

    /// Where to leave the results.
    pub output_location: StorageSpec,

    /// The folder, at that place, for the results. Without one a name is made up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_folder_name: Option<String>,

    /// What to change in the pod that measures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_override: Option<PodOverride>,

    /// How often a failed run is repeated, from the beginning; 0 if absent. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub backoff_limit: Option<i32>,

    /// How many seconds all runs together may take before the benchmark fails. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// How many seconds the batch Job stays after its end, with its pods and their logs; for ever if absent. The BenchmarkJob stays, and isn't
    /// run again. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// A Secret with a Hugging Face API key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HuggingFaceSecretReference {
    /// The Secret's name, in the namespace of the job.
    pub name: String,
}

const ENDPOINT_RULES: &[(&str, &str)] = &[
    (
        "has(self.inferenceService) != has(self.endpoint)",
        "give exactly one of inferenceService (a service of this cluster) and endpoint (a URL)",
    ),
    ("self == oldSelf", "what a BenchmarkJob measures can't be changed: delete it, or make another one"),
];

/// What is measured: a service of this cluster, or whatever answers under a URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(ENDPOINT_RULES)))]
pub struct EndpointSpec {
    /// A service of this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inference_service: Option<InferenceServiceReference>,

    /// Whatever answers under a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
}

/// A service of this cluster by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceReference {
    /// The service's kind; InferenceService where absent. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ServiceKind>,

    /// The service's name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The service's namespace; that of the job where absent. Another one must allow it by a ReferenceGrant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,

    /// The name that requests give the model; that under which the service serves it where absent. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub model_name: Option<String>,
}

/// What can be measured by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceKind {
    /// Of ome.io.
    #[default]
    InferenceService,
    /// Of serving.kserve.io.
    LLMInferenceService,
    /// Of inference.eh-ops.io.
    InferenceModel,
}

/// Whatever answers under a URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The URL, beginning with http:// or https://.
    #[schemars(length(max = 2048), regex(pattern = r"^https?://"))]
    pub url: String,

    /// The API that is spoken there, such as openai, oci-cohere or cohere. The set is open: it is the client's.
    #[schemars(length(max = 63))]
    pub api_format: String,

    /// The name that requests give the model; the openai API needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub model_name: Option<String>,
}

/// What serves the model. It is kept with the results, so that they can be filtered by it; nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMetadata {
    /// The server, such as vLLM, SGLang or TGI. The set is open, for there are others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,

    /// The server's version, such as 0.5.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The kind of GPU, such as H100, A100, MI300 or A10. The set is open, for newer ones come every year.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,

    /// How many GPUs serve the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<i32>,
}

/// What to change in the pod that measures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodOverride {
    /// The image with genai-bench.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// Environment variables for the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,

    /// ConfigMaps and Secrets whose every key becomes an environment variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub env_from: Vec<EnvFromSource>,

    /// Where the container mounts volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    pub volume_mounts: Vec<VolumeMount>,

    /// What the container needs and may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// The taints of nodes that the pod puts up with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Vec<Toleration>,

    /// Labels that a node must have to get the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub node_selector: BTreeMap<String, String>,

    /// The nodes that the pod requires or prefers, and the pods that it wants to be near or far from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// The volumes that the container can mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<Volume>,
}

/// What is observed of a BenchmarkJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkJobStatus {
    /// How far the job has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<BenchmarkState>,

    /// When the job began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// When the job ended, well or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// When the controller last changed something else of this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reconcile_time: Option<Time>,

    /// Why the job failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,

    /// What the job waits for, or which attempt it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,

    /// Where the results are, as the outputLocation with the folder. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_location: Option<String>,

    /// The hash of the spec that the last run was created from. A run that has ended is repeated only for another hash. OME itself has no such
    /// field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,

    /// The state of the job in detail. Known types: Accepted, EndpointReady, Decided, UpToDate, Completed, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// How far a BenchmarkJob has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BenchmarkState {
    /// It waits, for the service to be ready or for a node.
    #[default]
    Pending,
    /// It measures.
    Running,
    /// The results are where they belong.
    Completed,
    /// It ended without results.
    Failed,
}
