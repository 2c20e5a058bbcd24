//! One term of a leader: its models, the rounds of allocating and writing, and its state.

use super::{
    Inputs, history,
    places::Places,
    requests::{has_ended, is_conflict, set_finalizers, some_at_once},
    steps::{Batch, admissions, batches, stops, without_moves, without_room},
    stores::{self, Gateway, Seen},
};
use crate::{
    leader::fence::fenced,
    problem::sentence,
    watch::store::{Obstacle, Watched},
};
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use kube::{Api, Client, ResourceExt, api::ListParams};
use pointsman_core::{
    allocation::{
        self, Entry, Held, Ledger, Model, ObjectName, Step,
        cluster::{self, Cluster, History, ModelObject, Stray},
        records::{GATEWAY_ACTIVITY, Reservations},
    },
    decide::{Standing, Undecided},
    memory_admission,
    model_placement::{ClusterView, NodePolicies, QUESTION_TIME},
    planning,
    resource::INFERENCE_MODEL,
    world::{ObjectKey, Subscriber},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

/// The finalizer of eh-ops: a model stays until its memory is free.
const FINALIZER: &str = "inference.eh-ops.io/finalizer";

/// The delay during which changes are gathered: they come in bursts.
const GATHER: Duration = Duration::from_millis(50);

/// The delay before a failed write is retried: the first, and the maximum.
const RETRY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(15)];

/// The maximum number of consecutive allocations. Each advances by at least one step, and the next change continues.
const MAX_ROUNDS: usize = 16;

/// The number of such series after which the log reports that the allocation doesn't settle.
const MAX_RESTLESS: u32 = 20;

/// The maximum number of steps in a message.
const MAX_STEPS_LOGGED: usize = 5;

/// The leader's state.
pub(super) struct Leading {
    inputs: Arc<Inputs>,
    /// Writes only while this host is the leader.
    client: Client,
    touched: Arc<Subscriber>,
    /// The models that this host serves.
    objects: BTreeMap<ObjectKey, ModelObject>,
    stores: Option<Watched<Seen>>,
    /// Counts up when the stores have changed since the last allocation began.
    stores_changed: Option<watch::Receiver<u64>>,
    places: Places,
    /// Whether `places` and `histories` match the cluster.
    is_loaded: bool,
    /// Whether there may be reservations of deleted models.
    has_leftovers: bool,
    histories: BTreeMap<ObjectKey, History>,
    /// The histories that were written, and when.
    saved: BTreeMap<ObjectKey, (u64, History)>,
    /// The last number of a reservation.
    since: u64,
    /// Why the policies couldn't rank models, as last logged.
    unranked: Option<String>,
    /// Why the policies couldn't choose nodes, as last logged.
    unchosen: Option<String>,
    failures: u32,
    /// The number of consecutive allocations that ended with steps left to write.
    restless: u32,
}

/// The first steps, for a message.
fn summary(steps: &[Step]) -> String {
    let text = |step: &Step| match &step.held {
        Some(held) => format!("{} on {}: {:?}", ObjectName::new(&step.model), held.node, held.phase),
        None => format!("{} released", ObjectName::new(&step.model)),
    };
    steps.iter().take(MAX_STEPS_LOGGED).map(text).collect::<Vec<_>>().join(", ")
}

/// Logs why the policies can't decide, unless that was logged last. `what` ends the sentence: the failed decision and its consequence.
fn log_undecided(known: &mut Option<String>, failed: Option<Undecided>, what: &str) {
    let why = failed.map(|failed| failed.to_string());
    if let Some(why) = why.as_ref().filter(|why| known.as_ref() != Some(*why)) {
        tracing::warn!("the scheduling-scoring policies can't {what}: {why}");
    }
    *known = why;
}

fn now_seconds() -> u64 {
    Timestamp::now().as_second().unsigned_abs()
}

