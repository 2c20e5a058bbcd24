//! Writes, on the leader, the statuses of FineTunedWeights, and for each runtime the services that use it and the models it can serve.

use crate::{
    allocator::{objects, some_at_once},
    leader::{Leadership, fence::fenced},
    problem::sentence,
    watch::Shared,
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use pointsman_core::{
    claims::Claims,
    decide::{
        Policies, Standing,
        selection::{Inputs as Question, Judged},
    },
    fine_tuned_weights,
    resource::{FINE_TUNED_WEIGHT, INFERENCE_SERVICE, Resource},
    runtime_status::{self, RuntimeSummary, ServedModels, runtimes, served_models, status_patch, written_models},
    usage::runtime_used_by,
    world::{
        ObjectKey, Subject, Surroundings,
        ome::{ModelView, Models, Runtimes, base_model},
    },
};
use pointsman_sandbox::{
    digest::{Digest, Digested},
    point::{self, selection::Candidate},
};
use serde_json::Value;
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

/// The delay during which changes are gathered: they come in bursts, and these statuses aren't urgent.
const GATHER: Duration = Duration::from_secs(1);

/// The delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// The delay before a write is retried for which a right was missing.
const FORBIDDEN_DELAY: Duration = Duration::from_mins(10);

/// The delay before policies that failed for a model are called again: they may fail for each of many models.
const UNANSWERED_DELAY: Duration = Duration::from_mins(1);

/// The maximum number of policy calls: for each model, one for the cluster's runtimes and one per namespace with runtimes. Above it, the
/// statuses don't list the models that a runtime can serve.
const MAX_QUESTIONS: usize = 20_000;

/// The inputs of [`run`].
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Inputs {
    /// The cluster.
    pub client: Client,
    /// Whether this host is the leader.
    pub leadership: Leadership,
    /// The data on models, weights, runtimes and subjects.
    pub shared: Shared,
    /// The namespaces and kinds that this host serves.
    pub claims: Claims,
    /// The policies, which judge runtimes.
    pub policies: Arc<Policies>,
    /// Counts up when another policy set becomes active.
    pub changes: watch::Receiver<u64>,
    /// The reasons why something isn't listed yet, or why the policies aren't active.
    pub obstacles: [watch::Receiver<Option<String>>; 2],
}

/// Writes while this host is the leader. It never ends.
pub async fn run(inputs: Inputs) {
    let mut leadership = inputs.leadership.clone();
    loop {
        let lead = async {
            let [mut listed, mut obstacle] = inputs.obstacles.clone();
            if listed.wait_for(Option::is_none).await.is_ok() && obstacle.wait_for(Option::is_none).await.is_ok() {
                Leading::new(&inputs).run().await;
            }
        };
        leadership.for_a_term(lead).await;
    }
}

/// One term of a leader.
struct Leading<'i> {
    inputs: &'i Inputs,
    /// Writes only while this host is the leader.
    client: Client,
    used: RuntimeUses,
    served: Option<Served>,
    /// The time to call policies again that failed for some of the models.
    ask_again: Option<Instant>,
    /// The version on which the last write of each object was based, until the watch brings a newer version.
    written: BTreeMap<ObjectKey, String>,
    /// The kinds that aren't written: permanently, because somebody else's CRD drops the fields, or until this time, because a right is
    /// missing.
    paused: BTreeMap<&'static Resource, Option<Instant>>,
    /// The problem that was logged last.
    problem: Option<String>,
}

/// The runtime that each subject uses. Most entries are unchanged between two updates.
#[derive(Default)]
struct RuntimeUses {
    known: BTreeSet<ObjectKey>,
    subjects: HashMap<ObjectKey, (Weak<Subject>, Option<ObjectKey>)>,
}

/// The models that each runtime can serve, by its namespace and name, and the inputs of that result.
struct Served {
    models: Weak<Models>,
    runtimes: Weak<Runtimes>,
    set: Digest,
    by_runtime: Arc<ServedModels>,
}

/// A status to write.
struct Write {
    key: ObjectKey,
    manager: &'static str,
    resource_version: String,
    patch: Value,
}

