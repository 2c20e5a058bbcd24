//! How a plugin fares: past its error budget it isn't asked for a while. The budget is per namespace, so that one tenant's input keeps a plugin
//! from no other tenant; where it fails for several, it isn't asked for anybody.

use super::latency::Latency;
use crate::point::POINTS;
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{
    call::CallError,
    limits::{ERROR_BUDGET, ERROR_WINDOW, QUARANTINE, QUARANTINE_MAX, RECOVERED_AFTER},
    sync::locked,
};
use std::{
    collections::{BTreeMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// In how many namespaces at a time a plugin is in quarantine before it isn't asked for anybody.
const SEVERAL_NAMESPACES: usize = 3;

/// Of how many namespaces faults are remembered.
const MAX_NAMESPACES: usize = 1000;

/// For whom a plugin isn't asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantineScope {
    /// The subjects of a namespace.
    Namespace(String),
    /// All.
    All,
}

impl QuarantineScope {
    /// The namespace, if it is one's.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespace(namespace) => Some(namespace),
            Self::All => None,
        }
    }
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// It has failed in a way that it hadn't before.
    Failed(CallError),
    /// It isn't asked so long.
    Quarantined(QuarantineScope, Duration, CallError),
    /// It answers again.
    Recovered(QuarantineScope),
}

/// One plugin's calls and faults.
#[derive(Debug, Default)]
pub struct Health {
    answered: AtomicU64,
    failed: AtomicU64,
    /// In the order of [`POINTS`].
    latencies: [Latency; POINTS.len()],
    state: Mutex<HealthState>,
}

#[derive(Debug, Default)]
struct HealthState {
    /// The kinds of failure that were told.
    told: Vec<&'static str>,
    namespaces: BTreeMap<String, Budget>,
    all: Budget,
    /// When it failed last by its own fault.
    last_fault: Option<Instant>,
}

#[derive(Debug, Default)]
struct Budget {
    /// When it failed, within the window.
    faults: VecDeque<Instant>,
    /// From when until when it isn't asked.
    pause: Option<(Instant, Instant)>,
    /// How often it was quarantined since it last was well.
    times: u32,
    /// How often it answered since the last quarantine ended.
    well: u32,
}

impl Budget {
    fn paused(&self, now: Instant) -> bool {
        self.pause.is_some_and(|(since, until)| since <= now && now < until)
    }

    /// Begins a quarantine.
    fn suspend(&mut self, now: Instant) -> Duration {
        let pause = pause(self.times);
        self.faults.clear();
        self.times = self.times.saturating_add(1);
        self.well = 0;
        self.pause = Some((now, now + pause));
        pause
    }

    /// Notes a fault, and whether the budget is used up by it.
    fn fault(&mut self, now: Instant) -> bool {
        self.forget(now);
        self.faults.push_back(now);
        // One that was in quarantine already has used up its budget.
        self.times > 0 || self.faults.len() >= ERROR_BUDGET
    }

    fn forget(&mut self, now: Instant) {
        let since = now.checked_sub(ERROR_WINDOW);
        self.faults.retain(|at| since.is_none_or(|since| *at > since));
    }

    /// Notes an answer, and whether it is well again by it.
    fn recovers(&mut self, now: Instant) -> bool {
        if self.times == 0 || self.paused(now) {
            return false;
        }
        self.well += 1;
        if self.well < RECOVERED_AFTER {
            return false;
        }
        *self = Self::default();
        true
    }
}

impl Health {
    /// Answers and failures so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// How long its calls at a policy point took, those that failed too.
    pub fn latency(&self, point: PolicyPoint) -> &Latency {
        let [first, others @ ..] = &self.latencies;
        let known = POINTS.iter().skip(1).zip(others).find(|(known, _)| **known == point);
        known.map_or(first, |(_, latency)| latency)
    }

    /// Whether it isn't asked for subjects of a namespace. What has begun after `now` counts for nothing: within a plan nothing changes.
    pub fn is_quarantined(&self, namespace: &str, now: Instant) -> bool {
        let state = locked(&self.state);
        state.all.paused(now) || state.namespaces.get(namespace).is_some_and(|budget| budget.paused(now))
    }