impl Leading {
    pub(super) fn new(inputs: Arc<Inputs>) -> Self {
        let touched = inputs.shared.lock().subscribe();
        let client = fenced(inputs.client.clone(), inputs.leadership.clone());
        Self {
            places: Places::new(client.clone(), &inputs.namespace),
            client,
            touched,
            inputs,
            objects: BTreeMap::new(),
            stores: None,
            stores_changed: None,
            is_loaded: false,
            has_leftovers: true,
            histories: BTreeMap::new(),
            saved: BTreeMap::new(),
            since: 0,
            unranked: None,
            unchosen: None,
            failures: 0,
            restless: 0,
        }
    }

    /// Allocates after each change, until the future is dropped.
    pub(super) async fn run(&mut self) {
        let mut news = self.inputs.shared.news();
        let mut settled = self.inputs.settled.0.subscribe();
        let mut changes = self.inputs.changes.clone();
        let all = self.inputs.shared.lock().keys(&INFERENCE_MODEL);
        self.read_models(all);
        loop {
            let again = match self.allocate().await {
                Ok(again) => {
                    self.failures = 0;
                    again
                }
                Err(error) => {
                    self.is_loaded = false;
                    self.failures += 1;
                    // That happens after a change of the leader.
                    if !is_conflict(&error) {
                        tracing::warn!(error = sentence(&error), "the reservations for models can't be written; trying again");
                    }
                    let [least, most] = RETRY;
                    Some(Instant::now() + (least * 2_u32.saturating_pow(self.failures - 1)).min(most))
                }
            };
            let changed = self.stores_changed.as_mut();
            let stores_changed = async {
                match changed {
                    Some(changed) => _ = changed.changed().await,
                    None => std::future::pending().await,
                }
            };
            let due = async {
                match again {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = news.changed() => {}
                _ = settled.changed() => {}
                _ = changes.changed() => {}
                () = stores_changed => {}
                () = due => {}
            }
            sleep(GATHER).await;
            let touched = self.inputs.shared.lock().followed(&self.touched);
            self.read_models(touched.into_iter().filter(|key| *key.resource == INFERENCE_MODEL));
        }
    }

    /// Reads the current state of models.
    fn read_models(&mut self, keys: impl IntoIterator<Item = ObjectKey>) {
        for key in keys {
            let snapshot = self.inputs.shared.lock().snapshot(&key, 0);
            let ours = snapshot.filter(|snapshot| self.inputs.claims.contains(&key) && planning::theirs(snapshot).is_none());
            match ours {
                None => _ = self.objects.remove(&key),
                Some(snapshot) => _ = self.objects.insert(key, memory_admission::model_object(&snapshot)),
            }
        }
    }

    /// Allocates and writes until all steps are written. Returns the time of the next allocation without a change.
    async fn allocate(&mut self) -> kube::Result<Option<Instant>> {
        if self.objects.is_empty() {
            (self.stores, self.stores_changed) = (None, None);
            self.is_loaded = false;
            self.publish(&Ledger::default());
            // Models that can't be listed may still exist.
            let is_known = !self.inputs.shared.lock().denied().contains_key(&INFERENCE_MODEL);
            if is_known && self.has_leftovers {
                self.places.load().await?;
                let nodes: Batch = self.places.by_node().into_keys().map(|node| (node.to_owned(), Reservations::new())).collect();
                self.places.write(nodes).await?;
                self.has_leftovers = false;
            }
            return Ok(None);
        }
        self.has_leftovers = true;
        let Inputs { client, namespace, claims, .. } = &*self.inputs;
        let stores = self.stores.get_or_insert_with(|| stores::start(client, namespace, !claims.namespaces.is_empty()));
        // Before anything is read, so that a change during the writes causes another allocation.
        self.stores_changed = Some(stores.changed());
        let removed = {
            let mut seen = stores.lock();
            match seen.obstacle() {
                None => {}
                Some(Obstacle::Pending) => return Ok(None),
                Some(Obstacle::Failed(why)) => {
                    drop(seen);
                    self.inputs.shared.change(|world| world.set_unallocated(Some(why)));
                    return Ok(None);
                }
            }
            self.places.note(&seen.reserved);
            std::mem::take(&mut seen.removed)
        };
        if !self.is_loaded || self.places.knows(&removed) {
            self.load().await?;
        }
        let mut is_fresh = false;
        for _ in 0..MAX_ROUNDS {
            let (cluster::Inputs { models, strays, .. }, ledger, gone) = self.decide();
            if ledger.steps.is_empty() && strays.is_empty() {
                self.restless = 0;
                self.publish(&ledger);
                self.remember(&models).await;
                self.release_deleted(&models).await;
                let next = ledger.next.map(|next| Instant::now() + Duration::from_secs(next.saturating_sub(now_seconds()).max(1)));
                return Ok(next.into_iter().chain(gone).min());
            }
            let held = |key: &ObjectKey| models.get(key).and_then(|model| model.held.clone());
            if !is_fresh && ledger.steps.iter().any(|step| stops(held, step)) {
                // A new gateway may route to a model that the others no longer use.
                self.refresh_gateways().await?;
                is_fresh = true;
                continue;
            }
            let steps = self.checked(&models, without_moves(ledger.steps.clone())).await?;
            if steps.is_empty() && strays.is_empty() {
                self.publish_unfinished(&models, ledger);
                return Ok(Some(Instant::now() + RETRY[1]));
            }
            self.write(&models, &steps, &strays).await?;
        }
        // Plans follow the steps that are already written, even if the remaining ones take long.
        let (cluster::Inputs { models, .. }, ledger, _) = self.decide();
        self.restless += 1;
        if self.restless == MAX_RESTLESS {
            tracing::warn!(steps = summary(&ledger.steps), "the allocation changes whenever it is written; going on");
        }
        self.publish_unfinished(&models, ledger);
        Ok(Some(Instant::now()))
    }

    /// Reads the reservations and histories from the API server.
    async fn load(&mut self) -> kube::Result<()> {
        if self.histories.is_empty() {
            self.histories = history::load(&self.client, &self.inputs.claims.namespaces).await?;
            self.saved = self.histories.iter().map(|(key, history)| (key.clone(), (0, history.clone()))).collect();
        }
        self.places.load().await?;
        let world = &self.inputs.shared;
        let is_placed = |key: &ObjectKey| {
            let entry = world.lock().snapshot(key, 0).and_then(|snapshot| snapshot.allocated);
            matches!(entry.as_deref(), Some(Entry::Placed { .. }))
        };
        let unfinished = self.with_cluster(|cluster, _| cluster.unfinished(&self.objects, is_placed));
        if !unfinished.is_empty() {
            let [first, _] = batches(&self.places.by_node(), |_| None, &[], &unfinished, || 0);
            self.places.write(first).await?;
        }
        self.is_loaded = true;
        Ok(())
    }

    /// Computes a value from the state of the watches.
    fn with_cluster<T: Default>(&self, work: impl FnOnce(&Cluster<'_>, &ClusterView) -> T) -> T {
        let Some(stores) = &self.stores else { return T::default() };
        let seen = stores.lock();
        let settled = self.inputs.settled.0.borrow();
        let cluster = Cluster {
            nodes: &seen.nodes,
            pods: &seen.pods,
            gateways: seen.living_gateways().map(|gateway| &gateway.activity).collect(),
            places: self.places.by_node(),
            histories: &self.histories,
            settled: &settled,
        };
        work(&cluster, &seen.view)
    }

    /// Computes one allocation, and the time at which the next gateway expires.
    fn decide(&mut self) -> (cluster::Inputs, Ledger, Option<Instant>) {
        let now = now_seconds();
        let (inputs, view) = self.with_cluster(|cluster, view| (cluster.inputs(&self.objects, now), view.clone()));
        let gone = self.stores.as_ref().and_then(|stores| stores.lock().living_gateways().map(Gateway::gone_at).min());
        let mut unranked = None;
        let (ledger, unchosen) = tokio::task::block_in_place(|| {
            let policies = &self.inputs.policies;
            // Running models stay if the policies fail; new ones have nothing to lose.
            let (running, new) = (policies.pin(Standing::Running), policies.pin(Standing::New));
            let started = Instant::now();
            let is_late = || started.elapsed() > QUESTION_TIME;
            let mut nodes = NodePolicies::new(&new, &view, &self.objects, &is_late);
            let ledger = allocation::allocate(
                &inputs.nodes,
                &inputs.models,
                now,
                &mut |rows| memory_admission::score(&running, rows, &mut unranked),
                &mut |choice| nodes.score(choice),
            );
            (ledger, nodes.failed)
        });
        log_undecided(&mut self.unranked, unranked, "rank models, so none is put to sleep for another");
        log_undecided(&mut self.unchosen, unchosen, "choose nodes for models, so models without a node wait");
        (inputs, ledger, gone)
    }

    fn publish(&self, ledger: &Ledger) {
        self.inputs.shared.change(|world| {
            world.set_unallocated(None);
            world.set_allocated(&ledger.entries);
        });
    }

    /// Publishes a ledger before all steps are written. A model that runs without a reservation has no entry then, so that it isn't
    /// stopped.
    fn publish_unfinished(&self, models: &BTreeMap<ObjectKey, Model>, mut ledger: Ledger) {
        let runs = |key: &ObjectKey| models.get(key).is_some_and(|model| model.held.is_none() && !model.pods.is_empty());
        for step in ledger.steps.iter().filter(|step| step.held.is_some() && runs(&step.model)) {
            ledger.entries.remove(&step.model);
        }
        self.publish(&ledger);
    }

    /// Lists the gateways from the API server, because the watch may be behind.
    async fn refresh_gateways(&self) -> kube::Result<()> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.inputs.namespace);
        let list = api.list(&ListParams::default().labels(GATEWAY_ACTIVITY)).await?;
        if let Some(stores) = &self.stores {
            let mut seen = stores.lock();
            for map in list {
                seen.put_gateway(map.name_any(), &map);
            }
        }
        Ok(())
    }

