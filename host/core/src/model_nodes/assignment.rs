//! Determines which models a node must hold, in which order, and where: the input of an agent.

use super::{copies::Copies, names::config_map_key, selection};
use k8s_openapi::jiff::Timestamp;
use pointsman_crds::ome::storage::StorageSpec;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The annotation of a model with its download priority: a number; higher ones are downloaded first.
pub const DOWNLOAD_PRIORITY: &str = "pointsman.dev/download-priority";

/// The annotation of a model whose files aren't parsed, with the same key as for OME's agent.
pub const SKIP_CONFIG_PARSING: &str = "ome.oracle.com/skip-config-parsing";

/// The label of a model whose files stay when it is deleted, with the same key as for OME's agent.
pub const RESERVE_ARTIFACT: &str = "models.ome/reserve-model-artifact";

/// The annotation of a model that triggers another download with each new value, for example after a branch has changed.
pub const DOWNLOAD_AGAIN: &str = "pointsman.dev/download-again";

/// The maximum length of a path.
const MAX_PATH: usize = 1024;

/// The fields of a model that agents need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelObject {
    /// Its namespace; empty for a cluster-scoped model.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, which distinguishes it from later models with the same name.
    pub uid: String,
    /// The time of its creation.
    pub created: Option<Timestamp>,
    /// The source and the destination of its files.
    pub storage: StorageSpec,
    /// Its download priority.
    pub priority: i64,
    /// Whether its files aren't parsed.
    pub skips_parsing: bool,
    /// Whether its files stay when it is deleted.
    pub keeps_files: bool,
    /// The value of [`DOWNLOAD_AGAIN`].
    pub refresh: Option<String>,
    /// The number of copies on the selected nodes; none if all of them hold it.
    pub copies: Option<Copies>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
}

impl ModelObject {
    /// Parses a BaseModel or a ClusterBaseModel.
    pub fn from_object(object: &Value) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            namespace: String,
            name: String,
            uid: String,
            creation_timestamp: Option<String>,
            deletion_timestamp: Option<String>,
            labels: BTreeMap<String, String>,
            annotations: BTreeMap<String, String>,
        }
        #[derive(Deserialize)]
        struct Spec {
            storage: StorageSpec,
        }
        let Object { metadata, spec } = Object::deserialize(object)?;
        let is_set = |entries: &BTreeMap<String, String>, key: &str| entries.get(key).is_some_and(|value| value == "true");
        let priority = metadata.annotations.get(DOWNLOAD_PRIORITY).and_then(|text| text.trim().parse().ok());
        Ok(Self {
            priority: priority.unwrap_or_default(),
            skips_parsing: is_set(&metadata.annotations, SKIP_CONFIG_PARSING),
            keeps_files: is_set(&metadata.labels, RESERVE_ARTIFACT),
            refresh: metadata.annotations.get(DOWNLOAD_AGAIN).cloned(),
            copies: Copies::from_metadata(&metadata.annotations, &metadata.labels),
            created: metadata.creation_timestamp.and_then(|text| text.parse().ok()),
            is_deleting: metadata.deletion_timestamp.is_some(),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            storage: spec.storage,
        })
    }

    /// Its name in messages.
    pub fn display_name(&self) -> String {
        if self.namespace.is_empty() {
            format!("ClusterBaseModel {}", self.name)
        } else {
            format!("BaseModel {}/{}", self.namespace, self.name)
        }
    }

    /// Whether a node must hold it.
    pub fn selects(&self, node: &str, labels: &BTreeMap<String, String>) -> bool {
        self.copies.as_ref().is_none_or(|copies| copies.nodes.contains(node)) && selection::selects(&self.storage, node, labels)
    }

    /// The scheme of its URI.
    pub fn scheme(&self) -> &str {
        self.storage.storage_uri.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// Whether two models may share a directory: they have the same owner and the same files.
    fn may_share(&self, other: &Self) -> bool {
        let [own, others] =
            [self, other].map(|model| (&model.namespace, &model.storage.storage_uri, &model.storage.key, &model.storage.parameters));
        own == others
    }
}

