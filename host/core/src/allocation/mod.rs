//! Which of the models that compete for memory have a place on a node: a pure function from what is known of nodes, pods and models to a
//! ledger. A plan reads the entry of its own model.

mod admit;
pub mod amounts;
pub mod cluster;
mod decide;
mod forecast;
mod graph;
pub mod inputs;
mod node_choice;
pub mod records;
mod room;
mod victims;
mod words;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use crate::key::ObjectKey;
use amounts::Amounts;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

pub use decide::allocate;
pub use forecast::forecast;
pub use words::{memory_text, time_text};

/// A waiting model takes the place of an idle one only if its score is higher by this much: otherwise two models of nearly equal worth would
/// take turns.
pub const HYSTERESIS: f64 = 0.05;

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its labels, by which pools are selected.
    pub labels: BTreeMap<String, String>,
    /// What its pods may request in all.
    pub allocatable: Amounts,
    /// The memory that its administrator gives to models. None: what other pods leave.
    pub memory_budget: Option<i64>,
    /// What pods request that aren't models'.
    pub others: Amounts,
    /// Why it takes no new pods, if it doesn't.
    pub closed: Option<Closed>,
    /// The keys of the taints that keep pods away.
    pub taints: Vec<String>,
}

impl Node {
    /// What models may take in all.
    fn capacity(&self) -> Amounts {
        let left = self.allocatable - self.others;
        Amounts { memory: self.memory_budget.map_or(left.memory, |budget| budget.min(left.memory)), ..left }
    }
}

/// Why a node takes no new pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Closed {
    /// It isn't ready.
    NotReady,
    /// It is cordoned.
    Cordoned,
}

/// A model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// The name by which clients and other models ask for it.
    pub name: String,
    /// The labels of the nodes that it may run on.
    pub selector: BTreeMap<String, String>,
    /// What its pod needs.
    pub needs: Amounts,
    /// The keys of the taints that its pod tolerates.
    pub tolerations: Vec<String>,
    /// The names of the models that must be ready before it starts.
    pub dependencies: Vec<String>,
    /// Whether its pod is ours to make. One that isn't is only routed to.
    pub external: bool,
    /// Whether it is to sleep for good.
    pub off: bool,
    /// In seconds.
    pub cooldown: u64,
    /// How long it stays awake at least, in seconds.
    pub residency: u64,
    /// As its annotation says; more is more important.
    pub priority: f64,
    /// In seconds since 1970.
    pub created: u64,
    /// Its place, if it has one.
    pub held: Option<Held>,
    /// Its pods, whatever they are at, by their nodes.
    pub pods: Vec<(String, Amounts)>,
    /// What was seen of it.
    pub activity: Activity,
}

/// A place on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The node's name.
    pub node: String,
    /// What is set aside.
    pub amounts: Amounts,
    /// How far it is.
    pub phase: Phase,
    /// Since when, in milliseconds since 1970, as it is written. An allocation leaves it as it is.
    pub since: u64,
}

/// How far a model with a place is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It runs there, or starts.
    #[default]
    Admitted,
    /// It is to sleep: gateways route nothing new to it, and requests in flight are answered.
    Draining(SleepReason),
    /// No request is in flight any more: its pod goes.
    Stopping,
}

/// Why a model goes to sleep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SleepReason {
    /// Nobody has asked for it during its cooldown period.
    Idle,
    /// Another one needs its memory.
    Evicted(ObjectName),
    /// Its spec says that it sleeps, or that of a model that it depends on.
    Off,
    /// It no longer fits where it is: its node, its selector or its needs are others.
    Misplaced,
    /// Its node has less memory than is set aside there.
    Overcommitted,
}

/// A model as it is stored and shown: NAMESPACE/NAME.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectName(pub String);

impl ObjectName {
    /// The name of a model.
    pub fn new(key: &ObjectKey) -> Self {
        Self(format!("{}/{}", key.namespace, key.name))
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was seen of a model. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// Requests that are being answered.
    pub in_flight: u64,
    /// Requests that wait for it to wake.
    pub waiting: u64,
    /// Since when the oldest of them waits.
    pub waiting_since: Option<u64>,
    /// Over the last minute.
    pub requests_per_second: Option<f64>,
    /// When the last request came.
    pub last_request: Option<u64>,
    /// Since when it has been ready; none if it isn't.
    pub ready_since: Option<u64>,
    /// Whether all gateways confirm that they route nothing to it, and that nothing is in flight.
    pub drained: bool,
    /// Whether its Deployment wants no pod.
    pub scaled_to_zero: bool,
    /// How often it was woken during the last hour.
    pub wakes: u32,
    /// How long it took to start, in seconds.
    pub start_seconds: Option<f64>,
    /// Whether it has ever been ready.
    pub ran: bool,
}

impl Activity {
    /// Whether a gateway has seen a request for it since it was ready. If not, its traffic may bypass all of them.
    fn is_seen(&self) -> bool {
        self.ready_since.zip(self.last_request).is_some_and(|(ready, last)| last >= ready) || self.in_flight > 0
    }