    /// In how many namespaces it isn't asked, and whether it isn't asked for anybody.
    pub fn quarantines(&self, now: Instant) -> (usize, bool) {
        let state = locked(&self.state);
        (state.namespaces.values().filter(|budget| budget.paused(now)).count(), state.all.paused(now))
    }

    /// When it failed last by its own fault.
    pub fn last_fault(&self) -> Option<Instant> {
        locked(&self.state).last_fault
    }

    /// Notes an answer for a subject of the namespace.
    pub fn answered(&self, namespace: &str, now: Instant) -> Option<HealthChange> {
        self.answered.fetch_add(1, Ordering::Relaxed);
        let mut state = locked(&self.state);
        let own = state.namespaces.get_mut(namespace).is_some_and(|budget| budget.recovers(now));
        let all = state.all.recovers(now);
        if own {
            state.namespaces.remove(namespace);
        }
        if own || all {
            state.told.clear();
        }
        match (all, own) {
            (true, _) => Some(HealthChange::Recovered(QuarantineScope::All)),
            (false, true) => Some(HealthChange::Recovered(QuarantineScope::Namespace(namespace.to_owned()))),
            (false, false) => None,
        }
    }

    /// Notes a failure for a subject of the namespace. What isn't the plugin's fault, or is an answer in good order, isn't held against it.
    pub fn failed(&self, namespace: &str, error: &CallError, now: Instant) -> Option<HealthChange> {
        let fault = !matches!(error, CallError::Busy | CallError::Failed(_));
        let scope = if fault { self.suspended(namespace, now) } else { None };
        if let Some((scope, pause)) = scope {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Some(HealthChange::Quarantined(scope, pause, error.clone()));
        }
        self.failed_innocently(error)
    }

    /// Notes a failure that is never held against a plugin.
    pub fn failed_innocently(&self, error: &CallError) -> Option<HealthChange> {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut state = locked(&self.state);
        let reason = error.reason();
        if state.told.contains(&reason) {
            return None;
        }
        state.told.push(reason);
        Some(HealthChange::Failed(error.clone()))
    }

    /// Notes a fault, and which quarantine begins by it.
    fn suspended(&self, namespace: &str, now: Instant) -> Option<(QuarantineScope, Duration)> {
        let mut state = locked(&self.state);
        let HealthState { namespaces, all, last_fault, .. } = &mut *state;
        *last_fault = Some(now);
        if all.paused(now) {
            return None;
        }
        if namespaces.len() >= MAX_NAMESPACES && !namespaces.contains_key(namespace) {
            namespaces.retain(|_, budget| {
                budget.forget(now);
                budget.paused(now) || !budget.faults.is_empty()
            });
        }
        let budget = namespaces.entry(namespace.to_owned()).or_default();
        if budget.paused(now) || !budget.fault(now) {
            return None;
        }
        let pause = budget.suspend(now);
        if namespaces.values().filter(|budget| budget.paused(now)).count() < SEVERAL_NAMESPACES {
            return Some((QuarantineScope::Namespace(namespace.to_owned()), pause));
        }
        Some((QuarantineScope::All, all.suspend(now)))
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
        assert_eq!(health.failed("a", &TRAP(), now), Some(HealthChange::Failed(TRAP())));
        assert_eq!(health.failed("a", &TRAP(), now), None);
        assert_eq!(health.failed("a", &CallError::Fuel(1), now), Some(HealthChange::Failed(CallError::Fuel(1))));
        assert_eq!(health.counts(), (0, 3));
    }

