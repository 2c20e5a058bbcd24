//! The scaling of an LLMInferenceService's workloads by load.

use crate::{RawObject, schema::rules};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const COMPLETE: (&str, &str) =
    ("has(self.maxReplicas) && has(self.wva)", "scaling requires maxReplicas and wva, the settings of the autoscaler: set both");

const BOUNDS: (&str, &str) = (
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    "scaling.minReplicas must not exceed scaling.maxReplicas: lower minReplicas or raise maxReplicas",
);

const IDLE: (&str, &str) = (
    "!has(self.wva) || !has(self.wva.keda) || !has(self.wva.keda.idleReplicaCount) \
     || (has(self.minReplicas) && self.wva.keda.idleReplicaCount < self.minReplicas)",
    "idleReplicaCount must be less than minReplicas: set a higher scaling.minReplicas or a lower wva.keda.idleReplicaCount",
);

const ONE_ACTUATOR: (&str, &str) =
    ("!has(self.wva) || has(self.wva.hpa) != has(self.wva.keda)", "scaling.wva requires exactly one of hpa and keda: set only one of them");

const COST_IS_A_NUMBER: (&str, &str) = (
    "!has(self.wva) || !has(self.wva.variantCost) || self.wva.variantCost.matches('^[0-9]+([.][0-9]+)?$')",
    "scaling.wva.variantCost must be a decimal number in quotes, such as \"10.0\"",
);

/// The limits for the number of replicas of a workload, and the way to scale it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[COMPLETE, BOUNDS, IDLE, ONE_ACTUATOR, COST_IS_A_NUMBER])))]
pub struct ScalingSpec {
    /// The minimum number of replicas; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_replicas: Option<i32>,

    /// The maximum number of replicas. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_replicas: Option<i32>,

    /// The settings of the workload variant autoscaler, and of the autoscaler that acts on its metric. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wva: Option<WVASpec>,
}

/// The cost of the workload as a variant of its model, and the autoscaler that acts on the metric of the workload variant autoscaler:
/// exactly one of `hpa` and `keda`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WVASpec {
    /// The cost of a replica relative to other variants of the model, as a decimal number; 10.0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub variant_cost: Option<String>,

    /// Scales the workload with a HorizontalPodAutoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpa: Option<HPAScalingSpec>,

    /// Scales the workload with a KEDA ScaledObject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keda: Option<KEDAScalingSpec>,
}

/// Settings of the HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HPAScalingSpec {
    /// The speed of scaling up and down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
}

/// Settings of the ScaledObject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KEDAScalingSpec {
    /// The interval, in seconds, at which KEDA reads the metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub polling_interval: Option<i32>,

    /// The time, in seconds, from the last activity until KEDA scales the workload to `idleReplicaCount`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cooldown_period: Option<i32>,

    /// The time, in seconds, from the creation of the ScaledObject until the cooldown can start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub initial_cooldown_period: Option<i32>,

    /// The number of replicas while there is no activity. It must be less than `minReplicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub idle_replica_count: Option<i32>,

    /// The number of replicas if KEDA can't read the metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<KEDAFallback>,

    /// Advanced settings of KEDA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advanced: Option<KEDAAdvanced>,
}

/// The number of replicas if KEDA can't read the metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KEDAFallback {
    /// The number of consecutive failures after which the fallback applies.
    pub failure_threshold: i32,

    /// The number of replicas while the fallback applies.
    pub replicas: i32,

    /// The choice between `replicas` and the current number of replicas; static by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<KEDAFallbackBehavior>,
}

/// The choice between the fallback's and the current number of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KEDAFallbackBehavior {
    /// The fallback's number.
    #[default]
    Static,
    /// The current number.
    CurrentReplicas,
    /// The higher of the two.
    CurrentReplicasIfHigher,
    /// The lower of the two.
    CurrentReplicasIfLower,
}

/// Advanced settings of KEDA.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KEDAAdvanced {
    /// Settings of the HorizontalPodAutoscaler that KEDA creates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizontal_pod_autoscaler_config: Option<KEDAAutoscalerConfig>,

    /// Whether KEDA restores the original number of replicas when the ScaledObject is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_to_original_replica_count: Option<bool>,

    /// Must be empty, because wva provides the metric and its target. Go clients write an empty object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 0))]
    pub scaling_modifiers: Option<RawObject>,
}

/// Settings of the HorizontalPodAutoscaler that KEDA creates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KEDAAutoscalerConfig {
    /// The speed of scaling up and down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,

    /// Must be empty, because the controller sets the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 0))]
    pub name: Option<String>,
}
