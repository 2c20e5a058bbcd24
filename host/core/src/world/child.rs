//! The stored state of an owned object: the part that we own, and its observed state.

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

/// An object that was created for a subject.
#[derive(Debug)]
pub struct OwnedObject {
    /// Its identity.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its resource version: the state with the higher version is the newer one.
    pub version: u64,
    /// The uid of its subject.
    pub owner: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its observed state.
    pub observed: Observed,
    /// The fingerprint of all parsed fields except the status.
    content: u64,
    /// Whether we have written it.
    ours: bool,
    /// The part that we own, as text, and the fingerprint of that part.
    owned: Mutex<Owned>,
    fingerprint: u64,
    /// The owned part of the fields that pods are created from, as text, if these fields are immutable.
    made_from: Option<Arc<str>>,
    /// The plan that last wrote it, from its annotation.
    plan_hash: Option<PlanHash>,
}

/// The part of an object that we own.
#[derive(Clone, Debug)]
enum Owned {
    Text(Box<str>),
    /// The part equals the plan with this hash: the text is no longer needed for comparisons, and thousands of texts would waste memory.
    Settled(PlanHash),
}

/// The hash of the plan that wrote an object. The object has it as an annotation, so that after a start, the host can tell defaults within
/// a value that we own as a whole from leftovers of an earlier plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanHash {
    /// The hash of the whole planned object.
    plan: u64,
    /// The hash of the fields that pods are created from.
    pods: u64,
}

impl PlanHash {
    /// Hashes a planned object whose fingerprint is known.
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

/// The observed state that a subject's status and plan depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The generation that its controller has observed.
    pub observed_generation: Option<i64>,
    /// The requested number of replicas.
    pub replicas: Option<i64>,
    /// Whether we own that number.
    pub replicas_ours: bool,
    /// The number of existing replicas, of any version.
    pub current: i64,
    /// The number of replicas of the latest version.
    pub updated: i64,
    /// The number of replicas that can serve requests.
    pub available: i64,
    /// Its conditions, if it runs pods.
    pub conditions: Vec<Condition>,
    /// The annotation with its component's revision and the hash of its template.
    pub revision: Option<String>,
    /// Its previous revisions, with their hashes.
    pub revisions: Option<Box<str>>,
    /// The revision in its label.
    pub revision_label: Option<String>,
    /// The choice of a runtime that it was created with.
    pub runtime: Option<String>,
    /// For an autoscaler: the derived maximum number of replicas, if nobody sets one.
    pub derived_most: Option<i64>,
    /// The version of the host that created it.
    pub made_by: Option<String>,
    /// For a scheduler's objects: the endpoint picker that they run, if it isn't llm-d's.
    pub scheduler: Option<String>,
    /// The scheduler that the host has set in templates that named none.
    pub pod_scheduler: Option<String>,
    /// The status of a Knative Service's revisions.
    pub serving: Option<Box<KnativeStatus>>,
    /// The retained state from another controller.
    pub adopted: Option<Arc<Adopted>>,
    /// The measured memory usage of its pods.
    pub memory_usage: Option<Arc<MemoryUsage>>,
    /// The hash of the subject's spec that it was created from.
    pub spec_hash: Option<String>,
    /// The number of restarts of its run before it was created.
    pub attempt: Option<i64>,
    /// A Job's status of its pods.
    pub job: Option<Box<JobStatus>>,
}

/// A condition of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// A reason in CamelCase.
    pub reason: String,
    /// A message.
    pub message: String,
    /// The generation that it applies to.
    #[serde(rename = "observedGeneration")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// Whether it applies to this generation or names none. A condition for an earlier generation is ignored.
    pub fn is_for_generation(&self, generation: Option<i64>) -> bool {
        self.observed_generation.is_none_or(|seen| Some(seen) >= generation)
    }
}

impl Observed {
    /// The condition of this type, if it is set.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether its controller has observed the current spec.
    pub fn current_generation(&self) -> bool {
        // Some kinds have the generation only in their conditions.
        let seen = self.observed_generation.or_else(|| self.condition("Available")?.observed_generation);
        seen.is_some() && seen >= self.generation
    }
}

