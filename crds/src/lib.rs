//! The API types that Pointsman serves, one file per kind, and the CustomResourceDefinitions generated from them.

mod compare;
mod core;
pub mod eh_ops;
pub mod gie;
mod knative;
pub mod kserve;
pub mod ome;
pub mod policy;
mod schema;
mod yaml;

pub use crate::{
    compare::{Comparison, compare},
    core::{ContainerFields, PodFields, RawObject},
    knative::{Addressable, DuckCondition, TrafficTarget},
    yaml::{file_name, yaml},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, CustomResourceValidation};
use kube::{
    CustomResourceExt,
    core::ApiResource,
    core::object::{HasSpec, HasStatus},
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A kind that Pointsman serves.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Whether `pointsman crds` includes the kind only with `--all` or by name: no upstream project defines it.
    pub optional: bool,
    /// Generates the CustomResourceDefinition.
    pub crd: fn() -> CustomResourceDefinition,
    /// Returns the group, version and plural, without the cost of generating a schema.
    pub resource: fn() -> ApiResource,
    /// Deserializes an object into our type and serializes it again: the result has the fields that the type retains.
    pub read: fn(Value) -> serde_json::Result<Value>,
}

/// All kinds, in the order in which `pointsman crds` prints them.
pub const KINDS: &[Served] = &[
    // ome.io
    kind::<ome::inference_service::InferenceService>(),
    kind::<ome::serving_runtime::ServingRuntime>(),
    kind::<ome::serving_runtime::ClusterServingRuntime>(),
    kind::<ome::base_model::BaseModel>(),
    kind::<ome::base_model::ClusterBaseModel>(),
    kind::<ome::fine_tuned_weight::FineTunedWeight>(),
    kind::<ome::benchmark_job::BenchmarkJob>(),
    Served { optional: true, ..kind::<ome::training_job::TrainingJob>() },
    // serving.kserve.io
    kind::<kserve::llm_inference_service::LLMInferenceService>(),
    kind_without_status::<kserve::llm_inference_service_config::LLMInferenceServiceConfig>(),
    // inference.eh-ops.io
    kind::<eh_ops::inference_model::InferenceModel>(),
    // inference.networking.x-k8s.io
    kind::<gie::inference_objective::InferenceObjective>(),
    // policy.pointsman.dev
    kind::<policy::plugin::PolicyPlugin>(),
    kind::<policy::set::PolicySet>(),
    kind::<policy::rule::ValidationRule>(),
];

const fn kind<K>() -> Served
where
    K: CustomResourceExt + HasSpec + HasStatus + Serialize + DeserializeOwned,
    K::Spec: JsonSchema,
    K::Status: JsonSchema,
{
    Served { optional: false, crd: crd::<K, Whole<K::Spec, K::Status>>, resource: K::api_resource, read: read::<K> }
}

const fn kind_without_status<K>() -> Served
where
    K: CustomResourceExt + HasSpec + Serialize + DeserializeOwned,
    K::Spec: JsonSchema,
{
    Served { optional: false, crd: crd::<K, SpecOnly<K::Spec>>, resource: K::api_resource, read: read::<K> }
}

/// The parts of an object that a schema describes. The API server adds the others.
#[derive(JsonSchema)]
#[allow(dead_code)] // Only its schema is used.
struct Whole<Spec, Status> {
    spec: Spec,
    status: Option<Status>,
}

/// The same for a kind without a status.
#[derive(JsonSchema)]
#[allow(dead_code)] // Only its schema is used.
struct SpecOnly<Spec> {
    spec: Spec,
}

fn read<K: Serialize + DeserializeOwned>(object: Value) -> serde_json::Result<Value> {
    serde_json::to_value(serde_json::from_value::<K>(object)?)
}

/// kube's definition of `K` with our structural schema. The kinds set `schema = "disabled"`, because kube's own schema is slow to generate
/// and contains all descriptions, which exceed etcd's size limit.
fn crd<K: CustomResourceExt, Schema: JsonSchema>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    let mut schema = schema::structural_schema::<Schema>();
    // The description of the spec also describes the kind.
    schema["description"] = schema["properties"]["spec"]["description"].clone();
    let schema = serde_json::from_value(schema).ok();
    for version in &mut crd.spec.versions {
        version.schema = Some(CustomResourceValidation { open_api_v3_schema: schema.clone() });
    }
    crd.metadata.labels.get_or_insert_default().insert("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned());
    crd
}
