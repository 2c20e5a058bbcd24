//! How a plugin fares: past its error budget it isn't asked for a while.

use pointsman_sandbox::{
    call::CallError,
    limits::{ERROR_BUDGET, ERROR_WINDOW, QUARANTINE, QUARANTINE_MAX, RECOVERED_AFTER},
    sync::locked,
};
use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// It has failed in a way that it hadn't before.
    Failed(CallError),
    /// It isn't asked for so long.
    Quarantined(Duration, CallError),
    /// It answers again.
    Recovered,
}

/// One plugin's calls and faults.
#[derive(Debug, Default)]
pub struct Health {
    answered: AtomicU64,
    failed: AtomicU64,
    state: Mutex<HealthState>,
}

#[derive(Debug, Default)]
struct HealthState {
    /// When it failed, within the window.
    faults: VecDeque<Instant>,
    /// The kinds of failure that were told.
    told: Vec<&'static str>,
    /// Until when it isn't asked.
    until: Option<Instant>,
    /// How often it was quarantined since it last was well.
    times: u32,
    /// How often it answered since the last quarantine ended.
    well: u32,
}

impl Health {
    /// Answers and failures so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Until when it isn't asked, if so.
    pub fn quarantined(&self, now: Instant) -> Option<Instant> {
        locked(&self.state).until.filter(|until| *until > now)
    }

    /// Notes an answer.
    pub fn answered(&self, now: Instant) -> Option<HealthChange> {
        self.answered.fetch_add(1, Ordering::Relaxed);
        let mut state = locked(&self.state);
        if state.times == 0 || state.until.is_some_and(|until| until > now) {
            return None;
        }
        state.well += 1;
        if state.well < RECOVERED_AFTER {
            return None;
        }
        *state = HealthState::default();
        Some(HealthChange::Recovered)
    }

    /// Notes a failure. What isn't the plugin's fault, or is an answer in good order, isn't held against it.
    pub fn failed(&self, error: &CallError, now: Instant) -> Option<HealthChange> {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut state = locked(&self.state);
        let fault = !matches!(error, CallError::Busy | CallError::Failed(_));
        if fault && state.until.is_none_or(|until| until <= now) {
            let since = now.checked_sub(ERROR_WINDOW);
            state.faults.retain(|at| since.is_none_or(|since| *at > since));
            state.faults.push_back(now);
            // One that was in quarantine already has used up its budget.
            if state.times > 0 || state.faults.len() >= ERROR_BUDGET {
                let pause = pause(state.times);
                state.faults.clear();
                state.times = state.times.saturating_add(1);
                state.well = 0;
                state.until = Some(now + pause);
                return Some(HealthChange::Quarantined(pause, error.clone()));
            }
        }
        let reason = error.reason();
        if state.told.contains(&reason) {
            return None;
        }
        state.told.push(reason);
        Some(HealthChange::Failed(error.clone()))
    }
}

/// Twice as long each time, and on each host a little different, so that they don't all ask again at once.
fn pause(times: u32) -> Duration {
    let pause = QUARANTINE.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(QUARANTINE_MAX);
    let random = RandomState::new().hash_one(times) % 1000;
    pause.mul_f64(0.9 + f64::from(u32::try_from(random).unwrap_or_default()) / 5000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAP: fn() -> CallError = || CallError::Trap("unreachable".to_owned());

    #[test]
    fn a_kind_of_failure_is_told_once() {
        let (health, now) = (Health::default(), Instant::now());
        assert_eq!(health.failed(&TRAP(), now), Some(HealthChange::Failed(TRAP())));
        assert_eq!(health.failed(&TRAP(), now), None);
        assert_eq!(health.failed(&CallError::Fuel(1), now), Some(HealthChange::Failed(CallError::Fuel(1))));
        assert_eq!(health.counts(), (0, 3));
    }

    #[test]
    fn past_its_budget_it_is_quarantined_for_longer_each_time_until_it_is_well_again() {
        let (health, mut now) = (Health::default(), Instant::now());
        for _ in 1..ERROR_BUDGET {
            assert!(!matches!(health.failed(&TRAP(), now), Some(HealthChange::Quarantined(..))));
        }
        let mut before = Duration::ZERO;
        for _ in 0..20 {
            let Some(HealthChange::Quarantined(pause, _)) = health.failed(&TRAP(), now) else { panic!("it isn't quarantined") };
            assert!(pause > before || pause >= QUARANTINE_MAX.mul_f64(0.9), "{pause:?} after {before:?}");
            assert!(pause <= QUARANTINE_MAX.mul_f64(1.1));
            assert!(health.quarantined(now).is_some());
            before = pause;
            now += pause;
            assert_eq!(health.quarantined(now), None);
        }
        for _ in 1..RECOVERED_AFTER {
            assert_eq!(health.answered(now), None);
        }
        assert_eq!(health.answered(now), Some(HealthChange::Recovered));
        assert!(matches!(health.failed(&TRAP(), now), Some(HealthChange::Failed(_))), "it has a whole budget again");
    }

    #[test]
    fn old_faults_and_those_of_others_do_not_count() {
        let (health, mut now) = (Health::default(), Instant::now());
        for _ in 0..10 * ERROR_BUDGET {
            assert!(!matches!(health.failed(&TRAP(), now), Some(HealthChange::Quarantined(..))));
            now += ERROR_WINDOW;
        }
        for _ in 0..10 * ERROR_BUDGET {
            health.failed(&CallError::Busy, now);
            health.failed(&CallError::Failed("no".to_owned()), now);
        }
        assert_eq!(health.quarantined(now), None);
    }
}
