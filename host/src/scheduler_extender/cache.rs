//! What the cluster is, as some settings want it: a node's features depend on them.

use super::{
    counts::ExtenderCounts,
    features::CompiledFeatures,
    stores::{self, Seen},
};
use crate::{
    load::Loader,
    watch::store::{Obstacle, Watched},
};
use kube::Client;
use pointsman_core::placement::{Settings, record::Placements};
use std::sync::{Arc, Mutex, Weak};
use tokio::{sync::watch, task::spawn_blocking};

/// Of how many nodes features are found between two looks at the watches.
const BATCH: usize = 128;

/// Where caches come from.
pub(super) struct CacheSource {
    pub(super) client: Client,
    pub(super) loader: Arc<Loader>,
    /// The namespace of the model agents, if there are any.
    pub(super) agents: Option<String>,
    pub(super) placements: Arc<Mutex<Placements>>,
    pub(super) counts: Arc<ExtenderCounts>,
}

/// What the watches have seen, until it is dropped.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) settings: Arc<Settings>,
    pub(super) watched: Watched<Seen>,
}

impl CacheSource {
    /// Begins to watch for some settings. Fails if an expression of theirs can't be compiled.
    pub(super) async fn cache(&self, settings: Arc<Settings>) -> Result<Arc<Cache>, String> {
        let features = if settings.features.is_empty() {
            None
        } else {
            let (loader, wanted, counts) = (Arc::clone(&self.loader), Arc::clone(&settings), Arc::clone(&self.counts));
            let compiling = spawn_blocking(move || CompiledFeatures::new(&wanted.features, loader.evaluator()?, counts));
            Some(Arc::new(compiling.await.map_err(|error| error.to_string())??))
        };
        let placements = Arc::clone(&self.placements);
        let watched = stores::start(&self.client, Arc::clone(&settings), self.agents.as_deref(), placements);
        let changed = watched.changed();
        let cache = Arc::new(Cache { settings, watched });
        if let Some(features) = features {
            tokio::spawn(evaluate(Arc::downgrade(&cache), changed, features));
        }
        Ok(cache)
    }
}

impl Cache {
    /// What keeps questions from being answered, or none.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.watched.lock().obstacle().map(|obstacle| match obstacle {
            Obstacle::Pending => "the cluster hasn't been listed yet".to_owned(),
            Obstacle::Failed(why) => why,
        })
    }
}

/// Finds the custom features of nodes that have changed, for as long as the cache is there.
async fn evaluate(cache: Weak<Cache>, mut changed: watch::Receiver<u64>, features: Arc<CompiledFeatures>) {
    loop {
        // What changes from here on is seen by the next look.
        changed.borrow_and_update();
        loop {
            let Some(cache) = cache.upgrade() else { return };
            let batch = cache.watched.lock().take_unevaluated(BATCH);
            if batch.is_empty() {
                cache.watched.lock().put_features(Vec::new());
                break;
            }
            let features = Arc::clone(&features);
            let finding = spawn_blocking(move || -> Vec<(String, Vec<f64>)> {
                let one = |(name, text): (String, Arc<str>)| {
                    let values = features.values(&name, text);
                    (name, values)
                };
                batch.into_iter().map(one).collect()
            });
            let found = finding.await.unwrap_or_default();
            cache.watched.lock().put_features(found);
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}
