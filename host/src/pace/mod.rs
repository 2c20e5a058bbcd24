//! How many subjects restart their pods at once. A change that concerns many (of policies, of a runtime, of a base configuration) comes to them
//! one after the other, and no further than to the first that fails.
//!
//! What a subject is on is not stored: what runs says it. That it has its turn stands in its status, so that whoever leads next goes on.

use pointsman_core::pods::PodImpact;
use pointsman_core::world::ObjectKey;
use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Mutex,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How many subjects restart their pods at once, unless the host is told otherwise.
pub const MAX_CONCURRENT_RESTARTS: usize = 10;

/// How often one is looked at whose turn it is, although nothing is reported: a write may have changed nothing.
pub const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long a turn may take. A Deployment says after ten minutes that it doesn't get on; other kinds never do.
const RESTART_TIMEOUT: Duration = Duration::from_mins(15);

/// After how long those who are known to wait get their turns, although others are still to be looked at: in a cluster where there always is
/// something to do.
const MAX_WAIT_FOR_IDLE: Duration = Duration::from_mins(1);

/// How often the progress is told at most: each time is a write.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// In how many namespaces restarts must have failed before nobody gets a turn any more: one tenant's failure needn't be anybody else's.
const FAILED_NAMESPACES: usize = 3;

/// How many of those that are at it are named.
const MAX_NAMES_REPORTED: usize = 10;

/// Gives turns.
#[derive(Debug)]
pub struct Pacer {
    /// None: any number.
    most: Option<usize>,
    state: Mutex<PaceState>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is so apart from the others.
struct PaceState {
    /// Whether everything was looked at since we lead or another set decides, so that it is known who waits.
    begun: bool,
    /// Whether another set decides and those who look haven't been told.
    expecting: bool,
    /// Whether it is known if somebody has paused it.
    asked: bool,
    beginnings: u64,
    /// Whose turn it is.
    turns: BTreeMap<ObjectKey, Restart>,
    /// Who waits, in the order in which they get their turns; and whether they are ready, and pods of theirs fail already.
    waiting: BTreeMap<Order, (bool, bool)>,
    /// Those that have failed in their turn: they are waited for no more.
    failed: HashSet<ObjectKey>,
    /// The generations that users have asked for and that aren't carried out.
    user_edits: HashMap<ObjectKey, Option<i64>>,
    /// Whether a step wasn't told because another one just was.
    untold: bool,
    /// Why nobody gets a turn: a word of somebody's, and what has failed.
    paused: Option<String>,
    stopped: Option<String>,
    /// The namespaces in which nobody gets a turn while others go on, and what has failed there.
    held: BTreeMap<String, String>,
    told: Option<Instant>,
    /// Since when there always was something to look at.
    since: Option<Instant>,
}

/// Somebody's turn.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// Whether it was ready before, so that it can lose that.
    was_ready: bool,
    /// Whether pods of it failed before.
    failing_before: bool,
    since: Instant,
}

/// Those that aren't ready have the least to lose and come first, and those that have had a turn in vain come last; then namespace, name and
/// kind say it.
type Order = (u8, String, String, ObjectKey);

const ORDERS: std::ops::RangeInclusive<u8> = 0..=2;

fn order(key: &ObjectKey, place: u8) -> Order {
    (place, key.namespace.clone(), key.name.clone(), key.clone())
}

/// How far a change has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The first of those that are at it.
    pub restarting: Vec<String>,
    /// How many are at it.
    pub at_it: usize,
    /// How many wait.
    pub waiting: usize,
    /// Why nobody gets a turn.
    pub stopped: Option<String>,
    /// What has failed in the namespaces in which nobody gets a turn while others go on.
    pub held: Vec<String>,
    /// Whether everything was looked at, so that the rest says something.
    pub known: bool,
    /// Whether it is known if somebody has paused it.
    pub asked: bool,
    /// Counts up when somebody begins or ends to lead.
    pub beginnings: u64,
}

/// What a subject may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPermission {
    /// What is planned.
    GoOn,
    /// What is planned, and it is its turn; whether that is told, because it was ready before.
    Restart(bool),
    /// Nothing that restarts its pods, for now.
    Wait,
    /// What its user has asked for, which no former set does without restarting pods.
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

/// What is to be known of a subject whose plan was made.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// What the plan and the pods say.
    pub work: &'a PodImpact,
    /// Whether everything of it works, by the plan.
    pub ready: Option<bool>,
    /// Whether its status says that everything works.
    pub was_ready: bool,
    /// Whether its status says that it has its turn.
    pub has_turn: bool,
    /// Whether its own spec has changed: its user has asked for that, and needs no turn.
    pub own_edit: bool,
    /// The generation of its spec.
    pub generation: Option<i64>,
}

impl Pacer {
    /// One that lets so many at it at once, or any number.
    pub fn new(most: Option<usize>) -> Self {
        let progress = Progress { known: most.is_none(), ..Progress::default() };
        Self { most, state: Mutex::default(), progress: watch::Sender::new(progress) }
    }

