//! What is kept of a subject.

use super::ObjectKey;
use crate::objects::label_value;
use serde_json::{Value, json};

/// A custom resource that is served. Its contents are kept as text: they are read only while a plan is made.
#[derive(Debug)]
pub struct Subject {
    /// What names it.
    pub key: ObjectKey,
    /// Its own identity; empty offline.
    pub uid: String,
    /// Its version.
    pub version: u64,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its name as a label's value: its pods and objects carry it.
    pub label: String,
    /// Its labels, annotations and spec.
    content: Box<str>,
    status: Box<str>,
}

impl Subject {
    /// Reads a live object.
    pub fn of(key: ObjectKey, live: &Value) -> Self {
        let text = |path: &str| live.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let mut metadata = json!({"labels": live.pointer("/metadata/labels"), "annotations": live.pointer("/metadata/annotations")});
        if let Some(annotations) = metadata["annotations"].as_object_mut() {
            // The object once more, and never carried anywhere.
            annotations.shift_remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        Self {
            uid: text("/metadata/uid").to_owned(),
            version: text("/metadata/resourceVersion").parse().unwrap_or_default(),
            generation: live.pointer("/metadata/generation").and_then(Value::as_i64),
            deleting: live.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()),
            label: label_value(&key.name).into_owned(),
            content: json!({"metadata": metadata, "spec": live.get("spec")}).to_string().into(),
            status: live.get("status").map(Value::to_string).unwrap_or_default().into(),
            key,
        }
    }

    /// Its `metadata` (labels and annotations) and `spec`.
    pub fn content(&self) -> Value {
        serde_json::from_str(&self.content).unwrap_or_default()
    }

    /// Its status as it is known.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.status).unwrap_or_default()
    }

    /// Whether another state of it asks for the same plan.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.generation == other.generation && self.deleting == other.deleting && self.content == other.content
    }

    /// Whether another state of it asks for another plan, or has another status than we know.
    pub fn differs(&self, other: &Self) -> bool {
        !self.asks_the_same(other) || self.status != other.status
    }
}
