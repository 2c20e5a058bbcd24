//! Limits the number of subjects that restart their pods at once. A change that affects many (of policies, of a runtime, of a base
//! configuration) reaches them one after the other, and stops after failures.
//!
//! The set that a subject is on isn't stored: its pods show it. The status stores that it is restarting, so that the next leader continues.

use pointsman_core::pods::PodImpact;
use pointsman_core::world::ObjectKey;
use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Mutex,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The default number of subjects that restart their pods at once.
pub const MAX_CONCURRENT_RESTARTS: usize = 10;

/// The interval of rechecks of a restarting subject without a report: a write may have changed nothing.
pub const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum duration of a restart. A Deployment reports after ten minutes that it isn't progressing; other kinds never do.
const RESTART_TIMEOUT: Duration = Duration::from_mins(15);

/// The time after which the known queued subjects restart even if others are still to be checked: in some clusters there always are.
const MAX_WAIT_FOR_IDLE: Duration = Duration::from_mins(1);

/// The minimum interval between two progress reports: each of them is a write.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The number of namespaces with failed restarts that stops all restarts: one tenant's failure needn't affect others.
const FAILED_NAMESPACES: usize = 3;

/// The maximum number of restarting subjects that are named.
const MAX_NAMES_REPORTED: usize = 10;

/// Limits restarts. A restarting subject holds one of a limited number of slots.
#[derive(Debug)]
pub struct Pacer {
    /// The number of slots; none means no limit.
    most: Option<usize>,
    state: Mutex<PaceState>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is independent of the others.
struct PaceState {
    /// Whether all subjects were checked since this host became the leader or the set changed, so that the queue is complete.
    begun: bool,
    /// Whether another set became active and its workers haven't been notified.
    expecting: bool,
    /// Whether it is known if an administrator has paused restarts.
    asked: bool,
    beginnings: u64,
    /// The restarting subjects.
    turns: BTreeMap<ObjectKey, Restart>,
    /// The queued subjects, in the order of their restarts; and whether they are ready, and whether their pods already fail.
    waiting: BTreeMap<Order, (bool, bool)>,
    /// The subjects whose restart has failed: nothing waits for them any more.
    failed: HashSet<ObjectKey>,
    /// The generations of users' edits that aren't applied yet.
    user_edits: HashMap<ObjectKey, Option<i64>>,
    /// Whether progress wasn't published because the last report was too recent.
    untold: bool,
    /// Why no subject restarts: an administrator's pause, and a failure.
    paused: Option<String>,
    stopped: Option<String>,
    /// The namespaces in which no subject restarts while others continue, with the failures.
    held: BTreeMap<String, String>,
    told: Option<Instant>,
    /// Since when there has always been a subject to check.
    since: Option<Instant>,
}

/// A restart in progress.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// Whether the subject was ready before, so that it can lose that.
    was_ready: bool,
    /// Whether its pods failed before.
    failing_before: bool,
    since: Instant,
}

/// The order of the queue: first the subjects that aren't ready, which have the least to lose, last those whose restart has failed; then by
/// namespace, name and kind.
type Order = (u8, String, String, ObjectKey);

const ORDERS: std::ops::RangeInclusive<u8> = 0..=2;

fn order(key: &ObjectKey, place: u8) -> Order {
    (place, key.namespace.clone(), key.name.clone(), key.clone())
}

/// The progress of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The first restarting subjects.
    pub restarting: Vec<String>,
    /// The number of restarting subjects.
    pub at_it: usize,
    /// The number of queued subjects.
    pub waiting: usize,
    /// Why no subject restarts.
    pub stopped: Option<String>,
    /// The failures in the namespaces in which no subject restarts while others continue.
    pub held: Vec<String>,
    /// Whether all subjects were checked, so that the numbers are complete.
    pub known: bool,
    /// Whether it is known if an administrator has paused restarts.
    pub asked: bool,
    /// Counts up when this host becomes the leader or is no longer.
    pub beginnings: u64,
}

/// The permission for a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPermission {
    /// The plan may be applied.
    GoOn,
    /// The plan may be applied, and the subject has a slot; whether to report it, because the subject was ready before.
    Restart(bool),
    /// The pods must not restart now.
    Wait,
    /// A user's edit must be applied, which no previous set does without restarting pods.
    AsAsked,
}

impl RestartPermission {
    /// Its name, for traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::GoOn => "GoOn",
            Self::Restart(_) => "Restart",
            Self::Wait => "Wait",
            Self::AsAsked => "AsAsked",
        }
    }
}

/// The observed state of a subject with a plan.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The effect of the plan on the pods.
    pub work: &'a PodImpact,
    /// Whether all of the subject is ready, by the plan.
    pub ready: Option<bool>,
    /// Whether the status reports Ready.
    pub was_ready: bool,
    /// Whether the status reports a restart.
    pub has_turn: bool,
    /// Whether the subject's own spec has changed: its user requested that, so it needs no slot.
    pub own_edit: bool,
    /// The generation of its spec.
    pub generation: Option<i64>,
}

