//! The scheduler extender: selects and ranks nodes for a kube-scheduler, with the plugins at scheduling-scoring of the active policy set.
//! The decision is in `pointsman_core::placement`; this module has the connections: to the cluster (`stores`), to schedulers (`server`,
//! `wire`), and to the pods of gangs that can't be completed (`gangs`).
//!
//! A call takes a copy of the known state, decides on it without blocking the watches, and records the pod's likely node, because the next
//! call arrives before a watch shows that.

mod cache;
mod calls;
pub mod counts;
#[cfg(test)]
mod document;
mod features;
mod gangs;
pub mod placements;
pub mod server;
mod stores;
mod upkeep;
mod waiting;
pub mod wire;

use crate::{keeper::follow::Followed, load::Loader};
use arc_swap::ArcSwap;
use cache::{Cache, CacheSource};
use calls::kept::{KeptOffers, KeptRanks};
use counts::ExtenderCounts;
pub(crate) use features::{CompiledFeatures, visible};
use gangs::AskedGangs;
use kube::Client;
use pointsman_core::{
    decide::Policies,
    placement::{Pod, Settings, gangs::Reservations, record::Placements},
};
use pointsman_sandbox::{digest::Digest, sync::locked};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
pub(crate) use stores::downloads;
use tokio::{sync::watch, task::spawn_blocking, time::sleep};
pub use upkeep::Writer;
use waiting::Waiting;

/// The interval of checks whether the cluster was listed for other settings.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The maximum number of pods per second that get an event because their calls were abandoned. A metric counts all calls.
const MAX_ABANDONED: usize = 8;

/// The maximum number of recorded schedulers' names.
const MAX_SCHEDULERS: usize = 64;

/// The maximum size of the recorded placements, in bytes.
const MAX_PLACEMENT_BYTES: usize = 64 << 20;

/// The inputs of an extender.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct ExtenderParts {
    /// The cluster.
    pub client: Client,
    /// Compiles the expressions of custom features.
    pub loader: Arc<Loader>,
    /// The active policies.
    pub followed: Followed,
    /// The namespace of the model agents, if there are any.
    pub agents: Option<String>,
    /// The maximum number of recorded placements.
    pub record_placements: usize,
    /// Whether partly placed gangs start again.
    pub dissolve_gangs: bool,
}

/// The known state and the decisions.
pub struct Extender {
    source: CacheSource,
    /// The cluster's state for the current settings. Other settings get another cache.
    cache: ArcSwap<Cache>,
    followed: Followed,
    reserving: Mutex<Reserving>,
    /// The reservations after the last change: a search for a gang's nodes blocks no other calls.
    reserved: ArcSwap<Reservations>,
    deciding: Mutex<Deciding>,
    placements: Arc<Mutex<Placements>>,
    counts: Arc<ExtenderCounts>,
}

/// The pod of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodReference {
    namespace: String,
    name: String,
    uid: String,
}

impl PodReference {
    fn from_object(object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self { namespace: text("namespace"), name: text("name"), uid: text("uid") }
    }
}

/// The reservations. Keep them locked while policies decide about a change: two members at once would reserve two sets of nodes for their
/// gang. Lock this before all else.
#[derive(Debug, Default)]
struct Reserving {
    reservations: Reservations,
    /// The policy set with which gangs were last tried.
    set: Option<Digest>,
}

/// The state that calls leave for later ones. Lock it after the watches' state, and before placements.
#[derive(Debug, Default)]
struct Deciding {
    gangs: AskedGangs,
    waiting: Waiting,
    /// The schedulers that have sent calls.
    schedulers: BTreeSet<String>,
    /// The pods of the last calls that schedulers have abandoned.
    abandoned: Vec<PodReference>,
    /// When the last call arrived.
    last_asked: Option<Instant>,
    /// Whether partly placed gangs start again.
    dissolves: bool,
    kept: KeptRanks,
    offers: KeptOffers,
    /// Why policies failed the last time.
    complaint: String,
    /// The last problem with the labels of a gang.
    gang_complaint: String,
}

impl fmt::Debug for Extender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extender").field("deciding", &self.deciding).finish_non_exhaustive()
    }
}

