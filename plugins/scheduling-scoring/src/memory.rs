//! The value of having a model in memory: a weighted mean of parts, each from 0 to 1. Waiting and idle models are scored by the same parts,
//! so that they can be compared.

use crate::mean::{mean, share, terms};
use pointsman_plugin::scheduling_scoring::Term;
use schemars::JsonSchema;
use serde::Deserialize;

/// The columns of the matrix.
pub const FEATURES: [&str; 10] = [
    "resident",
    "priority",
    "waiting-requests",
    "idle-seconds",
    "age-seconds",
    "load-seconds",
    "wakes-per-hour",
    "dependants",
    "memory-bytes",
    "pool-pressure",
];

// The values for which a part is halfway between its ends.
const PRIORITY: f64 = 10.0;
const IDLE_SECONDS: f64 = 120.0;
const WAIT_SECONDS: f64 = 300.0;
const LOAD_SECONDS: f64 = 60.0;
const WAKES: f64 = 4.0;
const MEMORY_GIB: f64 = 64.0;

const GIB: f64 = 1_073_741_824.0;

/// The number of parts.
const PARTS: usize = 7;

/// The relative weight of each part. A negative weight inverts a part; 0 disables it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Weights {
    /// Higher for a higher `pointsman.dev/priority`: three quarters at 10, half at 0, a quarter at -10.
    priority: f64,
    /// For a waiting model, higher with each waiting request. For an idle one, lower the longer it is idle: half after 2 minutes.
    demand: f64,
    /// For a waiting model, higher the longer it waits: half after 5 minutes.
    wait: f64,
    /// For a model that takes long to start, higher if it is idle, lower if it waits: half at a minute.
    load: f64,
    /// For a model that was woken often in the last hour, higher if it is idle, lower if it waits: half at 4 times.
    wakes: f64,
    /// Higher with each active or waiting model that depends on it: half with one.
    dependants: f64,
    /// Lower for a large model, the fuller the pool is: half at 64 GiB in a full pool.
    size: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { priority: 4.0, demand: 3.0, wait: 1.0, load: 1.0, wakes: 0.5, dependants: 1.0, size: 0.5 }
    }
}

/// The features of a model. Unknown ones are NaN.
#[derive(Clone, Copy)]
struct Row {
    is_resident: bool,
    priority: f64,
    waiting: f64,
    idle: f64,
    age: f64,
    load: f64,
    wakes: f64,
    dependants: f64,
    gib: f64,
    pressure: f64,
}

impl Row {
    fn new(given: &[f64]) -> Self {
        let mut values = [f64::NAN; FEATURES.len()];
        values.iter_mut().zip(given).for_each(|(value, given)| *value = *given);
        let [resident, priority, waiting, idle, age, load, wakes, dependants, memory, pressure] = values;
        Self { is_resident: resident > 0.5, priority, waiting, idle, age, load, wakes, dependants, gib: memory / GIB, pressure }
    }

    /// The parts in the order of `Weights::in_order`, each from 0 to 1, or NaN.
    fn parts(&self) -> [f64; PARTS] {
        // Arguments for an idle model are arguments against a waiting one.
        let kept = |share: f64| if self.is_resident { share } else { 1.0 - share };
        [
            f64::midpoint(share(self.priority.abs(), PRIORITY).copysign(self.priority), 1.0),
            if self.is_resident { 1.0 - share(self.idle, IDLE_SECONDS) } else { share(self.waiting + 0.5, 1.0) },
            if self.is_resident { 0.0 } else { share(self.age, WAIT_SECONDS) },
            kept(share(self.load, LOAD_SECONDS)),
            kept(share(self.wakes, WAKES)),
            share(self.dependants, 1.0),
            1.0 - self.pressure.clamp(0.0, 1.0) * share(self.gib, MEMORY_GIB),
        ]
    }

    /// The source of each part: a code, and the start of a sentence.
    fn sources(&self) -> [(&'static str, String); PARTS] {
        let seconds = |value: f64, known: &str, unknown: &str| {
            if value.is_nan() { unknown.to_owned() } else { format!("{known} {value} s") }
        };
        let demand = if self.is_resident {
            seconds(self.idle, "It has been idle for", "Its idle time is unknown")
        } else {
            format!("{} requests wait for it", self.waiting)
        };
        let wait = if self.is_resident {
            "It isn't waiting".to_owned()
        } else {
            seconds(self.age, "It has been waiting for", "Its waiting time is unknown")
        };
        [
            ("Priority", format!("Its priority is {}", self.priority)),
            ("Demand", demand),
            ("Wait", wait),
            ("Load", seconds(self.load, "It starts in", "Its start time is unknown")),
            ("Wakes", format!("It was woken {} times in the last hour", self.wakes)),
            ("Dependants", format!("{} awake or waiting models need it", self.dependants)),
            ("Size", format!("It takes {:.1} GiB, and {:.0} % of its pool is in use", self.gib, self.pressure * 100.0)),
        ]
    }
}

impl Weights {
    fn in_order(&self) -> [f64; PARTS] {
        [self.priority, self.demand, self.wait, self.load, self.wakes, self.dependants, self.size]
    }

    pub(crate) fn score(&self, row: &[f64]) -> f64 {
        mean(self.in_order(), Row::new(row).parts())
    }

    pub(crate) fn explain(&self, row: &[f64]) -> Vec<Term> {
        let row = Row::new(row);
        terms(self.in_order(), row.parts(), row.sources())
    }
}
