//! Models and runtimes of ome.io, parsed once per change and shared by all services.

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
    /// The model for runtime-selection.
    pub model: Digested<Model>,
    /// Its vendor.
    pub vendor: Option<String>,
    /// The path of its files on a node, if specified.
    pub path: Option<String>,
    /// The source of its files.
    pub storage_uri: String,
    /// The maximum number of tokens, if a user has set it. A number that was filled in from its files is omitted: engines read it there.
    pub max_tokens: Option<u32>,
    /// Whether its status marks it as deprecated.
    pub is_deprecated: bool,
    /// Its lifecycle state.
    pub state: Option<LifeCycleState>,
    /// The nodes on which its download has failed.
    pub nodes_failed: Vec<String>,
    /// Its live state, for writing its status from the nodes' reports.
    pub live: LiveModel,
}

/// The folder of the models that specify no path, unless the built-in policy at pod-templating is configured with another `modelRoot`.
const MODEL_ROOT: &str = "/mnt/models";

impl ModelView {
    /// The path of its files on a node and in pods.
    pub fn files_path(&self) -> String {
        self.path.clone().filter(|path| !path.is_empty()).unwrap_or_else(|| format!("{MODEL_ROOT}/{}", self.model.name))
    }
}

/// A runtime.
#[derive(Clone, Debug)]
pub struct RuntimeView {
    /// The runtime for runtime-selection.
    pub candidate: Candidate,
    /// Its engine, from its engineConfig or the older top-level fields.
    pub engine: Option<Component>,
    /// Its decoder.
    pub decoder: Option<Component>,
    /// Its router.
    pub router: Option<Component>,
    /// Its live state, for writing its status.
    pub live: LiveObject,
}

impl RuntimeView {
    /// Whether this state makes no difference to services.
    pub fn serves_the_same(&self, other: &Self) -> bool {
        (&self.candidate, &self.engine, &self.decoder, &self.router) == (&other.candidate, &other.engine, &other.decoder, &other.router)
    }
}

/// A component of a service, in a runtime or in the service itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Component {
    /// Its deployment and scaling.
    pub settings: ComponentExtensionSpec,
    /// Its pods: the fields of a PodSpec, `runner` and `config`.
    pub part: PodLayer,
    /// The leader's pods.
    pub leader: Option<PodLayer>,
    /// The workers' pods.
    pub worker: Option<PodLayer>,
    /// The number of workers per leader, if specified.
    pub workers: Option<i64>,
}

/// A layer for pod-templating: `pod`, `runner` and `config`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodLayer(pub Map<String, Value>);

/// The fields of a component that aren't those of a PodSpec.
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
    /// Parses a component.
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
                // Go clients write a required list even if it is empty.
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

/// The base model of a weight. A reference without a namespace may mean any namespace, if there is no cluster-scoped model.
pub fn base_model<'m>(models: &'m Models, (namespace, name): &(String, String)) -> Option<BaseModelState<'m>> {
    let anywhere = || models.namespaced.values().find_map(|models| models.get(name));
    let found = models.get(namespace, name).or_else(|| if namespace.is_empty() { anywhere() } else { None })?;
    Some(BaseModelState { kind: &found.model.kind, is_disabled: found.model.disabled, state: found.state })
}

/// The runtimes, and the candidates among them.
#[derive(Debug, Default)]
pub struct Runtimes {
    /// All runtimes.
    pub all: Scoped<RuntimeView>,
    /// The candidates for services of each namespace, built on first use.
    candidates: Mutex<HashMap<String, Digested<Vec<Candidate>>>>,
}

impl Clone for Runtimes {
    fn clone(&self) -> Self {
        let candidates = locked(&self.candidates).clone();
        Self { all: self.all.clone(), candidates: Mutex::new(candidates) }
    }
}

impl Runtimes {
    /// Sets or removes a runtime. `candidate` is whether that changes the candidates.
    pub(super) fn set(&mut self, namespace: &str, name: &str, runtime: Option<RuntimeView>, candidate: bool) {
        self.all.set(namespace, name, runtime);
        if candidate {
            self.candidates.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// The candidates for services of the namespace, by kind, namespace and name.
    pub fn candidates(&self, namespace: &str) -> Digested<Vec<Candidate>> {
        // All namespaces without runtimes of their own have the same candidates.
        let own = self.all.namespaced.get(namespace).filter(|own| !own.is_empty());
        let scope = own.map_or("", |_| namespace).to_owned();
        let mut made = locked(&self.candidates);
        let make = || {
            let all = self.all.cluster.values().chain(own.into_iter().flat_map(BTreeMap::values));
            let all: Vec<Candidate> = all.map(|runtime| runtime.candidate.clone()).collect();
            // Plain data can always be serialized.
            Digested::new(all).unwrap_or_default()
        };
        made.entry(scope).or_insert_with(make).clone()
    }
}

fn entries(object: &Value, map: &str) -> Vec<Entry> {
    let map = object.pointer(&format!("/metadata/{map}")).and_then(Value::as_object);
    // kubectl's annotation contains the whole object again.
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

/// Parses a BaseModel or a ClusterBaseModel.
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

/// Parses a ServingRuntime or a ClusterServingRuntime.
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

/// The pod fields of a runtime's spec in the form without engineConfig.
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

/// The engine of a runtime without engineConfig. The pods of its workers share nothing with its own.
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
