//! The fields that LLMInferenceService and LLMInferenceServiceConfig share, so that they can be merged.

use crate::{
    PodFields,
    kserve::{router::RouterSpec, scaling::ScalingSpec},
    schema::rules,
};
use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(super) const ONE_WAY_TO_SCALE: (&str, &str) = (
    "!(has(self.replicas) && has(self.scaling))",
    "replicas sets a fixed number of replicas and scaling a variable one: remove one of them",
);

/// An LLMInferenceServiceConfig can contain a template instead of a URI, and a Go client writes an absent URI as "".
pub(super) const MODEL_URI: (&str, &str) = (
    "!has(self.model) || !has(self.model.uri) || self.model.uri == '' \
     || self.model.uri.matches('^([{][{]|(hf|s3|pvc|oci|gs|https?)://.)') \
     || (has(self.storageInitializer) && has(self.storageInitializer.enabled) && !self.storageInitializer.enabled \
     && self.model.uri.contains('://'))",
    "model.uri must start with hf://, s3://, pvc://, oci://, gs://, http:// or https://; \
     for any other scheme set storageInitializer.enabled to false and let the pod fetch the model",
);

const ADAPTER_URI: (&str, &str) = (
    "self.matches('^([{][{]|(hf|s3|pvc|oci|gs|https?)://.)')",
    "an adapter's uri must start with hf://, s3://, pvc://, oci://, gs://, http:// or https://",
);

/// The specification of a served language model. No field is required, because presets, base configurations and the service itself are
/// merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LLMServingFields {
    /// The model to serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<LLMModelSpec>,

    /// The way in which pods get the model's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_initializer: Option<StorageInitializerSpec>,

    /// The main workload. With `prefill`, it only decodes.
    #[serde(flatten)]
    pub workload: WorkloadSpec,

    /// The routing of requests to the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterSpec>,

    /// A separate workload for the prefill phase. The main workload then only decodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<WorkloadSpec>,

    /// The LLMInferenceServiceConfigs to merge. A later one takes precedence over an earlier one, and the service's own fields take
    /// precedence over all. Each is looked up in the service's namespace, then in that of the controller's flag --config-namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base_refs: Vec<LocalObjectReference>,
}

/// A language model: the location of its files, and its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LLMModelSpec {
    /// The location of the model's files: hf://ORG/MODEL, s3://BUCKET/PATH, pvc://CLAIM/PATH, oci://IMAGE, gs://, http:// or https://.
    /// Required unless a base configuration sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub uri: Option<String>,

    /// The model's name in requests; by default the name of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The importance of requests to this model if there isn't enough capacity for all requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criticality: Option<Criticality>,

    /// Adapters to load with the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoRASpec>,
}

/// The importance of a model's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Criticality {
    /// Served before all others, and never shed while others can be.
    Critical,
    /// Served before requests that may be shed.
    #[default]
    Standard,
    /// Shed first.
    Sheddable,
}

/// LoRA adapters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoRASpec {
    /// The adapters. Each is described like a model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub adapters: Vec<LoRAAdapter>,
}

/// An adapter. Upstream describes it as a model without documenting which fields apply: all of them are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct LoRAAdapter {
    /// The location of the adapter's files.
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = rules(&[ADAPTER_URI])))]
    pub uri: String,

    /// The adapter's name in requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// All other fields.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}

/// The way in which pods get the model's files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageInitializerSpec {
    /// Whether Pointsman adds an init container or a volume that provides the files; true by default. If false, the pod's own containers
    /// must fetch them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// A set of identical pods, or of identical groups of pods: the main or the prefill workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[ONE_WAY_TO_SCALE])))]
pub struct WorkloadSpec {
    /// The fixed number of pods, or of groups of pods with `worker`. Not together with `scaling`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,

    /// Scales the number of replicas by load. Not together with `replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingSpec>,

    /// The distribution of the model over accelerators and pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<ParallelismSpec>,

    /// Labels for the pods of this workload. They take precedence over labels that are propagated from the service's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the pods of this workload. They take precedence over annotations that are propagated from the service's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The pod that serves requests, or, with `worker`, the leader of a group of pods. The container that serves requests is named `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodFields>,

    /// The other pods of a group. If set, the workload runs in groups of pods on several nodes; `parallelism` sets the size of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<PodFields>,
}

/// The distribution of a model over accelerators and pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParallelismSpec {
    /// The number of accelerators that each layer is split over; by default the number of GPUs of the container `main`, divided among the
    /// copies in the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tensor: Option<i32>,

    /// The number of stages that the layers are distributed over, with one pod per stage. Not together with `data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pipeline: Option<i32>,

    /// The number of copies of the model in a group. Requires `dataLocal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub data: Option<i32>,

    /// The number of copies in each pod: a group has data / dataLocal pods. Requires `data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub data_local: Option<i32>,

    /// The port for communication between the copies of a group; 5555 by default.
    #[serde(rename = "dataRPCPort", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub data_rpc_port: Option<i32>,

    /// Whether the experts of a mixture-of-experts model are distributed over the copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert: Option<bool>,
}
