//! The components of a service: engine, decoder and router, and the leader and workers of the first two.

use crate::{ContainerFields, PodFields};
use k8s_openapi::api::apps::v1::DeploymentStrategy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The component that loads the model and serves requests. With a decoder, it only processes prompts (prefill). Its fields include those of
/// a pod spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    #[serde(flatten)]
    pub extension: ComponentExtensionSpec,

    /// Overrides for the container that runs the model: the one that `name` specifies, by default the runtime's main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,

    /// The leader of a group of pods, if one model is spread over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderSpec>,

    /// The workers of a group of pods, if one model is spread over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSpec>,
}

/// The component that generates tokens (decode) after the engine has processed the prompt. Its fields include those of a pod spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecoderSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    #[serde(flatten)]
    pub extension: ComponentExtensionSpec,

    /// Overrides for the container that runs the model: the one that `name` specifies, by default the runtime's main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,

    /// The leader of a group of pods, if one model is spread over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderSpec>,

    /// The workers of a group of pods, if one model is spread over several nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSpec>,
}

/// The component that distributes requests among engines and decoders. Its fields include those of a pod spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    #[serde(flatten)]
    pub extension: ComponentExtensionSpec,

    /// Overrides for the router's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,

    /// Settings of the router, such as a routing policy. They become environment variables of its container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

/// The pod that leads a group and distributes its work. Its fields include those of a pod spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    /// Overrides for the leader's main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
}

/// The workers of a group. Its fields include those of a pod spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSpec {
    #[serde(flatten)]
    pub pod: PodFields,

    /// The number of workers per leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size: Option<i32>,

    /// Overrides for a worker's main container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerSpec>,
}

/// The main container of a component, or overrides for it. Its fields are those of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerSpec {
    #[serde(flatten)]
    pub container: ContainerFields,
}

/// The rules of [`ComponentExtensionSpec`]. A struct that flattens it must not have rules of its own: they would replace these.
const COMPONENT_RULES: &[(&str, &str)] = &[(
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas == 0 || self.minReplicas <= self.maxReplicas",
    "minReplicas must not be greater than maxReplicas: lower minReplicas or raise maxReplicas",
)];

const CANARY_RULES: &[(&str, &str)] = &[("self >= 0 && self <= 100", "canaryTrafficPercent is a percentage: set a number from 0 to 100")];

/// Settings for the deployment and scaling of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crate::schema::rules(COMPONENT_RULES)))]
pub struct ComponentExtensionSpec {
    /// The minimum number of replicas; 1 by default. With 0, the component scales to zero while it gets no requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_replicas: Option<i32>,

    /// The maximum number of replicas. If absent or 0, the largest of 3, minReplicas and the current number of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_replicas: Option<i32>,

    /// The target value of the metric; 80 (percent) by default, in Serverless Knative's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_target: Option<i32>,

    /// The metric that the autoscaler uses; cpu by default, in Serverless concurrency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_metric: Option<ScaleMetric>,

    /// The maximum number of concurrent requests per replica; further requests wait. 0 means no limit. Serverless only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub container_concurrency: Option<i64>,

    /// The maximum duration of a request, in seconds. Outside Serverless, it applies only to requests through a Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,

    /// The percentage of the traffic that the newest revision gets. The revision that had all traffic before gets the rest. Serverless
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = crate::schema::rules(CANARY_RULES)))]
    pub canary_traffic_percent: Option<i64>,

    /// Labels for the component's pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the component's pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The strategy for replacing pods, for a component that is a Deployment. For a component on several nodes, only maxSurge and
    /// maxUnavailable apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_strategy: Option<DeploymentStrategy>,

    /// Settings for scaling this component with KEDA. Each field takes precedence over that of the service's kedaConfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keda_config: Option<KedaConfig>,
}

/// A metric that an autoscaler can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScaleMetric {
    /// The CPU usage, as a percentage of the CPU request.
    #[default]
    Cpu,
    /// The memory usage.
    Memory,
    /// The number of concurrent requests per replica. Serverless only.
    Concurrency,
    /// The number of requests per second and replica. Serverless only.
    Rps,
}

/// Settings for scaling with KEDA, by the result of a Prometheus query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KedaConfig {
    /// Whether KEDA scales instead of a HorizontalPodAutoscaler; false by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_keda: Option<bool>,

    /// The URL of the Prometheus server to query, with scheme and port, such as
    /// http://prometheus-operated.monitoring.svc.cluster.local:9090. Required with KEDA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prom_server_address: Option<String>,

    /// The query for the metric; its result must be a single number. Required with KEDA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_prom_query: Option<String>,

    /// The threshold of the metric, a number above 0; "10" by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_threshold: Option<String>,

    /// The comparison of the metric with the threshold: GreaterThanOrEqual (the default) or GreaterThan if a higher value requires more
    /// replicas, LessThanOrEqual or LessThan if a lower value does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_operator: Option<String>,
}
