//! Converts objects in files to a world, as the watches do in a cluster.

use super::{
    fields::{self, InvalidObject},
    files::{Document, SourceLocation},
};
use anyhow::Error;
use k8s_openapi::api::core::v1::ConfigMap;
use pointsman_core::{
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL, NAMESPACE, Resource},
    selector::NAMESPACE_NAME,
    structural,
    subject_kind::ALL,
    world::{ObjectKey, World},
};
use pointsman_crds::policy::{plugin::PolicyPlugin, rule::ValidationRule};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

/// The identity of an object: apiVersion, kind, namespace, name.
type Id = (String, String, String, String);

/// The number of characters of `generateName` that the API server uses before its own five.
const GENERATED_FROM: usize = 58;

/// The maximum number of reported unknown fields: each is searched in its file.
const MAX_NAMES_LISTED: usize = 10;

/// The content of the files.
#[derive(Debug, Default)]
pub(in crate::cli) struct OfflineObjects {
    pub(in crate::cli) world: World,
    /// In the order of the files.
    pub(in crate::cli) subjects: Vec<ObjectKey>,
    pub(in crate::cli) plugins: Vec<Bound>,
    pub(in crate::cli) rules: Vec<Ruled>,
    pub(in crate::cli) config_maps: HashMap<(String, String), Arc<ConfigMap>>,
    /// The number of ignored objects per kind.
    skipped: BTreeMap<String, usize>,
    /// Objects that replace earlier ones.
    pub(in crate::cli) replaced: Vec<Replacement>,
    /// Fields that are in no schema.
    unknown: Vec<(SourceLocation, Vec<structural::Step>)>,
    seen: HashMap<Id, SourceLocation>,
}

/// A PolicyPlugin, with its place and the folder of its plugin file.
#[derive(Debug)]
pub(in crate::cli) struct Bound {
    pub(in crate::cli) place: SourceLocation,
    pub(in crate::cli) name: String,
    pub(in crate::cli) plugin: PolicyPlugin,
    pub(in crate::cli) folder: PathBuf,
}

/// A ValidationRule, with its place.
#[derive(Debug)]
pub(in crate::cli) struct Ruled {
    pub(in crate::cli) place: SourceLocation,
    pub(in crate::cli) name: String,
    pub(in crate::cli) rule: ValidationRule,
}

/// Sorts the documents, and returns all errors in them. Objects without a namespace get this one.
pub(in crate::cli) fn gather(documents: Vec<Document>, namespace: &str) -> (OfflineObjects, Vec<Error>) {
    let ours = structural::kinds();
    let (mut gathered, mut problems) = (OfflineObjects::default(), Vec::new());
    for document in documents {
        match gathered.take(document, namespace, ours) {
            Ok(replaced) => gathered.replaced.extend(replaced),
            Err(problem) => problems.push(problem.into()),
        }
    }
    (gathered, problems)
}

/// An object that replaces an earlier one of the files.
#[derive(Debug)]
pub(in crate::cli) struct Replacement {
    pub(in crate::cli) place: SourceLocation,
    pub(in crate::cli) message: String,
}

impl OfflineObjects {
    /// Notes on the files for users.
    pub(in crate::cli) fn notes(&self) -> Vec<String> {
        let told = self.unknown.iter().take(MAX_NAMES_LISTED).map(|(place, path)| {
            let (place, field) = fields::locate(place, path);
            format!("{place}: {field}: unknown field, which is ignored")
        });
        let replaced = self.replaced.iter().map(|Replacement { place, message }| format!("{place}: {message}"));
        let mut notes: Vec<String> = replaced.chain(told).collect();
        if self.unknown.len() > MAX_NAMES_LISTED {
            notes.push(format!("and {} more unknown fields", self.unknown.len() - MAX_NAMES_LISTED));
        }
        notes.extend(self.skipped());
        notes
    }

    /// A note on the objects that no part of the controller reads, if there are any.
    pub(in crate::cli) fn skipped(&self) -> Option<String> {
        let skipped: Vec<String> = self.skipped.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        (!skipped.is_empty()).then(|| format!("skipped, because the controller does nothing with them: {}", skipped.join(", ")))
    }