impl Pacer {
    /// Creates a pacer with this number of slots, or without a limit.
    pub fn new(most: Option<usize>) -> Self {
        let progress = Progress { known: most.is_none(), ..Progress::default() };
        Self { most, state: Mutex::default(), progress: watch::Sender::new(progress) }
    }

    /// Checks a subject with a plan.
    pub fn admit(&self, key: &ObjectKey, seen: Observation<'_>) -> RestartPermission {
        let Observation { work, ready, was_ready, has_turn, own_edit, generation } = seen;
        let mut state = locked(&self.state);
        state.dequeue(key);
        if has_turn && !state.begun {
            // The previous leader has started this restart.
            state.turns.entry(key.clone()).or_insert(Restart { was_ready: true, failing_before: false, since: Instant::now() });
        }
        if let Some(turn) = state.turns.get(key).copied() {
            return state.continue_restart(key, turn, work, ready);
        }
        if !work.restarts {
            state.user_edits.remove(key);
            return RestartPermission::GoOn;
        }
        // An edit that couldn't be applied yet is still requested.
        if own_edit {
            state.user_edits.insert(key.clone(), generation);
        }
        let own_edit = state.user_edits.get(key).is_some_and(|asked| *asked == generation);
        // If the subject serves nothing, nothing can be lost, unless a failure or a pause is known.
        let stopped = state.paused.is_some() || state.stopped.is_some() || state.held.contains_key(&key.namespace);
        if !work.serves && !own_edit && !stopped {
            return RestartPermission::GoOn;
        }
        if own_edit {
            return RestartPermission::AsAsked;
        }
        state.waits(key, was_ready, work);
        RestartPermission::Wait
    }

    /// Queues a subject whose own edit is applied on a previous set, for the rest of its changes.
    pub fn enqueue(&self, key: &ObjectKey, was_ready: bool, work: &PodImpact) {
        locked(&self.state).waits(key, was_ready, work);
    }

    /// Fails the restart of a subject whose new objects the API server rejects as invalid: it would reject the same change elsewhere.
    pub fn reject(&self, key: &ObjectKey, why: &str) {
        let mut state = locked(&self.state);
        if let Some(turn) = state.turns.remove(key) {
            state.fail(key, turn, why);
            self.publish_progress(&mut state);
        }
    }

    /// Removes a subject that is gone, or that this host doesn't serve.
    pub fn forget(&self, key: &ObjectKey) {
        let mut state = locked(&self.state);
        state.dequeue(key);
        state.turns.remove(key);
        state.failed.remove(key);
        state.user_edits.remove(key);
    }

    /// Starts the restarts that may start now. The first in the queue is known only after all subjects were checked.
    pub fn start_next(&self, all_looked_at: bool) -> Vec<ObjectKey> {
        let Some(most) = self.most else { return Vec::new() };
        let mut given = Vec::new();
        let mut state = locked(&self.state);
        let since = *state.since.get_or_insert_with(Instant::now);
        if all_looked_at {
            state.since = None;
        }
        if !state.expecting && state.asked && (all_looked_at || since.elapsed() > MAX_WAIT_FOR_IDLE) {
            state.begun |= all_looked_at;
            while state.paused.is_none() && state.stopped.is_none() && state.turns.len() < most {
                let next = state.waiting.keys().find(|(_, namespace, ..)| !state.held.contains_key(namespace)).cloned();
                let Some((was_ready, failing_before)) = next.as_ref().and_then(|next| state.waiting.remove(next)) else { break };
                let Some((_, _, _, key)) = next else { break };
                state.turns.insert(key.clone(), Restart { was_ready, failing_before, since: Instant::now() });
                given.push(key);
            }
            state.stop_where_all_are_held();
        }
        self.publish_progress(&mut state);
        given
    }

    /// Whether restarts are limited.
    pub fn paces(&self) -> bool {
        self.most.is_some()
    }

    /// Whether a subject is restarting.
    pub fn has_turn(&self, key: &ObjectKey) -> bool {
        locked(&self.state).turns.contains_key(key)
    }

    /// Whether subjects may be on a previous set.
    pub fn in_use(&self) -> bool {
        let state = locked(&self.state);
        self.paces() && (!state.begun || !state.waiting.is_empty())
    }

    /// Why no subject restarts, after a failure.
    pub fn failure_reason(&self) -> Option<String> {
        locked(&self.state).stopped.clone()
    }

    /// Why no subject restarts, for any reason.
    pub fn paused_reason(&self) -> Option<String> {
        let state = locked(&self.state);
        state.paused.clone().or_else(|| state.stopped.clone())
    }

    /// Applies the annotation of the cluster: the reason for a pause, or none. Removing a pause also clears the failure that caused it.
    pub fn pause(&self, why: Option<String>) {
        let mut state = locked(&self.state);
        let first = !std::mem::replace(&mut state.asked, true);
        if state.paused == why {
            if first {
                self.publish_progress(&mut state);
            }
            return;
        }
        if why.is_none() && state.stopped == state.paused {
            state.stopped = None;
            state.held.clear();
        }
        state.paused = why;
        self.publish_progress(&mut state);
    }

