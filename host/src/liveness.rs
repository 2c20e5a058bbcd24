//! What this host is doing, and since when. Whoever has been at one thing for minutes hangs: `/healthz` says so, and the kubelet starts the host anew.

use pointsman_sandbox::sync::locked;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;

/// How long one thing may take. A plan asks several policies, each with a deadline of seconds, and each write has one as well.
const STUCK_AFTER: Duration = Duration::from_mins(5);

/// What is being done now.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<Mutex<WorkInProgress>>);

#[derive(Debug, Default)]
struct WorkInProgress {
    next: u64,
    begun: BTreeMap<u64, (String, Instant)>,
}

/// Something that is being done until this is dropped.
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
    /// Notes what is done from now on.
    pub fn begin(&self, what: String) -> Work {
        let mut work = locked(&self.0);
        let number = work.next;
        work.next += 1;
        work.begun.insert(number, (what, Instant::now()));
        Work { number, liveness: self.clone() }
    }

    /// What hangs, if anything.
    pub fn stuck(&self) -> Option<String> {
        let work = locked(&self.0);
        // The first that was begun has taken longest.
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
