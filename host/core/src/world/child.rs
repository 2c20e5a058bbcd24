//! What is kept of an object that was made for a subject: what we own of it, and what it tells of its state.

use super::{
    ObjectKey,
    adopted::Adopted,
    live::{self, Live},
    owned::{self, Match},
    workload_status::{self, JobStatus, KnativeStatus},
};
pub use crate::subject_kind::SUBJECT_KIND;
use crate::{
    memory_usage::{MEMORY_USAGE, MemoryUsage},
    resource::Resource,
    workload::{Workload, WorkloadStatus},
};
use pointsman_sandbox::sync::locked;
use serde::Deserialize;
use serde_json::Value;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    mem::discriminant,
    sync::{Arc, Mutex},
};

/// The prefix of our field managers; the kind of the subject in lower case follows.
pub const FIELD_MANAGER_PREFIX: &str = "pointsman/";

/// An object that was made for a subject.
#[derive(Debug)]
pub struct OwnedObject {
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
    /// A fingerprint of all that is read of it but its state.
    content: u64,
    /// Whether we have written it.
    ours: bool,
    /// The part of it that we own, as text, and the fingerprint of that.
    owned: Mutex<Owned>,
    fingerprint: u64,
    /// What we own of what its pods are made from, as text, if that can't change while it exists.
    made_from: Option<Arc<str>>,
    /// The plan that it was written by last, if it says so.
    plan_hash: Option<PlanHash>,
}

/// What we own of an object.
#[derive(Clone, Debug)]
enum Owned {
    Text(Box<str>),
    /// What a plan says: there is nothing more to compare, and thousands of texts would be in memory for nothing.
    Settled(PlanHash),
}

/// Which plan an object was written by. The object carries it, so that a host that starts can tell defaults within a value that we own as a
/// whole from what an earlier plan left there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanHash {
    /// Of everything that is planned.
    plan: u64,
    /// Of what pods are made from.
    pods: u64,
}

impl PlanHash {
    /// Hashes a plan, whose fingerprint is known.
    pub fn from_plan(resource: &Resource, planned: &Value, fingerprint: u64) -> Self {
        Self { plan: fingerprint, pods: of_pods(resource, planned) }
    }

    fn parse(text: &str) -> Option<Self> {
        let (plan, pods) = text.split_once('-')?;
        Some(Self { plan: u64::from_str_radix(plan, 16).ok()?, pods: u64::from_str_radix(pods, 16).ok()? })
    }
}

impl std::fmt::Display for PlanHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{:016x}", self.plan, self.pods)
    }
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
    /// What it tells in conditions, if it runs pods.
    pub conditions: Vec<Condition>,
    /// The annotation that says which revision of a component it is, and the hash of its template.
    pub revision: Option<String>,
    /// Those that it had before, with their hashes.
    pub revisions: Option<Box<str>>,
    /// The revision that its label says.
    pub revision_label: Option<String>,
    /// The choice of a runtime that it was made with.
    pub runtime: Option<String>,
    /// Of an autoscaler: the most replicas, where nobody has said them.
    pub derived_most: Option<i64>,
    /// The version of ours that made it.
    pub made_by: Option<String>,
    /// Of a scheduler's objects: which endpoint picker they run, if it isn't llm-d's.
    pub scheduler: Option<String>,
    /// The scheduler that the host has named in templates which named none.
    pub pod_scheduler: Option<String>,
    /// What a Knative Service tells of its revisions.
    pub serving: Option<Box<KnativeStatus>>,
    /// What stays of it as another controller has made it.
    pub adopted: Option<Arc<Adopted>>,
    /// The memory that its pods were seen to take.
    pub memory_usage: Option<Arc<MemoryUsage>>,
    /// The hash of the subject's spec that it was created from.
    pub spec_hash: Option<String>,
    /// How often the run that it belongs to was started again before it was created.
    pub attempt: Option<i64>,
    /// What a Job tells of its pods.
    pub job: Option<Box<JobStatus>>,
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
    /// The generation that it speaks of.
    #[serde(rename = "observedGeneration")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// Whether it speaks of this generation, or says of none. What was said of a former state counts for nothing.
    pub fn is_for_generation(&self, generation: Option<i64>) -> bool {
        self.observed_generation.is_none_or(|seen| Some(seen) >= generation)
    }
}