    /// Clears failures after a rollback.
    pub fn clear_failure(&self) {
        let mut state = locked(&self.state);
        (state.stopped, state.paused) = (None, None);
        state.held.clear();
    }

    /// Another set is active from now on: until the workers are notified, the queue isn't known.
    pub fn expect_new_set(&self) {
        let mut state = locked(&self.state);
        (state.expecting, state.begun) = (true, false);
        self.publish_progress(&mut state);
    }

    /// Whether progress must be published later.
    pub fn has_unpublished_progress(&self) -> bool {
        locked(&self.state).untold
    }

    /// Another set is active, and all subjects are about to be checked: failures under the previous set don't matter for it.
    pub fn begin_new_set(&self) {
        let mut state = locked(&self.state);
        state.failed.clear();
        state.held.clear();
        (state.expecting, state.begun, state.since) = (false, false, None);
        self.publish_progress(&mut state);
    }

    /// Forgets everything: another host may have been the leader meanwhile, or is now.
    pub fn reset(&self) {
        let mut state = locked(&self.state);
        *state = PaceState { beginnings: state.beginnings + 1, expecting: true, ..PaceState::default() };
        self.publish_progress(&mut state);
    }

    /// The progress, with all updates.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    fn publish_progress(&self, state: &mut PaceState) {
        let now = Progress {
            restarting: state.turns.keys().take(MAX_NAMES_REPORTED).map(ToString::to_string).collect(),
            at_it: state.turns.len(),
            waiting: state.waiting.len(),
            stopped: state.stopped.clone().or_else(|| state.paused.clone()),
            held: state.held.values().cloned().collect(),
            known: state.begun || !self.paces(),
            asked: state.asked,
            beginnings: state.beginnings,
        };
        let last = self.progress.borrow().clone();
        // Starts, ends and stops are published at once, and steps between them at intervals.
        let step = (&now.stopped, &now.held, now.known, now.asked, now.beginnings, now.waiting > 0, now.at_it > 0)
            == (&last.stopped, &last.held, last.known, last.asked, last.beginnings, last.waiting > 0, last.at_it > 0);
        state.untold = now != last && step && state.told.is_some_and(|told| told.elapsed() < REPORT_INTERVAL);
        if now == last || state.untold {
            return;
        }
        state.told = Some(Instant::now());
        self.progress.send_replace(now);
    }
}

impl PaceState {
    fn dequeue(&mut self, key: &ObjectKey) {
        for place in ORDERS {
            self.waiting.remove(&order(key, place));
        }
    }

    fn waits(&mut self, key: &ObjectKey, was_ready: bool, work: &PodImpact) {
        let place = if self.failed.contains(key) { 2 } else { u8::from(was_ready) };
        self.waiting.insert(order(key, place), (was_ready, work.broken.is_some()));
    }

    /// Continues or ends a restart.
    fn continue_restart(&mut self, key: &ObjectKey, turn: Restart, work: &PodImpact, ready: Option<bool>) -> RestartPermission {
        let through = !work.restarts && !work.rolling;
        if through && (ready == Some(true) || !turn.was_ready) {
            self.turns.remove(key);
            self.failed.remove(key);
            return RestartPermission::GoOn;
        }
        let late = turn.since.elapsed() > RESTART_TIMEOUT;
        let broken = work.broken.clone().filter(|_| !turn.failing_before || !turn.was_ready);
        let failure = if work.restarts {
            // Failures before the write aren't failures of the restart.
            None
        } else {
            broken.or_else(|| work.late.clone()).or_else(|| (through && ready == Some(false)).then(|| "it is no longer Ready".to_owned()))
        };
        let failure =
            failure.or_else(|| late.then(|| format!("the restart did not finish within {} minutes", RESTART_TIMEOUT.as_secs() / 60)));
        let Some(why) = failure else { return RestartPermission::Restart(turn.was_ready) };
        self.turns.remove(key);
        if work.restarts {
            // If it can't be written, nothing is lost: it is retried after the others.
            self.failed.insert(key.clone());
            self.waits(key, turn.was_ready, work);
            return RestartPermission::Wait;
        }
        self.fail(key, turn, &why);
        RestartPermission::GoOn
    }

    /// Records a failed restart. If the subject was ready before, no other subject of the namespace restarts.
    fn fail(&mut self, key: &ObjectKey, turn: Restart, why: &str) {
        let first = self.failed.insert(key.clone());
        if turn.was_ready && first {
            self.held.entry(key.namespace.clone()).or_insert_with(|| format!("{key} failed to restart: {why}"));
            self.stop_where_all_are_held();
        }
    }

    /// Stops all restarts if they have failed in several namespaces, or if no subject of another namespace is queued.
    fn stop_where_all_are_held(&mut self) {
        let everywhere = || self.waiting.keys().all(|(_, namespace, ..)| self.held.contains_key(namespace));
        if !self.held.is_empty() && (self.held.len() >= FAILED_NAMESPACES || everywhere()) {
            let failed: Vec<String> = std::mem::take(&mut self.held).into_values().collect();
            self.stopped.get_or_insert(failed.join("; "));
        }
    }
}

#[cfg(test)]
mod tests;
