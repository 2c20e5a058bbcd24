//! The circuit breaker: a failing backend gets no requests for a while.

use std::time::Duration;
use tokio::time::Instant;

/// The number of consecutive failures that opens it.
const FAILURES: u32 = 5;

/// The first pause; each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The maximum pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The failures of a backend since its last response.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    until: Option<Instant>,
}

impl Breaker {
    /// Whether a request may connect; otherwise the remaining pause. After a pause, one request may try, and the others once it has
    /// succeeded.
    pub(super) fn try_pass(&mut self, now: Instant, trial: Duration) -> Result<(), Duration> {
        match self.until {
            Some(until) if until > now => Err(until - now),
            Some(_) => {
                self.until = Some(now + trial);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn fail(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if let Some(further) = self.failures.checked_sub(FAILURES) {
            self.until = Some(now + MAX_PAUSE.min(FIRST_PAUSE * 2_u32.pow(further.min(10))));
        }
    }

    pub(super) fn is_broken(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_some_failures_one_request_at_a_time_tries() {
        let (mut breaker, trial) = (Breaker::default(), Duration::from_secs(5));
        let mut now = Instant::now();
        for _ in 0..FAILURES {
            assert_eq!(breaker.try_pass(now, trial), Ok(()));
            breaker.fail(now);
        }
        assert_eq!(breaker.try_pass(now, trial), Err(FIRST_PAUSE));
        now += FIRST_PAUSE;
        assert_eq!(breaker.try_pass(now, trial), Ok(()));
        assert_eq!(breaker.try_pass(now, trial), Err(trial), "another one tries");
        breaker.fail(now);
        assert_eq!(breaker.try_pass(now, trial), Err(FIRST_PAUSE * 2));
        for _ in 0..100 {
            breaker.fail(now);
        }
        assert_eq!(breaker.try_pass(now, trial), Err(MAX_PAUSE));
    }
}
