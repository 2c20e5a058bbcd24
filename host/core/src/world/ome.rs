//! Models and runtimes of ome.io, read once when they change: all services share them.

use super::{live::LAST_APPLIED, scoped::Scoped};
pub use crate::fine_tuned_weights::WeightView;
use crate::{
    fine_tuned_weights::{BaseModelState, is_deprecated},
    live_object::LiveObject,
    model_nodes::live::LiveModel,
};
use pointsman_crds::ome::{
    base_model::BaseModelSpec,
    component::ComponentExtensionSpec,
    model::{LifeCycleState, ModelFormat, ModelFrameworkSpec, ModelStatusSpec, VersionOperator},
    serving_runtime::{ModelSizeRangeSpec, SupportedModelFormat},
};
use pointsman_sandbox::{
    digest::Digested,
    point::{
        Entry,
        selection::{Candidate, Comparison, Model, Supported, SupportedModel, Versioned},
    },
    sync::locked,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

/// A model.
#[derive(Clone, Debug)]
pub struct ModelView {
    /// As runtime-selection sees it.
    pub model: Digested<Model>,
    /// Its vendor.
    pub vendor: Option<String>,
    /// Where its files are on a node, if it says so.
    pub path: Option<String>,
    /// Where they come from.
    pub storage_uri: String,
    /// How many tokens it can work on at once, where somebody has set that. What was filled in from its files engines read there.
    pub max_tokens: Option<u32>,
    /// Whether it is deprecated, as its status says.
    pub is_deprecated: bool,
    /// How far it has come.
    pub state: Option<LifeCycleState>,
    /// The nodes on which fetching it failed.
    pub nodes_failed: Vec<String>,
    /// What is written about it by what nodes report.
    pub live: LiveModel,
}

/// A runtime.
#[derive(Clone, Debug)]
pub struct RuntimeView {
    /// As runtime-selection sees it.
    pub candidate: Candidate,
    /// What it says of the engine, in its engineConfig or at its top level, the form from before that.
    pub engine: Option<Component>,
    /// What it says of the decoder.
    pub decoder: Option<Component>,
    /// What it says of the router.
    pub router: Option<Component>,
    /// What is written about it.
    pub live: LiveObject,
}

impl RuntimeView {
    /// Whether services do the same with another state of it.
    pub fn serves_the_same(&self, other: &Self) -> bool {
        (&self.candidate, &self.engine, &self.decoder, &self.router) == (&other.candidate, &other.engine, &other.decoder, &other.router)
    }
}

/// A part of a service, as a runtime or the service itself describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Component {
    /// How it is deployed and scaled.
    pub settings: ComponentExtensionSpec,
    /// What its pods look like: the fields of a PodSpec, `runner` and `config`.
    pub part: PodLayer,
    /// What the leader's pods look like.
    pub leader: Option<PodLayer>,
    /// What the workers' pods look like.
    pub worker: Option<PodLayer>,
    /// How many workers follow a leader, where it is said.
    pub workers: Option<i64>,
}

/// What pods look like, as pod-templating sees it: `pod`, `runner` and `config`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodLayer(pub Map<String, Value>);

/// What a component has beside the fields of a PodSpec.
const SETTINGS: [&str; 14] = [
    "minReplicas",
    "maxReplicas",
    "scaleTarget",
    "scaleMetric",
    "containerConcurrency",
    "timeoutSeconds",
    "canaryTrafficPercent",
    "labels",
    "annotations",
    "deploymentStrategy",
    "kedaConfig",
    "leader",
    "worker",
    "size",
];

impl Component {
    /// Reads one.
    pub fn parse(value: &Value) -> serde_json::Result<Self> {
        let settings = ComponentExtensionSpec::deserialize(value)?;
        let part = |name: &str| value.get(name).filter(|part| !part.is_null());
        Ok(Self {
            settings,
            part: PodLayer::parse(value),
            leader: part("leader").map(PodLayer::parse),
            worker: part("worker").map(PodLayer::parse),
            workers: part("worker").and_then(|worker| worker.get("size")).and_then(Value::as_i64),
        })
    }
}

