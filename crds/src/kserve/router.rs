//! How requests get to the pods of an LLMInferenceService.

use crate::{PodFields, RawObject};
use k8s_openapi::api::core::v1::{ConfigMapKeySelector, LocalObjectReference};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How requests get to the pods. An empty object of a part asks for the part with its defaults; an absent one does without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    /// The routes from a Gateway to the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<GatewayRoutesSpec>,

    /// The Gateways that the routes hang on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewaySpec>,

    /// Ingresses, for a cluster without Gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressSpec>,

    /// The scheduler, which picks a pod for each request (the endpoint picker).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerSpec>,
}

/// The routes from a Gateway to the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayRoutesSpec {
    /// The HTTPRoutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HTTPRouteSpec>,
}

/// HTTPRoutes of the user's, or the one that is made for the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteSpec {
    /// HTTPRoutes in the same namespace that the user made. None is made for the service then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<LocalObjectReference>,

    /// The spec of the HTTPRoute that is made for the service, as gateway.networking.k8s.io/v1 defines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "http_route_spec")]
    pub spec: Option<RawObject>,
}

/// Carried as it is, save that rules must see whether it names its Gateways.
fn http_route_spec(_: &mut SchemaGenerator) -> Schema {
    let object = || json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut schema = object();
    schema.insert(
        "properties".into(),
        serde_json::json!({
            "parentRefs": {
                "description": "The Gateways that the route hangs on.",
                "type": "array",
                "maxItems": 32,
                "items": object(),
            },
        }),
    );
    schema
}

/// The Gateways that a service's routes hang on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// Gateways that exist already. None means the cluster's default Gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub refs: Vec<UntypedObjectReference>,
}

/// The Ingresses of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressSpec {
    /// Ingresses that exist already. None means that one is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub refs: Vec<UntypedObjectReference>,
}

/// A reference whose kind follows from where it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UntypedObjectReference {
    /// The object's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,

    /// The object's namespace; the service's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
}

/// The scheduler of a service: a Deployment that picks a pod for each request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerSpec {
    /// The InferencePool whose pods it picks from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<InferencePoolSpec>,

    /// Labels for the scheduler's pods. They get no others from the service's spec.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the scheduler's pods. They get no others from the service's spec.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The scheduler's pod; the container that picks is called `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodFields>,

    /// What the scheduler weighs, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<SchedulerConfigSpec>,

    /// How many schedulers run; one is active, the others stand by.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,
}

/// An InferencePool of the user's, or the one that is made for the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferencePoolSpec {
    /// The spec of the InferencePool that is made for the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<RawObject>,

    /// An InferencePool in the same namespace that the user made. None is made for the service then.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<LocalObjectReference>,
}

/// The scheduler's configuration (an EndpointPickerConfig), given here or in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerConfigSpec {
    /// The configuration itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<RawObject>,

    /// A key of a ConfigMap in the same namespace that holds it.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<ConfigMapKeySelector>,
}