    /// The steps that may be written. Before a step frees memory, the model's pods are listed again; if there are any, nobody gets the
    /// memory. A model that is admitted has the finalizer.
    async fn checked(&self, models: &BTreeMap<ObjectKey, Model>, steps: Vec<Step>) -> kube::Result<Vec<Step>> {
        let held = |key: &ObjectKey| models.get(key).and_then(|model| model.held.clone());
        let admitted: BTreeSet<ObjectKey> = admissions(held, &steps).into_iter().cloned().collect();
        let mut requests = Vec::new();
        for (key, known) in admitted.iter().filter_map(|key| Some((key, self.objects.get(key)?))) {
            if !known.finalizers.iter().any(|known| known == FINALIZER) {
                let finalizers = known.finalizers.iter().cloned().chain([FINALIZER.to_owned()]).collect();
                let (client, key, version) = (self.client.clone(), key.clone(), known.version);
                requests.push(async move { (key.clone(), set_finalizers(client, key, version, finalizers).await) });
            }
        }
        let answers = some_at_once(requests).await;
        let left_out: BTreeSet<ObjectKey> = answers.into_iter().filter(|(_, done)| !done).map(|(key, _)| key).collect();
        let mut requests = Vec::new();
        for step in steps.iter().filter(|step| step.held.is_none()) {
            let (client, model) = (self.client.clone(), step.model.clone());
            requests.push(async move { has_ended(client, &model).await.map(|ended| (model, ended)) });
        }
        let answers = some_at_once(requests).await.into_iter().collect::<kube::Result<Vec<_>>>()?;
        let busy: BTreeSet<ObjectKey> = answers.into_iter().filter(|(_, ended)| !ended).map(|(model, _)| model).collect();
        let unreleased: BTreeSet<String> = busy.iter().filter_map(held).map(|held| held.node).collect();
        let may_be_written = |step: &Step| {
            let is_left_out = left_out.contains(&step.model) || admitted.contains(&step.model) && left_out.contains(&step.with);
            !is_left_out && (step.held.is_some() || !busy.contains(&step.model))
        };
        Ok(without_room(held, steps.into_iter().filter(may_be_written).collect(), &unreleased))
    }

