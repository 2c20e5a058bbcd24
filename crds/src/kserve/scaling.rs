//! How the number of replicas of an LLMInferenceService's workload follows its load.

use crate::{RawObject, schema::rules};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const COMPLETE: (&str, &str) =
    ("has(self.maxReplicas) && has(self.wva)", "scaling needs maxReplicas, its upper end, and wva, which says how it is scaled: set both");

const BOUNDS: (&str, &str) = (
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    "scaling.minReplicas must not exceed scaling.maxReplicas: lower minReplicas or raise maxReplicas",
);

const IDLE: (&str, &str) = (
    "!has(self.wva) || !has(self.wva.keda) || !has(self.wva.keda.idleReplicaCount) \
     || (has(self.minReplicas) && self.wva.keda.idleReplicaCount < self.minReplicas)",
    "idleReplicaCount needs a minReplicas above it: set scaling.minReplicas higher or lower wva.keda.idleReplicaCount",
);

const ONE_ACTUATOR: (&str, &str) = (
    "!has(self.wva) || has(self.wva.hpa) != has(self.wva.keda)",
    "scaling.wva needs exactly one of hpa and keda: keep the one that is to scale and remove the other",
);

const COST_IS_A_NUMBER: (&str, &str) = (
    "!has(self.wva) || !has(self.wva.variantCost) || self.wva.variantCost.matches('^[0-9]+([.][0-9]+)?$')",
    "scaling.wva.variantCost must be a decimal number in quotes, such as \"10.0\"",
);

/// Between how many replicas a workload is scaled, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules(&[COMPLETE, BOUNDS, IDLE, ONE_ACTUATOR, COST_IS_A_NUMBER])))]
pub struct ScalingSpec {
    /// The lower end; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_replicas: Option<i32>,

    /// The upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_replicas: Option<i32>,

    /// How the workload is scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wva: Option<WVASpec>,
}

/// A variant of the workload as the autoscaler weighs it, and who acts on the autoscaler's word.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WVASpec {
    /// What a replica costs compared with those of other variants of the model, as a decimal number; 10.0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub variant_cost: Option<String>,

    /// Scales by a HorizontalPodAutoscaler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpa: Option<HPAScalingSpec>,

    /// Scales by a KEDA ScaledObject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keda: Option<KEDAScalingSpec>,
}

/// What may be said of the HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HPAScalingSpec {
    /// How fast it scales up and down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
}

/// What may be said of the ScaledObject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KEDAScalingSpec {
    /// Every how many seconds the metric is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub polling_interval: Option<i32>,

    /// How many seconds after the last activity it goes down to `idleReplicaCount`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cooldown_period: Option<i32>,

    /// How many seconds after it was made the cooldown may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub initial_cooldown_period: Option<i32>,

    /// The number of replicas while nothing happens; below `minReplicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub idle_replica_count: Option<i32>,

    /// What holds when the metric can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<KEDAFallback>,

    /// The rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advanced: Option<KEDAAdvanced>,
}

/// What holds when KEDA can't read the metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KEDAFallback {
    /// After how many failures in a row.
    pub failure_threshold: i32,

    /// How many replicas there are then.
    pub replicas: i32,

    /// How `replicas` and the current number are weighed against each other; static when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<KEDAFallbackBehavior>,
}

/// How the fallback's number and the current number of replicas are weighed against each other.
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

/// KEDA's settings for special needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KEDAAdvanced {
    /// Settings of the HorizontalPodAutoscaler that KEDA makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizontal_pod_autoscaler_config: Option<KEDAAutoscalerConfig>,

    /// Whether the number of replicas from before is set again when the ScaledObject goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_to_original_replica_count: Option<bool>,

    /// Must stay empty, for wva brings the metric and its target. Go clients write it so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 0))]
    pub scaling_modifiers: Option<RawObject>,
}

/// Settings of the HorizontalPodAutoscaler that KEDA makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KEDAAutoscalerConfig {
    /// How fast it scales up and down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,

    /// Must stay empty, for the name is given by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 0))]
    pub name: Option<String>,
}
