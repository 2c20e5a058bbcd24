//! The state of one endpoint. Many requests read and write it concurrently without waiting for each other.

use super::rate::Rate;
use crate::{engine_metrics::EngineMetrics, prefix::EndpointId};
use arc_swap::{ArcSwapOption, Guard};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// An endpoint's report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Its time.
    pub at: u64,
    /// Its metrics.
    pub metrics: EngineMetrics,
}

/// The state of an endpoint.
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

    /// Its last report.
    pub fn report(&self) -> Option<Arc<Report>> {
        self.report.load_full()
    }

    pub(crate) fn report_guard(&self) -> Guard<Option<Arc<Report>>> {
        self.report.load()
    }

    /// Stores its report.
    pub fn set_report(&self, report: Report) {
        self.report.store(Some(Arc::new(report)));
        self.sent_since_report.store(0, Ordering::Relaxed);
    }

    /// The number of requests that were sent to it and whose responses haven't ended.
    pub fn in_flight_requests(&self) -> u64 {
        self.in_flight_requests.load(Ordering::Relaxed)
    }

    /// The estimated tokens of these requests.
    pub fn in_flight_tokens(&self) -> u64 {
        self.in_flight_tokens.load(Ordering::Relaxed)
    }

    /// The number of requests that were sent to it and that its last report may not include.
    pub fn sent_since_report(&self) -> u64 {
        self.sent_since_report.load(Ordering::Relaxed)
    }

    /// The number of requests per second that are sent to it.
    pub fn requests_per_second(&self, now: u64) -> f64 {
        self.sent.per_second(now)
    }

    /// Records a request that is sent to it, with its estimated tokens, until the returned value is dropped.
    pub fn send(self: &Arc<Self>, tokens: u64, now: u64) -> InFlight {
        self.in_flight_requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight_tokens.fetch_add(tokens, Ordering::Relaxed);
        self.sent.count(now);
        self.sent_since_report.fetch_add(1, Ordering::Relaxed);
        InFlight { state: Arc::clone(self), tokens }
    }

    /// The time at which it was last sent a request whose prefix no endpoint had seen; 0 for never.
    pub fn cold_request(&self) -> u64 {
        self.cold_request.load(Ordering::Relaxed)
    }

    /// Records that it is sent such a request.
    pub fn note_cold_request(&self, now: u64) {
        self.cold_request.fetch_max(now.max(1), Ordering::Relaxed);
    }

    /// Whether requests avoid it if possible, because a proxy or the reading of its metrics couldn't connect to it.
    pub fn is_avoided(&self, now: u64) -> bool {
        now < self.unreachable_until.load(Ordering::Relaxed).max(self.silent_until.load(Ordering::Relaxed))
    }

    /// Until this time, requests avoid it if possible, because a proxy couldn't connect to it.
    pub fn note_unreachable(&self, until: u64) {
        self.unreachable_until.fetch_max(until, Ordering::Relaxed);
    }

    /// The same, because its metrics couldn't be read.
    pub fn note_silent(&self, until: u64) {
        self.silent_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Records that its metrics can be read again. This doesn't imply that a proxy can connect to it.
    pub fn note_report(&self) {
        self.silent_until.store(0, Ordering::Relaxed);
    }
}

/// A request that was sent to an endpoint, until its response ends.
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

    /// Records that the request was sent to another endpoint, because this one couldn't be reached.
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