impl RuntimeUses {
    /// The services that use each runtime.
    fn update(&mut self, around: &Surroundings) -> BTreeMap<ObjectKey, BTreeSet<String>> {
        let known: BTreeSet<ObjectKey> = runtimes(around).map(|(key, _)| key).collect();
        let mut before = std::mem::take(&mut self.subjects);
        if known != self.known {
            before.clear();
            self.known = known;
        }
        let mut users: BTreeMap<ObjectKey, BTreeSet<String>> = BTreeMap::new();
        for subject in around.crowd.before(None, None).filter(|subject| !subject.deleting) {
            let same = before.remove(&subject.key).filter(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(subject)));
            let (_, used) = same.unwrap_or_else(|| (Arc::downgrade(subject), runtime_used_by(subject, around)));
            if let Some(used) = &used {
                let name = format!("{}/{}", subject.key.namespace, subject.key.name);
                users.entry(used.clone()).or_default().insert(name);
            }
            self.subjects.insert(subject.key.clone(), (Arc::downgrade(subject), used));
        }
        users
    }
}

impl<'i> Leading<'i> {
    fn new(inputs: &'i Inputs) -> Self {
        Self {
            client: fenced(inputs.client.clone(), inputs.leadership.clone()),
            inputs,
            used: RuntimeUses::default(),
            served: None,
            ask_again: None,
            written: BTreeMap::new(),
            paused: BTreeMap::new(),
            problem: None,
        }
    }

    async fn run(&mut self) {
        let (mut catalogue, mut sets) = (self.inputs.shared.catalogue_changes(), self.inputs.changes.clone());
        loop {
            let has_failed = self.write().await;
            let again = has_failed.then(|| Instant::now() + RETRY_DELAY);
            let retry_at = again.into_iter().chain(self.ask_again).chain(self.paused.values().flatten().copied()).min();
            let retry = async {
                match retry_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = catalogue.changed() => {}
                changed = sets.changed() => if changed.is_err() { return },
                () = retry => {}
            }
            sleep(GATHER).await;
        }
    }