impl Extender {
    /// Starts the watches. Fails if an expression of the settings can't be compiled.
    pub async fn start(parts: ExtenderParts, settings: Arc<Settings>) -> Result<Arc<Self>, String> {
        let ExtenderParts { client, loader, followed, agents, record_placements, dissolve_gangs } = parts;
        let placements = Arc::new(Mutex::new(Placements::new(record_placements, MAX_PLACEMENT_BYTES)));
        let counts = Arc::<ExtenderCounts>::default();
        let source = CacheSource { client, loader, agents, placements: Arc::clone(&placements), counts: Arc::clone(&counts) };
        let cache = ArcSwap::new(source.cache(settings).await?);
        Ok(Arc::new(Self {
            source,
            cache,
            followed,
            reserving: Mutex::default(),
            reserved: ArcSwap::default(),
            deciding: Mutex::new(Deciding { dissolves: dissolve_gangs, ..Deciding::default() }),
            placements,
            counts,
        }))
    }

    /// Uses other settings as soon as the cluster was listed for them. It never ends by itself.
    pub async fn follow_settings(self: Arc<Self>, mut newest: watch::Receiver<Arc<Settings>>) {
        while newest.changed().await.is_ok() {
            let settings = newest.borrow_and_update().clone();
            if *settings == *self.cache.load().settings {
                continue;
            }
            let cache = match self.source.cache(settings).await {
                Ok(cache) => cache,
                Err(error) => {
                    tracing::warn!(error, "the settings can't be used; the previous ones stay active");
                    continue;
                }
            };
            let listed = async {
                while cache.obstacle().is_some() {
                    sleep(POLL_INTERVAL).await;
                }
            };
            tokio::select! {
                () = listed => {
                    self.cache.store(Arc::clone(&cache));
                    let extender = Arc::clone(&self);
                    // This takes long while nodes are searched for a gang.
                    _ = spawn_blocking(move || extender.change_reservations(Reservations::retry)).await;
                    tracing::info!("other settings are active");
                }
                changed = newest.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    newest.mark_changed();
                }
            }
        }
        std::future::pending::<()>().await;
    }

    /// The reason why calls can't be handled, or none.
    pub fn obstacle(&self) -> Option<String> {
        let policies = self.followed.obstacle.borrow().clone();
        policies.or_else(|| self.cache.load().obstacle())
    }

    /// The active policies.
    pub fn policies(&self) -> &Policies {
        &self.followed.policies
    }

    /// The metrics.
    pub fn counts(&self) -> &Arc<ExtenderCounts> {
        &self.counts
    }

    /// Changes the reservations.
    fn change_reserving<T>(&self, change: impl FnOnce(&mut Reserving) -> T) -> T {
        let mut reserving = locked(&self.reserving);
        let result = change(&mut reserving);
        self.reserved.store(Arc::new(reserving.reservations.clone()));
        result
    }

    fn change_reservations(&self, change: impl FnOnce(&mut Reservations)) {
        self.change_reserving(|reserving| change(&mut reserving.reservations));
    }

    /// The number of known objects of each kind.
    fn objects(&self) -> [(&'static str, u64); 4] {
        self.cache.load().watched.lock().counts()
    }

    /// The number of gangs by progress.
    fn gangs(&self) -> [(&'static str, u64); 3] {
        let cluster = self.cache.load().watched.lock().cluster.clone();
        locked(&self.deciding).gangs.counts(&cluster)
    }
}

impl Reserving {
    /// Retries gangs without nodes if another policy set is active.
    fn note_set(&mut self, set: Digest) {
        if self.set.replace(set).is_some_and(|before| before != set) {
            self.reservations.retry();
        }
    }
}

impl Deciding {
    /// Records that a scheduler continues without the response for a pod.
    fn note_abandoned(&mut self, pod: PodReference) {
        if self.abandoned.len() < MAX_ABANDONED {
            self.abandoned.push(pod);
        }
    }

    /// Records a scheduler's name. Limited, because anybody can write a name into a pod, and no cluster has many schedulers.
    fn note_scheduler(&mut self, pod: &Pod) {
        self.last_asked = Some(Instant::now());
        if self.schedulers.len() < MAX_SCHEDULERS && !self.schedulers.contains(&pod.scheduler) {
            self.schedulers.insert(pod.scheduler.clone());
        }
    }
}

/// Seconds since 1970.
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}
