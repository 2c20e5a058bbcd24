//! This host's work in progress. Work that takes minutes hangs: `/healthz` reports it, and the kubelet restarts the host.

use pointsman_sandbox::sync::locked;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// The maximum duration of one piece of work. A plan calls several policies, each with a deadline of seconds; each write also has one.
const STUCK_AFTER: Duration = Duration::from_mins(5);

/// The work in progress.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<Mutex<WorkInProgress>>);

#[derive(Debug, Default)]
struct WorkInProgress {
    next: u64,
    begun: BTreeMap<u64, (String, Instant)>,
}

/// A piece of work, in progress until this is dropped.
#[derive(Debug)]
pub struct Work {
    number: u64,
    liveness: Liveness,
}

impl Drop for Work {
    fn drop(&mut self) {
        locked(&self.liveness.0).begun.remove(&self.number);
    }
}

impl Liveness {
    /// Starts a piece of work.
    pub fn begin(&self, what: String) -> Work {
        let mut work = locked(&self.0);
        let number = work.next;
        work.next += 1;
        work.begun.insert(number, (what, Instant::now()));
        Work { number, liveness: self.clone() }
    }

    /// The work that hangs, if any.
    pub fn stuck(&self) -> Option<String> {
        let work = locked(&self.0);
        // The oldest entry has taken longest.
        let (what, since) = work.begun.values().next()?;
        let seconds = since.elapsed();
        (seconds > STUCK_AFTER).then(|| format!("{what} has been going on for {} s", seconds.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_takes_minutes_hangs_until_it_ends() {
        let liveness = Liveness::default();
        let long = liveness.begin("planning InferenceService chat/a".to_owned());
        tokio::time::advance(STUCK_AFTER).await;
        let short = liveness.begin("the policies' upkeep".to_owned());
        assert_eq!(liveness.stuck(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(liveness.stuck().unwrap(), "planning InferenceService chat/a has been going on for 301 s");
        drop(long);
        assert_eq!(liveness.stuck(), None);
        drop(short);
    }
}