    /// Looks at a subject whose plan was made.
    pub fn admit(&self, key: &ObjectKey, seen: Observation<'_>) -> RestartPermission {
        let Observation { work, ready, was_ready, has_turn, own_edit, generation } = seen;
        let mut state = locked(&self.state);
        state.dequeue(key);
        if has_turn && !state.begun {
            // Whoever led before has given it.
            state.turns.entry(key.clone()).or_insert(Restart { was_ready: true, failing_before: false, since: Instant::now() });
        }
        if let Some(turn) = state.turns.get(key).copied() {
            return state.continue_restart(key, turn, work, ready);
        }
        if !work.restarts {
            state.user_edits.remove(key);
            return RestartPermission::GoOn;
        }
        // What couldn't be carried out when it was asked for is still asked for.
        if own_edit {
            state.user_edits.insert(key.clone(), generation);
        }
        let own_edit = state.user_edits.get(key).is_some_and(|asked| *asked == generation);
        // Where nothing serves nothing can be lost, as long as nothing is known against it.
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

    /// Somebody whose own edit is carried out on a former set waits for the rest.
    pub fn enqueue(&self, key: &ObjectKey, was_ready: bool, work: &PodImpact) {
        locked(&self.state).waits(key, was_ready, work);
    }

    /// A subject that is gone, or isn't ours, needs no turn.
    pub fn forget(&self, key: &ObjectKey) {
        let mut state = locked(&self.state);
        state.dequeue(key);
        state.turns.remove(key);
        state.failed.remove(key);
        state.user_edits.remove(key);
    }

    /// Gives turns to those that are to have one now. Only while nobody else is still to be looked at is it known who comes first.
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

    /// Whether anybody needs a turn.
    pub fn paces(&self) -> bool {
        self.most.is_some()
    }

    /// Whether it is a subject's turn.
    pub fn has_turn(&self, key: &ObjectKey) -> bool {
        locked(&self.state).turns.contains_key(key)
    }

    /// Whether somebody may be on a former set.
    pub fn in_use(&self) -> bool {
        let state = locked(&self.state);
        self.paces() && (!state.begun || !state.waiting.is_empty())
    }

    /// Why nobody gets a turn since one has failed.
    pub fn failure_reason(&self) -> Option<String> {
        locked(&self.state).stopped.clone()
    }

    /// Why nobody gets a turn, whoever has said so.
    pub fn paused_reason(&self) -> Option<String> {
        let state = locked(&self.state);
        state.paused.clone().or_else(|| state.stopped.clone())
    }

    /// Takes what the cluster says: why nobody is to get a turn, or that turns are given. When such a word is taken back, what it said is over.
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

    /// What has failed is over: somebody has gone back.
    pub fn clear_failure(&self) {
        let mut state = locked(&self.state);
        (state.stopped, state.paused) = (None, None);
        state.held.clear();
    }

    /// Another set decides from now on: until those who look are told, nothing is known of who waits.
    pub fn expect_new_set(&self) {
        let mut state = locked(&self.state);
        (state.expecting, state.begun) = (true, false);
        self.publish_progress(&mut state);
    }

    /// Whether something is to be told later.
    pub fn has_unpublished_progress(&self) -> bool {
        locked(&self.state).untold
    }

    /// Another set decides, and everything is about to be looked at: what has failed under the former one says nothing of it.
    pub fn begin_new_set(&self) {
        let mut state = locked(&self.state);
        state.failed.clear();
        state.held.clear();
        (state.expecting, state.begun, state.since) = (false, false, None);
        self.publish_progress(&mut state);
    }

    /// Forgets everything: another host may have led meanwhile, or leads now.
    pub fn reset(&self) {
        let mut state = locked(&self.state);
        *state = PaceState { beginnings: state.beginnings + 1, expecting: true, ..PaceState::default() };
        self.publish_progress(&mut state);
    }

    /// How far it has come, as it goes on.
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
        // A beginning, an end and a stop are told at once, and steps between them now and then.
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

    /// What becomes of a turn.
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
            // What was before it was written is no failure of it.
            None
        } else {
            broken.or_else(|| work.late.clone()).or_else(|| (through && ready == Some(false)).then(|| "it is no longer Ready".to_owned()))
        };
        let failure =
            failure.or_else(|| late.then(|| format!("the restart did not finish within {} minutes", RESTART_TIMEOUT.as_secs() / 60)));
        let Some(why) = failure else { return RestartPermission::Restart(turn.was_ready) };
        self.turns.remove(key);
        let first = self.failed.insert(key.clone());
        if work.restarts {
            // What can't be written does no harm: it is tried again when the others have had their turns.
            self.waits(key, turn.was_ready, work);
            return RestartPermission::Wait;
        }
        // Where something was lost nobody else of the namespace gets a turn.
        if turn.was_ready && first {
            self.held.entry(key.namespace.clone()).or_insert_with(|| format!("{key} failed to restart: {why}"));
            self.stop_where_all_are_held();
        }
        RestartPermission::GoOn
    }

    /// Stops for all where restarts have failed in several namespaces, or nobody waits in another one.
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
