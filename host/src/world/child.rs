//! What is kept of an object that was made for a subject: what we own of it, and what it tells of its state.

use super::{owned, resource::Resource};
use serde::Deserialize;
use serde_json::Value;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicU64, Ordering},
};

/// The label that every object which we make carries, and every pod: its value is the kind of the subject. Only what has it is
/// watched. It never changes, so it never restarts a pod.
pub const SUBJECT_KIND: &str = "pointsman.dev/subject-kind";

/// The prefix of our field managers; the kind of the subject in lower case follows.
pub const MANAGER: &str = "pointsman/";

/// What names an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind.
    pub resource: &'static Resource,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.resource.kind, self.namespace, self.name)
    }
}

/// An object that was made for a subject.
#[derive(Debug)]
pub struct Child {
    /// What names it.
    pub key: ObjectKey,
    /// Its own identity.
    pub uid: String,
    /// Its version: of two states the one with the higher version is the newer.
    pub version: u64,
    /// The uid of the subject that it belongs to.
    pub owner: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What it tells of itself.
    pub observed: Observed,
    /// The part of it that we own, as text.
    owned: Box<str>,
    /// The fingerprint of the plan that was found to be settled, so that it isn't compared twice.
    settled: AtomicU64,
}

/// What a subject's status and plan are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The generation that its own controller has seen.
    pub observed_generation: Option<i64>,
    /// The replicas that it asks for.
    pub replicas: Option<i64>,
    /// Whether we own that number.
    pub replicas_ours: bool,
    /// The replicas that there are, of any version.
    pub current: i64,
    /// Those of its newest version.
    pub updated: i64,
    /// Those that can take requests.
    pub available: i64,
    /// What it tells in conditions: of a route those of all its parents.
    pub conditions: Vec<Condition>,
    /// The annotation that says which revision of a component it is, and the hash of its template.
    pub revision: Option<String>,
    /// The runtime that it was made with, as kind and name.
    pub runtime: Option<String>,
    /// The version of ours that made it.
    pub made_by: Option<String>,
}

/// One of its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl Observed {
    /// A condition of it, if it is told.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether its own controller has seen its newest spec.
    pub fn current_generation(&self) -> bool {
        self.observed_generation.is_some() && self.observed_generation >= self.generation
    }
}

/// The annotation of a workload that names its revision and its template's hash.
pub const REVISION: &str = "pointsman.dev/revision";

/// The annotation of a workload that names the runtime which it was made with. Where OME's own CRDs are installed, the status has no place
/// for the choice, and this keeps it.
pub const RUNTIME: &str = "pointsman.dev/runtime";

/// The label that says which version of ours has made an object.
pub const VERSION: &str = "ome.io/version";

impl Child {
    /// Reads a live object. What has no name is none.
    pub fn of(resource: &'static Resource, live: &Value) -> Option<Self> {
        let metadata = live.get("metadata")?;
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = metadata.pointer("/labels").and_then(|labels| labels.get(SUBJECT_KIND)).and_then(Value::as_str).unwrap_or_default();
        let owners = metadata.get("ownerReferences").and_then(Value::as_array);
        let owner = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
        let part = owned::part(live, &manager(kind));
        Some(Self {
            key: ObjectKey { resource, namespace: text("namespace").unwrap_or_default(), name: text("name")? },
            uid: text("uid").unwrap_or_default(),
            version: text("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or_default(),
            owner: owner.and_then(|owner| owner["uid"].as_str()).map(str::to_owned),
            deleting: metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()),
            observed: observed(live, &part),
            owned: part.to_string().into(),
            settled: AtomicU64::new(0),
        })
    }

    /// Whether it is as planned. The fingerprint is the plan's.
    pub fn settled(&self, planned: &Value, fingerprint: u64) -> bool {
        if self.settled.load(Ordering::Relaxed) == fingerprint {
            return true;
        }
        let owned: Value = serde_json::from_str(&self.owned).unwrap_or_default();
        let same = owned::same(planned, &owned);
        if same {
            self.settled.store(fingerprint, Ordering::Relaxed);
        }
        same
    }

    /// Whether another state of it may lead to another plan or status.
    pub fn differs(&self, other: &Self) -> bool {
        self.uid != other.uid
            || self.owner != other.owner
            || self.deleting != other.deleting
            || self.observed != other.observed
            || self.owned != other.owned
    }

    /// A fingerprint of what we own of it.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(&self.owned)
    }
}

/// A short digest of a text, to compare two states of one object within this process.
pub fn fingerprint(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The field manager for subjects of a kind.
pub fn manager(kind: &str) -> String {
    format!("{MANAGER}{}", kind.to_lowercase())
}

fn observed(live: &Value, part: &Value) -> Observed {
    let number = |path: &str| live.pointer(path).and_then(Value::as_i64);
    let metadata =
        |map: &str, key: &str| live.get("metadata").and_then(|metadata| metadata.get(map)?.get(key)?.as_str()).map(str::to_owned);
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let conditions = list(live.pointer("/status/conditions"));
    let of_parents = list(live.pointer("/status/parents")).into_iter().flat_map(|parent| list(parent.get("conditions")));
    let conditions = conditions.into_iter().chain(of_parents).filter_map(|condition| serde_json::from_value(condition).ok());
    // A LeaderWorkerSet calls a group that is ready what a Deployment calls an available replica.
    let available = number("/status/availableReplicas").or_else(|| number("/status/readyReplicas")).unwrap_or_default();
    Observed {
        generation: number("/metadata/generation"),
        observed_generation: number("/status/observedGeneration"),
        replicas: number("/spec/replicas"),
        replicas_ours: part.pointer("/spec/replicas").is_some(),
        current: number("/status/replicas").unwrap_or_default(),
        updated: number("/status/updatedReplicas").unwrap_or_default(),
        available,
        conditions: conditions.collect(),
        revision: metadata("annotations", REVISION),
        runtime: metadata("annotations", RUNTIME),
        made_by: metadata("labels", VERSION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::resource::DEPLOYMENT;
    use serde_json::json;

    #[test]
    fn a_deployment_tells_its_owner_its_replicas_and_what_we_own() {
        let live = json!({
            "metadata": {
                "name": "a", "namespace": "b", "uid": "1", "resourceVersion": "17", "generation": 2,
                "labels": {SUBJECT_KIND: "InferenceService"},
                "ownerReferences": [{"uid": "x"}, {"uid": "y", "controller": true}],
                "managedFields": [{"manager": "pointsman/inferenceservice", "operation": "Apply", "fieldsV1": {"f:spec": {"f:paused": {}}}}],
            },
            "spec": {"replicas": 5, "paused": true},
            "status": {"observedGeneration": 1, "replicas": 4, "availableReplicas": 3, "conditions": [{"type": "Available", "status": "True"}]},
        });
        let child = Child::of(&DEPLOYMENT, &live).unwrap();
        assert_eq!((child.version, child.owner.as_deref()), (17, Some("y")));
        assert_eq!((child.observed.replicas, child.observed.available, child.observed.replicas_ours), (Some(5), 3, false));
        assert!(!child.observed.current_generation());
        assert!(child.observed.condition("Available").is_some());
        assert!(child.settled(&json!({"spec": {"paused": true}}), 7) && child.settled(&json!({}), 7));
        assert!(!child.settled(&json!({"spec": {"paused": false}}), 8));
    }
}