impl PodLayer {
    fn parse(value: &Value) -> Self {
        let mut part = Map::new();
        let mut pod = Map::new();
        for (name, value) in value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            match name.as_str() {
                "runner" | "config" => {
                    part.insert(name.clone(), value.clone());
                }
                name if SETTINGS.contains(&name) => {}
                // Go's clients write a required list even if it is empty.
                "containers" if value.as_array().is_some_and(Vec::is_empty) => {}
                _ => {
                    pod.insert(name.clone(), value.clone());
                }
            }
        }
        if !pod.is_empty() {
            part.insert("pod".to_owned(), Value::Object(pod));
        }
        Self(part)
    }
}

/// The models.
pub type Models = Scoped<ModelView>;

/// The model that a weight was made of. One without a namespace may be meant of any, if there is none of the whole cluster.
pub fn base_model<'m>(models: &'m Models, (namespace, name): &(String, String)) -> Option<BaseModelState<'m>> {
    let anywhere = || models.namespaced.values().find_map(|models| models.get(name));
    let found = models.get(namespace, name).or_else(|| if namespace.is_empty() { anywhere() } else { None })?;
    Some(BaseModelState { kind: &found.model.kind, is_disabled: found.model.disabled, state: found.state })
}

/// The runtimes, and what candidates they are.
#[derive(Debug, Default)]
pub struct Runtimes {
    /// All of them.
    pub all: Scoped<RuntimeView>,
    /// What a service of each namespace can choose from, made when it is first asked for.
    candidates: Mutex<HashMap<String, Digested<Vec<Candidate>>>>,
}

impl Clone for Runtimes {
    fn clone(&self) -> Self {
        let candidates = locked(&self.candidates).clone();
        Self { all: self.all.clone(), candidates: Mutex::new(candidates) }
    }
}

