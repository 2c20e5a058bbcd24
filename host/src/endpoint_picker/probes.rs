//! The readiness of a picker with one pool or several.

use super::{
    grpc::Health,
    pool::{LIVENESS, PROCESS_SERVICES, Pool},
};
use std::sync::Arc;

/// The pools of a picker, for readiness probes.
#[derive(Debug)]
pub enum Probes {
    /// It is ready while its pool is.
    One(Arc<Pool>),
    /// It is ready once everything has been listed: a pool that doesn't exist doesn't block the others.
    Several(Vec<Arc<Pool>>),
}

impl Probes {
    fn pools(&self) -> &[Arc<Pool>] {
        match self {
            Self::One(pool) => std::slice::from_ref(pool),
            Self::Several(pools) => pools,
        }
    }

    /// Why it isn't ready, and the remedy.
    pub fn obstacle(&self) -> Option<String> {
        match self {
            Self::One(pool) => pool.view().obstacle(),
            Self::Several(pools) => {
                let unlisted = |pool: &Arc<Pool>| Some(format!("{}: {}", pool.name(), pool.view().unlisted()?));
                let obstacles: Vec<String> = pools.iter().filter_map(unlisted).collect();
                (!obstacles.is_empty()).then(|| obstacles.join("; "))
            }
        }
    }
}

impl Health for Probes {
    fn health(&self, service: &str) -> Option<bool> {
        match service {
            LIVENESS => Some(true),
            _ if PROCESS_SERVICES.contains(&service) => Some(self.obstacle().is_none() && !self.pools().iter().any(|pool| pool.drains())),
            name => self.pools().iter().find(|pool| pool.name() == name).map(|pool| pool.is_ready()),
        }
    }
}
