//! ServingRuntime and ClusterServingRuntime: how to run models of certain kinds, for one namespace or for all.

use super::{
    component::{DecoderSpec, EngineSpec, RouterSpec},
    model::{ModelFormat, ModelFrameworkSpec},
};
use k8s_openapi::{
    api::core::v1::{Affinity, Container, LocalObjectReference, Toleration, Volume},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which models a runtime can serve, and what its pods look like.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ServingRuntime",
    plural = "servingruntimes",
    shortname = "srt",
    category = "pointsman",
    schema = "disabled",
    namespaced,
    status = "ServingRuntimeStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "ServingRuntime says how to run models of certain kinds in its namespace. A service may name it, or have it chosen.",
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"ModelFormat","type":"string","jsonPath":".spec.supportedModelFormats[*].modelFormat.name"}"#,
    printcolumn = r#"{"name":"ModelFramework","type":"string","jsonPath":".spec.supportedModelFormats[*].modelFramework.name"}"#,
    printcolumn = r#"{"name":"ModelFrameworkVersion","type":"string","jsonPath":".spec.supportedModelFormats[*].modelFramework.version","priority":1}"#,
    printcolumn = r#"{"name":"ModelArchitecture","type":"string","jsonPath":".spec.supportedModelFormats[*].modelArchitecture"}"#,
    printcolumn = r#"{"name":"ModelSizeMin","type":"string","jsonPath":".spec.modelSizeRange.min"}"#,
    printcolumn = r#"{"name":"ModelSizeMax","type":"string","jsonPath":".spec.modelSizeRange.max"}"#,
    printcolumn = r#"{"name":"Services","type":"integer","jsonPath":".status.serviceCount"}"#,
    printcolumn = r#"{"name":"Models","type":"integer","jsonPath":".status.modelCount"}"#,
    printcolumn = r#"{"name":"Images","type":"string","jsonPath":".spec.containers[*].image","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct ServingRuntimeSpec {
    /// The models that the runtime can serve: those that match at least one of the entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub supported_model_formats: Vec<SupportedModelFormat>,

    /// The sizes of model that the runtime can serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_size_range: Option<ModelSizeRangeSpec>,

    /// Whether the runtime is switched off, so that no service gets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,

    /// The router that services of this runtime get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_config: Option<RouterSpec>,

    /// The engine that services of this runtime get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_config: Option<EngineSpec>,

    /// The decoder that services of this runtime get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_config: Option<DecoderSpec>,

    /// The protocols that the runtime speaks, such as openAI, cohere, openInference-v1 or openInference-v2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub protocol_versions: Vec<String>,

    #[serde(flatten)]
    pub pod: ServingRuntimePodSpec,

    /// The pods that follow the runtime's own, where one model is spread over several nodes without Ray.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerPodSpec>,
}

/// What a ClusterServingRuntime says: the same as a ServingRuntime.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "ClusterServingRuntime",
    plural = "clusterservingruntimes",
    shortname = "csrt",
    category = "pointsman",
    schema = "disabled",
    status = "ServingRuntimeStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "ClusterServingRuntime says how to run models of certain kinds in every namespace. A service may name it, or have it chosen.",
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled"}"#,
    printcolumn = r#"{"name":"ModelFormat","type":"string","jsonPath":".spec.supportedModelFormats[*].modelFormat.name"}"#,
    printcolumn = r#"{"name":"ModelFramework","type":"string","jsonPath":".spec.supportedModelFormats[*].modelFramework.name"}"#,
    printcolumn = r#"{"name":"ModelFrameworkVersion","type":"string","jsonPath":".spec.supportedModelFormats[*].modelFramework.version","priority":1}"#,
    printcolumn = r#"{"name":"ModelArchitecture","type":"string","jsonPath":".spec.supportedModelFormats[*].modelArchitecture"}"#,
    printcolumn = r#"{"name":"ModelSizeMin","type":"string","jsonPath":".spec.modelSizeRange.min"}"#,
    printcolumn = r#"{"name":"ModelSizeMax","type":"string","jsonPath":".spec.modelSizeRange.max"}"#,
    printcolumn = r#"{"name":"Services","type":"integer","jsonPath":".status.serviceCount"}"#,
    printcolumn = r#"{"name":"Models","type":"integer","jsonPath":".status.modelCount"}"#,
    printcolumn = r#"{"name":"Images","type":"string","jsonPath":".spec.containers[*].image","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct ClusterServingRuntimeSpec(pub ServingRuntimeSpec);

