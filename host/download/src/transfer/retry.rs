//! How long a source that fails is asked again.

use crate::{
    error::{Error, Failure},
    limits::{Limits, MAX_DELAY},
    source::{Listing, Source},
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Counts attempts without progress.
pub(super) struct Patience<'a> {
    limits: &'a Limits,
    place: &'a str,
    attempts: u32,
}

impl<'a> Patience<'a> {
    pub(super) fn new(limits: &'a Limits, place: &'a str) -> Self {
        Self { limits, place, attempts: 0 }
    }

    /// A byte came: the source is there.
    pub(super) fn renew(&mut self) {
        self.attempts = 0;
    }

    /// Waits before the next attempt, or gives up.
    pub(super) async fn wait(&mut self, cause: String, requested: Option<Duration>) -> Result<(), Error> {
        self.attempts += 1;
        if self.attempts >= self.limits.attempts.max(1) {
            return Err(Error::Unreachable { place: self.place.to_owned(), attempts: self.attempts, cause });
        }
        let delay = requested.unwrap_or_else(|| backoff(self.limits.delay, self.attempts));
        tracing::debug!(place = self.place, attempt = self.attempts, ?delay, cause, "the source fails: another attempt follows");
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

/// Doubles with each attempt; up to half of it is left to chance, so that the nodes of a cluster don't come back at once.
fn backoff(first: Duration, attempts: u32) -> Duration {
    let delay = first.saturating_mul(1 << (attempts - 1).min(16)).min(MAX_DELAY);
    let chance = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos() % 1000);
    delay / 2 + delay / 2 * chance / 1000
}

/// Lists a source's files, again while the failure is transient.
pub(super) async fn list(source: &Source, limits: &Limits) -> Result<Listing, Failure> {
    let mut patience = Patience::new(limits, source.name());
    loop {
        match source.list(limits).await {
            Err(Failure::Transient { cause, wait }) => patience.wait(cause, wait).await?,
            other => return other,
        }
    }
}
