//! What LLMInferenceService and LLMInferenceServiceConfig have in common, so that one can be merged over the other.

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
    "replicas is a fixed number and scaling lets it vary: keep one of them and remove the other",
);

/// An LLMInferenceServiceConfig may hold a template where a URI goes, and a Go client writes an absent one as "".
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

/// All that says how a language model is served. Nothing is required: presets, base configurations and the service
/// itself are laid over one another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LLMServingFields {
    /// The model to serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<LLMModelSpec>,

    /// Who brings the model's files to the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_initializer: Option<StorageInitializerSpec>,

    /// The main workload: everything, or the decode part where `prefill` is given.
    #[serde(flatten)]
    pub workload: WorkloadSpec,

    /// How requests get to the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterSpec>,

    /// A workload of its own for the prefill phase; the main workload then only decodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<WorkloadSpec>,

    /// The LLMInferenceServiceConfigs that the service builds on. A later one wins over an earlier one, and the service's
    /// own fields win over all of them. Each is looked up in the service's namespace, then in the system namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base_refs: Vec<LocalObjectReference>,
}

/// A language model: where it lies, and what it is called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LLMModelSpec {
    /// Where the model's files lie: hf://ORG/MODEL, s3://BUCKET/PATH, pvc://CLAIM/PATH, oci://IMAGE and the like. May be
    /// absent only where a base configuration gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub uri: Option<String>,

    /// The model's name in requests. An absent name is the name of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// How much it matters that requests to this model are served when there is too little room for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criticality: Option<Criticality>,

    /// Adapters that are loaded on top of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoRASpec>,
}

/// How much a model's requests matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Criticality {
    /// Served before all others; never shed while others can be.
    Critical,
    /// Served before what may be shed.
    #[default]
    Standard,
    /// Dropped first.
    Sheddable,
}

/// Low-rank adapters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoRASpec {
    /// The adapters, each described as a model is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub adapters: Vec<LoRAAdapter>,
}

/// One adapter. Upstream describes it as a whole model without saying which fields count: all of them are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct LoRAAdapter {
    /// Where the adapter's files lie.
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = rules(&[ADAPTER_URI])))]
    pub uri: String,

    /// The name by which requests ask for the adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Whatever else was given.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}

/// Who brings the model's files to the pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageInitializerSpec {
    /// Whether an init container or a volume is added that brings the files; true when absent. With false the pod's own
    /// containers have to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// A set of alike pods, or of alike groups of pods: the main workload or the prefill one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[ONE_WAY_TO_SCALE])))]
pub struct WorkloadSpec {
    /// The fixed number of pods, or of groups of pods where `worker` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,

    /// Lets the number of replicas follow the load, in place of `replicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingSpec>,

    /// How the model is split over accelerators and pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<ParallelismSpec>,

    /// Labels for the pods of this workload. They win over the labels that are carried over from the service's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the pods of this workload. They win over the annotations that are carried over from the service's
    /// metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The pod that serves, or the leader of a group of pods where `worker` is given. The container that serves is
    /// called `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodFields>,

    /// The other pods of a group. Its presence makes the workload a multi-node one; `parallelism` gives the group's size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<PodFields>,
}

/// How a model is split over accelerators and pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParallelismSpec {
    /// Over how many accelerators each layer is split.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tensor: Option<i32>,

    /// Over how many stages the layers are spread, one pod a stage. Not together with `data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pipeline: Option<i32>,

    /// How many copies of the model work side by side in a group. Needs `dataLocal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub data: Option<i32>,

    /// How many of the `data` copies share a pod: the group has data / dataLocal pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub data_local: Option<i32>,

    /// The port over which the copies of a group talk to each other.
    #[serde(rename = "dataRPCPort", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub data_rpc_port: Option<i32>,

    /// Whether the experts of a mixture-of-experts model are spread over the copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert: Option<bool>,
}
