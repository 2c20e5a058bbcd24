//! Status types that OME and KServe adopted from Knative.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition in Knative's form, which has fewer required fields than Kubernetes' own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DuckCondition {
    /// The type of the condition, such as Ready.
    #[serde(rename = "type")]
    pub type_: String,

    /// True, False or Unknown.
    pub status: String,

    /// The severity of a condition that isn't True. Empty means an error; Info and Warning are less severe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,

    /// The time when the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,

    /// The reason for the last change, as one CamelCase word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// The details, and the remedy if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The generation of the object that the condition describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// An address of a service or a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Addressable {
    /// The name of the address, such as gateway or service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The CA certificates that verify the server's certificate, in PEM format.
    #[serde(rename = "CACerts", skip_serializing_if = "Option::is_none")]
    pub ca_certs: Option<String>,

    /// The audience that a token for this address must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

/// A share of the traffic and the revision that gets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficTarget {
    /// The tag of this target, which is part of its own URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,

    /// The revision that gets the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,

    /// The configuration whose latest revision gets the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration_name: Option<String>,

    /// Whether the target is the latest ready revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<bool>,

    /// The percentage of the traffic that the target gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<i64>,

    /// The target's own URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
