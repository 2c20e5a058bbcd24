//! Writes the state of each model on the nodes, on the leader: its status, its finalizer, and the fields of its spec that its files
//! determine. A model on a PersistentVolumeClaim is inspected by a Job.

mod copies;
mod inspections;
mod send;
mod stores;

use crate::{
    allocator::some_at_once,
    leader::{Leadership, fence::fenced},
    own_pod,
    problem::sentence,
    watch::{
        Shared,
        store::{Obstacle, Watched},
    },
};
use copies::{Choice, Copying};
use inspections::Inspections;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use pointsman_core::{
    claims::Claims,
    decide::Policies,
    model_nodes::{
        assignment::ModelObject,
        copies::{self as model_copies, Copies, NOT_CHOSEN},
        inspection::{Outcome, Step, unlisted},
        live::LiveModel,
        names::config_map_key,
        summary::summarize,
    },
    world::{ObjectKey, Subscriber, ome::ModelView},
};
use pointsman_crds::ome::model::LifeCycleState;
use pointsman_sandbox::sync::locked;
use send::{Writes, is_outdated, send};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use stores::{Changed, Seen};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

/// The delay during which changes are gathered: they come in bursts.
const GATHER: Duration = Duration::from_millis(100);

/// The scheme of models on PersistentVolumeClaims.
const CLAIM: &str = "pvc";

/// The delay before nodes are chosen for models that the last round had no time for.
const CHOICE_DELAY: Duration = Duration::from_millis(200);

/// The delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(15);

/// The inputs of [`run`].
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Inputs {
    /// The cluster.
    pub client: Client,
    /// Whether this host is the leader.
    pub leadership: Leadership,
    /// The world, which has the models.
    pub shared: Shared,
    /// The namespaces whose models this host serves.
    pub claims: Claims,
    /// The policies, which choose the nodes of models that only some nodes should have.
    pub policies: Arc<Policies>,
    /// The namespace of the agents' reports.
    pub namespace: String,
    /// The image that inspects models on claims.
    pub image: InspectImage,
    /// The kinds that aren't listed yet, or none.
    pub listed: watch::Receiver<Option<String>>,
}

/// The settings for model agents' reports, and for the inspection of models that agents don't see.
#[derive(Clone, Debug)]
pub struct ModelReports {
    /// The namespace of the agents' ConfigMaps.
    pub namespace: String,
    /// The image of the Jobs, if an administrator has specified it.
    pub inspect_image: Option<String>,
}