impl Runtimes {
    /// Sets or removes one, and says whether that changes what can be chosen from.
    pub(super) fn set(&mut self, namespace: &str, name: &str, runtime: Option<RuntimeView>, candidate: bool) {
        self.all.set(namespace, name, runtime);
        if candidate {
            self.candidates.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// What a service of the namespace can choose from, by kind, namespace and name.
    pub fn candidates(&self, namespace: &str) -> Digested<Vec<Candidate>> {
        // Those of all namespaces without runtimes of their own are the same.
        let own = self.all.namespaced.get(namespace).filter(|own| !own.is_empty());
        let scope = own.map_or("", |_| namespace).to_owned();
        let mut made = locked(&self.candidates);
        let make = || {
            let all = self.all.cluster.values().chain(own.into_iter().flat_map(BTreeMap::values));
            let all: Vec<Candidate> = all.map(|runtime| runtime.candidate.clone()).collect();
            // Plain data always has JSON.
            Digested::new(all).unwrap_or_default()
        };
        made.entry(scope).or_insert_with(make).clone()
    }
}

fn entries(object: &Value, map: &str) -> Vec<Entry> {
    let map = object.pointer(&format!("/metadata/{map}")).and_then(Value::as_object);
    // What kubectl has applied last is the object once more.
    let entries = map.into_iter().flatten().filter(|(key, _)| *key != LAST_APPLIED);
    let mut entries: Vec<Entry> =
        entries.map(|(key, value)| Entry { key: key.clone(), value: value.as_str().unwrap_or_default().to_owned() }).collect();
    entries.sort();
    entries
}

fn names(object: &Value) -> (String, String, String) {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

fn versioned(name: String, version: Option<String>) -> Versioned {
    Versioned { name, version: version.filter(|version| !version.is_empty()) }
}

fn text(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Reads a BaseModel or a ClusterBaseModel.
pub fn model(object: &Value) -> serde_json::Result<ModelView> {
    let (kind, namespace, name) = names(object);
    let spec = BaseModelSpec::deserialize(&object["spec"])?;
    let status = object.get("status").map_or_else(|| Ok(ModelStatusSpec::default()), ModelStatusSpec::deserialize)?;
    let model = Model {
        kind,
        namespace,
        name,
        labels: entries(object, "labels"),
        annotations: entries(object, "annotations"),
        disabled: spec.extension.disabled.unwrap_or_default(),
        format: spec.model_format.map(|format| versioned(format.name, format.version)),
        framework: spec.model_framework.map(|framework| versioned(framework.name, framework.version)),
        model_type: text(spec.model_type),
        architecture: text(spec.model_architecture),
        quantization: text(spec.quantization),
        parameter_size: text(spec.model_parameter_size),
        capabilities: spec.model_capabilities,
        ..Model::default()
    };
    let live = LiveModel::from_object(object)?;
    let max_tokens = spec.max_tokens.filter(|_| !live.filled_in.contains_key("maxTokens"));
    Ok(ModelView {
        model: Digested::new(model)?,
        vendor: text(spec.extension.vendor),
        path: text(spec.storage.path),
        storage_uri: spec.storage.storage_uri,
        max_tokens: max_tokens.and_then(|tokens| u32::try_from(tokens).ok()).filter(|tokens| *tokens > 0),
        is_deprecated: is_deprecated(&status),
        state: status.state,
        nodes_failed: status.nodes_failed,
        live,
    })
}

/// Reads a ServingRuntime or a ClusterServingRuntime.
pub fn runtime(object: &Value) -> serde_json::Result<RuntimeView> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec {
        supported_model_formats: Vec<SupportedModelFormat>,
        model_size_range: Option<ModelSizeRangeSpec>,
        disabled: Option<bool>,
        protocol_versions: Vec<String>,
    }
    let (kind, namespace, name) = names(object);
    let spec = &object["spec"];
    let Spec { supported_model_formats, model_size_range, disabled, protocol_versions } = Spec::deserialize(spec)?;
    let ModelSizeRangeSpec { min, max } = model_size_range.unwrap_or_default();
    let component = |name: &str| spec.get(name).filter(|config| !config.is_null()).map(Component::parse).transpose();
    let engine = component("engineConfig")?;
    Ok(RuntimeView {
        engine: if engine.is_some() { engine } else { top_level(spec)? },
        decoder: component("decoderConfig")?,
        router: component("routerConfig")?,
        live: LiveObject::from_object(object),
        candidate: Candidate {
            kind,
            namespace,
            name,
            labels: entries(object, "labels"),
            annotations: entries(object, "annotations"),
            disabled: disabled.unwrap_or_default(),
            models: supported_model_formats.into_iter().map(supported).collect(),
            smallest: text(min),
            largest: text(max),
            protocols: protocol_versions,
            ..Candidate::default()
        },
    })
}

/// The fields of a runtime's spec that are a pod's, in the form from before engineConfig.
const TOP_LEVEL: [&str; 12] = [
    "containers",
    "volumes",
    "nodeSelector",
    "affinity",
    "tolerations",
    "labels",
    "annotations",
    "imagePullSecrets",
    "schedulerName",
    "hostIPC",
    "dnsPolicy",
    "hostNetwork",
];

/// The engine of a runtime without engineConfig. Its workers' pods are others than its own, and share nothing with them.
fn top_level(spec: &Value) -> serde_json::Result<Option<Component>> {
    let Some(containers) = spec.get("containers").and_then(Value::as_array) else { return Ok(None) };
    if containers.is_empty() {
        return Ok(None);
    }
    let own = TOP_LEVEL.into_iter().filter_map(|field| Some((field.to_owned(), spec.get(field)?.clone())));
    let mut engine = Component::parse(&Value::Object(own.collect()))?;
    if let Some(workers) = spec.get("workers").filter(|workers| !workers.is_null()) {
        engine.leader = Some(std::mem::take(&mut engine.part));
        engine.worker = Some(PodLayer::parse(workers));
        engine.workers = workers.get("size").and_then(Value::as_i64);
    }
    Ok(Some(engine))
}

fn supported(entry: SupportedModelFormat) -> SupportedModel {
    let one = |name: String, version: Option<String>, operator: Option<VersionOperator>, weight| Supported {
        name,
        version: text(version),
        comparison: match operator.unwrap_or_default() {
            VersionOperator::Equal => Comparison::Equal,
            VersionOperator::GreaterThan => Comparison::GreaterThan,
            VersionOperator::GreaterThanOrEqual => Comparison::GreaterThanOrEqual,
        },
        weight,
    };
    SupportedModel {
        format: entry.model_format.map(|ModelFormat { name, version, operator, weight }| one(name, version, operator, weight)),
        framework: entry.model_framework.map(|ModelFrameworkSpec { name, version, operator, weight }| one(name, version, operator, weight)),
        architecture: text(entry.model_architecture),
        quantization: text(entry.quantization),
        auto_select: entry.auto_select,
        priority: entry.priority,
        ..SupportedModel::default()
    }
}
