//! Requests that don't come from the same field of a layer, but from facts about the model, the storage and the annotations, or from
//! plugins' configurations.

use super::said::Contents;
use pointsman_sandbox::point::mirrored;
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};

/// The field of the built-in policy's configuration with the models' root directory.
const MODEL_ROOT: &str = "modelRoot";

/// The annotation that provides a Secret's keys to a service as environment variables.
const SECRET: &str = "security.ome.io/secret-ref";

/// The init containers that use this Secret for downloads.
const FETCH: [&str; 3] = ["model-initializer", "adapter-initializer", "dataset-initializer"];

/// The fields in which a text from a fact is accepted as requested: paths of files, and arguments of programs. In other fields, an equal
/// text would be a coincidence: a model named `default` must not request the ServiceAccount `default`.
const FIELDS_WITH_FACTS: [&str; 9] = [
    ".args[]",
    ".env[].value",
    ".persistentVolumeClaim.claimName",
    ".volumes[].image.reference",
    ".volumeMounts[].mountPath",
    ".volumeMounts[].subPath",
    ".volumes[].configMap.name",
    ".configMap.items[].key",
    ".configMap.items[].path",
];

/// The fields with images.
const IMAGE: &str = ".image";

/// The field with the node's directory that a volume mounts.
const NODE: &str = ".volumes[].hostPath.path";

/// The prefix of a plugin's configuration among the layers; the plugin's name follows.
pub(super) const CONFIG: &str = "config of ";

/// The contents of plugins' configurations.
#[derive(Debug, Default)]
pub(super) struct Configs<'c> {
    /// The strings, each with the plugins whose configurations contain it.
    texts: HashMap<&'c str, BTreeSet<&'c str>>,
    /// The lists of strings.
    lists: Vec<(&'c str, &'c [Value])>,
    /// The root directories of models.
    roots: Vec<&'c str>,
}

impl<'c> Configs<'c> {
    /// Collects them once for all fields.
    pub(super) fn collect(configs: &'c [(String, Value)]) -> Self {
        let mut all = Self::default();
        for (plugin, config) in configs {
            all.roots.extend(config.get(MODEL_ROOT).and_then(Value::as_str));
            all.add(plugin, config);
        }
        all
    }

    fn add(&mut self, plugin: &'c str, value: &'c Value) {
        match value {
            Value::String(text) if !text.is_empty() => drop(self.texts.entry(text).or_default().insert(plugin)),
            Value::Array(items) => {
                if !items.is_empty() && items.iter().all(Value::is_string) {
                    self.lists.push((plugin, items));
                }
                for item in items {
                    self.add(plugin, item);
                }
            }
            Value::Object(fields) => fields.values().for_each(|value| self.add(plugin, value)),
            _ => {}
        }
    }

    /// The configurations that contain a string, or a whole list of strings. Numbers and booleans are too common to identify a request.
    pub(super) fn holding(&self, value: &Value) -> Vec<String> {
        let plugins: BTreeSet<&str> = match value {
            Value::String(text) => self.texts.get(text.as_str()).cloned().unwrap_or_default(),
            Value::Array(items) => self.lists.iter().filter(|(_, list)| list == items).map(|(plugin, _)| *plugin).collect(),
            _ => BTreeSet::new(),
        };
        plugins.into_iter().map(|plugin| format!("{CONFIG}{plugin}")).collect()
    }

    /// The configurations that contain the original of an image from a mirror.
    fn holding_mirrored(&self, image: &str, mirror: &str) -> Vec<String> {
        let published = self.texts.iter().filter(|(text, _)| mirrored(text, mirror) == image);
        let plugins: BTreeSet<&str> = published.flat_map(|(_, plugins)| plugins.iter().copied()).collect();
        plugins.into_iter().map(|plugin| format!("{CONFIG}{plugin}")).collect()
    }

    /// The configurations that contain a directory of nodes. A models' root doesn't count as a request to mount all models into one pod,
    /// and `/` is more likely a separator than a directory.
    fn holding_folder(&self, folder: &Value) -> Vec<String> {
        let path = folder.as_str().map(|path| path.trim_end_matches('/')).unwrap_or_default();
        let plain = path.starts_with('/') && !path.split('/').any(|step| step == "..");
        if plain && !self.roots.iter().any(|root| root.trim_end_matches('/') == path) { self.holding(folder) } else { Vec::new() }
    }
}

/// The fsGroup that the built-in policy sets if an init container fills a claim.
const GROUP: u64 = 1000;

/// The field with a pod's fsGroup.
const CLAIMS: &str = ".spec.securityContext.fsGroup";

/// The place of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'p> {
    /// The path without the keys of items.
    pub(super) place: &'p str,
    /// The container, and whether it is the main one.
    pub(super) container: Option<(&'p str, bool)>,
}

/// The facts that the host has put into the layers.
#[derive(Debug, Default)]
pub(super) struct Facts<'a> {
    /// The strings in facts, each with the layers that contain it.
    texts: HashMap<&'a str, BTreeSet<&'a str>>,
    /// The node directories with the model, an adapter or a dataset.
    folders: Vec<(&'a str, Cow<'a, str>)>,
    /// The Secret for the service, with the layer that names it.
    secret: Option<(&'a str, &'a str)>,
    /// The layer of a writable claim.
    filled: Option<&'a str>,
    /// The possible paths of the model in the pod.
    pub(super) paths: Vec<Cow<'a, str>>,
    /// The layer that describes the group, if it is a Ray cluster.
    pub(super) ray: Option<&'a str>,
    /// The layer that describes how a model is split.
    pub(super) split: Option<&'a str>,
    /// The mirror registry for the images that configurations name.
    mirror: Option<&'a str>,
}