    /// Adds a document. It replaces an equal object, as it does if kubectl applies the files. Objects without a namespace get this one.
    pub(in crate::cli) fn take(
        &mut self,
        document: Document,
        namespace: &str,
        ours: &structural::Kinds,
    ) -> Result<Option<Replacement>, InvalidObject> {
        let Document { place, mut object } = document;
        let text = |object: &Map<String, Value>, field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object, "apiVersion"), text(&object, "kind"));
        if api_version.is_empty() || kind.is_empty() {
            if place.file.named {
                let lacks = if kind.is_empty() { "kind" } else { "apiVersion" };
                let message = format!("this is not a Kubernetes object: {lacks} is missing: set it, or remove the document");
                return Err(InvalidObject::new(&place, message));
            }
            *self.skipped.entry("that are not Kubernetes objects".to_owned()).or_default() += 1;
            return Ok(None);
        }
        let resource = Resource::find(&api_version, &kind);
        let kind_of_ours = ours.get(&(api_version.clone(), kind.clone()));
        let config_map = api_version == "v1" && kind == "ConfigMap";
        let of_policy = api_version.starts_with("policy.pointsman.dev/") && kind_of_ours.is_some();
        let (plugin, rule) = (of_policy && kind == "PolicyPlugin", of_policy && kind == "ValidationRule");
        if resource.is_none() && !config_map && !plugin && !rule {
            if let Some(known) = known_versions(ours, &api_version, &kind) {
                return Err(unknown_version(&place, &api_version, &kind, &known));
            }
            if let Some(version) = neighbour_version(&api_version, &kind) {
                *self.skipped.entry(format!("{kind} ({api_version}: only {version} is read)")).or_default() += 1;
            } else if !well_known(&api_version) {
                *self.skipped.entry(format!("{kind} ({api_version})")).or_default() += 1;
            }
            return Ok(None);
        }

        let name = object.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(InvalidObject::new(&place, format!("the {kind} has no metadata.name")));
        }
        let namespaced = resource.map_or(config_map, |resource| resource.namespaced);
        let namespace = settle_namespace(&mut object, namespaced.then_some(namespace));
        let id = (api_version, kind.clone(), namespace.clone(), name.clone());
        if let Some(kind) = kind_of_ours {
            let whole = Value::Object(object.clone());
            if let Err(error) = (kind.read)(whole.clone()) {
                return Err(fields::wrong(&place, &whole, kind.read, &error));
            }
            self.unknown.extend(kind.shape(&mut object).into_iter().map(|path| (place.clone(), path)));
        }
        let replacement = self.seen.insert(id, place.clone()).map(|first| {
            let title = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
            let message = format!("the {kind} {title} replaces the one at {first}, as with `kubectl apply`: remove one of the two");
            Replacement { place: place.clone(), message }
        });
        let value = Value::Object(object);
        let unread = |error: serde_json::Error| InvalidObject::new(&place, format!("the {kind} {name}: {error}"));
        if let Some(resource) = resource {
            self.put(resource, value, ObjectKey { resource, namespace, name });
        } else if config_map {
            let map = ConfigMap::deserialize(&value).map_err(unread)?;
            self.config_maps.insert((namespace, name), Arc::new(map));
        } else if rule {
            let rule = ValidationRule::deserialize(&value).map_err(unread)?;
            self.rules.retain(|known| known.name != name);
            self.rules.push(Ruled { place, name, rule });
        } else {
            let plugin = PolicyPlugin::deserialize(&value).map_err(unread)?;
            let folder = place.file.folder.clone();
            self.plugins.retain(|known| known.name != name);
            self.plugins.push(Bound { place, name, plugin, folder });
        }
        Ok(replacement)
    }

    fn put(&mut self, resource: &'static Resource, mut value: Value, key: ObjectKey) {
        // Manifests in Git have no status, so the model counts as downloaded.
        if (*resource == BASE_MODEL || *resource == CLUSTER_BASE_MODEL) && value.get("status").is_none_or(Value::is_null) {
            value["status"] = json!({"state": "Ready"});
        }
        if *resource == NAMESPACE {
            label(&mut value, NAMESPACE_NAME, &key.name);
        }
        self.world.put(resource, &value);
        if resource.is_subject() {
            // Every namespace in the files exists.
            if self.world.namespace_labels(&key.namespace).is_empty() {
                let name = &key.namespace;
                self.world.put(&NAMESPACE, &json!({"metadata": {"name": name, "labels": {NAMESPACE_NAME: name}}}));
            }
            if !self.subjects.contains(&key) {
                self.subjects.push(key);
            }
        }
    }
}