impl Observed {
    /// A condition of it, if it is told.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether its own controller has seen its newest spec.
    pub fn current_generation(&self) -> bool {
        // Some kinds say it in their conditions alone.
        let seen = self.observed_generation.or_else(|| self.condition("Available")?.observed_generation);
        seen.is_some() && seen >= self.generation
    }
}

/// The annotation of a workload that names its revision and its template's hash.
pub const REVISION: &str = "pointsman.dev/revision";

/// The annotation of a workload with the revisions that it had last, each as its number and the hash of its templates, and the one that it has as
/// the last.
pub const REVISIONS: &str = "pointsman.dev/revisions";

/// The annotation of a workload that tells the choice of a runtime which it was made with. Where OME's own CRDs are installed, the status
/// has no place for the choice, and this keeps it.
pub const RUNTIME: &str = "pointsman.dev/runtime";

/// The annotation of an `LLMInferenceService` that chooses its scheduler, and of the scheduler's objects the one that says what they run.
pub const SCHEDULER: &str = "pointsman.dev/scheduler";

/// The annotation of a workload with the scheduler that the host has named in its pod templates, because they named none.
pub const POD_SCHEDULER: &str = "pointsman.dev/pod-scheduler";

/// The annotation of an autoscaler whose maximum nobody has said.
pub const DERIVED: &str = "pointsman.dev/derived-max";

/// The label that says which revision of a component an object or a pod is.
pub const REVISION_LABEL: &str = "serving.ome.io/revision";

/// The annotation of a workload that says which generation of its subject it was made from.
pub const GENERATION: &str = "ome.io/resource-version";

/// The annotation of a workload that has the subject's spec as it was applied.
pub const APPLIED: &str = "ome.io/last-applied-configuration";

/// The annotation of a Job with the hash of the subject's spec that it was created from.
pub const SPEC_HASH: &str = "pointsman.dev/spec-hash";

/// The annotation of a Job that says how often its run was started again before.
pub const ATTEMPT: &str = "pointsman.dev/attempt";

/// The annotation of every object that tells the plan which it was written by last.
pub const PLAN_HASH: &str = "pointsman.dev/plan-hash";

/// The label that says which version of ours has made an object.
pub const VERSION: &str = "ome.io/version";

