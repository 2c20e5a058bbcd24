//! The parts that a service is deployed as: engine, decoder and router, and the leader and workers of the first two.

use crate::{ContainerFields, PodFields};
use k8s_openapi::api::apps::v1::DeploymentStrategy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The component that loads the model and answers requests; beside a decoder, the one that reads the prompt (prefill).
/// Its own fields are those of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    #[serde(flatten)]
    pub extension: ComponentExtensionSpec,

    /// What to change in the container that runs the model. Without a name it is the runtime's main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,

    /// The pod that leads a group of pods, where one model is spread over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderSpec>,

    /// The pods that follow the leader, where one model is spread over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSpec>,
}

/// The component that makes the tokens (decode) where reading the prompt is left to an engine of its own.
/// Its own fields are those of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecoderSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    #[serde(flatten)]
    pub extension: ComponentExtensionSpec,

    /// What to change in the container that runs the model. Without a name it is the runtime's main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,

    /// The pod that leads a group of pods, where one model is spread over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderSpec>,

    /// The pods that follow the leader, where one model is spread over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSpec>,
}

/// The component that spreads requests over engines and decoders. Its own fields are those of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    #[serde(flatten)]
    pub extension: ComponentExtensionSpec,

    /// What to change in the container that routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,

    /// Settings of the router's own, such as a routing policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

/// The pod that leads a group and hands out its work. Its own fields are those of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    /// What to change in the leader's main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
}

/// The pods that follow a leader. Its own fields are those of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    /// How many workers follow each leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size: Option<i32>,

    /// What to change in a worker's main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
}

/// The main container of a component, or what to change in it: every field is a container's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerSpec {
    #[serde(flatten)]
    pub container: ContainerFields,
}

/// The rules of [`ComponentExtensionSpec`]. A struct that it is flattened into must have none of its own: they would
/// stand in their place.
const COMPONENT_RULES: &[(&str, &str)] = &[(
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas == 0 || self.minReplicas <= self.maxReplicas",
    "minReplicas must not be greater than maxReplicas: lower the one or raise the other",
)];

const CANARY_RULES: &[(&str, &str)] =
    &[("self >= 0 && self <= 100", "canaryTrafficPercent is a share of the traffic: give a number from 0 to 100")];

/// How a component is deployed and scaled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(COMPONENT_RULES)))]
pub struct ComponentExtensionSpec {
    /// The fewest replicas; an absent number counts as 1. With 0 the component scales to zero while nobody asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_replicas: Option<i32>,

    /// The most replicas that an autoscaler may start. 0 counts as absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_replicas: Option<i32>,

    /// The value of the metric that the autoscaler aims at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_target: Option<i32>,

    /// The metric that the autoscaler watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_metric: Option<ScaleMetric>,

    /// How many requests a replica may work on at once; further ones wait. 0 sets no limit. Serverless only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub container_concurrency: Option<i64>,

    /// How long a request may take, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,

    /// The share of the traffic, in percent, that the newest revision gets; the revision that was ready before gets the
    /// rest. Serverless only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = crate::schema::rules(CANARY_RULES)))]
    pub canary_traffic_percent: Option<i64>,

    /// Labels for the component's pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the component's pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// How old pods make room for new ones. For a component that becomes a Deployment; of one on several nodes maxSurge and
    /// maxUnavailable count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_strategy: Option<DeploymentStrategy>,

    /// How KEDA scales this component; wins over the service's own kedaConfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keda_config: Option<KedaConfig>,
}

/// A metric that an autoscaler can watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScaleMetric {
    /// The share of the requested CPU that is used, in percent.
    #[default]
    Cpu,
    /// The memory that is used.
    Memory,
    /// The requests that a replica works on at once. Serverless only.
    Concurrency,
    /// The requests that a replica answers in a second. Serverless only.
    Rps,
}

/// How KEDA scales by what a Prometheus query says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KedaConfig {
    /// Whether KEDA scales, rather than a HorizontalPodAutoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_keda: Option<bool>,

    /// The URL of the Prometheus server that is asked, with scheme and port, such as
    /// http://prometheus-operated.monitoring.svc.cluster.local:9090.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prom_server_address: Option<String>,

    /// The query that gives the metric; it must come to one number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_prom_query: Option<String>,

    /// The number that the metric is compared with, such as "10".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_threshold: Option<String>,

    /// How the metric is compared with the threshold: GreaterThanOrEqual (more replicas from the threshold upwards) and
    /// LessThanOrEqual are common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_operator: Option<String>,
}
