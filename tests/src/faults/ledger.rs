//! Who led when, as the API server took it down, and who wrote meanwhile.

use super::fault::Call;
use serde_json::Value;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long a host believes that it leads without having heard of its lease: `Timing::default().renew`.
const BELIEVES: Duration = Duration::from_secs(10);

/// A host, by its number among those of a test. One that is started in another's place has its number.
pub type Number = usize;

/// What hosts wrote.
#[derive(Debug, Default)]
pub struct Ledger {
    kept: Mutex<Kept>,
    /// How many requests there were, of whatever kind.
    requests: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Who holds the lease by what the API server answered last.
    holder: Option<Number>,
    /// Who may not know yet that the lease is no longer theirs, because a test took it from them: the answer that says so may get lost.
    unaware: Option<(Number, Instant)>,
    writes: Vec<(Number, String)>,
    wrong: Vec<String>,
}

impl Ledger {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request, right before it is passed on.
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

    /// Notes what the API server answered to a request about the lease.
    pub(super) fn answered(&self, from: Number, call: &Call, answer: &[u8]) {
        let mut kept = self.kept();
        let lease: Value = serde_json::from_slice(answer).unwrap_or_default();
        if call.method != http::Method::GET && lease["kind"] == "Lease" {
            kept.holder = lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()).then_some(from);
        }
    }

    /// Notes that a test takes the lease from whoever holds it.
    pub fn taken(&self) {
        let mut kept = self.kept();
        kept.unaware = kept.holder.take().map(|holder| (holder, Instant::now()));
    }

    /// Waits for so many requests, of whatever kind.
    pub async fn further_requests(&self, number: usize) {
        let mut requests = self.requests.subscribe();
        let enough = *requests.borrow() + number;
        // The sender is our own.
        requests.wait_for(|requests| *requests >= enough).await.ok();
    }

    /// What was written so far: by whom, and what.
    pub fn writes(&self) -> Vec<(Number, String)> {
        self.kept().writes.clone()
    }

    /// What was written by somebody while somebody else led.
    pub fn wrong(&self) -> Vec<String> {
        self.kept().wrong.clone()
    }
}
