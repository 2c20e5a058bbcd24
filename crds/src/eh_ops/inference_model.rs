//! InferenceModel: a model server that competes for the memory of a node pool and sleeps when nobody asks.

use crate::schema::{DURATION, QUANTITY, rules};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MODEL_NAME_STAYS: (&str, &str) = (
    "self == oldSelf",
    "modelName can't be changed, for clients ask by it: make a new InferenceModel with the other name and delete this one",
);

const BACKEND_IS_HTTP: (&str, &str) =
    ("self.matches('^https?://[^/?#]+')", "backendUrl must be an http:// or https:// URL with a host, such as http://vllm-server:8000");

/// An InferenceModel is one model server. Models on one pool of nodes compete for its memory; an idle one is scaled to zero.
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
    doc = "InferenceModel is one model server. Models on one pool of nodes compete for its memory; an idle one is scaled to zero.",
    printcolumn = r#"{"name":"Ready","type":"boolean","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".status.replicas"}"#,
    printcolumn = r#"{"name":"Memory","type":"string","jsonPath":".spec.memory"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#
)]
pub struct InferenceModelSpec {
    /// The name by which clients ask for the model. It can't be changed.
    #[schemars(length(min = 1), extend("x-kubernetes-validations" = rules(&[MODEL_NAME_STAYS])))]
    pub model_name: String,

    /// How much of the pool's memory the model takes: a whole number with the suffix Ki, Mi, Gi or Ti. The container asks for as
    /// much unless `resources` says otherwise.
    #[schemars(regex(pattern = r"^[0-9]+(Ki|Mi|Gi|Ti)$"))]
    pub memory: String,

    /// The URL of the server that answers the model's requests.
    #[schemars(length(max = 2048), extend("format" = "uri", "x-kubernetes-validations" = rules(&[BACKEND_IS_HTTP])))]
    pub backend_url: String,

    /// The labels of the nodes that the model runs on. Models with the same nodes share one memory budget.
    #[serde(default = "default_node_selector")]
    pub node_selector: BTreeMap<String, String>,

    /// How long after the last request the model is scaled to zero, as a Go duration such as 15m or 1h30m.
    #[serde(default = "default_cooldown_period")]
    #[schemars(length(max = 64), extend("pattern" = DURATION))]
    pub cooldown_period: String,

    /// How many replicas there may be; more than one isn't supported yet. With 0 the model stays off.
    #[serde(default = "default_max_replicas")]
    #[schemars(range(min = 0, max = 1))]
    pub max_replicas: i32,

    /// The names of the models that must run before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("default" = []))]
    pub dependencies: Vec<String>,

    /// The image of the server. Without one no Deployment is made, and only the URL is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ""))]
    pub container_image: Option<String>,

    /// What the server's container asks for, and what it may take.
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

/// What a container asks for, and what it may take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// What is set aside for the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceList>,

    /// What the container may take at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
}

/// Amounts of the resources that matter for a model server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceList {
    /// Processors, such as 4 or 4000m.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = QUANTITY))]
    pub cpu: Option<String>,

    /// Memory, such as 16Gi or 16384Mi.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = QUANTITY))]
    pub memory: Option<String>,

    /// Whole GPUs (the resource nvidia.com/gpu).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+$"))]
    pub gpu: Option<String>,
}

/// What is observed of an InferenceModel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferenceModelStatus {
    /// Whether at least one replica is ready.
    #[serde(default)]
    pub ready: bool,

    /// How many replicas run; 0 while the model is scaled to zero.
    #[serde(default)]
    pub replicas: i32,

    /// The most memory that the model was seen to take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_peak_memory: Option<String>,

    /// `observedPeakMemory` in percent of `spec.memory`. Below 90 less memory would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<i32>,

    /// What to set `spec.memory` to, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommendation: Option<String>,

    /// When the memory was last measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observation: Option<Time>,

    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The state of the model. Known types: Ready, Available. Known reasons: Deploying, Deployed, Failed, InsufficientMemory,
    /// ScaledToZero, Pending, Terminating.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
