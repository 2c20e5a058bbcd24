//! What is known of one endpoint. Many requests read and write it at once, and none waits for another.

use super::rate::Rate;
use crate::{engine_metrics::EngineMetrics, prefix::EndpointId};
use arc_swap::{ArcSwapOption, Guard};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What an endpoint has reported of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// When.
    pub at: u64,
    /// What.
    pub metrics: EngineMetrics,
}

/// What is known of an endpoint.
#[derive(Debug)]
pub struct EndpointState {
    id: EndpointId,
    report: ArcSwapOption<Report>,
    in_flight_requests: AtomicU64,
    in_flight_tokens: AtomicU64,
    sent: Rate,
    sent_since_report: AtomicU64,
    cold_request: AtomicU64,
    unreachable_until: AtomicU64,
    silent_until: AtomicU64,
}

impl EndpointState {
    pub(super) fn new(id: EndpointId) -> Self {
        Self {
            id,
            report: ArcSwapOption::empty(),
            in_flight_requests: AtomicU64::new(0),
            in_flight_tokens: AtomicU64::new(0),
            sent: Rate::default(),
            sent_since_report: AtomicU64::new(0),
            cold_request: AtomicU64::new(0),
            unreachable_until: AtomicU64::new(0),
            silent_until: AtomicU64::new(0),
        }
    }

    /// Its number.
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// What it has reported last.
    pub fn report(&self) -> Option<Arc<Report>> {
        self.report.load_full()
    }

    pub(crate) fn report_guard(&self) -> Guard<Option<Arc<Report>>> {
        self.report.load()
    }

    /// Takes what it reports.
    pub fn set_report(&self, report: Report) {
        self.report.store(Some(Arc::new(report)));
        self.sent_since_report.store(0, Ordering::Relaxed);
    }

    /// How many requests were sent there whose answers haven't ended.
    pub fn in_flight_requests(&self) -> u64 {
        self.in_flight_requests.load(Ordering::Relaxed)
    }

    /// The tokens of these, by estimate.
    pub fn in_flight_tokens(&self) -> u64 {
        self.in_flight_tokens.load(Ordering::Relaxed)
    }

    /// How many requests were sent there that its last report may not know of.
    pub fn sent_since_report(&self) -> u64 {
        self.sent_since_report.load(Ordering::Relaxed)
    }

    /// How many requests are sent there each second.
    pub fn requests_per_second(&self, now: u64) -> f64 {
        self.sent.per_second(now)
    }

    /// Counts a request that is sent there, with so many tokens by estimate, until what this returns is dropped.
    pub fn send(self: &Arc<Self>, tokens: u64, now: u64) -> InFlight {
        self.in_flight_requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight_tokens.fetch_add(tokens, Ordering::Relaxed);
        self.sent.count(now);
        self.sent_since_report.fetch_add(1, Ordering::Relaxed);
        InFlight { state: Arc::clone(self), tokens }
    }

    /// When a request was last sent there whose prefix no endpoint had seen; 0 is never.
    pub fn cold_request(&self) -> u64 {
        self.cold_request.load(Ordering::Relaxed)
    }

    /// Notes that such a request is sent there.
    pub fn note_cold_request(&self, now: u64) {
        self.cold_request.fetch_max(now.max(1), Ordering::Relaxed);
    }

    /// Whether requests go elsewhere if they can, because a proxy or the reading of metrics couldn't reach it.
    pub fn is_avoided(&self, now: u64) -> bool {
        now < self.unreachable_until.load(Ordering::Relaxed).max(self.silent_until.load(Ordering::Relaxed))
    }

    /// Has requests go elsewhere until this time, if they can, because a proxy couldn't reach it.
    pub fn note_unreachable(&self, until: u64) {
        self.unreachable_until.fetch_max(until, Ordering::Relaxed);
    }

    /// The same, because its metrics couldn't be reached.
    pub fn note_silent(&self, until: u64) {
        self.silent_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Notes that its metrics are there again. That a proxy reaches it doesn't follow.
    pub fn note_report(&self) {
        self.silent_until.store(0, Ordering::Relaxed);
    }
}

/// A request that was sent to an endpoint, until its answer ends.
#[derive(Debug)]
pub struct InFlight {
    state: Arc<EndpointState>,
    tokens: u64,
}

impl InFlight {
    /// The endpoint.
    pub fn state(&self) -> &Arc<EndpointState> {
        &self.state
    }

    /// The request went to another endpoint, because this one couldn't be reached.
    pub fn move_to(&mut self, other: &Arc<EndpointState>, now: u64) {
        *self = other.send(self.tokens, now);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.state.in_flight_requests.fetch_sub(1, Ordering::Relaxed);
        self.state.in_flight_tokens.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}