impl<'a> Facts<'a> {
    /// Collects the facts.
    pub(super) fn collect(contents: &'a Contents<'_>, configs: &Configs<'_>) -> Self {
        let mut facts = Self { mirror: contents.mirror.as_deref(), ..Self::default() };
        for (layer, content) in contents.facts() {
            facts.add(layer, content);
            let text = |name: &str| content.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            // The node directory in a storage URI.
            let local = || text("storageUri")?.strip_prefix("local://").map(|path| path.trim_matches('/')).filter(|path| !path.is_empty());
            match layer {
                "model" => {
                    facts.paths = places_of_model(text("path"), text("name"), configs);
                    facts.folders.extend(facts.paths.iter().map(|path| (layer, path.clone())));
                    facts.folders.extend(local().map(|path| (layer, format!("/{path}").into())));
                }
                "adapter" | "dataset" => facts.folders.extend(local().map(|path| (layer, format!("/{path}").into()))),
                "storage" => facts.filled = (content.get("readOnly") == Some(&Value::Bool(false))).then_some(layer),
                "settings" => facts.secret = text(SECRET).map(|secret| (layer, secret)),
                "group" => facts.ray = (content.get("ray") == Some(&Value::Bool(true))).then_some(layer),
                "parallelism" => facts.split = Some(layer),
                _ => {}
            }
        }
        facts
    }

    fn add(&mut self, layer: &'a str, value: &'a Value) {
        match value {
            Value::String(text) => {
                let rest = text.split_once("://").map(|(_, rest)| rest);
                // A URI for a claim is pvc://CLAIM/PATH or pvc://NAMESPACE:CLAIM/PATH.
                let claim = text.strip_prefix("pvc://").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
                let named = claim.map(|(claim, _)| claim.rsplit_once(':').map_or(claim, |(_, name)| name));
                let path = claim.map(|(_, path)| path.trim_matches('/'));
                for text in [Some(text.as_str()), rest, named, path].into_iter().flatten().filter(|text| !text.is_empty()) {
                    self.texts.entry(text).or_default().insert(layer);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(layer, item)),
            Value::Object(fields) => fields.values().for_each(|value| self.add(layer, value)),
            _ => {}
        }
    }

    /// The layers and configurations that request a value at a place, in addition to the layers that have the field itself.
    pub(super) fn asking(&self, at: At<'_>, value: &Value, configs: &Configs<'_>) -> Vec<String> {
        let Some(text) = value.as_str() else {
            let claim = self.filled.filter(|_| value.as_u64() == Some(GROUP) && at.place.ends_with(CLAIMS));
            return claim.map_or_else(|| configs.holding(value), |layer| vec![layer.to_owned()]);
        };
        if at.place.ends_with(NODE) {
            let layers: BTreeSet<&str> = self.folders.iter().filter(|(_, folder)| folder == text).map(|(layer, _)| *layer).collect();
            let by: Vec<String> = layers.into_iter().map(str::to_owned).collect();
            return if by.is_empty() { configs.holding_folder(value) } else { by };
        }
        if let Some((layer, secret)) = self.secret
            && secret == text
            && at.place.ends_with(".envFrom[].secretRef.name")
            && at.container.is_some_and(|(name, main)| main || fetches(name) && at.place.contains(".initContainers[]"))
        {
            return vec![layer.to_owned()];
        }
        let told = FIELDS_WITH_FACTS.iter().any(|end| at.place.ends_with(end));
        let by: Vec<String> = match self.texts.get(text).filter(|_| told) {
            Some(layers) => layers.iter().map(|layer| (*layer).to_owned()).collect(),
            None => self.paths.iter().filter(|path| told && *path == text).take(1).map(|_| "model".to_owned()).collect(),
        };
        if !by.is_empty() {
            return by;
        }
        let by = configs.holding(value);
        match self.mirror.filter(|_| by.is_empty() && at.place.ends_with(IMAGE)) {
            Some(mirror) => configs.holding_mirrored(text, mirror),
            None => by,
        }
    }
}

/// Whether it is one of these init containers. If there are several of one kind, a number is appended.
fn fetches(name: &str) -> bool {
    let number = |rest: &str| rest.strip_prefix('-').is_some_and(|number| number.parse::<u8>().is_ok());
    FETCH.iter().any(|known| name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || number(rest)))
}

/// The path of a model: its own, otherwise the directory with its name below the root. Only this directory counts: other directories below
/// the root, paths with `..`, `/` and `/etc` don't belong to the model. The built-in policy mounts no others.
fn places_of_model<'a>(path: Option<&'a str>, name: Option<&'a str>, configs: &Configs<'_>) -> Vec<Cow<'a, str>> {
    if let Some(path) = path {
        return vec![path.into()];
    }
    let Some(name) = name.filter(|name| !name.contains('/') && !name.starts_with('.')) else { return Vec::new() };
    configs.roots.iter().map(|root| format!("{}/{name}", root.trim_end_matches('/')).into()).collect()
}