    #[test]
    fn the_last_fault_is_known_and_what_is_not_the_plugins_fault_is_none() {
        let (health, now) = (Health::default(), Instant::now());
        health.failed("a", &CallError::Failed("no runtime fits".to_owned()), now);
        assert_eq!(health.last_fault(), None);
        health.failed("a", &TRAP(), now);
        health.failed("a", &TRAP(), now + Duration::from_secs(1));
        assert_eq!(health.last_fault(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn each_policy_point_has_its_latency() {
        let health = Health::default();
        for (calls, point) in POINTS.into_iter().enumerate() {
            (0..=calls).for_each(|_| health.latency(point).record(Duration::ZERO));
        }
        assert_eq!(POINTS.map(|point| health.latency(point).counts()[0]), [1, 2, 3, 4]);
    }

    #[test]
    fn past_its_budget_it_is_quarantined_for_longer_each_time_until_it_is_well_again() {
        let (health, mut now) = (Health::default(), Instant::now());
        for _ in 1..ERROR_BUDGET {
            assert!(!matches!(health.failed("a", &TRAP(), now), Some(HealthChange::Quarantined(..))));
        }
        let mut before = Duration::ZERO;
        for _ in 0..20 {
            let Some(HealthChange::Quarantined(_, pause, _)) = health.failed("a", &TRAP(), now) else { panic!("it isn't quarantined") };
            assert!(pause > before || pause >= QUARANTINE_MAX.mul_f64(0.9), "{pause:?} after {before:?}");
            assert!(pause <= QUARANTINE_MAX.mul_f64(1.1));
            assert!(health.is_quarantined("a", now));
            before = pause;
            now += pause;
            assert!(!health.is_quarantined("a", now));
        }
        for _ in 1..RECOVERED_AFTER {
            assert_eq!(health.answered("a", now), None);
        }
        assert_eq!(health.answered("a", now), Some(HealthChange::Recovered(QuarantineScope::Namespace("a".to_owned()))));
        assert!(matches!(health.failed("a", &TRAP(), now), Some(HealthChange::Failed(_))), "it has a whole budget again");
    }

    #[test]
    fn old_faults_and_those_of_others_do_not_count() {
        let (health, mut now) = (Health::default(), Instant::now());
        for _ in 0..10 * ERROR_BUDGET {
            assert!(!matches!(health.failed("a", &TRAP(), now), Some(HealthChange::Quarantined(..))));
            now += ERROR_WINDOW;
        }
        for _ in 0..10 * ERROR_BUDGET {
            health.failed("a", &CallError::Busy, now);
            health.failed("a", &CallError::Failed("no".to_owned()), now);
        }
        assert!(!health.is_quarantined("a", now));
    }

    /// Makes it use up the budget of a namespace, and tells what came of that.
    fn exhaust(health: &Health, namespace: &str, now: Instant) -> Option<HealthChange> {
        (0..ERROR_BUDGET).fold(None, |_, _| health.failed(namespace, &TRAP(), now))
    }

    #[test]
    fn one_namespace_keeps_it_from_no_other_and_several_keep_it_from_all() {
        let (health, now) = (Health::default(), Instant::now());
        let scope = |change| match change {
            Some(HealthChange::Quarantined(scope, ..)) => scope,
            other => panic!("{other:?}"),
        };
        for namespace in ["a", "b"] {
            assert_eq!(scope(exhaust(&health, namespace, now)), QuarantineScope::Namespace(namespace.to_owned()));
            assert!(health.is_quarantined(namespace, now));
        }
        assert!(!health.is_quarantined("c", now));
        assert_eq!(health.quarantines(now), (2, false));
        assert_eq!(scope(exhaust(&health, "c", now)), QuarantineScope::All);
        assert!(health.is_quarantined("d", now));
        assert_eq!(health.quarantines(now), (3, true));
    }

    #[test]
    fn a_plan_that_has_begun_sees_no_quarantine_begin() {
        let (health, begun) = (Health::default(), Instant::now());
        exhaust(&health, "a", begun + Duration::from_millis(1));
        assert!(!health.is_quarantined("a", begun));
        assert!(health.is_quarantined("a", begun + Duration::from_millis(1)));
    }

    #[test]
    fn no_more_namespaces_are_remembered_than_its_bound() {
        let (health, mut now) = (Health::default(), Instant::now());
        for number in 0..3 * MAX_NAMESPACES {
            if number % MAX_NAMESPACES == 0 {
                now += 2 * ERROR_WINDOW;
            }
            health.failed(&format!("n{number}"), &TRAP(), now);
        }
        assert!(locked(&health.state).namespaces.len() <= MAX_NAMESPACES);
    }
}