/// A model's assignment to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// Its key in the ConfigMap.
    pub key: String,
    /// The model.
    pub model: ModelObject,
    /// The task for it.
    pub task: Task,
}

/// The task for a model on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Download its files into this directory.
    Download(String),
    /// Check that this directory exists: another party puts the files there.
    Find(String),
    /// Nothing: its server brings the files.
    Nothing,
    /// Nothing, for this reason.
    Refuse(String),
}

/// The models that a node must hold, in the order of their downloads. `root` is the directory in which the agent may write.
pub fn assign<'m>(
    models: impl IntoIterator<Item = &'m ModelObject>,
    node: &str,
    labels: &BTreeMap<String, String>,
    root: &str,
) -> Vec<Assignment> {
    // pvc:// isn't on nodes.
    let wanted = |model: &&ModelObject| !model.is_deleting && model.scheme() != "pvc" && model.selects(node, labels);
    let mut models: Vec<&ModelObject> = models.into_iter().filter(wanted).collect();
    // If two models name the same directory, the older one owns it.
    models.sort_by_key(|model| (!model.namespace.is_empty(), model.created, &model.namespace, &model.name));
    let mut folders: BTreeMap<String, &ModelObject> = BTreeMap::new();
    let mut assignments = Vec::with_capacity(models.len());
    for model in &models {
        let mut task = task(model, root);
        if let Task::Download(folder) = &task {
            match overlapping(&folders, folder) {
                Some((taken, owner)) if taken != folder || !owner.may_share(model) => {
                    task = Task::Refuse(format!(
                        "spec.storage.path {folder} overlaps with that of the {}{}: set another path",
                        owner.display_name(),
                        if taken == folder { String::new() } else { format!(", {taken}") },
                    ));
                }
                Some(_) => {}
                None => _ = folders.insert(folder.clone(), model),
            }
        }
        assignments.push(Assignment { key: config_map_key(&model.namespace, &model.name), model: (*model).clone(), task });
    }
    // A model that refers to a directory by its path could read the files of another model: only the owner's namespace and administrators
    // may do that.
    for Assignment { model, task, .. } in &mut assignments {
        let Task::Find(folder) = task else { continue };
        if let Some((taken, owner)) =
            overlapping(&folders, folder).filter(|(_, owner)| ![&owner.namespace, ""].contains(&&*model.namespace))
        {
            *task = Task::Refuse(format!(
                "storageUri {} is the folder {taken} of the {}: set that model's own storageUri to download it for this namespace",
                model.storage.storage_uri,
                owner.display_name(),
            ));
        }
    }
    assignments.sort_by_key(|assignment| std::cmp::Reverse(assignment.model.priority));
    assignments
}

/// The owned directory that equals this one, contains it, or is within it.
fn overlapping<'f, 'm>(folders: &'f BTreeMap<String, &'m ModelObject>, folder: &str) -> Option<(&'f str, &'m ModelObject)> {
    let mut ancestors = folder.match_indices('/').skip(1).map(|(at, _)| &folder[..at]).chain([folder]);
    let above = ancestors.find_map(|above| folders.get_key_value(above));
    let within = || {
        let prefix = format!("{folder}/");
        folders.range(prefix.clone()..).next().filter(|(taken, _)| taken.starts_with(&prefix))
    };
    above.or_else(within).map(|(taken, owner)| (taken.as_str(), *owner))
}

fn task(model: &ModelObject, root: &str) -> Task {
    let storage = &model.storage;
    let refuse = |message: String| Task::Refuse(message);
    match model.scheme() {
        "vendor" => Task::Nothing,
        "local" => {
            let path = storage.storage_uri.trim_start_matches("local://");
            match (absolute(path), &storage.path) {
                (Ok(path), None) => Task::Find(path),
                (Ok(path), Some(own)) if own.trim_end_matches('/') == path => Task::Find(path),
                (Ok(path), Some(own)) => refuse(format!(
                    "spec.storage.path is {own}, but storageUri is {path}: make them equal, because pods read spec.storage.path"
                )),
                (Err(why), _) => refuse(format!("storageUri {}: {why}", storage.storage_uri)),
            }
        }
        _ => match &storage.path {
            None => refuse("spec.storage.path is missing: set it to the node's folder with the model".to_owned()),
            Some(path) => match absolute(path) {
                Err(why) => refuse(format!("spec.storage.path {path}: {why}")),
                Ok(path) if !is_below(&path, root) => refuse(format!(
                    "spec.storage.path {path} isn't below {root}, where the model agent may write: set such a path, or the agent's --root"
                )),
                Ok(path) => Task::Download(path),
            },
        },
    }
}