/// The annotation of a workload with its revision and its template's hash.
pub const REVISION: &str = "pointsman.dev/revision";

/// The annotation of a workload with its latest revisions, each as the number and the hash of the templates; the last one is the current
/// revision.
pub const REVISIONS: &str = "pointsman.dev/revisions";

/// The annotation of a workload with the choice of a runtime that it was created with. With OME's own CRDs, the status has no field for the
/// choice, so it is stored here.
pub const RUNTIME: &str = "pointsman.dev/runtime";

/// The annotation of an `LLMInferenceService` that selects its scheduler, and of the scheduler's objects with the one that they run.
pub const SCHEDULER: &str = "pointsman.dev/scheduler";

/// The annotation of a workload with the scheduler that the host has set in its pod templates because they named none.
pub const POD_SCHEDULER: &str = "pointsman.dev/pod-scheduler";

/// The annotation of an autoscaler whose maximum is derived.
pub const DERIVED: &str = "pointsman.dev/derived-max";

/// The label with the revision of a component on its objects and pods.
pub const REVISION_LABEL: &str = "serving.ome.io/revision";

/// The annotation of a workload with the generation of its subject that it was created from.
pub const GENERATION: &str = "ome.io/resource-version";

/// The annotation of a workload with the subject's applied spec.
pub const APPLIED: &str = "ome.io/last-applied-configuration";

/// The annotation of a Job with the hash of the subject's spec that it was created from.
pub const SPEC_HASH: &str = "pointsman.dev/spec-hash";

/// The annotation of a Job with the number of restarts of its run before it.
pub const ATTEMPT: &str = "pointsman.dev/attempt";

/// The annotation of every object with the hash of the plan that last wrote it.
pub const PLAN_HASH: &str = "pointsman.dev/plan-hash";

/// The label with the version of the host that created an object.
pub const VERSION: &str = "ome.io/version";

impl OwnedObject {
    /// Parses a live object. Unchanged parts are taken from its known earlier state.
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
            // Only fields of others may have changed.
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
            // The object equals only the plan with this hash.
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

    /// Whether its running pods match the plan.
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

    /// Whether its pods were created from the last write of these fields, although the API server stores them in another form.
    pub fn was_written_for_pods(&self, planned: &Value) -> bool {
        self.plan_hash.is_some_and(|by| by.pods == of_pods(self.key.resource, planned))
    }

    /// The owned immutable part of its body, for a plan to repeat; none for an object that isn't ours or is mutable.
    pub fn made_from(&self) -> Option<Value> {
        serde_json::from_str(self.made_from.as_deref()?).ok()
    }

    /// Whether we have written it.
    pub fn ours(&self) -> bool {
        self.ours
    }

    /// Whether a part of an object that isn't settled as a whole is as planned.
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

    /// The fingerprint of the part that we own.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Removes the hash of the plan from the owned part, because plans don't contain it.
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

/// The owned part of the fields that pods are created from, if they are immutable.
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

/// The fingerprint of the fields that pods are created from.
fn of_pods(resource: &Resource, planned: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in resource.pods() {
        planned.pointer(path).map(fingerprint).hash(&mut hasher);
    }
    hasher.finish()
}

/// A short hash of a value, independent of the order of keys: reordering keys changes nothing for a service.
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

/// The requested state of an object.
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

/// The status that its controller reports.
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
    // The conditions of autoscalers and disruption budgets change with every pod, but no plan or status uses them; for routes and pools,
    // the conditions of their parents are stored elsewhere.
    let conditions = if workload.is_some() { state.conditions } else { Vec::new() };
    Observed {
        observed_generation: state.observed_generation,
        current: state.replicas,
        updated: state.updated_replicas,
        // A LeaderWorkerSet reports ready groups where a Deployment reports available replicas.
        available: state.available_replicas.or(state.ready_replicas).unwrap_or_default(),
        conditions,
        ..asked
    }
}

#[cfg(test)]
mod tests;
