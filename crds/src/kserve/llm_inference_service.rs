//! LLMInferenceService: a served language model.

use crate::{
    Addressable, DuckCondition,
    kserve::spec::{LLMServingFields, MODEL_URI, ONE_WAY_TO_SCALE},
    schema::rules,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MODEL_KNOWN: (&str, &str) = (
    "(has(self.model) && has(self.model.uri) && self.model.uri != '') || (has(self.baseRefs) && size(self.baseRefs) > 0)",
    "model.uri is missing: set it, or list an LLMInferenceServiceConfig with a model.uri in baseRefs",
);

const WORKER_NEEDS_GROUP: (&str, &str) = (
    "(has(self.baseRefs) && size(self.baseRefs) > 0) || !has(self.worker) || (has(self.parallelism) && (has(self.parallelism.pipeline) || has(self.parallelism.data)))",
    "worker requires the size of its group: set parallelism.pipeline, or parallelism.data and dataLocal",
);

const PREFILL_WORKER_NEEDS_GROUP: (&str, &str) = (
    "(has(self.baseRefs) && size(self.baseRefs) > 0) || !has(self.prefill) || !has(self.prefill.worker) || (has(self.prefill.parallelism) \
     && (has(self.prefill.parallelism.pipeline) || has(self.prefill.parallelism.data)))",
    "prefill.worker requires the size of its group: set prefill.parallelism.pipeline, or prefill.parallelism.data and dataLocal",
);

const DATA_IS_A_PAIR: (&str, &str) = (
    "(has(self.baseRefs) && size(self.baseRefs) > 0) || !has(self.parallelism) || has(self.parallelism.data) == has(self.parallelism.dataLocal)",
    "parallelism.data and parallelism.dataLocal go together: set both or neither",
);

const PREFILL_DATA_IS_A_PAIR: (&str, &str) = (
    "(has(self.baseRefs) && size(self.baseRefs) > 0) || !has(self.prefill) || !has(self.prefill.parallelism) \
     || has(self.prefill.parallelism.data) == has(self.prefill.parallelism.dataLocal)",
    "prefill.parallelism.data and prefill.parallelism.dataLocal go together: set both or neither",
);

const ONE_GROUPING: (&str, &str) = (
    "!has(self.parallelism) || !has(self.parallelism.pipeline) || !has(self.parallelism.data)",
    "parallelism.pipeline and parallelism.data both set the size of the group: remove one of them",
);

const PREFILL_ONE_GROUPING: (&str, &str) = (
    "!has(self.prefill) || !has(self.prefill.parallelism) || !has(self.prefill.parallelism.pipeline) \
     || !has(self.prefill.parallelism.data)",
    "prefill.parallelism.pipeline and prefill.parallelism.data both set the size of the group: remove one of them",
);

const ONE_ROUTE: (&str, &str) = (
    "!has(self.router) || !has(self.router.route) || !has(self.router.route.http) || !has(self.router.route.http.spec) \
     || !has(self.router.route.http.refs) || size(self.router.route.http.refs) == 0",
    "router.route.http accepts either refs to your own HTTPRoutes or the spec of an HTTPRoute to create: remove one of them",
);

const OWN_ROUTES_NEED_OWN_GATEWAY: (&str, &str) = (
    "!has(self.router) || !has(self.router.gateway) || !has(self.router.route) || !has(self.router.route.http) \
     || !has(self.router.route.http.refs) || size(self.router.route.http.refs) == 0 \
     || (has(self.router.gateway.refs) && size(self.router.gateway.refs) > 0)",
    "your own HTTPRoutes (router.route.http.refs) can't use the default Gateway: set router.gateway.refs or remove router.gateway",
);

const ONE_WORD_ON_GATEWAYS: (&str, &str) = (
    "!has(self.router) || !has(self.router.gateway) || !has(self.router.gateway.refs) || size(self.router.gateway.refs) == 0 \
     || !has(self.router.route) || !has(self.router.route.http) || !has(self.router.route.http.spec) \
     || !has(self.router.route.http.spec.parentRefs) || size(self.router.route.http.spec.parentRefs) == 0",
    "router.gateway.refs and router.route.http.spec.parentRefs both name the Gateways: remove one of them",
);

const ONE_SCHEDULER_CONFIG: (&str, &str) = (
    "!has(self.router) || !has(self.router.scheduler) || !has(self.router.scheduler.config) \
     || has(self.router.scheduler.config.inline) != has(self.router.scheduler.config.ref)",
    "router.scheduler.config requires exactly one of inline and ref: set only one of them",
);

const NAMED_SCHEDULER_CONFIG: (&str, &str) = (
    "!has(self.router) || !has(self.router.scheduler) || !has(self.router.scheduler.config) \
     || !has(self.router.scheduler.config.ref) \
     || (has(self.router.scheduler.config.ref.name) && self.router.scheduler.config.ref.name != '')",
    "router.scheduler.config.ref requires the name of a ConfigMap: set its name",
);

/// An LLMInferenceService serves a language model: on one node or several, with prefill and decode together or in separate workloads.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "serving.kserve.io",
    version = "v1alpha1",
    kind = "LLMInferenceService",
    plural = "llminferenceservices",
    shortname = "llmisvc",
    category = "pointsman",
    schema = "disabled",
    namespaced,
    status = "LLMInferenceServiceStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "LLMInferenceService serves a language model: on one node or several, with prefill and decode together or in separate workloads.",
    printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.url"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"URLs","type":"string","jsonPath":".status.addresses[*].url","priority":1}"#
)]
#[schemars(extend("x-kubernetes-validations" = rules(&[
    MODEL_KNOWN,
    MODEL_URI,
    ONE_WAY_TO_SCALE,
    WORKER_NEEDS_GROUP,
    PREFILL_WORKER_NEEDS_GROUP,
    DATA_IS_A_PAIR,
    PREFILL_DATA_IS_A_PAIR,
    ONE_GROUPING,
    PREFILL_ONE_GROUPING,
    ONE_ROUTE,
    OWN_ROUTES_NEED_OWN_GATEWAY,
    ONE_WORD_ON_GATEWAYS,
    ONE_SCHEDULER_CONFIG,
    NAMED_SCHEDULER_CONFIG,
])))]
pub struct LLMInferenceServiceSpec {
    /// The fields that LLMInferenceServiceConfigs can also set.
    #[serde(flatten)]
    pub serving: LLMServingFields,
}

/// The observed state of an LLMInferenceService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LLMInferenceServiceStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The state of the service. Known types: Ready, Valid, PresetsCombined, Decided, Allowed, Contested, Applied, WorkloadsReady,
    /// MainWorkloadReady, WorkerWorkloadReady, PrefillWorkloadReady, PrefillWorkerWorkloadReady, RouterReady, GatewaysReady,
    /// HTTPRoutesReady, InferencePoolReady and SchedulerWorkloadReady.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<DuckCondition>,

    /// Additional information about the service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// The URL of the service: that of the first of `addresses`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The address for clients inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Addressable>,

    /// All addresses of the service, external HTTPS first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Addressable>,
}
