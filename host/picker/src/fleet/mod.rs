//! The endpoints of a pool and their states. A request reads a snapshot without waiting; one writer replaces it.
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

/// An endpoint in the cluster: a port of a pod that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// The pod's uid. A new pod with the same name has seen nothing.
    pub uid: Arc<str>,
    /// The pod's name.
    pub pod: Arc<str>,
    /// The address for requests.
    pub address: SocketAddr,
    /// The pod's labels.
    pub labels: Arc<BTreeMap<String, String>>,
}

/// An endpoint with its state.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The endpoint in the cluster.
    pub spec: EndpointSpec,
    /// The address in the form for proxies.
    pub text: Arc<str>,
    /// The state.
    pub state: Arc<EndpointState>,
}

impl Endpoint {
    /// The value of a label of its pod.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.spec.labels.get(key).map(String::as_str)
    }

    /// Its load for the pool's saturation. A report that is older than `staleness` is ignored.
    pub fn load(&self, now: u64, staleness: u64) -> Load {
        let report = self.state.report().filter(|report| now.saturating_sub(report.at) <= staleness);
        Load {
            waiting: report.as_ref().and_then(|report| report.metrics.waiting),
            kv_usage: report.as_ref().and_then(|report| report.metrics.kv_usage),
            in_flight: self.state.in_flight_requests(),
        }
    }

    /// The same, but the requests that were sent since its report are added to its queue. A full endpoint can't take them anyway, and
    /// otherwise the whole queue here would be dispatched at once as soon as a report shows a little room.
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
    /// The prefixes that each endpoint has seen.
    pub prefixes: PrefixIndex,
    numbers: Mutex<Numbers>,
}

/// The numbers of endpoints.
#[derive(Debug, Default)]
struct Numbers {
    next: u32,
    /// The numbers of removed endpoints, oldest first: a pending request may still record something for the last one.
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
    /// The current endpoints.
    pub fn endpoints(&self) -> Arc<Vec<Endpoint>> {
        self.endpoints.load_full()
    }

    /// Replaces the endpoints. Those that stay keep their state. Returns the number of endpoints that exceed the limit.
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
            // Anything that was recorded for the number since it was freed doesn't belong to this endpoint.
            self.prefixes.forget(id);
            let text = spec.address.to_string().into();
            endpoints.push(Endpoint { spec, text, state: Arc::new(EndpointState::new(id)) });
        }
        // The order is the same in every process and after every restart.
        endpoints.sort_by(|one, other| (&one.spec.pod, one.spec.address).cmp(&(&other.spec.pod, other.spec.address)));
        self.endpoints.store(Arc::new(endpoints));
        left_out
    }
}
