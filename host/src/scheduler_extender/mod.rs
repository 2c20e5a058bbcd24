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
pub mod wire;

use crate::{keeper::follow::Followed, load::Loader};
use arc_swap::ArcSwap;
use cache::{Cache, CacheSource};
use calls::kept::KeptRanks;
use counts::ExtenderCounts;
use gangs::AskedGangs;
pub use gangs::Dissolver;
use kube::Client;
use pointsman_core::{
    decide::Policies,
    placement::{
        Settings,
        gangs::{Overdue, Reservations},
        record::Placements,
    },
};
use pointsman_sandbox::{digest::Digest, sync::locked};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{sync::watch, time::sleep};

/// How often it is looked whether the cluster was listed for other settings.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

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
    deciding: Mutex<Deciding>,
    placements: Arc<Mutex<Placements>>,
    counts: Arc<ExtenderCounts>,
}

/// What calls leave for those after them. It is locked after what the watches fill, and before placements.
#[derive(Debug, Default)]
struct Deciding {
    reservations: Reservations,
    /// The policy set by which gangs were tried last.
    set: Option<Digest>,
    gangs: AskedGangs,
    /// The schedulers that have asked.
    schedulers: BTreeSet<String>,
    /// Whether any are to be dissolved.
    dissolves: bool,
    /// Those that are to be dissolved.
    overdue: Vec<Overdue>,
    kept: KeptRanks,
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
                    tracing::warn!(error, "the settings can't be taken; the former ones decide");
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
                    locked(&self.deciding).reservations.retry();
                    tracing::info!("other settings decide from now on");
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

/// Seconds since 1970.
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}
