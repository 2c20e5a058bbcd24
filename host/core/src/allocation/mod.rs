//! Decides which of the models that compete for memory get a reservation on a node: a pure function from nodes, pods and models to a
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

/// A waiting model displaces an idle one only if its score is higher by this much: otherwise two models with nearly equal scores would take
/// turns.
pub const HYSTERESIS: f64 = 0.05;

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its labels, which select the pools it belongs to.
    pub labels: BTreeMap<String, String>,
    /// The total that pods may request.
    pub allocatable: Amounts,
    /// The memory that the administrator reserves for models. None: all that other pods leave.
    pub memory_budget: Option<i64>,
    /// The total requests of pods that aren't models'.
    pub others: Amounts,
    /// Why it accepts no new pods, if it doesn't.
    pub closed: Option<Closed>,
    /// The keys of the taints that keep pods away.
    pub taints: Vec<String>,
}

impl Node {
    /// The total that models may take.
    fn capacity(&self) -> Amounts {
        let left = self.allocatable - self.others;
        Amounts { memory: self.memory_budget.map_or(left.memory, |budget| budget.min(left.memory)), ..left }
    }
}

/// Why a node accepts no new pods.
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
    /// The name that clients and other models use.
    pub name: String,
    /// The labels of the nodes that it may run on.
    pub selector: BTreeMap<String, String>,
    /// What its pod needs.
    pub needs: Amounts,
    /// The keys of the taints that its pod tolerates.
    pub tolerations: Vec<String>,
    /// The names of the models that must be ready before it starts.
    pub dependencies: Vec<String>,
    /// Whether another party runs its pod. Such a model is only routed to.
    pub external: bool,
    /// Whether its spec puts it to sleep permanently.
    pub off: bool,
    /// The time without requests after which it goes to sleep, in seconds.
    pub cooldown: u64,
    /// The minimum time that it stays awake, in seconds.
    pub residency: u64,
    /// The priority from its annotation; higher is more important.
    pub priority: f64,
    /// The time of its creation, in seconds since 1970.
    pub created: u64,
    /// Its reservation, if it has one.
    pub held: Option<Held>,
    /// Its pods in any state, by node.
    pub pods: Vec<(String, Amounts)>,
    /// Its observed activity.
    pub activity: Activity,
}

/// A reservation on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The node's name.
    pub node: String,
    /// The reserved amounts.
    pub amounts: Amounts,
    /// The phase of the model.
    pub phase: Phase,
    /// The time of the last change of phase, in milliseconds since 1970, set when it is written. An allocation doesn't change it.
    pub since: u64,
}

/// The phase of a model with a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It runs, or starts.
    #[default]
    Admitted,
    /// It is going to sleep: gateways route no new requests to it, and requests in flight are completed.
    Draining(SleepReason),
    /// No request is in flight any more: its pod is being removed.
    Stopping,
}

/// Why a model goes to sleep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SleepReason {
    /// No requests came during its cooldown period.
    Idle,
    /// Another model needs its memory.
    Evicted(ObjectName),
    /// Its spec, or that of a dependency, puts it to sleep.
    Off,
    /// It no longer fits its node, because the node, its selector or its needs changed.
    Misplaced,
    /// Its node has less memory than is reserved.
    Overcommitted,
}

/// The name of a model as stored and displayed: NAMESPACE/NAME.
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

/// The observed activity of a model. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that wait for the model to wake.
    pub waiting: u64,
    /// Since when the oldest of these has waited.
    pub waiting_since: Option<u64>,
    /// The average over the last minute.
    pub requests_per_second: Option<f64>,
    /// The time of the last request.
    pub last_request: Option<u64>,
    /// Since when it has been ready; none if it isn't.
    pub ready_since: Option<u64>,
    /// Whether all gateways confirm that they no longer route to it and have no requests in flight.
    pub drained: bool,
    /// Whether its Deployment requests no pods.
    pub scaled_to_zero: bool,
    /// The number of wakes during the last hour.
    pub wakes: u32,
    /// The duration of its last start, in seconds.
    pub start_seconds: Option<f64>,
    /// Whether it has ever been ready.
    pub ran: bool,
}

impl Activity {
    /// Whether a gateway has seen a request since the model became ready. If not, its traffic may bypass all gateways.
    fn is_seen(&self) -> bool {
        self.ready_since.zip(self.last_request).is_some_and(|(ready, last)| last >= ready) || self.in_flight > 0
    }

    /// How long it has had no requests.
    pub fn idle(&self, now: u64) -> u64 {
        let since = self.last_request.max(self.ready_since).unwrap_or(now);
        now.saturating_sub(since)
    }
}

/// The row of features that policies get for a model. The names contain the units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    /// The priority from its annotation; 0 by default.
    pub priority: f64,
    /// What its pod needs.
    pub memory_bytes: f64,
    /// The time since the last request; NaN if it sleeps.
    pub idle_seconds: f64,
    /// Requests that wait for it.
    pub waiting_requests: f64,
    /// The number of wakes during the last hour.
    pub wakes_per_hour: f64,
    /// The duration of its last start; NaN if unknown.
    pub load_seconds: f64,
    /// The number of dependants that have a reservation or wait for one.
    pub dependants: f64,
    /// The share of the pool's memory that is in use, from 0 to 1.
    pub pool_pressure: f64,
    /// How long it has waited, or how long it has been ready.
    pub age_seconds: f64,
    /// The average over the last minute; NaN if no gateway has reported one.
    pub requests_per_second: f64,
    /// 1 if it has a reservation, otherwise 0.
    pub resident: f64,
}