    /// Writes the differences. Returns whether a write failed.
    async fn write(&mut self) -> bool {
        let writes = tokio::task::block_in_place(|| self.writes());
        let requests: Vec<_> = writes.into_iter().map(|write| send(self.client.clone(), write)).collect();
        let mut failure = None;
        for (key, version, answer) in some_at_once(requests).await {
            match answer {
                Ok(status) => {
                    let is_dropped = *key.resource != FINE_TUNED_WEIGHT && !RuntimeSummary::is_stored(&status);
                    if is_dropped && self.paused.insert(key.resource, None).is_none() {
                        tracing::info!(
                            "the CRD {} has no fields for the users of a runtime, so they aren't written: run `pointsman crds install`",
                            key.resource.crd_name()
                        );
                    }
                    self.written.insert(key, version);
                }
                // It has changed or is gone: the watch reports that.
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    if self.paused.insert(key.resource, Some(Instant::now() + FORBIDDEN_DELAY)).is_none() {
                        let (kind, said) = (key.resource.kind, &status.message);
                        tracing::warn!("can't write the status of any {kind}: {said}");
                    }
                }
                Err(error) => failure = Some(format!("{key}: {}", sentence(&error))),
            }
        }
        if let Some(failure) = failure.as_ref().filter(|failure| self.problem.as_ref() != Some(failure)) {
            tracing::warn!("can't write the status of {failure}; trying again");
        }
        let has_failed = failure.is_some();
        self.problem = failure;
        has_failed
    }

    fn writes(&mut self) -> Vec<Write> {
        let Inputs { shared, claims, .. } = self.inputs;
        // A host that serves only some namespaces, or no services, doesn't know which runtimes others use.
        let is_ours = |namespace: &str| claims.contains_in(&INFERENCE_SERVICE, namespace);
        let now = Instant::now();
        self.paused.retain(|_, until| until.is_none_or(|until| now < until));
        let paused: BTreeSet<&Resource> = self.paused.keys().copied().collect();
        let is_paused = |resource: &'static Resource| paused.contains(resource);
        let around = shared.lock().catalogue();
        let mut users = self.used.update(&around);
        let models = self.served(&around);
        let mut writes = Vec::new();
        for (key, runtime) in runtimes(&around).filter(|(key, _)| is_ours(&key.namespace) && !is_paused(key.resource)) {
            let runtime_models = models.as_ref().map(|models| models.get(&(key.namespace.clone(), key.name.clone())).cloned());
            let summary =
                RuntimeSummary { services: users.remove(&key).unwrap_or_default(), models: runtime_models.map(Option::unwrap_or_default) };
            let live = &runtime.live;
            if let Some(status) = summary.status_to_write(&key, live) {
                let patch = status_patch(&live.uid, &live.resource_version, &live.status, &status);
                writes.push(Write { key, manager: runtime_status::STATUS_MANAGER, resource_version: live.resource_version.clone(), patch });
            }
        }
        let time = Timestamp::now();
        for (name, weight) in around.weights.all().filter(|_| is_ours("") && !is_paused(&FINE_TUNED_WEIGHT)) {
            let live = &weight.live.object;
            if let Some(status) = weight.status_to_write(base_model(&around.models, &weight.tuned), time) {
                let key = ObjectKey { resource: &FINE_TUNED_WEIGHT, namespace: String::new(), name: name.to_owned() };
                let patch = status_patch(&live.uid, &live.resource_version, &live.status, &status);
                let manager = fine_tuned_weights::STATUS_MANAGER;
                writes.push(Write { key, manager, resource_version: live.resource_version.clone(), patch });
            }
        }
        // The watch will bring the next version, which is then checked.
        writes.retain(|write| self.written.get(&write.key) != Some(&write.resource_version));
        self.written.retain(|key, _| writes.iter().all(|write| write.key != *key));
        writes
    }

    /// The models that each runtime can serve, as policies judge for a service without labels; none if they can't be called.
    fn served(&mut self, around: &Surroundings) -> Option<Arc<ServedModels>> {
        let set = *self.inputs.policies.active().digest();
        let known = self.served.as_ref().filter(|known| {
            let same = std::ptr::eq(known.models.as_ptr(), Arc::as_ptr(&around.models))
                && std::ptr::eq(known.runtimes.as_ptr(), Arc::as_ptr(&around.runtimes));
            same && known.set == set && self.ask_again.is_none_or(|again| Instant::now() < again)
        });
        if let Some(known) = known {
            return Some(Arc::clone(&known.by_runtime));
        }
        self.ask_again = None;
        let scopes: BTreeSet<&str> = around.runtimes.all.all().map(|(_, runtime)| runtime.candidate.namespace.as_str()).collect();
        if around.models.all().count().saturating_mul(scopes.len()) > MAX_QUESTIONS {
            return None;
        }
        let policies = self.inputs.policies.pin(Standing::Running);
        let failed = Cell::new(false);
        let judge = |namespace: &str, model: &ModelView, candidates: &Digested<Vec<Candidate>>| -> Option<Vec<Judged>> {
            let namespace = [namespace, &model.model.namespace, "default"].into_iter().find(|name| !name.is_empty()).unwrap_or_default();
            let subject = point::Subject {
                group: INFERENCE_SERVICE.group.to_owned(),
                version: INFERENCE_SERVICE.version.to_owned(),
                kind: INFERENCE_SERVICE.kind.to_owned(),
                namespace: namespace.to_owned(),
                name: "any".to_owned(),
                ..point::Subject::default()
            };
            let subject = Digested::new(subject).unwrap_or_default();
            let question =
                Question { subject, model: model.model.clone(), candidates: candidates.clone(), named: true, ..Question::default() };
            let decision = policies.select(&question).inspect_err(|_| failed.set(true)).ok()?;
            Some(decision.answer.judged.clone())
        };
        // A new leader starts with the results that the previous one has written.
        let before = self.served.as_ref().map_or_else(|| Arc::new(written_models(around)), |served| Arc::clone(&served.by_runtime));
        let served = Arc::new(served_models(around, &before, judge));
        self.ask_again = failed.get().then(|| Instant::now() + UNANSWERED_DELAY);
        let (models, runtimes) = (Arc::downgrade(&around.models), Arc::downgrade(&around.runtimes));
        self.served = Some(Served { models, runtimes, set, by_runtime: Arc::clone(&served) });
        Some(served)
    }
}

/// Sends a write. Returns the version it was based on and the resulting status.
async fn send(client: Client, write: Write) -> (ObjectKey, String, kube::Result<Value>) {
    let Write { key, manager, resource_version, patch } = write;
    let api = objects(client, &key);
    // Not by server-side apply: that refuses a field that OME's own CRD lacks.
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let answer = api.patch_status(&key.name, &params, &Patch::Merge(patch)).await;
    (key, resource_version, answer.map(|object| object.data["status"].clone()))
}