    /// For how long nobody has asked for it.
    pub fn idle(&self, now: u64) -> u64 {
        let since = self.last_request.max(self.ready_since).unwrap_or(now);
        now.saturating_sub(since)
    }
}

/// What is put to the policies about a model: a row. Units are in the names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    /// As its annotation says; 0 by default.
    pub priority: f64,
    /// What its pod needs.
    pub memory_bytes: f64,
    /// Since the last request; NaN if it sleeps.
    pub idle_seconds: f64,
    /// Requests that wait for it.
    pub waiting_requests: f64,
    /// How often it was woken during the last hour.
    pub wakes_per_hour: f64,
    /// How long it takes to start; NaN if that was never seen.
    pub load_seconds: f64,
    /// Models that are awake or wait, and depend on it.
    pub dependants: f64,
    /// Which share of the pool's memory is taken, from 0 to 1.
    pub pool_pressure: f64,
    /// Since when it waits, or since when it has been ready.
    pub age_seconds: f64,
    /// Over the last minute; NaN if no gateway has counted.
    pub requests_per_second: f64,
    /// 1 if it has a place, else 0.
    pub resident: f64,
}

/// Scores models: a row each, and more is more worth having in memory. None excludes.
pub type Scorer<'s> = dyn FnMut(&[(&ObjectKey, Features)]) -> Vec<Option<f64>> + 's;

/// The nodes that a model may get: the policies say which suits it best.
#[allow(missing_debug_implementations)] // A function has none.
pub struct Choice<'c> {
    /// The model.
    pub model: &'c ObjectKey,
    /// The nodes, by name.
    pub nodes: &'c [&'c str],
    /// What models have of a node: their places, their pods, and what has been decided just now.
    pub taken: &'c dyn Fn(&str) -> Amounts,
}

/// Says which nodes suit a model.
pub type NodeScorer<'s> = dyn FnMut(&Choice<'_>) -> NodeAnswer + 's;

/// Which nodes suit a model.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAnswer {
    /// The scores of the nodes, in their order: a higher one suits better, and none excludes.
    Scores(Vec<Option<f64>>),
    /// Nobody decides: all are as good.
    Equal,
    /// There is no answer for now, and the model waits for one: it must not get a node that the answer would exclude.
    Later,
}

/// Who has a place, who waits, and what is to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// What is so of each model.
    pub entries: BTreeMap<ObjectKey, Entry>,
    /// What is to be written now, in this order.
    pub steps: Vec<Step>,
    /// When to look again although nothing has changed, in seconds since 1970.
    pub next: Option<u64>,
}

/// Something to be written: it has no effect before it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// About which model.
    pub model: ObjectKey,
    /// What becomes of its place; none takes it away.
    pub held: Option<Held>,
    /// Those that are written together with it or not at all: the model that asks, whose dependencies are admitted with it.
    pub with: ObjectKey,
}

/// What is so of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// It is only routed to.
    External,
    /// Nothing is known of nodes: it is planned as if it had a place on some node.
    Assumed,
    /// It sleeps.
    Asleep,
    /// It has a place, which is written. `unseen` says that its traffic may bypass the gateways, so that it isn't put to sleep.
    Placed {
        /// The place.
        held: Held,
        /// Whether no gateway has seen a request for it since it was ready.
        unseen: bool,
        /// Those that must be ready before it starts, and aren't.
        starts_after: Vec<ObjectKey>,
    },
    /// It is to run, and has no place.
    Waiting(Waiting),
    /// It can't be run as it is.
    Refused(Refusal),
}

/// Why a model has no place yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waiting {
    /// The node where it would fit first; none if no node takes new pods.
    pub node: Option<String>,
    /// What is free there.
    pub free: Amounts,
    /// Who takes the rest, those that will go first.
    pub blockers: Vec<Blocker>,
    /// Whether enough of them are on their way, or none needs to go: its place is about to be written.
    pub is_coming: bool,
    /// The dependency that has no place, if it isn't the model itself.
    pub dependency: Option<ObjectKey>,
    /// The model that it waits with, if nobody asks for it but for the sake of that one: both are admitted together.
    pub wanted_by: Option<ObjectKey>,
    /// The first of the nodes where it would fit and that the policies exclude.
    pub excluded: Vec<String>,
    /// Whether the policies have given no answer.
    pub is_undecided: bool,
}

/// Who takes memory that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The model.
    pub model: ObjectKey,
    /// Its memory, in bytes.
    pub memory: i64,
    /// For how long nobody has asked for it, in seconds.
    pub idle: u64,
    /// Why it stays.
    pub stays: Stays,
}

/// Why a model isn't put to sleep for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stays {
    /// It doesn't: it is on its way.
    Leaving,
    /// It could go, and its going isn't enough.
    NotEnough,
    /// The policies rank it as high, or nearly.
    RanksHigher,
    /// The policies exclude the one that waits, or couldn't decide.
    Unranked,
    /// It hasn't been awake for its minimum residency.
    Resident,
    /// It starts.
    Starting,
    /// Requests are in flight, or wait.
    Busy,
    /// One that depends on it is awake.
    Needed,
    /// No gateway has seen its traffic.
    Unseen,
}

/// Why a model can't be run as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An older model has its name.
    NameTaken(ObjectKey),
    /// No node has the labels that it selects.
    NoNodes,
    /// It needs more than each of its nodes has for models: the largest.
    TooLarge {
        /// The node.
        node: String,
        /// What it has for models.
        capacity: Amounts,
    },
    /// Its dependencies go in a circle: the path, whose last name is one of those before it.
    Circle(Vec<String>),
    /// A dependency isn't the name of a model of its namespace: the path to it.
    UnknownDependency(Vec<String>),
    /// A dependency sleeps for good, or can't be run: the path to it.
    DependencyOff(Vec<String>),
}

impl Refusal {
    /// Whether other nodes would do, rather than another model.
    pub fn is_about_room(&self) -> bool {
        matches!(self, Self::NoNodes | Self::TooLarge { .. })
    }
}