/// Scores models, one row each: a higher score means that it is worth more in memory. None excludes the model.
pub type Scorer<'s> = dyn FnMut(&[(&ObjectKey, Features)]) -> Vec<Option<f64>> + 's;

/// The candidate nodes for a model, for the policies to score.
#[allow(missing_debug_implementations)] // A function has no Debug.
pub struct Choice<'c> {
    /// The model.
    pub model: &'c ObjectKey,
    /// The nodes, by name.
    pub nodes: &'c [&'c str],
    /// The amounts that models take on a node: reservations, pods and the decisions made so far.
    pub taken: &'c dyn Fn(&str) -> Amounts,
}

/// Scores nodes for a model.
pub type NodeScorer<'s> = dyn FnMut(&Choice<'_>) -> NodeAnswer + 's;

/// The scores of the nodes for a model.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAnswer {
    /// One score per node, in order: higher is better, and none excludes the node.
    Scores(Vec<Option<f64>>),
    /// No plugin scores nodes: all are equal.
    Equal,
    /// The scores aren't available yet. The model waits for them, so that it doesn't get a node that they would exclude.
    Later,
}

/// Which models have a reservation or wait for one, and the steps to write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The state of each model.
    pub entries: BTreeMap<ObjectKey, Entry>,
    /// The steps to write now, in this order.
    pub steps: Vec<Step>,
    /// When to recheck without a change, in seconds since 1970.
    pub next: Option<u64>,
}

/// A change to write. It has no effect before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The model that it changes.
    pub model: ObjectKey,
    /// Its new reservation; none removes it.
    pub held: Option<Held>,
    /// Steps with the same key are written together or not at all: a requested model and its dependencies are admitted together.
    pub with: ObjectKey,
}

/// The state of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// It is only routed to.
    External,
    /// No nodes are known: it is planned as if it had a reservation on some node.
    Assumed,
    /// It sleeps.
    Asleep,
    /// It has a stored reservation.
    Placed {
        /// The reservation.
        held: Held,
        /// Whether no gateway has seen a request since it became ready. Its traffic may bypass the gateways, so it isn't put to sleep.
        unseen: bool,
        /// The dependencies that must be ready before it starts, and aren't.
        starts_after: Vec<ObjectKey>,
    },
    /// It is to run, and has no reservation.
    Waiting(Waiting),
    /// It can't run as it is.
    Refused(Refusal),
}

/// Why a model has no reservation yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waiting {
    /// The node where it would fit first; none if no node accepts new pods.
    pub node: Option<String>,
    /// The free amounts there.
    pub free: Amounts,
    /// The models that take the rest, those that will stop first at the front.
    pub blockers: Vec<Blocker>,
    /// Whether its reservation is about to be written: enough of them are stopping, or none needs to.
    pub is_coming: bool,
    /// The dependency without a reservation that it waits for.
    pub dependency: Option<ObjectKey>,
    /// The requested model that depends on it, if the model itself isn't requested: both are admitted together.
    pub wanted_by: Option<ObjectKey>,
    /// The first nodes where it would fit that the policies exclude.
    pub excluded: Vec<String>,
    /// Whether the policies have not scored its nodes.
    pub is_undecided: bool,
}

/// A model that takes memory which another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The model.
    pub model: ObjectKey,
    /// Its memory needs, in bytes.
    pub memory: i64,
    /// How long it has had no requests, in seconds.
    pub idle: u64,
    /// Why it stays.
    pub stays: Stays,
}

/// Why a model isn't put to sleep for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stays {
    /// It doesn't stay: it is stopping.
    Leaving,
    /// It could be put to sleep, but that would not free enough.
    NotEnough,
    /// The policies rank it as high, or almost as high.
    RanksHigher,
    /// The policies exclude the waiting model, or could not score it.
    Unranked,
    /// It hasn't been awake for its minimum residency.
    Resident,
    /// It is starting.
    Starting,
    /// It has requests in flight or waiting.
    Busy,
    /// A model that depends on it is awake.
    Needed,
    /// No gateway has seen its traffic.
    Unseen,
}

/// Why a model can't run as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An older model has its name.
    NameTaken(ObjectKey),
    /// No node has the labels of its selector.
    NoNodes,
    /// It needs more than any of its nodes has for models; this is the largest.
    TooLarge {
        /// The node.
        node: String,
        /// The node's total for models.
        capacity: Amounts,
    },
    /// Its dependencies form a cycle: the path, whose last name also occurs before.
    Circle(Vec<String>),
    /// A dependency isn't the name of a model in its namespace: the path to it.
    UnknownDependency(Vec<String>),
    /// A dependency sleeps permanently or can't run: the path to it.
    DependencyOff(Vec<String>),
}

impl Refusal {
    /// Whether different nodes would help, rather than a different spec.
    pub fn is_about_room(&self) -> bool {
        matches!(self, Self::NoNodes | Self::TooLarge { .. })
    }
}