/// A kind of model that a runtime can serve. A model must match everything that the entry says of format, framework,
/// architecture and quantization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportedModelFormat {
    /// The name of the format, as it was given before modelFormat. Nothing is chosen by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The format in which the model is stored. An entry without it matches no model: runtimes that were written before
    /// it existed are accepted, and must be named to be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_format: Option<ModelFormat>,

    /// Deprecated: nothing is chosen by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,

    /// The version of the format, as it was given before modelFormat: MAJOR, MAJOR.MINOR or MAJOR.MINOR.PATCH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The library that the model is made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_framework: Option<ModelFrameworkSpec>,

    /// The class that implements the model, such as LlamaForCausalLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_architecture: Option<String>,

    /// How the model's weights are quantized, such as fp8, fbgemm_fp8 or int4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,

    /// Whether the runtime may be chosen for such a model when the service names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_select: Option<bool>,

    /// Which runtime is chosen where several could be: that with the highest number. It should be greater than 0; an
    /// absent one counts as 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// Sizes are compared only where both parse; how else one may be written is left to upstream.
const SIZE_RANGE_RULES: &[(&str, &str)] = &[(
    "!has(self.min) || !has(self.max) \
     || !self.min.matches('^[0-9]+([.][0-9]+)?[MBT]$') || !self.max.matches('^[0-9]+([.][0-9]+)?[MBT]$') \
     || double(self.min.substring(0, self.min.size() - 1)) * (self.min.endsWith('T') ? 1000000.0 : (self.min.endsWith('B') ? 1000.0 : 1.0)) \
     <= double(self.max.substring(0, self.max.size() - 1)) * (self.max.endsWith('T') ? 1000000.0 : (self.max.endsWith('B') ? 1000.0 : 1.0))",
    "min must not be greater than max: M stands for millions, B for thousands of millions and T for millions of millions of parameters",
)];

/// The sizes of model, in parameters, that a runtime can serve; both ends belong to it, and an absent end is open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(SIZE_RANGE_RULES)))]
pub struct ModelSizeRangeSpec {
    /// The smallest model: a number with the suffix M, B or T, such as 7B.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub min: Option<String>,

    /// The largest model: a number with the suffix M, B or T, such as 70B.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub max: Option<String>,
}

/// What the pods of a runtime look like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimePodSpec {
    /// The containers. The one that serves the model is called ome-container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<Container>,

    /// The volumes that the containers can mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<Volume>,

    /// Labels that a node must have to get the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// The nodes that the pods require or prefer, and the pods that they want to be near or far from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// The taints of nodes that the pods put up with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Vec<Toleration>,

    /// Labels for the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The Secrets, in the pods' namespace, that open the registries of the images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// The scheduler that places the pods; the default one where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,

    /// Whether the pods share the node's interprocess communication.
    #[serde(rename = "hostIPC", skip_serializing_if = "Option::is_none")]
    pub host_ipc: Option<bool>,

    /// How the pods look up names: ClusterFirst (the default), ClusterFirstWithHostNet, Default or None. With
    /// hostNetwork it must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_policy: Option<String>,

    /// Whether the pods use the node's network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
}

/// The pods that follow a runtime's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPodSpec {
    /// How many of them there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size: Option<i32>,

    #[serde(flatten)]
    pub pod: ServingRuntimePodSpec,
}

/// What is observed of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimeStatus {
    /// The state of the runtime. Known types: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// How many services use the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_count: Option<i64>,

    /// The first 20 services that use the runtime, as NAMESPACE/NAME. A ClusterServingRuntime only counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub services: Vec<String>,

    /// How many models the runtime can serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_count: Option<i64>,

    /// The first 20 models that it can serve, as NAME or NAMESPACE/NAME. A ClusterServingRuntime names those of the whole cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub models: Vec<String>,
}
