//! A plugin's health: once it exceeds its error budget, it isn't called for a while. The budget is per namespace, so that one tenant's
//! input can't stop a plugin for other tenants; if it fails for several tenants, it isn't called for any.

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

/// The number of simultaneous quarantines in namespaces after which a plugin isn't called at all.
const SEVERAL_NAMESPACES: usize = 3;

/// The maximum number of namespaces whose faults are stored.
const MAX_NAMESPACES: usize = 1000;

/// The subjects for which a plugin isn't called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantineScope {
    /// The subjects of one namespace.
    Namespace(String),
    /// All subjects.
    All,
}

impl QuarantineScope {
    /// The namespace, if it is only one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Namespace(namespace) => Some(namespace),
            Self::All => None,
        }
    }
}

/// A change in a plugin's health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// A kind of failure that hasn't been reported yet.
    Failed(CallError),
    /// It isn't called for this long.
    Quarantined(QuarantineScope, Duration, CallError),
    /// It answers again.
    Recovered(QuarantineScope),
}

/// The calls and faults of one plugin.
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
    /// The kinds of failure that were reported.
    told: Vec<&'static str>,
    namespaces: BTreeMap<String, Budget>,
    all: Budget,
    /// The time of the last failure that was its fault.
    last_fault: Option<Instant>,
}

#[derive(Debug, Default)]
struct Budget {
    /// The times of the faults within the window.
    faults: VecDeque<Instant>,
    /// The start and end of the current quarantine.
    pause: Option<(Instant, Instant)>,
    /// The number of quarantines since it was last healthy.
    times: u32,
    /// The number of answers since the last quarantine ended.
    well: u32,
}

impl Budget {
    fn paused(&self, now: Instant) -> bool {
        self.pause.is_some_and(|(since, until)| since <= now && now < until)
    }

    /// Starts a quarantine.
    fn suspend(&mut self, now: Instant) -> Duration {
        let pause = pause(self.times);
        self.faults.clear();
        self.times = self.times.saturating_add(1);
        self.well = 0;
        self.pause = Some((now, now + pause));
        pause
    }

    /// Records a fault, and returns whether it exhausts the budget.
    fn fault(&mut self, now: Instant) -> bool {
        self.forget(now);
        self.faults.push_back(now);
        // After a quarantine, a single fault is enough.
        self.times > 0 || self.faults.len() >= ERROR_BUDGET
    }

    fn forget(&mut self, now: Instant) {
        let since = now.checked_sub(ERROR_WINDOW);
        self.faults.retain(|at| since.is_none_or(|since| *at > since));
    }

    /// Records an answer, and returns whether the plugin is now healthy again.
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
    /// The numbers of answers and failures so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// The latency of its calls at a policy point, including those that failed.
    pub fn latency(&self, point: PolicyPoint) -> &Latency {
        let [first, others @ ..] = &self.latencies;
        let known = POINTS.iter().skip(1).zip(others).find(|(known, _)| **known == point);
        known.map_or(first, |(_, latency)| latency)
    }

    /// Whether it isn't called for subjects of a namespace. Quarantines that began after `now` are ignored, so that nothing changes within
    /// a plan.
    pub fn is_quarantined(&self, namespace: &str, now: Instant) -> bool {
        let state = locked(&self.state);
        state.all.paused(now) || state.namespaces.get(namespace).is_some_and(|budget| budget.paused(now))
    }

    /// The number of namespaces in which it is in quarantine, and whether it is in quarantine everywhere.
    pub fn quarantines(&self, now: Instant) -> (usize, bool) {
        let state = locked(&self.state);
        (state.namespaces.values().filter(|budget| budget.paused(now)).count(), state.all.paused(now))
    }

    /// The time of the last failure that was its fault.
    pub fn last_fault(&self) -> Option<Instant> {
        locked(&self.state).last_fault
    }

    /// Records an answer for a subject of the namespace.
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

    /// Records a failure for a subject of the namespace. Failures that aren't the plugin's fault, and errors that it returns properly,
    /// don't count against its budget.
    pub fn failed(&self, namespace: &str, error: &CallError, now: Instant) -> Option<HealthChange> {
        let fault = !matches!(error, CallError::Busy | CallError::Failed(_));
        let scope = if fault { self.suspended(namespace, now) } else { None };
        if let Some((scope, pause)) = scope {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Some(HealthChange::Quarantined(scope, pause, error.clone()));
        }
        self.failed_innocently(error)
    }

    /// Records a failure that never counts against a plugin's budget.
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

    /// Records a fault, and returns the quarantine that it starts.
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

/// Doubles with each quarantine, with a jitter per host so that the hosts don't all retry at once.
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

    /// Exhausts the budget of a namespace, and returns the resulting change.
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