/// An absolute path without `.` or `..` parts and without a trailing slash.
fn absolute(path: &str) -> Result<String, &'static str> {
    let trimmed = path.trim_end_matches('/');
    if path.len() > MAX_PATH {
        return Err("it is too long: a path has up to 1024 bytes");
    }
    if !trimmed.starts_with('/') {
        return Err("it isn't absolute: start it with a slash");
    }
    if path.contains(|character: char| character.is_control()) {
        return Err("it contains a control character: remove it");
    }
    if trimmed.split('/').skip(1).any(|part| part.is_empty() || part == "." || part == "..") {
        return Err("it contains an empty part, `.` or `..`: write it without");
    }
    Ok(trimmed.to_owned())
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root.trim_end_matches('/')).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn model(namespace: &str, name: &str, storage: Value) -> ModelObject {
        let metadata = json!({"namespace": namespace, "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"});
        let mut object = json!({"metadata": metadata, "spec": {}});
        object["spec"]["storage"] = storage;
        ModelObject::from_object(&object).unwrap()
    }

    fn at(namespace: &str, name: &str, path: &str) -> ModelObject {
        model(namespace, name, json!({"storageUri": "hf://a/b", "path": path}))
    }

    fn tasks(models: &[ModelObject]) -> Vec<(String, Task)> {
        let labels = [("gpu".to_owned(), "l4".to_owned())].into();
        assign(models, "node", &labels, "/raid/models/").into_iter().map(|done| (done.key, done.task)).collect()
    }

    fn refusal(storage: Value) -> String {
        match tasks(&[model("", "x", storage)]).pop() {
            Some((_, Task::Refuse(why))) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_source_has_its_task() {
        let found = tasks(&[
            model("", "a", json!({"storageUri": "hf://a/b", "path": "/raid/models/a/"})),
            model("", "b", json!({"storageUri": "vendor://openai/llm/gpt"})),
            model("", "c", json!({"storageUri": "local:///mnt/c", "path": "/mnt/c"})),
            model("ml", "d", json!({"storageUri": "pvc://claim/d", "path": "/mnt/d"})),
            model("ml", "e", json!({"storageUri": "hf://a/b", "path": "/raid/models/e", "nodeSelector": {"gpu": "h100"}})),
        ]);
        let expected = [
            ("clusterbasemodel.a", Task::Download("/raid/models/a".to_owned())),
            ("clusterbasemodel.b", Task::Nothing),
            ("clusterbasemodel.c", Task::Find("/mnt/c".to_owned())),
        ];
        assert_eq!(found, expected.map(|(key, task)| (key.to_owned(), task)));
    }

    #[test]
    fn a_path_that_the_agent_may_not_write_is_refused() {
        let by_path = |path: &str| refusal(json!({"storageUri": "hf://a/b", "path": path}));
        assert_eq!(refusal(json!({"storageUri": "hf://a/b"})), "spec.storage.path is missing: set it to the node's folder with the model");
        for (path, expected) in [
            ("/etc/passwd", "isn't below /raid/models/"),
            ("/raid/models", "isn't below"),
            ("/raid/models/", "isn't below"),
            ("/raid/modelsx/a", "isn't below"),
            ("/raid/models/../../etc", "contains an empty part, `.` or `..`"),
            ("/raid/models//a", "contains an empty part"),
            ("raid/models/a", "isn't absolute"),
            ("/raid/models/a\n", "control character"),
            (&format!("/raid/models/{}", "a".repeat(2000)), "too long"),
        ] {
            assert!(by_path(path).contains(expected), "{path}: {}", by_path(path));
        }
        let two = refusal(json!({"storageUri": "local:///mnt/c", "path": "/mnt/d"}));
        assert_eq!(two, "spec.storage.path is /mnt/d, but storageUri is /mnt/c: make them equal, because pods read spec.storage.path");
        assert!(refusal(json!({"storageUri": "local://./c"})).contains("isn't absolute"));
    }

    #[test]
    fn a_folder_belongs_to_one_tenant() {
        let refused = |models: &[ModelObject]| -> Vec<String> {
            let refused = |(key, task): (String, Task)| match task {
                Task::Refuse(why) => Some(format!("{key}: {why}")),
                _ => None,
            };
            tasks(models).into_iter().filter_map(refused).collect()
        };
        // The same files for the same tenant are downloaded once.
        assert_eq!(refused(&[at("ml", "a", "/raid/models/x"), at("ml", "b", "/raid/models/x")]), [""; 0]);
        assert_eq!(refused(&[at("ml", "a", "/raid/models/x"), at("ml", "b", "/raid/models/xy")]), [""; 0]);
        // A downloaded directory belongs to its owner, regardless of alphabetical order.
        let theirs = ["chat.basemodel.a: spec.storage.path /raid/models/x overlaps with that of the ClusterBaseModel z: set another path"];
        assert_eq!(refused(&[at("chat", "a", "/raid/models/x"), at("", "z", "/raid/models/x")]), theirs);
        let mut younger = at("chat", "a", "/raid/models/x/y/z");
        younger.created = "2026-02-01T00:00:00Z".parse().ok();
        let within = [
            "chat.basemodel.a: spec.storage.path /raid/models/x/y/z overlaps with that of the BaseModel ml/a, /raid/models/x: set another path",
        ];
        assert_eq!(refused(&[younger.clone(), at("ml", "a", "/raid/models/x")]), within);
        let mut around = younger;
        around.storage.path = Some("/raid/models/x".to_owned());
        let around = refused(&[around, at("ml", "a", "/raid/models/x/y")]);
        assert!(around[0].contains("overlaps with that of the BaseModel ml/a, /raid/models/x/y"), "{around:?}");
        let mut other = at("ml", "b", "/raid/models/x");
        other.storage.storage_uri = "hf://a/c".to_owned();
        assert_eq!(refused(&[at("ml", "a", "/raid/models/x"), other]).len(), 1);
    }

    #[test]
    fn a_tenant_finds_no_folder_of_another() {
        let local = |namespace: &str| model(namespace, "local", json!({"storageUri": "local:///raid/models/x/y"}));
        let found = |namespace: &str| {
            let tasks = tasks(&[local(namespace), at("ml", "a", "/raid/models/x")]);
            tasks.into_iter().find(|(key, _)| key.ends_with("local")).unwrap().1
        };
        for own in ["", "ml"] {
            assert_eq!(found(own), Task::Find("/raid/models/x/y".to_owned()), "{own}");
        }
        let Task::Refuse(why) = found("chat") else { panic!() };
        assert!(why.starts_with("storageUri local:///raid/models/x/y is the folder /raid/models/x of the BaseModel ml/a: "), "{why}");
    }

    #[test]
    fn the_annotation_decides_what_is_downloaded_first() {
        let mut urgent = at("ml", "z", "/raid/models/z");
        urgent.priority = 5;
        let keys: Vec<String> = tasks(&[at("ml", "a", "/raid/models/a"), urgent]).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["ml.basemodel.z", "ml.basemodel.a"]);
        let object = json!({
            "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {RESERVE_ARTIFACT: "true"},
                "annotations": {DOWNLOAD_PRIORITY: " -3 ", SKIP_CONFIG_PARSING: "true"}},
            "spec": {"storage": {"storageUri": "hf://a/b"}},
        });
        let read = ModelObject::from_object(&object).unwrap();
        assert_eq!((read.priority, read.skips_parsing, read.keeps_files, read.is_deleting), (-3, true, true, true));
        assert!(assign([&read], "node", &BTreeMap::new(), "/").is_empty());
    }
}
