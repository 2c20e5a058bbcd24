//! The scheduler extender: answers a kube-scheduler that asks to which nodes a pod may go and which of them are best, by the plugins at
//! scheduling-scoring of the active policy set. The judgement is `pointsman_core::placement`'s; what is here is what reaches the outside: the
//! cluster (`stores`), schedulers (`server`, `wire`), and the pods of gangs that can't become whole (`gangs`).
//!
//! A call takes a copy of what is known, decides on it beside the watches, and notes where the pod is likely to go, because the next call comes
//! before a watch shows that.

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

/// How often it is looked whether the cluster was listed for other settings.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How many pods get an event a second because their calls were abandoned. A metric counts all calls.
const MAX_ABANDONED: usize = 8;

/// How many names of schedulers are noted.
const MAX_SCHEDULERS: usize = 64;

/// The bytes that placements are recorded in.
const MAX_PLACEMENT_BYTES: usize = 64 << 20;

/// What an extender is started with.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct ExtenderParts {
    /// The cluster.
    pub client: Client,
    /// What compiles the expressions of custom features.
    pub loader: Arc<Loader>,
    /// What decides.
    pub followed: Followed,
    /// The namespace of the model agents, if there are any.
    pub agents: Option<String>,
    /// How many placements are recorded.
    pub record_placements: usize,
    /// Whether gangs that stay placed in part start over.
    pub dissolve_gangs: bool,
}

/// All that is known, and all that was decided.
pub struct Extender {
    source: CacheSource,
    /// What the cluster is, as the settings want it. Other settings take another.
    cache: ArcSwap<Cache>,
    followed: Followed,
    reserving: Mutex<Reserving>,
    /// What is reserved, as the last change has left it: while nodes are sought for a gang, nobody else waits.
    reserved: ArcSwap<Reservations>,
    deciding: Mutex<Deciding>,
    placements: Arc<Mutex<Placements>>,
    counts: Arc<ExtenderCounts>,
}

/// A pod that an event is about.
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

/// What is reserved. Whoever changes it keeps it locked while policies are asked: two members at once would reserve two places for their gang. It
/// is locked before all else.
#[derive(Debug, Default)]
struct Reserving {
    reservations: Reservations,
    /// The policy set by which gangs were tried last.
    set: Option<Digest>,
}

/// What calls leave for those after them. It is locked after what the watches fill, and before placements.
#[derive(Debug, Default)]
struct Deciding {
    gangs: AskedGangs,
    waiting: Waiting,
    /// The schedulers that have asked.
    schedulers: BTreeSet<String>,
    /// The pods of the last calls that schedulers have abandoned.
    abandoned: Vec<PodReference>,
    /// When one has asked last.
    last_asked: Option<Instant>,
    /// Whether gangs that stay placed in part start over.
    dissolves: bool,
    kept: KeptRanks,
    offers: KeptOffers,
    /// Why policies gave no answer the last time.
    complaint: String,
    /// What was wrong the last time with the labels of a gang.
    gang_complaint: String,
}

impl fmt::Debug for Extender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extender").field("deciding", &self.deciding).finish_non_exhaustive()
    }
}

impl Extender {
    /// Begins to watch. Fails if an expression of the settings can't be compiled.
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

    /// Has other settings decide as soon as the cluster was listed for them. It never ends by itself.
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
                    // While nodes are sought for a gang, that takes a while.
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

    /// What keeps calls from being answered, or none.
    pub fn obstacle(&self) -> Option<String> {
        let policies = self.followed.obstacle.borrow().clone();
        policies.or_else(|| self.cache.load().obstacle())
    }

    /// What decides.
    pub fn policies(&self) -> &Policies {
        &self.followed.policies
    }

    /// What is counted.
    pub fn counts(&self) -> &Arc<ExtenderCounts> {
        &self.counts
    }

    /// Changes what is reserved.
    fn change_reserving<T>(&self, change: impl FnOnce(&mut Reserving) -> T) -> T {
        let mut reserving = locked(&self.reserving);
        let result = change(&mut reserving);
        self.reserved.store(Arc::new(reserving.reservations.clone()));
        result
    }

    fn change_reservations(&self, change: impl FnOnce(&mut Reservations)) {
        self.change_reserving(|reserving| change(&mut reserving.reservations));
    }

    /// How many objects of each kind are known.
    fn objects(&self) -> [(&'static str, u64); 4] {
        self.cache.load().watched.lock().counts()
    }

    /// How many gangs are how far.
    fn gangs(&self) -> [(&'static str, u64); 3] {
        let cluster = self.cache.load().watched.lock().cluster.clone();
        locked(&self.deciding).gangs.counts(&cluster)
    }
}

impl Reserving {
    /// Has gangs that have found no nodes tried again if another policy set decides.
    fn note_set(&mut self, set: Digest) {
        if self.set.replace(set).is_some_and(|before| before != set) {
            self.reservations.retry();
        }
    }
}

impl Deciding {
    /// Notes that a scheduler goes on without the answer for a pod.
    fn note_abandoned(&mut self, pod: PodReference) {
        if self.abandoned.len() < MAX_ABANDONED {
            self.abandoned.push(pod);
        }
    }

    /// Notes which scheduler asks. Anybody can write a name into a pod, and no cluster has many.
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
