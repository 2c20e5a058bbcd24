//! The known facts about a measured service: the name of its model, its tokenizer, and its engine.

use super::{PlanBuilder, endpoint::is_repository};
use crate::{
    resource::{
        BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, FINE_TUNED_WEIGHT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE,
        SERVING_RUNTIME,
    },
    rules::ome_keys::STORAGE_URI,
    world::{
        ObjectKey, Read,
        ome::{Component, ModelView, RuntimeView},
    },
};
use serde_json::Value;
use std::{fmt, sync::Arc};

/// The known facts about a service.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Served {
    /// The name of its model in requests.
    pub(super) model_name: Option<String>,
    pub(super) tokenizer: Option<Tokenizer>,
    /// The engine, in genai-bench's terms.
    pub(super) engine: Option<&'static str>,
    /// The engine's version.
    pub(super) version: Option<String>,
    /// The GPUs of one replica.
    pub(super) gpus: Option<i64>,
    /// The model of a service of ome.io.
    pub(super) model: Option<ObjectKey>,
}

/// The tokenizer of a service.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tokenizer {
    /// The model's files, on nodes or on a claim, mounted at this path.
    Mounted(String),
    /// A Hugging Face repository.
    Repository(String),
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted(text) | Self::Repository(text) => f.write_str(text),
        }
    }
}

/// The flags of engines for the name of the model, and for its files.
const NAME_FLAG: &str = "--served-model-name";
const MODEL_FLAGS: [&str; 2] = ["--model", "--model-path"];

/// Words in an image or a command line that identify the engine.
const ENGINES: [(&str, &str); 3] = [("sglang", "SGLang"), ("vllm", "vLLM"), ("text-generation-inference", "TGI")];

/// The suffix of GPU resources.
const GPU_SUFFIX: &str = "/gpu";

