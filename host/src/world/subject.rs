//! What is kept of a subject.

use super::{
    ObjectKey,
    live::{self, LAST_APPLIED, Live},
};
use crate::objects::label_value;
use serde_json::{Value, json, value::RawValue};

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
    pub(super) fn of(key: ObjectKey, live: &Live<'_>) -> Self {
        let raw = |part: Option<&RawValue>| part.map_or("null", RawValue::get).to_owned();
        let annotations = live.metadata.annotations.map(|annotations| {
            let mut kept = live::strings(annotations);
            if kept.remove(LAST_APPLIED).is_some() { json!(kept).to_string() } else { annotations.get().to_owned() }
        });
        let metadata = format!(r#"{{"labels":{},"annotations":{}}}"#, raw(live.metadata.labels), annotations.unwrap_or_else(|| raw(None)));
        Self {
            uid: live.uid(),
            version: live.version(),
            generation: live.metadata.generation,
            deleting: live.deleting(),
            label: label_value(&key.name).into_owned(),
            content: format!(r#"{{"metadata":{metadata},"spec":{}}}"#, raw(live.field("spec"))).into(),
            status: live.status.map(RawValue::get).unwrap_or_default().into(),
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
