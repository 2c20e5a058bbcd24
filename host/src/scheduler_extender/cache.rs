//! The state of the cluster for given settings, which a node's features depend on.

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

/// The number of nodes whose features are computed between two reads of the watches.
const BATCH: usize = 128;

/// Creates caches.
pub(super) struct CacheSource {
    pub(super) client: Client,
    pub(super) loader: Arc<Loader>,
    /// The namespace of the model agents, if there are any.
    pub(super) agents: Option<String>,
    pub(super) placements: Arc<Mutex<Placements>>,
    pub(super) counts: Arc<ExtenderCounts>,
}

/// The state of the watches, until it is dropped.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) settings: Arc<Settings>,
    pub(super) watched: Watched<Seen>,
}

impl CacheSource {
    /// Starts the watches for given settings. Fails if one of their expressions can't be compiled.
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
    /// The reason why calls can't be handled, or none.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.watched.lock().obstacle().map(|obstacle| match obstacle {
            Obstacle::Pending => "the cluster hasn't been listed yet".to_owned(),
            Obstacle::Failed(why) => why,
        })
    }
}

/// Computes the custom features of changed nodes while the cache exists.
async fn evaluate(cache: Weak<Cache>, mut changed: watch::Receiver<u64>, features: Arc<CompiledFeatures>) {
    loop {
        // A change from here on is handled in the next pass.
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