/// The source of the image that inspects models on claims.
#[derive(Clone, Debug)]
pub enum InspectImage {
    /// An administrator has specified the image.
    Given(String),
    /// The image of the host's own pod.
    OfPod {
        /// The namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
}

/// Writes while this host is the leader. It never ends.
pub async fn run(inputs: Inputs) {
    let mut leadership = inputs.leadership.clone();
    loop {
        let lead = async {
            let mut listed = inputs.listed.clone();
            if listed.wait_for(Option::is_none).await.is_ok() {
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
    followed: Arc<Subscriber>,
    stores: Watched<Seen>,
    copying: Copying,
    inspections: Watched<Inspections>,
    /// The image that inspects models on claims, or why it isn't known.
    image: Result<String, String>,
    /// Why the Jobs that inspect these models could not be created, and when to retry.
    refusals: BTreeMap<ObjectKey, (String, Instant)>,
    /// The reason why Jobs and pods weren't known at the last check.
    job_obstacle: Option<Obstacle>,
    /// The models, by their keys in the agents' ConfigMaps.
    models: HashMap<String, ObjectKey>,
    /// The models to recheck because a write has failed, with the last logged reason.
    failed: BTreeMap<ObjectKey, String>,
    /// When to recheck them.
    retry_at: Option<Instant>,
    /// The version on which the last write of each model was based, until the watch brings a newer version.
    written: BTreeMap<ObjectKey, String>,
    /// The problem that was logged last.
    obstacle: Option<String>,
}

impl<'i> Leading<'i> {
    fn new(inputs: &'i Inputs) -> Self {
        Self {
            client: fenced(inputs.client.clone(), inputs.leadership.clone()),
            followed: inputs.shared.lock().follow_models(),
            stores: stores::start(&inputs.client, &inputs.namespace, !inputs.claims.namespaces.is_empty()),
            copying: Copying::default(),
            inspections: inspections::start(&inputs.client, &inputs.claims.namespaces),
            image: match &inputs.image {
                InspectImage::Given(image) => Ok(image.clone()),
                InspectImage::OfPod { .. } => Err("it is not known yet".to_owned()),
            },
            refusals: BTreeMap::new(),
            job_obstacle: Some(Obstacle::Pending),
            inputs,
            models: HashMap::new(),
            failed: BTreeMap::new(),
            retry_at: None,
            written: BTreeMap::new(),
            obstacle: None,
        }
    }

    async fn run(&mut self) {
        let (mut models, mut seen) = (self.inputs.shared.model_changes(), self.stores.changed());
        let mut inspected = self.inspections.changed();
        let mut waiting = BTreeSet::new();
        loop {
            waiting.extend(self.changed());
            waiting.extend(self.unblocked());
            if self.is_known() {
                self.write(std::mem::take(&mut waiting)).await;
            }
            let retry_at = self.retry_at;
            let retry = async {
                match retry_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = models.changed() => {}
                _ = seen.changed() => {}
                _ = inspected.changed() => {}
                () = retry => {
                    self.retry_at = None;
                    waiting.extend(self.failed.keys().cloned());
                }
            }
            sleep(GATHER).await;
        }
    }

    /// The models with changes.
    fn changed(&mut self) -> BTreeSet<ObjectKey> {
        let mut changed = std::mem::take(&mut *locked(&self.followed));
        for model in &changed {
            self.models.insert(config_map_key(&model.namespace, &model.name), model.clone());
        }
        let Changed { nodes, keys } = self.stores.lock().take_changed();
        if nodes {
            changed.extend(self.models.values().cloned());
        }
        let inspected = self.inspections.lock().take_changed();
        changed.extend(keys.iter().chain(&inspected).filter_map(|key| self.models.get(key)).cloned());
        changed
    }

    /// Whether nodes and reports are known. An unknown object must not seem absent.
    fn is_known(&mut self) -> bool {
        let obstacle = self.stores.lock().unlisted.obstacle();
        let why = obstacle.as_ref().and_then(Obstacle::failure).map(str::to_owned);
        if let Some(why) = &why
            && self.obstacle.as_ref() != Some(why)
        {
            tracing::warn!("the status of models isn't written: {why}");
        }
        self.obstacle = why;
        obstacle.is_none()
    }

    /// The models to recheck because the reason why Jobs and pods aren't known has changed or is gone.
    fn unblocked(&mut self) -> Vec<ObjectKey> {
        let obstacle = self.inspections.lock().obstacle();
        if obstacle == self.job_obstacle {
            return Vec::new();
        }
        if let Some(why) = obstacle.as_ref().and_then(Obstacle::failure) {
            tracing::warn!("models on claims aren't inspected: {why}");
        }
        self.job_obstacle = obstacle;
        self.models.values().filter(|model| self.is_on_claim(model)).cloned().collect()
    }

    fn is_on_claim(&self, model: &ObjectKey) -> bool {
        self.inputs.shared.lock().model(model).is_some_and(|view| view.live.object.scheme() == CLAIM)
    }

    /// Finds the image if there are models that need it. Returns the models that still wait for it.
    async fn find_image(&mut self, models: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        let needing = |leading: &Self| models.iter().filter(|model| leading.needs_image(model)).cloned().collect::<Vec<_>>();
        match &self.inputs.image {
            InspectImage::OfPod { namespace, name } if self.image.is_err() && !needing(self).is_empty() => {
                let image = own_pod::image(&self.client, namespace, name).await;
                self.image = image.map_err(|error| format!("{error}: set the host's flag --model-inspect-image"));
            }
            _ => return Vec::new(),
        }
        needing(self)
    }

    fn needs_image(&self, key: &ObjectKey) -> bool {
        let view = self.view(key);
        let live = view.as_ref().map(|view| &view.live);
        live.is_some_and(|live| {
            live.object.scheme() == CLAIM
                && self.inspect(live, key, &config_map_key(&key.namespace, &key.name)).is_some_and(|outcome| outcome.needs_image)
        })
    }

    async fn write(&mut self, models: BTreeSet<ObjectKey>) {
        let without_image = self.find_image(&models).await;
        let mut requests = Vec::new();
        let known = self.failed.clone();
        self.copying.begin();
        for model in models {
            self.failed.remove(&model);
            let view = self.view(&model);
            let live = view.as_ref().map(|view| &view.live);
            let choice = self.choose_nodes(&model, live);
            if choice.is_unfinished {
                self.failed.insert(model.clone(), String::new());
                // Soon, if only the time was over or something isn't listed yet.
                let delay = if self.copying.failure(&model).is_some() { RETRY_DELAY } else { CHOICE_DELAY };
                let again = Instant::now() + delay;
                self.retry_at = Some(self.retry_at.map_or(again, |known| known.min(again)));
            }
            if !self.is_on_claim(&model) {
                self.refusals.remove(&model);
            }
            match live.map(|live| self.writes(&model, live, &choice)) {
                None => {
                    self.refusals.remove(&model);
                    self.models.remove(&config_map_key(&model.namespace, &model.name));
                    self.written.remove(&model);
                }
                Some(writes) if writes.is_empty() => {}
                Some(writes) => requests.push(send(self.client.clone(), model, writes)),
            }
        }
        self.failed.extend(without_image.into_iter().map(|model| (model, String::new())));
        for (model, answer, created) in some_at_once(requests).await {
            match created {
                // The status reports it at once; the next attempt is later.
                Some(Err(why)) => {
                    self.refusals.insert(model.clone(), (why, Instant::now() + RETRY_DELAY));
                    self.retry_at = Some(Instant::now());
                }
                Some(Ok(())) => _ = self.refusals.remove(&model),
                None => {}
            }
            match answer {
                Ok(written) => self.written.extend(written.map(|version| (model, version))),
                // It has changed or is gone: the watch reports that.
                Err(error) if is_outdated(&error) => _ = self.failed.insert(model, String::new()),
                Err(error) => {
                    let why = sentence(&error);
                    if known.get(&model) != Some(&why) {
                        tracing::warn!(subject = %model, error = why, "the model's state on nodes can't be written; trying again");
                    }
                    self.failed.insert(model, why);
                }
            }
        }
        for model in self.refusals.keys() {
            self.failed.entry(model.clone()).or_default();
        }
        if self.failed.is_empty() {
            self.retry_at = None;
        } else {
            self.retry_at.get_or_insert_with(|| Instant::now() + RETRY_DELAY);
        }
    }

    /// A model, if this host serves it.
    fn view(&self, key: &ObjectKey) -> Option<Arc<ModelView>> {
        let namespaces = &self.inputs.claims.namespaces;
        self.inputs.shared.lock().model(key).filter(|_| namespaces.is_empty() || namespaces.contains(&key.namespace))
    }

    /// The nodes of a model that only some nodes should have. Chooses missing ones.
    fn choose_nodes(&mut self, key: &ObjectKey, live: Option<&LiveModel>) -> Choice {
        let Some((model, copies)) = live.and_then(|model| Some((model, copies(&model.object)?))) else {
            self.copying.remove(key);
            return Choice::default();
        };
        if self.written.get(key) == Some(&model.resource_version) {
            return Choice::default();
        }
        let model = &model.object;
        let kept = {
            let seen = self.stores.lock();
            copies.keep(&model.storage, &seen.nodes, seen.reports.for_model(&config_map_key(&key.namespace, &key.name)))
        };
        let namespace_labels = self.inputs.shared.lock().namespace_labels(&key.namespace);
        let limited = !self.inputs.claims.namespaces.is_empty();
        self.copying.choose((&self.client, limited), &self.inputs.policies, (key, model), &namespace_labels, kept)
    }

    /// The writes for a model.
    fn writes(&self, key: &ObjectKey, model: &LiveModel, choice: &Choice) -> Writes {
        // The watch will bring the next version, which is then checked.
        if self.written.get(key) == Some(&model.resource_version) {
            return Writes::default();
        }
        let seen = self.stores.lock();
        let Seen { nodes, reports, .. } = &*seen;
        let name = config_map_key(&key.namespace, &key.name);
        let reported = reports.for_model(&name);
        let finalizers = model.finalizers_to_write(reported, nodes);
        let Writes { facts, status, overwrites, inspected, steps, .. } = if model.object.scheme() == CLAIM {
            self.writes_by_inspection(model, key, &name)
        } else {
            let mut summary = summarize(&model.object, nodes, reported, |node| reports.has_agent(node));
            if let Some(why) = self.copying.failure(key).filter(|_| summary.condition.reason == NOT_CHOSEN) {
                summary.condition.message = format!("{} The policies can't choose: {why}.", summary.condition.message);
            }
            let overwrites = reported.keys().any(|node| nodes.contains_key(&**node));
            Writes {
                facts: model.facts_to_write(&summary),
                status: model.status_to_write(&summary, overwrites, Timestamp::now()),
                overwrites,
                steps: self.inspections.lock().leftovers(&model.object, &name),
                ..Writes::default()
            }
        };
        let copy_nodes = copies(&model.object).and_then(|copies| {
            let is_same = copies.count.is_err() || choice.nodes == copies.nodes;
            (!is_same).then(|| model_copies::text(&choice.nodes))
        });
        let (uid, resource_version) = (model.object.uid.clone(), model.resource_version.clone());
        Writes { uid, resource_version, finalizers, copy_nodes, facts, status, overwrites, inspected, steps }
    }

    /// The inspection outcome of a model on a claim; none while Jobs and pods aren't known.
    fn inspect(&self, model: &LiveModel, key: &ObjectKey, name: &str) -> Option<Outcome> {
        let seen = self.inspections.lock();
        if seen.obstacle().is_some() {
            return None;
        }
        let refusal = self.refusals.get(key);
        let image = self.image.as_deref().map_err(String::as_str);
        let why = refusal.map(|(why, _)| why.as_str());
        let mut outcome = seen.outcome(model, name, image, why);
        if refusal.is_some_and(|(_, again)| Instant::now() < *again) {
            outcome.steps.retain(|step| !matches!(step, Step::Create(_)));
        }
        Some(outcome)
    }

    /// The writes for a model on a claim. A model that a user has declared to be ready isn't inspected.
    fn writes_by_inspection(&self, model: &LiveModel, key: &ObjectKey, name: &str) -> Writes {
        let now = Timestamp::now();
        if model.object.is_deleting {
            return Writes::default();
        }
        let is_by_hand = model.has_foreign_state && model.status.state == Some(LifeCycleState::Ready);
        let Some(Outcome { summary, steps, .. }) = self.inspect(model, key, name) else {
            // The status stays unchanged while Jobs aren't known.
            let why = self.job_obstacle.as_ref().and_then(Obstacle::failure).filter(|_| model.status.state.is_none());
            let status = why.and_then(|why| model.status_to_write(&unlisted(why), true, now));
            return Writes { status, overwrites: true, inspected: true, ..Writes::default() };
        };
        let status = model.status_to_write(&summary, !is_by_hand, now);
        if is_by_hand {
            let steps = self.inspections.lock().leftovers(&model.object, name);
            return Writes { status, inspected: true, steps, ..Writes::default() };
        }
        Writes { facts: model.facts_to_write(&summary), status, overwrites: true, inspected: true, steps, ..Writes::default() }
    }
}

/// The number of nodes that should have a model, unless all should. A model on a claim isn't on nodes, and a deleted one gets no more
/// nodes.
fn copies(model: &ModelObject) -> Option<&Copies> {
    model.copies.as_ref().filter(|_| !model.is_deleting && model.scheme() != CLAIM)
}
