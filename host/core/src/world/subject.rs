//! What is kept of a subject.

use super::{
    ObjectKey,
    adopted::{self, ADOPTED, WORKLOADS},
    child::FIELD_MANAGER_PREFIX,
    live::{self, LAST_APPLIED, Live},
    writers::{self, Writer},
};
use crate::{
    objects::label_value,
    resource::{Resource, TRAINING_JOB},
};
use k8s_openapi::jiff::Timestamp;
use pointsman_sandbox::digest::Digest;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use std::{collections::BTreeMap, sync::OnceLock};

/// The annotation that says whether this controller works on a subject.
pub const CONTROL: &str = "pointsman.dev/control";

/// The field manager of the labels that subjects get from us.
pub const LABELS_MANAGER: &str = "pointsman/labels";

/// What a subject says of who works on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// Nothing, or that it is for us if the configuration says so.
    #[default]
    AsConfigured,
    /// That it is to be left alone.
    LeftAlone,
    /// Another controller, of this name, runs it.
    ManagedBy(String),
    /// A word that means nothing.
    Unreadable(String),
}

impl Control {
    /// Whether it says that this controller doesn't work on it.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::LeftAlone | Self::ManagedBy(_))
    }
}

/// The name by which `spec.managedBy` means this controller.
const OUR_NAME: &str = "pointsman.dev/controller";

/// The other controller that a job says runs it, as those of batch/v1 do.
fn managed_by(resource: &Resource, live: &Live<'_>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        managed_by: Option<String>,
    }
    let spec = live.field("spec").filter(|_| *resource == TRAINING_JOB)?;
    let name = serde_json::from_str::<Spec>(spec.get()).ok()?.managed_by?;
    (name != OUR_NAME).then_some(name)
}

/// A custom resource that is served. Its contents are kept as text: they are read only while a plan is made.
#[derive(Debug)]
pub struct Subject {
    /// What names it.
    pub key: ObjectKey,
    /// Its own identity; empty offline.
    pub uid: String,
    /// When it was made; offline nobody knows.
    pub created: Option<Timestamp>,
    /// Its version.
    pub version: u64,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What keeps it from being gone then.
    pub finalizers: Vec<String>,
    /// Its name as a label's value: its pods and objects carry it.
    pub label: String,
    /// What it says of who works on it.
    pub control: Control,
    /// When it was taken over from another controller, if it was.
    pub adopted: Option<Timestamp>,
    /// The workloads that were taken over with it: their kinds and names.
    pub workloads: Vec<(&'static Resource, String)>,
    /// What is wrong with the annotation that names them, if anything.
    pub workloads_problem: Option<String>,
    /// The other controllers that write its status.
    pub writers: Vec<Writer>,
    /// Whether anything of its status is written by us.
    pub told_by_us: bool,
    /// The labels that it has from us alone. To plans and rules they aren't there: what follows from a plan must not change it.
    pub own_labels: BTreeMap<String, String>,
    /// Its labels, annotations and spec.
    content: Box<str>,
    /// Made when it is first asked for.
    digest: OnceLock<Digest>,
    status: Box<str>,
}

impl Subject {
    /// By what objects name it as their owner.
    pub(super) fn owner_key(&self) -> (String, String) {
        (self.key.namespace.clone(), self.uid.clone())
    }

    /// Reads a live object.
    pub(super) fn from_live(key: ObjectKey, live: &Live<'_>) -> Self {
        let raw = |part: Option<&RawValue>| part.map_or("null", RawValue::get).to_owned();
        let mut read = live.metadata.annotations.map(live::strings).unwrap_or_default();
        let control = match read.get(CONTROL).map(AsRef::as_ref) {
            None | Some("true") => Control::AsConfigured,
            Some("false") => Control::LeftAlone,
            Some(other) => Control::Unreadable(other.to_owned()),
        };
        let control = managed_by(key.resource, live).map_or(control, Control::ManagedBy);
        let adopted = read.get(ADOPTED).and_then(|time| time.parse().ok());
        let (workloads, workloads_problem) = read.get(WORKLOADS).map(|text| adopted::workloads(text)).unwrap_or_default();
        let mut managed = live.metadata.managed_fields.iter().flatten();
        let told_by_us = managed.any(|entry| entry.subresource == "status" && entry.manager.starts_with(FIELD_MANAGER_PREFIX));
        let shortened = read.remove(LAST_APPLIED).is_some().then(|| json!(read).to_string());
        let annotations = live.metadata.annotations.map(|annotations| shortened.unwrap_or_else(|| annotations.get().to_owned()));
        let own_labels = live.labels_owned_only_by(LABELS_MANAGER);
        let labels = if own_labels.is_empty() { raw(live.metadata.labels) } else { labels_without(live, &own_labels) };
        let metadata = format!(r#"{{"labels":{labels},"annotations":{}}}"#, annotations.unwrap_or_else(|| raw(None)));
        Self {
            uid: live.uid(),
            created: live.created(),
            version: live.version(),
            generation: live.metadata.generation,
            deleting: live.deleting(),
            finalizers: live.metadata.finalizers.clone(),
            label: label_value(&key.name).into_owned(),
            control,
            adopted,
            workloads,
            workloads_problem,
            told_by_us,
            writers: writers::of_status(live),
            own_labels,
            digest: OnceLock::new(),
            content: format!(r#"{{"metadata":{metadata},"spec":{}}}"#, raw(live.field("spec"))).into(),
            status: live.status.map(RawValue::get).unwrap_or_default().into(),
            key,
        }
    }

    /// A digest of its labels, annotations and spec.
    pub fn digest(&self) -> &Digest {
        self.digest.get_or_init(|| Digest::hash(self.content.as_bytes()))
    }

    /// Its `metadata` (labels and annotations) and `spec`.
    pub fn content(&self) -> Value {
        serde_json::from_str(&self.content).unwrap_or_default()
    }

    /// Its status as it is known.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.status).unwrap_or_default()
    }

    /// Whether a word stands anywhere in it: that is known without reading it.
    pub fn contains(&self, word: &str) -> bool {
        self.content.contains(word) || self.status.contains(word)
    }

    /// Whether a word stands anywhere in its status: that is known without reading it.
    pub fn mentions(&self, word: &str) -> bool {
        self.status.contains(word)
    }

    /// Whether another state of it asks for the same plan.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.generation == other.generation
            && self.deleting == other.deleting
            && self.content == other.content
            && self.writers == other.writers
    }

    /// Whether rules that add up subjects count it. What is left alone is judged by no rule, so it counts only while there may be objects that
    /// were made for it.
    pub fn counts(&self) -> bool {
        !self.control.is_elsewhere() || self.told_by_us
    }

    /// Whether rules that count subjects see no difference to another state of it.
    pub fn counts_the_same(&self, other: &Self) -> bool {
        self.created == other.created && self.content == other.content && self.counts() == other.counts()
    }

    /// Whether another state of it asks for another plan, or has another status than we know.
    pub fn differs(&self, other: &Self) -> bool {
        !self.asks_the_same(other) || self.status != other.status || self.own_labels != other.own_labels
    }
}

/// Its labels without some, as the API server writes them: the same text as before it had those.
fn labels_without(live: &Live<'_>, own: &BTreeMap<String, String>) -> String {
    let others: BTreeMap<_, _> = live.labels().into_iter().filter(|(key, _)| !own.contains_key(&**key)).collect();
    if others.is_empty() { "null".to_owned() } else { json!(others).to_string() }
}
