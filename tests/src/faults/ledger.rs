//! Which host was the leader at which time, by the API server's responses, and which hosts wrote.

use super::fault::Call;
use serde_json::Value;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long a host considers itself the leader without a response about its lease: `Timing::default().renew`.
const BELIEVES: Duration = Duration::from_secs(10);

/// The number of a host among those of a test. A host that replaces another one has its number.
pub type Number = usize;

/// The writes of hosts.
#[derive(Debug, Default)]
pub struct Ledger {
    kept: Mutex<Kept>,
    /// The number of requests of any kind.
    requests: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The holder of the lease, by the API server's last response.
    holder: Option<Number>,
    /// The host from which a test took the lease. It may not know that yet, because the response with that news may get lost.
    unaware: Option<(Number, Instant)>,
    writes: Vec<(Number, String)>,
    wrong: Vec<String>,
}

impl Ledger {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request, right before it is forwarded.
    pub(super) fn received(&self, from: Number, call: &Call) {
        self.requests.send_modify(|requests| *requests += 1);
        if !call.is_leaders() {
            return;
        }
        let mut kept = self.kept();
        let line = format!("{} {}", call.method, call.target);
        let is_unaware = kept.unaware.is_some_and(|(host, since)| host == from && since.elapsed() < BELIEVES);
        if let (Some(holder), false) = (kept.holder.filter(|holder| *holder != from), is_unaware) {
            let taken = kept.unaware.map(|(_, since)| format!(", {:?} after a test took the lease", since.elapsed())).unwrap_or_default();
            kept.wrong.push(format!("host {from} writes while host {holder} leads{taken}: {line}"));
        }
        kept.writes.push((from, line));
    }

    /// Records the API server's response to a request about the lease.
    pub(super) fn answered(&self, from: Number, call: &Call, answer: &[u8]) {
        let mut kept = self.kept();
        let lease: Value = serde_json::from_slice(answer).unwrap_or_default();
        if call.method != http::Method::GET && lease["kind"] == "Lease" {
            kept.holder = lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()).then_some(from);
        }
    }

    /// Records that a test takes the lease from its holder.
    pub fn taken(&self) {
        let mut kept = self.kept();
        kept.unaware = kept.holder.take().map(|holder| (holder, Instant::now()));
    }

    /// Waits for this many requests of any kind.
    pub async fn further_requests(&self, number: usize) {
        let mut requests = self.requests.subscribe();
        let enough = *requests.borrow() + number;
        // `self` owns the sender.
        requests.wait_for(|requests| *requests >= enough).await.ok();
    }

    /// The writes so far, with the host of each.
    pub fn writes(&self) -> Vec<(Number, String)> {
        self.kept().writes.clone()
    }

    /// The writes of a host while another one was the leader.
    pub fn wrong(&self) -> Vec<String> {
        self.kept().wrong.clone()
    }
}
