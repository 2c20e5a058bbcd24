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

/// A BenchmarkJob measures a service under load.
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
    /// The Secret with the Hugging Face API key, if a tokenizer or a dataset requires one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugging_face_secret_reference: Option<HuggingFaceSecretReference>,

    /// The endpoint to measure. Immutable.
    pub endpoint: EndpointSpec,

    /// Information about the server and its GPUs, to store with the results. Unset fields come from the service, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_metadata: Option<ServiceMetadata>,

    /// The task of the model, as INPUT-to-OUTPUT, such as text-to-text or image-to-text.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*-to-[a-z0-9]+(-[a-z0-9]+)*$"))]
    pub task: String,

    /// The traffic scenarios to measure, in the notation of genai-bench, such as "D(100,100)". If empty, genai-bench uses its defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub traffic_scenarios: Vec<String>,

    /// The numbers of concurrent requests, with one measurement per number. If empty, genai-bench uses its defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = 1)), extend("x-kubernetes-list-type" = "atomic"))]
    pub num_concurrency: Vec<i32>,

    /// The tokenizer that counts tokens: a Hugging Face repository, or a path in the container. By default the tokenizer of the service's
    /// model or, if the model's name is ORG/MODEL, of that repository. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub tokenizer: Option<String>,

    /// The maximum duration of one measurement (a traffic scenario with a concurrency), in minutes.
    #[schemars(range(min = 1))]
    pub max_time_per_iteration: i32,

    /// The maximum number of requests in one measurement (a traffic scenario with a concurrency).
    #[schemars(range(min = 1))]
    pub max_requests_per_iteration: i32,

    /// Additional parameters of each request, such as a temperature. A value that is valid JSON is sent as JSON, any other value as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub additional_request_params: BTreeMap<String, String>,

    /// The source of the requests' contents. Required for tasks with image input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<StorageSpec>,

    /// The location of the results.
    pub output_location: StorageSpec,

    /// The folder for the results at that location. By default NAME-HASH, with the hash of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_folder_name: Option<String>,

    /// Overrides for the pod of the benchmark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_override: Option<PodOverride>,

    /// The maximum number of times that a failed run is repeated from the beginning; 0 by default. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub backoff_limit: Option<i32>,

    /// The maximum total duration of all runs, in seconds, after which the benchmark fails. No limit by default. OME itself has no such
    /// field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// The time, in seconds, for which the batch Job stays after its end, with its pods and their logs; forever by default. The
    /// BenchmarkJob stays, and doesn't run again. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// A Secret with a Hugging Face API key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HuggingFaceSecretReference {
    /// The Secret's name, in the namespace of the BenchmarkJob.
    pub name: String,
}

const ENDPOINT_RULES: &[(&str, &str)] = &[
    (
        "has(self.inferenceService) != has(self.endpoint)",
        "set exactly one of inferenceService (a service of this cluster) and endpoint (a URL)",
    ),
    ("self == oldSelf", "the endpoint of a BenchmarkJob is immutable: create another BenchmarkJob, or delete this one and create it again"),
];

/// The endpoint to measure: a service of this cluster, or a server with a URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(ENDPOINT_RULES)))]
pub struct EndpointSpec {
    /// A service of this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inference_service: Option<InferenceServiceReference>,

    /// A server with a URL, inside or outside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
}

/// A reference to a service of this cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceServiceReference {
    /// The service's kind; InferenceService by default. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ServiceKind>,

    /// The service's name.
    #[schemars(length(max = 253))]
    pub name: String,

    /// The service's namespace; by default that of the BenchmarkJob. Another namespace must allow the reference with a ReferenceGrant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,

    /// The model's name in requests; by default the name under which the service serves it. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub model_name: Option<String>,
}

/// The kinds that a BenchmarkJob can measure by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceKind {
    /// A service of ome.io.
    #[default]
    InferenceService,
    /// A service of serving.kserve.io.
    LLMInferenceService,
    /// A model of inference.eh-ops.io.
    InferenceModel,
}

/// A server with a URL, inside or outside the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The URL, beginning with http:// or https://.
    #[schemars(length(max = 2048), regex(pattern = r"^https?://"))]
    pub url: String,

    /// The API of the server, such as openai, oci-cohere or cohere. Other values are allowed: genai-bench defines the set.
    #[schemars(length(max = 63))]
    pub api_format: String,

    /// The model's name in requests. Required for the API openai.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub model_name: Option<String>,
}

/// Information about the server and its GPUs. It is stored with the results, so that they can be filtered by it, and has no other effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMetadata {
    /// The server, such as vLLM, SGLang or TGI. Other values are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,

    /// The server's version, such as 0.5.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The type of GPU, such as H100, A100, MI300 or A10. Other values are allowed, for newer types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,

    /// The number of GPUs that serve the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<i32>,
}

/// Overrides for the pod of the benchmark.
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

    /// ConfigMaps and Secrets whose keys all become environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub env_from: Vec<EnvFromSource>,

    /// The volume mounts of the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["mountPath"]))]
    pub volume_mounts: Vec<VolumeMount>,

    /// The resource requests and limits of the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Additional tolerations of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Vec<Toleration>,

    /// Labels that a node must have to run the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub node_selector: BTreeMap<String, String>,

    /// The pod's affinity to nodes, and its affinity and anti-affinity to other pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// The volumes that the container can mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<Volume>,
}

/// The observed state of a BenchmarkJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkJobStatus {
    /// The phase of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<BenchmarkState>,

    /// The time when the job started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// The time when the job completed or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,

    /// The time when the controller last changed another field of this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reconcile_time: Option<Time>,

    /// The reason why the job failed, and the end of the pod's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,

    /// The reason why the job waits, or the current attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,

    /// The location of the results: outputLocation with the folder. OME itself has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_location: Option<String>,

    /// The hash of the spec that the last run was created from. A finished run is repeated only if the hash changes. OME itself has no such
    /// field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,

    /// The detailed state of the job. Known types: Valid, Accepted, EndpointReady, Decided, Allowed, Contested, Applied, UpToDate,
    /// Completed and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The phase of a BenchmarkJob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BenchmarkState {
    /// The job waits, for example for the service to be Ready or for a node.
    #[default]
    Pending,
    /// The benchmark is running.
    Running,
    /// The results are available.
    Completed,
    /// The job ended without results.
    Failed,
}
