//! InferenceService: a served model.

use super::{
    component::{DecoderSpec, EngineSpec, KedaConfig, RouterSpec},
    predictor::PredictorSpec,
    service_status::InferenceServiceStatus,
};
use kube::CustomResource;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Typed Go clients always write a `predictor`, even if it is empty: an empty one counts as absent. A router is allowed with both forms,
/// because upstream's own samples combine it with a predictor.
fn service_rules() -> Value {
    let schema = schema_for!(PredictorSpec);
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(|properties| properties.keys());
    // For the same reason, an empty list counts as absent.
    let said = |field: &String| match field.as_str() {
        "containers" => "has(self.predictor.containers) && size(self.predictor.containers) > 0".to_owned(),
        field => format!("has(self.predictor.{field})"),
    };
    let anything = fields.map(said).collect::<Vec<_>>().join(" || ");
    let rule = format!(
        "!has(self.predictor) || !(has(self.engine) || has(self.decoder) || has(self.model) || has(self.runtime)) || !({anything})"
    );
    let message = "predictor is deprecated and excludes engine, decoder, model and runtime: \
                   move its fields to model, runtime and engine, and remove it";
    crate::schema::rules(&[(&rule, message)])
}

/// An InferenceService serves a model. If a runtime supports the model, `model` is the only field you need.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = service_rules()))]
#[kube(
    group = "ome.io",
    version = "v1beta1",
    kind = "InferenceService",
    plural = "inferenceservices",
    shortname = "isvc",
    category = "pointsman",
    category = "all",
    schema = "disabled",
    namespaced,
    status = "InferenceServiceStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "InferenceService serves a model: it specifies the model, the runtime, the components and their replicas.",
    printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.url"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"BaseModel","type":"string","jsonPath":".spec.model.name"}"#,
    printcolumn = r#"{"name":"Runtime","type":"string","jsonPath":".status.runtime.name"}"#,
    printcolumn = r#"{"name":"Prev","type":"integer","jsonPath":".status.components.engine.traffic[?(@.tag==\"prev\")].percent","priority":1}"#,
    printcolumn = r#"{"name":"Latest","type":"integer","jsonPath":".status.components.engine.traffic[?(@.latestRevision==true)].percent","priority":1}"#,
    printcolumn = r#"{"name":"LatestReadyRevision","type":"string","jsonPath":".status.components.engine.latestReadyRevision","priority":1}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct InferenceServiceSpec {
    /// Deprecated: use model, runtime and engine instead. An empty predictor counts as absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predictor: Option<PredictorSpec>,

    /// The engine. Unset fields come from the runtime's engineConfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineSpec>,

    /// The decoder. Unset fields come from the runtime's decoderConfig. If either exists, the engine processes prompts and the decoder
    /// generates tokens, in separate workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder: Option<DecoderSpec>,

    /// The model to serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,

    /// The runtime that serves the model. If absent, the best runtime is chosen that supports the model's format, framework, architecture,
    /// quantization and size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<ServingRuntimeRef>,

    /// The router. Without it and without the runtime's routerConfig, there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterSpec>,

    /// Settings for scaling the engine and the decoder with KEDA. Fields of a component's own kedaConfig take precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keda_config: Option<KedaConfig>,
}

/// The model that a service serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelRef {
    /// The model's name.
    pub name: String,

    /// The model's kind: BaseModel for one of the service's namespace, or ClusterBaseModel. If there is no ClusterBaseModel with this name,
    /// the BaseModel of the service's namespace is used.
    #[serde(default = "default_model_kind")]
    pub kind: String,

    /// The model's API group.
    #[serde(default = "default_api_group")]
    pub api_group: String,

    /// The names of up to 16 FineTunedWeights to serve with the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub fine_tuned_weights: Vec<String>,
}

/// The runtime that a service names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingRuntimeRef {
    /// The runtime's name.
    pub name: String,

    /// The runtime's kind: ServingRuntime for one of the service's namespace, or ClusterServingRuntime. If there is no
    /// ClusterServingRuntime with this name, the ServingRuntime of the service's namespace is used.
    #[serde(default = "default_runtime_kind")]
    pub kind: String,

    /// The runtime's API group.
    #[serde(default = "default_api_group")]
    pub api_group: String,
}

fn default_model_kind() -> String {
    "ClusterBaseModel".to_owned()
}

fn default_runtime_kind() -> String {
    "ClusterServingRuntime".to_owned()
}

fn default_api_group() -> String {
    "ome.io".to_owned()
}
