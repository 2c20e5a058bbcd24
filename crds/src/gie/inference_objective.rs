//! InferenceObjective: the priority of requests to an inference pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An InferenceObjective sets the priority of the requests that name it, relative to other requests to the same pool.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "inference.networking.x-k8s.io",
    version = "v1alpha2",
    kind = "InferenceObjective",
    plural = "inferenceobjectives",
    shortname = "infobj",
    category = "pointsman",
    schema = "disabled",
    namespaced,
    status = "InferenceObjectiveStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "InferenceObjective sets the priority of the requests that name it, relative to other requests to the same pool.",
    printcolumn = r#"{"name":"Pool","type":"string","jsonPath":".spec.poolRef.name"}"#,
    printcolumn = r#"{"name":"Priority","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct InferenceObjectiveSpec {
    /// The priority of the requests; 0 by default. Requests with a higher priority are served first if requests have to wait, and those
    /// with a negative one may be shed. Fairness applies only between requests of the same priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,

    /// The pool whose requests the objective applies to, in the same namespace.
    pub pool_ref: PoolObjectReference,
}

/// A reference to an inference pool in the same namespace. The condition Accepted reports whether the pool exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolObjectReference {
    /// The API group of the pool: inference.networking.k8s.io, or inference.networking.x-k8s.io for a v1alpha2 pool.
    #[serde(default = "default_group")]
    #[schemars(length(max = 253), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"))]
    pub group: String,

    /// The kind of the pool: InferencePool.
    #[serde(default = "default_kind")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub kind: String,

    /// The name of the pool.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl Default for PoolObjectReference {
    fn default() -> Self {
        Self { group: default_group(), kind: default_kind(), name: String::new() }
    }
}

fn default_group() -> String {
    "inference.networking.k8s.io".to_owned()
}

fn default_kind() -> String {
    "InferencePool".to_owned()
}

/// The observed state of an InferenceObjective.
// The status has a default so that the conditions' default appears on an object that no controller has reconciled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = {}))]
pub struct InferenceObjectiveStatus {
    /// The state of the objective. Known types: Accepted, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]),
        extend("default" = [{
            "type": "Ready",
            "status": "Unknown",
            "reason": "Pending",
            "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }])
    )]
    pub conditions: Vec<Condition>,
}
