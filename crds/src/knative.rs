//! Shapes that OME and KServe take over from Knative for their status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition as Knative writes it: less is required of it than of Kubernetes' own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DuckCondition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub type_: String,

    /// True, False or Unknown.
    pub status: String,

    /// How to read a condition that isn't True: empty means an error, Info and Warning mean less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,

    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,

    /// One CamelCase word for the reason of the last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// What happened, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The generation of the object that the condition speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Where something can be reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Addressable {
    /// The name of the address, such as the Gateway that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The certificates of the authority that signs the server's, in PEM.
    #[serde(rename = "CACerts", skip_serializing_if = "Option::is_none")]
    pub ca_certs: Option<String>,

    /// The audience that a token for this address needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

/// A share of the traffic and the revision that gets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficTarget {
    /// The name under which this target alone can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,

    /// The revision that gets the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_name: Option<String>,

    /// The configuration whose latest revision gets the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration_name: Option<String>,

    /// Whether the latest ready revision is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<bool>,

    /// The share of the traffic in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<i64>,

    /// The URL of this target alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