    async fn write(&mut self, models: &BTreeMap<ObjectKey, Model>, steps: &[Step], strays: &[Stray]) -> kube::Result<()> {
        let held = |key: &ObjectKey| -> Option<Held> { models.get(key)?.held.clone() };
        let mut since = self.since;
        let next_since = || {
            since = Timestamp::now().as_millisecond().unsigned_abs().max(since + 1);
            since
        };
        let [first, second]: [Batch; 2] = batches(&self.places.by_node(), held, steps, strays, next_since);
        self.since = since;
        self.places.write(first).await?;
        self.places.write(second).await?;
        let now = now_seconds();
        for key in admissions(held, steps) {
            self.histories.entry(key.clone()).or_default().note_wake(now);
        }
        Ok(())
    }

    /// Updates the histories of models, and writes the changed ones at limited intervals.
    async fn remember(&mut self, models: &BTreeMap<ObjectKey, Model>) {
        self.histories.retain(|key, _| models.contains_key(key));
        self.saved.retain(|key, _| models.contains_key(key));
        let now = now_seconds();
        for (key, model) in models {
            let activity = &model.activity;
            if activity.last_request.is_none() && activity.ready_since.is_none() {
                continue;
            }
            let history = self.histories.entry(key.clone()).or_default();
            history.last_request = history.last_request.max(activity.last_request);
            if activity.ready_since.is_some() {
                history.start_seconds = activity.start_seconds.or(Some(0.0));
            }
        }
        let due = |key: &ObjectKey, history: &History| {
            self.saved.get(key).is_none_or(|(at, saved)| saved != history && now.saturating_sub(*at) >= history::WRITE_INTERVAL)
        };
        let has_deployment = |key: &ObjectKey| self.objects.get(key).is_some_and(|object| object.has_deployment);
        let due: Vec<(ObjectKey, History)> = self
            .histories
            .iter()
            .filter(|(key, history)| has_deployment(key) && due(key, history))
            .map(|(key, history)| (key.clone(), history.clone()))
            .collect();
        let mut requests = Vec::new();
        for (key, history) in due {
            let client = self.client.clone();
            requests.push(async move { (history::save(&client, &key, &history).await, key, history) });
        }
        let answers = some_at_once(requests).await;
        for (answer, key, history) in answers {
            match answer {
                Ok(()) => _ = self.saved.insert(key, (now, history)),
                Err(error) => tracing::debug!(subject = %key, error = sentence(&error), "what is remembered of it can't be written"),
            }
        }
    }

    /// Removes the finalizers of deleted models that have no memory any more.
    async fn release_deleted(&self, models: &BTreeMap<ObjectKey, Model>) {
        let mut requests = Vec::new();
        for (key, object) in &self.objects {
            let is_free = models.get(key).is_none_or(|model| model.held.is_none() && model.pods.is_empty());
            if object.deleting && is_free && object.finalizers.iter().any(|known| known == FINALIZER) {
                let others = object.finalizers.iter().filter(|known| *known != FINALIZER).cloned().collect();
                requests.push(set_finalizers(self.client.clone(), key.clone(), object.version, others));
            }
        }
        some_at_once(requests).await;
    }
}