impl PlanBuilder<'_> {
    /// The known facts about a service of the cluster.
    pub(super) fn served(&mut self, key: &ObjectKey, content: &Value, status: &Value) -> Served {
        let spec = &content["spec"];
        if *key.resource == LLM_INFERENCE_SERVICE {
            return of_llm(key, spec);
        }
        if *key.resource != INFERENCE_SERVICE {
            let name = spec["modelName"].as_str().map(str::to_owned);
            let tokenizer = name.clone().filter(|name| is_repository(name)).map(Tokenizer::Repository);
            let line = CommandLine::from_runner(&spec["containerImage"], &Value::Null);
            return Served { model_name: name, tokenizer, engine: line.engine(), version: line.version(), ..Served::default() };
        }
        let model = self.model(key, spec);
        let runtime = self.runtime(key, status);
        let line = of_engine(spec, runtime.as_deref());
        let annotation = |metadata: &'_ Value| metadata["annotations"][STORAGE_URI.key].as_str().map(str::to_owned);
        let uri = annotation(&content["metadata"]).or_else(|| annotation(&spec["engine"]));
        let uri = uri.or_else(|| spec["predictor"]["storageUri"].as_str().map(str::to_owned));
        // The pods download a merged model themselves, so the base model needn't be on a node.
        let is_elsewhere = uri.is_some() || self.names_merged_weight(spec);
        let path = model.as_ref().map(|(_, view)| view.files_path());
        let model_name = match line.flag(&[NAME_FLAG]) {
            Some(name) => filled(name, path.as_deref(), &key.name),
            // Without this flag, engines use the value of the flag for the files as the name.
            None => line.flag(&MODEL_FLAGS).and_then(|given| filled(given, path.as_deref(), &key.name)).or_else(|| path.clone()),
        };
        let mountable = model.as_ref().filter(|(_, view)| !is_elsewhere && self.is_mountable(key, view));
        let source = uri.as_deref().or_else(|| model.as_ref().map(|(_, view)| view.storage_uri.as_str()));
        let tokenizer = match (mountable, path) {
            (Some(_), Some(path)) => Some(Tokenizer::Mounted(path)),
            _ => source.and_then(repository).map(Tokenizer::Repository),
        };
        Served {
            model_name,
            tokenizer,
            engine: line.engine(),
            version: line.version(),
            gpus: line.gpus(),
            model: model.map(|(key, _)| key),
        }
    }

    /// The model of the service, found in the same way as for the service itself.
    fn model(&mut self, service: &ObjectKey, spec: &Value) -> Option<(ObjectKey, Arc<ModelView>)> {
        let name = spec["model"]["name"].as_str().or_else(|| spec["predictor"]["model"]["baseModel"].as_str())?.to_owned();
        let own = ObjectKey { resource: &BASE_MODEL, namespace: service.namespace.clone(), name: name.clone() };
        let of_all = ObjectKey { resource: &CLUSTER_BASE_MODEL, namespace: String::new(), name };
        let places = if spec["model"]["kind"] == "BaseModel" { vec![own] } else { vec![of_all, own] };
        self.asking.reads.extend(places.iter().cloned().map(Read::Object));
        places.into_iter().find_map(|place| {
            let view = self.asking.snapshot.models.get(&place.namespace, &place.name)?;
            Some((place, Arc::clone(view)))
        })
    }

    /// The runtime in the service's status.
    fn runtime(&mut self, service: &ObjectKey, status: &Value) -> Option<Arc<RuntimeView>> {
        let runtime = &status["runtime"];
        let name = runtime["name"].as_str()?.to_owned();
        let is_own = runtime["kind"] == "ServingRuntime";
        let (resource, namespace) =
            if is_own { (&SERVING_RUNTIME, service.namespace.clone()) } else { (&CLUSTER_SERVING_RUNTIME, String::new()) };
        let key = ObjectKey { resource, namespace, name };
        let found = self.asking.snapshot.runtimes.all.get(&key.namespace, &key.name).cloned();
        self.asking.reads.insert(Read::Object(key));
        found
    }

    /// Whether the service serves a merged model instead of its base model.
    fn names_merged_weight(&mut self, spec: &Value) -> bool {
        let lists = [&spec["model"]["fineTunedWeights"], &spec["predictor"]["model"]["fineTunedWeights"]];
        let names = lists.into_iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        let keys = names.map(|name| ObjectKey { resource: &FINE_TUNED_WEIGHT, namespace: String::new(), name: name.to_owned() });
        let keys: Vec<ObjectKey> = keys.collect();
        let is_merged = keys.iter().any(|key| self.asking.snapshot.weights.get("", &key.name).is_some_and(|weight| weight.is_merged));
        self.asking.reads.extend(keys.into_iter().map(Read::Object));
        is_merged
    }

    /// Whether a pod of the benchmark can mount the model: from nodes, or from a claim in its own namespace.
    fn is_mountable(&self, service: &ObjectKey, view: &ModelView) -> bool {
        let Some(claim) = view.storage_uri.strip_prefix("pvc://") else { return true };
        let claim = claim.split('/').next().unwrap_or_default();
        let namespace = claim.split_once(':').map_or(service.namespace.as_str(), |(namespace, _)| namespace);
        namespace == self.benchmark.namespace
    }
}

