//! The stored state of a subject.

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

/// The annotation that controls whether this controller manages a subject.
pub const CONTROL: &str = "pointsman.dev/control";

/// The field manager of our labels on subjects.
pub const LABELS_MANAGER: &str = "pointsman/labels";

/// A subject's own settings for the controller that manages it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// None, or this controller if its configuration permits that.
    #[default]
    AsConfigured,
    /// Excluded from management.
    LeftAlone,
    /// Managed by another controller with this name.
    ManagedBy(String),
    /// An invalid value.
    Unreadable(String),
}

impl Control {
    /// Whether it excludes this controller.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::LeftAlone | Self::ManagedBy(_))
    }
}

/// The value of `spec.managedBy` for this controller.
const OUR_NAME: &str = "pointsman.dev/controller";

/// The other controller that a job names in `spec.managedBy`, as Jobs of batch/v1 do.
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

/// A custom resource that gets a plan. Its contents are stored as text, which is parsed only for plans.
#[derive(Debug)]
pub struct Subject {
    /// Its identity.
    pub key: ObjectKey,
    /// Its uid; empty offline.
    pub uid: String,
    /// The time of its creation; none offline.
    pub created: Option<Timestamp>,
    /// Its resource version.
    pub version: u64,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its name as a label's value, which its pods and objects have.
    pub label: String,
    /// Its settings for the controller that manages it.
    pub control: Control,
    /// The time of its adoption from another controller, if it was adopted.
    pub adopted: Option<Timestamp>,
    /// The workloads that were adopted with it: their kinds and names.
    pub workloads: Vec<(&'static Resource, String)>,
    /// Why the annotation with these workloads is invalid, if it is.
    pub workloads_problem: Option<String>,
    /// The other controllers that write its status.
    pub writers: Vec<Writer>,
    /// Whether we have written any of its status.
    pub told_by_us: bool,
    /// The labels that only we own. Plans and rules don't see them, because they must not depend on the result of a plan.
    pub own_labels: BTreeMap<String, String>,
    /// Its labels, annotations and spec.
    content: Box<str>,
    /// Computed on first use.
    digest: OnceLock<Digest>,
    status: Box<str>,
}

impl Subject {
    /// The owner key in its objects.
    pub(super) fn owner_key(&self) -> (String, String) {
        (self.key.namespace.clone(), self.uid.clone())
    }

    /// Parses a live object.
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

    /// The digest of its labels, annotations and spec.
    pub fn digest(&self) -> &Digest {
        self.digest.get_or_init(|| Digest::hash(self.content.as_bytes()))
    }

    /// Its `metadata` (labels and annotations) and `spec`.
    pub fn content(&self) -> Value {
        serde_json::from_str(&self.content).unwrap_or_default()
    }

    /// Its known status.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.status).unwrap_or_default()
    }

    /// Whether it contains a word anywhere, without parsing it.
    pub fn contains(&self, word: &str) -> bool {
        self.content.contains(word) || self.status.contains(word)
    }

    /// Whether its status contains a word anywhere, without parsing it.
    pub fn mentions(&self, word: &str) -> bool {
        self.status.contains(word)
    }

    /// Whether another state of it requires the same plan.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.generation == other.generation
            && self.deleting == other.deleting
            && self.content == other.content
            && self.writers == other.writers
    }

    /// Whether rules with sums over subjects count it. A subject that isn't managed is not checked by rules, so it is only counted while
    /// objects that we created for it may exist.
    pub fn counts(&self) -> bool {
        !self.control.is_elsewhere() || self.told_by_us
    }

    /// Whether another state of it makes no difference to rules that count subjects.
    pub fn counts_the_same(&self, other: &Self) -> bool {
        self.created == other.created && self.content == other.content && self.counts() == other.counts()
    }

    /// Whether another state of it requires another plan, or has another status than the known one.
    pub fn differs(&self, other: &Self) -> bool {
        !self.asks_the_same(other) || self.status != other.status || self.own_labels != other.own_labels
    }
}

/// Its other labels in the API server's form: the same text as before our labels were added.
fn labels_without(live: &Live<'_>, own: &BTreeMap<String, String>) -> String {
    let others: BTreeMap<_, _> = live.labels().into_iter().filter(|(key, _)| !own.contains_key(&**key)).collect();
    if others.is_empty() { "null".to_owned() } else { json!(others).to_string() }
}
