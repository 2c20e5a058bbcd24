//! InferenceModel: a model server that competes for the memory of a node pool and sleeps while it gets no requests.

use crate::schema::{DURATION, QUANTITY, rules};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MODEL_NAME_STAYS: (&str, &str) = (
    "self == oldSelf",
    "modelName is immutable, because clients use it in requests: create an InferenceModel with the new name and delete this one",
);

const BACKEND_IS_HTTP: (&str, &str) =
    ("self.matches('^https?://[^/?#]+')", "backendUrl must be an http:// or https:// URL with a host, such as http://vllm-server:8000");

/// An InferenceModel is one model server. Models on the same pool of nodes compete for its memory; an idle model is scaled to zero.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "inference.eh-ops.io",
    version = "v1alpha1",
    kind = "InferenceModel",
    plural = "inferencemodels",
    shortname = "infmodel",
    category = "pointsman",
    schema = "disabled",
    namespaced,
    status = "InferenceModelStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "InferenceModel is one model server. Models on the same pool of nodes compete for its memory; an idle model is scaled to zero.",
    printcolumn = r#"{"name":"Ready","type":"boolean","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".status.replicas"}"#,
    printcolumn = r#"{"name":"Memory","type":"string","jsonPath":".spec.memory"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#
)]
pub struct InferenceModelSpec {
    /// The name of the model in requests, unique in the cluster. Immutable.
    #[schemars(length(min = 1), extend("x-kubernetes-validations" = rules(&[MODEL_NAME_STAYS])))]
    pub model_name: String,

    /// The amount of the pool's memory that the model needs: a whole number with the suffix Ki, Mi, Gi or Ti. It is also the container's
    /// memory request and limit, unless `resources` sets them.
    #[schemars(regex(pattern = r"^[0-9]+(Ki|Mi|Gi|Ti)$"))]
    pub memory: String,

    /// The URL of the server that serves the model's requests.
    #[schemars(length(max = 2048), extend("format" = "uri", "x-kubernetes-validations" = rules(&[BACKEND_IS_HTTP])))]
    pub backend_url: String,

    /// The labels of the nodes that the model can run on. Models with the same nodes share one memory budget.
    #[serde(default = "default_node_selector")]
    pub node_selector: BTreeMap<String, String>,

    /// The time from the last request until the model is scaled to zero, as a Go duration such as 15m or 1h30m.
    #[serde(default = "default_cooldown_period")]
    #[schemars(length(max = 64), extend("pattern" = DURATION))]
    pub cooldown_period: String,

    /// The maximum number of replicas; more than 1 isn't supported yet. With 0, the model stays scaled to zero.
    #[serde(default = "default_max_replicas")]
    #[schemars(range(min = 0, max = 1))]
    pub max_replicas: i32,

    /// The names (modelName) of models in the same namespace that must be Ready before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("default" = []))]
    pub dependencies: Vec<String>,

    /// The image of the server. Without an image, no Deployment is created, and only the URL is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ""))]
    pub container_image: Option<String>,

    /// The resource requests and limits of the server's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {}))]
    pub resources: Option<ResourceRequirements>,
}

impl Default for InferenceModelSpec {
    fn default() -> Self {
        Self {
            model_name: String::new(),
            memory: String::new(),
            backend_url: String::new(),
            node_selector: default_node_selector(),
            cooldown_period: default_cooldown_period(),
            max_replicas: default_max_replicas(),
            dependencies: Vec::new(),
            container_image: None,
            resources: None,
        }
    }
}

fn default_node_selector() -> BTreeMap<String, String> {
    BTreeMap::from([("inference-pool".to_owned(), "default".to_owned())])
}

fn default_cooldown_period() -> String {
    "10m".to_owned()
}

fn default_max_replicas() -> i32 {
    1
}

/// The resource requests and limits of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// The resources to reserve for the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceList>,

    /// The maximum resources that the container may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
}

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// CPUs, such as 4 or 4000m.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = QUANTITY))]
    pub cpu: Option<String>,

    /// Memory, such as 16Gi or 16384Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = QUANTITY))]
    pub memory: Option<String>,

    /// GPUs (the resource nvidia.com/gpu), as a whole number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+$"))]
    pub gpu: Option<String>,
}

/// The observed state of an InferenceModel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceModelStatus {
    /// Whether the model serves requests: the same as the condition Ready.
    #[serde(default)]
    pub ready: bool,

    /// The number of replicas; 0 while the model is scaled to zero.
    #[serde(default)]
    pub replicas: i32,

    /// The highest memory usage of the model that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_peak_memory: Option<String>,

    /// `observedPeakMemory` as a percentage of `spec.memory`, at most 100. Below 90, the model needs less memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<i32>,

    /// The recommended `spec.memory`, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<String>,

    /// The time of the last measurement, updated with a new peak and once an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observation: Option<Time>,

    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The state of the model. Known types: Valid, Allocated, Decided, Allowed, Contested, Applied, Available and Ready. Known reasons:
    /// Admitted, External, Deploying, Deployed, Failed, InsufficientMemory, ScaledToZero, Pending and Terminating.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