/// The facts from the spec of an `LLMInferenceService`: a model without a name has the name of the service.
fn of_llm(key: &ObjectKey, spec: &Value) -> Served {
    let model = &spec["model"];
    // A base configuration may specify the name of the model; base configurations aren't read here.
    let is_whole = spec["baseRefs"].as_array().is_none_or(Vec::is_empty);
    let own = model["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let name = own.or_else(|| is_whole.then(|| key.name.clone()));
    let tokenizer = model["uri"].as_str().and_then(repository).map(Tokenizer::Repository);
    let main = spec["template"]["containers"].as_array().into_iter().flatten().find(|container| container["name"] == "main");
    let line = CommandLine::from_runner(main.map_or(&Value::Null, |main| &main["image"]), main.unwrap_or(&Value::Null));
    let given = line.flag(&[NAME_FLAG]).and_then(|name| filled(name, None, &key.name));
    Served {
        model_name: given.or(name),
        tokenizer,
        // The presets run vLLM.
        engine: line.engine().or(Some("vLLM")),
        version: line.version(),
        ..Served::default()
    }
}

/// The repository of a URI, without its revision, which tokenizers don't accept.
fn repository(uri: &str) -> Option<String> {
    let repository = uri.strip_prefix("hf://")?;
    let name = repository.split_once('@').map_or(repository, |(name, _)| name).trim_end_matches('/');
    is_repository(name).then(|| name.to_owned())
}

/// The image and arguments of an engine.
#[derive(Debug, Default)]
struct CommandLine {
    image: String,
    words: Vec<String>,
    gpus: Option<i64>,
}

/// The engine of a service: its own spec takes precedence over its runtime.
fn of_engine(spec: &Value, runtime: Option<&RuntimeView>) -> CommandLine {
    let own = spec.get("engine").filter(|engine| !engine.is_null()).and_then(|engine| Component::parse(engine).ok());
    let sides = [own.as_ref(), runtime.and_then(|runtime| runtime.engine.as_ref())];
    let lines = sides.into_iter().flatten().map(of_component);
    lines.fold(CommandLine::default(), |strong, weak| CommandLine {
        image: if strong.image.is_empty() { weak.image } else { strong.image },
        words: if strong.words.is_empty() { weak.words } else { strong.words },
        gpus: strong.gpus.or(weak.gpus),
    })
}

/// The main container of a component's pods, or of their leader.
fn of_component(component: &Component) -> CommandLine {
    let parts = [component.leader.as_ref(), Some(&component.part)].into_iter().flatten();
    let containers = parts.flat_map(|part| {
        let of_pod = part.0.get("pod").and_then(|pod| pod["containers"].as_array()).into_iter().flatten();
        part.0.get("runner").into_iter().chain(of_pod.take(1))
    });
    containers.map(|container| CommandLine::from_runner(&container["image"], container)).next().unwrap_or_default()
}

impl CommandLine {
    fn from_runner(image: &Value, container: &Value) -> Self {
        let lists = ["command", "args"].into_iter().filter_map(|field| container[field].as_array());
        let words = lists.flatten().filter_map(Value::as_str);
        // A script is a single argument, so it is split into words.
        let words = words.flat_map(str::split_whitespace).map(|word| word.trim_matches(['"', '\'']).to_owned()).collect();
        let limits = container["resources"]["limits"].as_object().into_iter().flatten();
        let gpu = limits.into_iter().find(|(name, _)| name.ends_with(GPU_SUFFIX));
        let gpus = gpu.and_then(|(_, amount)| amount.as_i64().or_else(|| amount.as_str()?.parse().ok()));
        Self { image: image.as_str().unwrap_or_default().to_owned(), words, gpus }
    }

    /// The value of the first of these flags.
    fn flag(&self, names: &[&str]) -> Option<&str> {
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            if names.contains(&word.as_str()) {
                return words.next().map(String::as_str);
            }
            if let Some((name, value)) = word.split_once('=')
                && names.contains(&name)
            {
                return Some(value);
            }
        }
        None
    }

    fn engine(&self) -> Option<&'static str> {
        let is_named = |word: &&(&str, &str)| self.image.contains(word.0) || self.words.iter().any(|part| part.contains(word.0));
        ENGINES.iter().find(is_named).map(|(_, engine)| *engine)
    }

    /// The tag of the image, if it is a version.
    fn version(&self) -> Option<String> {
        let name = self.image.rsplit('/').next()?.split('@').next()?;
        let tag = name.split_once(':')?.1;
        let tag = tag.strip_prefix('v').unwrap_or(tag);
        tag.starts_with(|c: char| c.is_ascii_digit()).then(|| tag.to_owned())
    }

    fn gpus(&self) -> Option<i64> {
        self.gpus.filter(|gpus| *gpus > 0)
    }
}

/// A value with its placeholders filled in; none if it contains others, which only the container can resolve.
fn filled(value: &str, model_path: Option<&str>, service: &str) -> Option<String> {
    let with_path =
        |text: &str| model_path.map_or_else(|| text.to_owned(), |path| text.replace("$(MODEL_PATH)", path).replace("$MODEL_PATH", path));
    let filled = with_path(&value.replace("{{.Name}}", service));
    (!filled.is_empty() && !filled.contains('$') && !filled.contains("{{")).then_some(filled)
}
