//! The objects that a plugin or a rule applies to.

use crate::policy::EXPRESSION;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which objects are selected. Every part that is set must match; an empty selection matches every object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selection {
    /// The selected kinds; absent means every kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["group", "kind"]))]
    pub kinds: Vec<KindReference>,

    /// The labels of the selected namespaces. An object without a namespace matches no namespaceSelector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,

    /// The labels of the selected objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_selector: Option<LabelSelector>,
}

/// A kind in its API group, in every version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KindReference {
    /// The API group, such as ome.io; "" is the core group.
    #[schemars(length(max = 253), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"))]
    pub group: String,

    /// The kind, such as InferenceService; * is every kind of the group.
    #[schemars(length(max = 63), regex(pattern = r"^(\*|[A-Z][A-Za-z0-9]*)$"))]
    pub kind: String,
}

/// A CEL expression that must be true for something to apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchCondition {
    /// The name of the condition in messages.
    #[schemars(length(max = 63), regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"))]
    pub name: String,

    /// The expression, in CEL; it must return a bool.
    #[schemars(length(min = 1, max = EXPRESSION))]
    pub expression: String,
}
