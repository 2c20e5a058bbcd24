//! The endpoints of a pool, and what is known of each. A request reads a snapshot and waits for nobody; one writer replaces it.
//!
//! Times are microseconds of the caller's clock.

mod rate;
mod state;
#[cfg(test)]
mod tests;

pub use state::{EndpointState, InFlight, Report};

use crate::{
    flow::saturation::Load,
    prefix::{EndpointId, PrefixIndex, index::MAX_ENDPOINTS},
};
use arc_swap::ArcSwap;
use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// An endpoint as the cluster has it: a port of a pod that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// The pod's uid: a pod that comes back under its name has seen nothing.
    pub uid: Arc<str>,
    /// The pod's name.
    pub pod: Arc<str>,
    /// Where requests go.
    pub address: SocketAddr,
    /// The pod's labels.
    pub labels: Arc<BTreeMap<String, String>>,
}

/// An endpoint, with what is known of it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// It, as the cluster has it.
    pub spec: EndpointSpec,
    /// The address as proxies are given it.
    pub text: Arc<str>,
    /// What is known of it.
    pub state: Arc<EndpointState>,
}

impl Endpoint {
    /// The value of a label of its pod.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.spec.labels.get(key).map(String::as_str)
    }

    /// Its part of how full the pool is. A report that is older than `staleness` says nothing.
    pub fn load(&self, now: u64, staleness: u64) -> Load {
        let report = self.state.report().filter(|report| now.saturating_sub(report.at) <= staleness);
        Load {
            waiting: report.as_ref().and_then(|report| report.metrics.waiting),
            kv_usage: report.as_ref().and_then(|report| report.metrics.kv_usage),
            in_flight: self.state.in_flight_requests(),
        }
    }

    /// The same, with what was sent there since its report added to what waits there. A full endpoint has no other place for it, and
    /// otherwise all that waits here would go on at once, whenever a report says that there is a little room.
    pub fn load_ahead(&self, now: u64, staleness: u64) -> Load {
        let load = self.load(now, staleness);
        #[allow(clippy::cast_precision_loss)] // Far below 2^52.
        let sent = self.state.sent_since_report() as f64;
        Load { waiting: load.waiting.map(|waiting| waiting + sent), ..load }
    }
}

/// The endpoints of a pool.
#[derive(Debug, Default)]
pub struct Fleet {
    endpoints: ArcSwap<Vec<Endpoint>>,
    /// Which prefixes each has seen.
    pub prefixes: PrefixIndex,
    numbers: Mutex<Numbers>,
}

/// The numbers that endpoints get.
#[derive(Debug, Default)]
struct Numbers {
    next: u32,
    /// Those of endpoints that have gone, the oldest first: a request on its way may still record something for the last.
    free: VecDeque<u32>,
}

impl Numbers {
    fn take(&mut self) -> Option<EndpointId> {
        if self.next < MAX_ENDPOINTS {
            self.next += 1;
            return Some(EndpointId(self.next - 1));
        }
        self.free.pop_front().map(EndpointId)
    }
}

impl Fleet {
    /// The endpoints as they are now.
    pub fn endpoints(&self) -> Arc<Vec<Endpoint>> {
        self.endpoints.load_full()
    }

    /// Replaces the endpoints. What is known of those that stay is kept. Returns how many there is no room for.
    pub fn replace(&self, specs: Vec<EndpointSpec>) -> usize {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.endpoints.load_full();
        let mut known: BTreeMap<(Arc<str>, SocketAddr), &Endpoint> =
            before.iter().map(|endpoint| ((Arc::clone(&endpoint.spec.uid), endpoint.spec.address), endpoint)).collect();
        let (mut endpoints, mut left_out) = (Vec::with_capacity(specs.len()), 0);
        let mut new = Vec::new();
        for spec in specs {
            match known.remove(&(Arc::clone(&spec.uid), spec.address)) {
                Some(endpoint) => endpoints.push(Endpoint { spec, ..endpoint.clone() }),
                None => new.push(spec),
            }
        }
        let gone: Vec<EndpointId> = known.into_values().map(|endpoint| endpoint.state.id()).collect();
        for id in &gone {
            self.prefixes.forget(*id);
        }
        numbers.free.extend(gone.iter().map(|id| id.0));
        for spec in new {
            let Some(id) = numbers.take() else {
                left_out += 1;
                continue;
            };
            // What was recorded for the number since it was freed isn't this endpoint's.
            self.prefixes.forget(id);
            let text = spec.address.to_string().into();
            endpoints.push(Endpoint { spec, text, state: Arc::new(EndpointState::new(id)) });
        }
        // The same order in every process, and after every restart.
        endpoints.sort_by(|one, other| (&one.spec.pod, one.spec.address).cmp(&(&other.spec.pod, other.spec.address)));
        self.endpoints.store(Arc::new(endpoints));
        left_out
    }
}
