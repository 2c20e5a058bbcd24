//! ServingRuntime and ClusterServingRuntime: pods that serve models of certain kinds, for one namespace or for all.

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

/// A ServingRuntime specifies the models that it can serve for services of its namespace, and the pods that serve them. A service can name
/// a runtime, or have one chosen.
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
    doc = "ServingRuntime specifies how to run models of certain kinds in its namespace. A service can name it, or have it chosen.",
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

    /// The range of model sizes that the runtime can serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_size_range: Option<ModelSizeRangeSpec>,

    /// Whether the runtime is disabled. No service gets a disabled runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,

    /// The router of services with this runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_config: Option<RouterSpec>,

    /// The engine of services with this runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_config: Option<EngineSpec>,

    /// The decoder of services with this runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_config: Option<DecoderSpec>,

    /// The protocols that the runtime supports, such as openAI, cohere, openInference-v1 or openInference-v2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub protocol_versions: Vec<String>,

    #[serde(flatten)]
    pub pod: ServingRuntimePodSpec,

    /// The workers of the runtime's own pods, if one model is spread over several nodes without Ray.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerPodSpec>,
}

/// A ClusterServingRuntime specifies the models that it can serve for services of all namespaces, and the pods that serve them. It has the
/// same fields as a ServingRuntime.
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
    doc = "ClusterServingRuntime specifies how to run models of certain kinds in all namespaces. A service can name it, or have it chosen.",
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

/// A kind of model that a runtime can serve. The format, framework, architecture and quantization of a model must match those of the entry;
/// a field that the entry omits must be absent in the model too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportedModelFormat {
    /// The name of the format in the form before `modelFormat`. It has no effect on the choice of a runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The format in which the model is stored. An entry without it matches no model. It is optional because runtimes that were written
    /// before it existed lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_format: Option<ModelFormat>,

    /// Deprecated: it has no effect on the choice of a runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_type: Option<String>,

    /// The version of the format in the form before `modelFormat`: MAJOR, MAJOR.MINOR or MAJOR.MINOR.PATCH. It has no effect on the choice
    /// of a runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The framework of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_framework: Option<ModelFrameworkSpec>,

    /// The class that implements the model, such as LlamaForCausalLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_architecture: Option<String>,

    /// The quantization of the model's weights, such as fp8, fbgemm_fp8 or int4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,

    /// Whether the runtime may be chosen for such a model if the service names none. At least one entry of the runtime must set true;
    /// entries that don't set false are then included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_select: Option<bool>,

    /// The factor of the entry's score; 1 by default. It should be greater than 0. Of the runtimes that match, the one with the highest
    /// score is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// Sizes are compared only if both parse: as with upstream's CRD, any other form is accepted.
const SIZE_RANGE_RULES: &[(&str, &str)] = &[(
    "!has(self.min) || !has(self.max) \
     || !self.min.matches('^[0-9]+([.][0-9]+)?[MBT]$') || !self.max.matches('^[0-9]+([.][0-9]+)?[MBT]$') \
     || double(self.min.substring(0, self.min.size() - 1)) * (self.min.endsWith('T') ? 1000000.0 : (self.min.endsWith('B') ? 1000.0 : 1.0)) \
     <= double(self.max.substring(0, self.max.size() - 1)) * (self.max.endsWith('T') ? 1000000.0 : (self.max.endsWith('B') ? 1000.0 : 1.0))",
    "min must not be greater than max: M means millions, B billions (1000M) and T trillions (1000B) of parameters",
)];

/// The range of model sizes, in parameters, that a runtime can serve. Both ends are inclusive, and an absent end is open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(SIZE_RANGE_RULES)))]
pub struct ModelSizeRangeSpec {
    /// The minimum size: a number with the suffix M, B or T, such as 7B.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub min: Option<String>,

    /// The maximum size: a number with the suffix M, B or T, such as 70B.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub max: Option<String>,
}

/// The pods of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimePodSpec {
    /// The containers. The one that serves the model is named ome-container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub containers: Vec<Container>,

    /// The volumes that the containers can mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<Volume>,

    /// Labels that a node must have to run the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// The pods' affinity to nodes, and their affinity and anti-affinity to other pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// The tolerations of the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tolerations: Vec<Toleration>,

    /// Labels for the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The Secrets, in the pods' namespace, with the credentials of the image registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// The scheduler of the pods; the default scheduler if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,

    /// Whether the pods share the node's IPC namespace.
    #[serde(rename = "hostIPC", skip_serializing_if = "Option::is_none")]
    pub host_ipc: Option<bool>,

    /// The DNS policy of the pods: ClusterFirst (the default), ClusterFirstWithHostNet, Default or None. With hostNetwork, it must be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_policy: Option<String>,

    /// Whether the pods use the node's network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
}

/// The workers of a runtime's own pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPodSpec {
    /// The number of workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size: Option<i32>,

    #[serde(flatten)]
    pub pod: ServingRuntimePodSpec,
}

/// The observed state of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimeStatus {
    /// The state of the runtime. Known types: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The number of services that use the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_count: Option<i64>,

    /// The first 20 services that use the runtime, as NAMESPACE/NAME. A ClusterServingRuntime lists none, because all users can read it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub services: Vec<String>,

    /// The number of models that the runtime can serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_count: Option<i64>,

    /// The first 20 models that the runtime can serve, as NAME or NAMESPACE/NAME. A ClusterServingRuntime lists only cluster-scoped ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub models: Vec<String>,
}