/// The versions in which the controller reads one of our kinds, if it is one, whatever its version is.
fn known_versions(ours: &structural::Kinds, api_version: &str, kind: &str) -> Option<String> {
    let (group, _) = api_version.split_once('/')?;
    let versions = ours.keys().filter(|(_, its_kind)| its_kind == kind).filter_map(|(known, _)| known.split_once('/'));
    let versions: BTreeSet<&str> = versions.filter(|(its_group, _)| *its_group == group).map(|(_, version)| version).collect();
    (!versions.is_empty()).then(|| versions.into_iter().collect::<Vec<_>>().join(" and "))
}

/// The version in which the controller reads a kind of another project.
fn neighbour_version(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, _) = api_version.split_once('/')?;
    let known = ALL.iter().find(|resource| resource.neighbour.is_some() && resource.group == group && resource.kind == kind);
    known.map(|resource| resource.version)
}

fn unknown_version(place: &SourceLocation, api_version: &str, kind: &str, known: &str) -> InvalidObject {
    let version = env!("CARGO_PKG_VERSION");
    let message = format!(
        "unknown version {api_version} of {kind}: pointsman {version} reads {known}; write the object in this version, or use a newer \
         pointsman"
    );
    InvalidObject::new(place, message)
}

fn label(object: &mut Value, key: &str, value: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let mut labels = metadata.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
    labels.insert(key.to_owned(), value.into());
    metadata.insert("labels".to_owned(), Value::Object(labels));
}

/// A name as the API server generates it for an object with only `generateName`; different for each number.
pub(in crate::cli) fn generated(object: &Map<String, Value>, number: usize) -> Option<String> {
    let text = |name: &str| object.get("metadata")?.get(name)?.as_str().filter(|text| !text.is_empty());
    let beginning = text("generateName").filter(|_| text("name").is_none())?;
    Some(beginning.chars().take(GENERATED_FROM).chain(format!("{number:05}").chars()).collect())
}

/// Sets an object's name.
pub(in crate::cli) fn name(object: &mut Map<String, Value>, name: String) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("name".to_owned(), name.into());
    }
}

/// Sets the namespace of a namespaced object, and removes it from a cluster-scoped one. Returns the namespace.
fn settle_namespace(object: &mut Map<String, Value>, default: Option<&str>) -> String {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return String::new() };
    let Some(default) = default else {
        metadata.shift_remove("namespace");
        return String::new();
    };
    let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    let namespace = if given.is_empty() { default.to_owned() } else { given.to_owned() };
    metadata.insert("namespace".to_owned(), namespace.as_str().into());
    namespace
}

/// Whether a kind is Kubernetes' own or ours, which nobody expects to be rendered.
fn well_known(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    !group.contains('.') || group.ends_with(".k8s.io") || group.ends_with(".pointsman.dev")
}

#[cfg(test)]
mod tests {
    use super::{super::files::File, *};
    use std::sync::OnceLock;

    #[test]
    fn a_name_is_made_up_only_for_an_object_that_has_none() {
        let of = |metadata: Value| generated(json!({"metadata": metadata}).as_object().unwrap(), 7);
        assert_eq!(of(json!({"generateName": "chat-"})).as_deref(), Some("chat-00007"));
        assert_eq!(of(json!({"generateName": "a".repeat(80)})).map(|name| name.len()), Some(63));
        assert_eq!((of(json!({"generateName": "chat-", "name": "chat"})), of(json!({})), of(Value::Null)), (None, None, None));
    }

    #[test]
    fn a_namespace_has_the_label_of_its_name_whether_or_not_it_is_there() {
        let file = Arc::new(File {
            title: "a.yaml".to_owned(),
            text: String::new(),
            folder: PathBuf::new(),
            named: true,
            outline: OnceLock::new(),
        });
        let place = SourceLocation { file, line: 1 };
        let document = |object: Value| Document { place: place.clone(), object: object.as_object().unwrap().clone() };
        let service = |namespace: &str| {
            let metadata = json!({"name": "chat", "namespace": namespace});
            document(json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": metadata, "spec": {}}))
        };
        let labels = json!({"team": "a", NAMESPACE_NAME: "other"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "known", "labels": labels}});
        let (gathered, problems) = gather(vec![service("known"), document(namespace), service("strange")], "default");
        assert!(problems.is_empty(), "{problems:?}");
        let labels = |namespace: &str| json!(*gathered.world.namespace_labels(namespace));
        assert_eq!(labels("known"), json!({"team": "a", NAMESPACE_NAME: "known"}));
        assert_eq!(labels("strange"), json!({NAMESPACE_NAME: "strange"}));
    }
}