impl OwnedObject {
    /// Reads a live object. What is known of an earlier state of it needs not be found out again.
    pub(super) fn from_live(key: ObjectKey, (text, live): (&str, &Live<'_>), known: Option<&Self>) -> Self {
        let uid = live.uid();
        let content = live.fingerprint();
        let same = known.filter(|known| known.uid == uid && known.content == content);
        let (observed, ours, owned, fingerprint, plan_hash, made_from) = if let Some(known) = same {
            let owned = locked(&known.owned).clone();
            (known.observed.clone(), known.ours, owned, known.fingerprint, known.plan_hash, known.made_from.clone())
        } else {
            let live = live::value(text);
            let kind = live.pointer("/metadata/labels").and_then(|labels| labels.get(SUBJECT_KIND)?.as_str());
            let mut part = owned::part(&live, &manager(kind.unwrap_or_default()));
            let plan_hash = take_plan_hash(&mut part);
            let text = part.to_string();
            let fingerprint = fingerprint(&part);
            // Others may have changed what is theirs.
            let same = known.filter(|known| known.uid == uid && known.fingerprint == fingerprint);
            let owned = same.map_or_else(|| Owned::Text(text.into()), |known| locked(&known.owned).clone());
            let made_from = unchangeable_part(key.resource, &part).map(|part| part.to_string().into());
            (desired_state(&live, &part), !part.is_null(), owned, fingerprint, plan_hash, made_from)
        };
        let observed = observe(key.resource, live, observed);
        let (version, owner, deleting) = (live.version(), live.owner(), live.deleting());
        Self { key, uid, version, owner, deleting, observed, content, ours, owned: Mutex::new(owned), fingerprint, made_from, plan_hash }
    }

    /// Whether it is as planned. The fingerprint is the plan's.
    pub fn settled(&self, planned: &Value, fingerprint: u64) -> bool {
        let mut owned = locked(&self.owned);
        match &*owned {
            // By another plan it would be something else.
            Owned::Settled(by) => by.plan == fingerprint,
            Owned::Text(text) => {
                let hash = PlanHash::from_plan(self.key.resource, planned, fingerprint);
                let same = match owned::compare(planned, &serde_json::from_str(text).unwrap_or_default()) {
                    Match::Exact => true,
                    Match::Defaulted => self.plan_hash == Some(hash),
                    Match::Different => false,
                };
                if same {
                    *owned = Owned::Settled(hash);
                }
                same
            }
        }
    }

    /// Whether the pods that run by it are made from what is planned.
    pub fn keeps_pods(&self, planned: &Value) -> bool {
        let resource = self.key.resource;
        match &*locked(&self.owned) {
            Owned::Settled(by) => by.pods == of_pods(resource, planned),
            Owned::Text(text) => {
                let owned: Value = serde_json::from_str(text).unwrap_or_default();
                let at = |value: &Value, path: &str| value.pointer(path).cloned().unwrap_or_default();
                resource.pods().iter().all(|path| match owned::compare(&at(planned, path), &at(&owned, path)) {
                    Match::Exact => true,
                    Match::Defaulted => self.was_written_for_pods(planned),
                    Match::Different => false,
                })
            }
        }
    }

    /// Whether its pods are made from what was written last for them, although the API server keeps it in another form.
    pub fn was_written_for_pods(&self, planned: &Value) -> bool {
        self.plan_hash.is_some_and(|by| by.pods == of_pods(self.key.resource, planned))
    }

    /// The part of its body that can't change while it exists, as a plan may repeat it; none of an object that isn't ours or can change.
    pub fn made_from(&self) -> Option<Value> {
        serde_json::from_str(self.made_from.as_deref()?).ok()
    }

    /// Whether we have written it.
    pub fn ours(&self) -> bool {
        self.ours
    }

    /// Whether a part of what isn't settled is as planned.
    pub fn settled_at(&self, path: &str, planned: &Value) -> bool {
        let Owned::Text(text) = &*locked(&self.owned) else { return false };
        let owned: Value = serde_json::from_str(text).unwrap_or_default();
        owned.pointer(path).is_some_and(|owned| owned::compare(planned, owned) != Match::Different)
    }

    /// Whether another state of it may lead to another plan or status.
    pub fn differs(&self, other: &Self) -> bool {
        self.uid != other.uid
            || self.owner != other.owner
            || self.deleting != other.deleting
            || self.observed != other.observed
            || self.fingerprint != other.fingerprint
    }

    /// A fingerprint of what we own of it.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Takes the hash of the plan out of what we own: no plan says it.
fn take_plan_hash(part: &mut Value) -> Option<PlanHash> {
    let metadata = part.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let hash = annotations.remove(PLAN_HASH);
    if hash.is_some() && annotations.is_empty() {
        metadata.remove("annotations");
    }
    if hash.is_some() && metadata.is_empty() {
        part.as_object_mut()?.remove("metadata");
    }
    PlanHash::parse(hash?.as_str()?)
}

/// What we own of what the pods of an object are made from, if that can't change while it exists.
fn unchangeable_part(resource: &Resource, part: &Value) -> Option<Value> {
    let workload = Workload::find(resource).filter(|workload| workload.is_immutable())?;
    let mut kept = Value::Null;
    for path in workload.made_from {
        if let Some(value) = part.pointer(path) {
            let place = path.split('/').skip(1).fold(&mut kept, |place, name| &mut place[name]);
            *place = owned::unmarked(value.clone());
        }
    }
    kept.is_object().then_some(kept)
}

/// A fingerprint of what pods are made from.
fn of_pods(resource: &Resource, planned: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in resource.pods() {
        planned.pointer(path).map(fingerprint).hash(&mut hasher);
    }
    hasher.finish()
}

/// A short digest of a value, which the order of keys doesn't change: a service whose author only moves a key stays as it is.
pub fn fingerprint(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    discriminant(value).hash(&mut hasher);
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(&mut hasher),
        Value::Number(value) => value.hash(&mut hasher),
        Value::String(value) => value.hash(&mut hasher),
        Value::Array(items) => {
            items.len().hash(&mut hasher);
            for item in items {
                fingerprint(item).hash(&mut hasher);
            }
        }
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| {
                let mut hasher = DefaultHasher::new();
                (key, fingerprint(value)).hash(&mut hasher);
                hasher.finish()
            };
            entries.iter().map(entry).fold(0, u64::wrapping_add).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The field manager for subjects of a kind.
pub fn manager(kind: &str) -> String {
    format!("{FIELD_MANAGER_PREFIX}{}", kind.to_lowercase())
}

/// What an object is asked to be.
fn desired_state(live: &Value, part: &Value) -> Observed {
    let number = |path: &str| live.pointer(path).and_then(Value::as_i64);
    let metadata =
        |map: &str, key: &str| live.get("metadata").and_then(|metadata| metadata.get(map)?.get(key)?.as_str()).map(str::to_owned);
    Observed {
        replicas: number("/spec/replicas"),
        replicas_ours: part.pointer("/spec/replicas").is_some(),
        revision: metadata("annotations", REVISION),
        revisions: metadata("annotations", REVISIONS).map(String::into_boxed_str),
        revision_label: metadata("labels", REVISION_LABEL),
        runtime: metadata("annotations", RUNTIME),
        derived_most: metadata("annotations", DERIVED)
            .and_then(|_| number("/spec/maxReplicas").or_else(|| number("/spec/maxReplicaCount"))),
        made_by: metadata("labels", VERSION),
        scheduler: metadata("annotations", SCHEDULER),
        pod_scheduler: metadata("annotations", POD_SCHEDULER),
        adopted: Adopted::from_live(live).map(Arc::new),
        spec_hash: metadata("annotations", SPEC_HASH),
        attempt: metadata("annotations", ATTEMPT).and_then(|attempt| attempt.parse().ok()),
        memory_usage: metadata("annotations", MEMORY_USAGE).and_then(|text| MemoryUsage::from_annotation(&text)).map(Arc::new),
        ..Observed::default()
    }
}

/// What its own controller says of it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ReportedStatus {
    observed_generation: Option<i64>,
    replicas: i64,
    updated_replicas: i64,
    available_replicas: Option<i64>,
    ready_replicas: Option<i64>,
    conditions: Vec<Condition>,
}

fn observe(resource: &'static Resource, live: &Live<'_>, asked: Observed) -> Observed {
    let asked = Observed { generation: live.metadata.generation, ..asked };
    let workload = Workload::find(resource);
    match workload.map(|workload| workload.status) {
        Some(WorkloadStatus::Knative) => return workload_status::knative(live.status, asked),
        Some(WorkloadStatus::Ray) => return workload_status::ray(live.status, asked),
        Some(WorkloadStatus::Job) => return workload_status::job(live.status, asked),
        Some(WorkloadStatus::Replicas) | None => {}
    }
    let state: ReportedStatus = live.status.and_then(|status| serde_json::from_str(status.get()).ok()).unwrap_or_default();
    // What an autoscaler or a budget tells of itself changes with every pod, and a plan or a status says nothing of it; of routes and pools their
    // parents tell, whoever made them.
    let conditions = if workload.is_some() { state.conditions } else { Vec::new() };
    Observed {
        observed_generation: state.observed_generation,
        current: state.replicas,
        updated: state.updated_replicas,
        // A LeaderWorkerSet calls a group that is ready what a Deployment calls an available replica.
        available: state.available_replicas.or(state.ready_replicas).unwrap_or_default(),
        conditions,
        ..asked
    }
}

#[cfg(test)]
mod tests;
