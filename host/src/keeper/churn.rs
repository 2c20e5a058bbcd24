//! Whether a plugin is being changed again and again: then nobody else's update waits for it.

use std::time::Duration;
use tokio::time::Instant;

/// Two changes within so long are changes in a row.
const IN_A_ROW: Duration = Duration::from_secs(20);

/// So many of them are nothing unusual.
const USUAL: u32 = 3;

/// For how long nothing must change for it to be settled again.
const QUIET: Duration = Duration::from_secs(10);

/// After how long its newest version joins a candidate although it is still being changed.
const CAP: Duration = Duration::from_mins(2);

/// The changes of a plugin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Churn {
    last: Option<Instant>,
    /// When the first in the row was, or one joined a candidate.
    since: Option<Instant>,
    count: u32,
}

impl Churn {
    /// Notes a change.
    pub(super) fn changed(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now < last + IN_A_ROW) {
            self.count = self.count.saturating_add(1);
        } else {
            (self.count, self.since) = (1, Some(now));
        }
        self.last = Some(now);
    }

    /// When it joins a candidate that others wait for, if it doesn't yet.
    pub(super) fn joins_at(&self, now: Instant) -> Option<Instant> {
        let (last, since) = self.last.zip(self.since).filter(|_| self.count > USUAL)?;
        Some((last + QUIET).min(since + CAP)).filter(|at| *at > now)
    }

    /// Notes that it has joined one.
    pub(super) fn joined(&mut self, now: Instant) {
        self.since = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_pushes_every_few_seconds_joins_when_it_is_quiet_or_every_two_minutes() {
        let mut churn = Churn::default();
        let begun = Instant::now();
        let mut now = begun;
        let mut joined = Vec::new();
        for _ in 0..100 {
            churn.changed(now);
            if churn.joins_at(now).is_none() {
                joined.push(now.duration_since(begun).as_secs());
                churn.joined(now);
            }
            now += Duration::from_secs(3);
        }
        assert_eq!(joined, [0, 3, 6, 126, 246]);
        assert_eq!(churn.joins_at(now), Some(now + Duration::from_secs(7)));
        assert_eq!(churn.joins_at(now + Duration::from_secs(7)), None);
        churn.changed(now + IN_A_ROW);
        assert_eq!(churn.joins_at(now + IN_A_ROW), None, "that is one change");
    }
}
