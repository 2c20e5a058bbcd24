//! The routing of requests to the pods of an LLMInferenceService.

use crate::{PodFields, RawObject};
use k8s_openapi::api::core::v1::{ConfigMapKeySelector, LocalObjectReference};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The routing of requests to the pods. An empty object creates a part with its defaults; an absent part isn't created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouterSpec {
    /// The routes from a Gateway to the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<GatewayRoutesSpec>,

    /// The Gateways to which the routes are attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewaySpec>,

    /// Ingresses, for a cluster without Gateways. Not supported yet: a service with this field is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressSpec>,

    /// The scheduler (the endpoint picker), which chooses a pod for each request.
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

/// Your own HTTPRoutes, or the HTTPRoute that is created for the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteSpec {
    /// Your own HTTPRoutes, in the same namespace. If set, no HTTPRoute is created for the service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<LocalObjectReference>,

    /// The spec of the HTTPRoute that is created for the service, as defined by gateway.networking.k8s.io/v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "http_route_spec")]
    pub spec: Option<RawObject>,
}

/// Any object. Only `parentRefs` has a schema, because rules check whether the spec names its Gateways.
fn http_route_spec(_: &mut SchemaGenerator) -> Schema {
    let object = || json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut schema = object();
    schema.insert(
        "properties".into(),
        serde_json::json!({
            "parentRefs": {
                "description": "The Gateways to which the route is attached.",
                "type": "array",
                "maxItems": 32,
                "items": object(),
            },
        }),
    );
    schema
}

/// The Gateways to which a service's routes are attached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// Existing Gateways. If empty, the default Gateway of the cluster (the controller's flag --gateway).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub refs: Vec<UntypedObjectReference>,
}

/// The Ingresses of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressSpec {
    /// Existing Ingresses. If empty, one is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub refs: Vec<UntypedObjectReference>,
}

/// A reference to an object whose kind is determined by the field that contains the reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UntypedObjectReference {
    /// The object's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,

    /// The object's namespace; by default that of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
}

/// The scheduler of a service: a Deployment that chooses a pod for each request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerSpec {
    /// The InferencePool with the pods to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<InferencePoolSpec>,

    /// Labels for the scheduler's pods, which get no other labels from the service's spec.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations for the scheduler's pods, which get no other annotations from the service's spec.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The scheduler's pod. Its main container is named `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodFields>,

    /// The scheduler's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<SchedulerConfigSpec>,

    /// The number of replicas of the scheduler. All replicas of Pointsman's picker serve requests; of llm-d's picker, one is active and the
    /// others are on standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,
}

/// Your own InferencePool, or the one that is created for the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InferencePoolSpec {
    /// The spec of the InferencePool that is created for the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<RawObject>,

    /// Your own InferencePool, in the same namespace. If set, none is created for the service.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<LocalObjectReference>,
}

/// The scheduler's configuration (an EndpointPickerConfig), inline or in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerConfigSpec {
    /// The configuration itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<RawObject>,

    /// A key of a ConfigMap, in the same namespace, that contains the configuration.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<ConfigMapKeySelector>,
}
