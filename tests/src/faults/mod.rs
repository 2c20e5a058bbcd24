//! A proxy between a host and the API server. It injects faults into some of the requests and events, and records all writes of the host.

mod crash;
mod fault;
mod ledger;
mod proxy;

pub use crash::CrashPoint;
pub use fault::{Call, Fault, Verb};
pub use ledger::{Ledger, Number};
pub use proxy::{Proxy, Reach};

use crash::Crashes;
use http::StatusCode;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// One of this many requests gets a fault.
const ONE_OF: u64 = 4;

/// The number of stored responses per list.
const KEPT_LISTS: usize = 4;

/// The faults of a test, and the records about its hosts, which all proxies share.
#[derive(Debug, Default)]
pub struct Faults {
    /// The writes of hosts.
    pub ledger: Ledger,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    random: u64,
    left: usize,
    injected: BTreeMap<Fault, usize>,
    /// The crashes of hosts at writes, if the test requests them.
    crashes: Option<Crashes>,
    /// Earlier responses per list, oldest first.
    lists: HashMap<String, VecDeque<Vec<u8>>>,
}

impl State {
    /// The next number of the seed's sequence (SplitMix64).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Faults {
    /// No faults until `allow`.
    pub fn new(seed: u64) -> Self {
        let state = State { random: seed, ..State::default() };
        Self { ledger: Ledger::default(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Injects this many random faults from now on.
    pub fn allow(&self, number: usize) {
        self.state().left = number;
    }

    /// The number of these faults that are still to be injected.
    pub fn left(&self) -> usize {
        self.state().left
    }

    /// Records a fault of a whole host.
    pub fn note(&self, fault: Fault) {
        *self.state().injected.entry(fault).or_default() += 1;
    }

    /// How often each fault was injected.
    pub fn injected(&self) -> BTreeMap<Fault, usize> {
        self.state().injected.clone()
    }

    /// Randomly chooses a fault for this request, or none: one of those that are possible and were injected least often.
    fn choose(&self, call: &Call) -> Option<Fault> {
        let mut state = self.state();
        if state.left == 0 || !state.random().is_multiple_of(ONE_OF) {
            return None;
        }
        let count = |fault: &Fault| state.injected.get(fault).copied().unwrap_or_default();
        let old = |fault: &Fault| *fault != Fault::StaleList || state.lists.get(&call.target).is_some_and(|kept| !kept.is_empty());
        let possible: Vec<Fault> = Fault::BY_CHANCE.into_iter().filter(|fault| fault.meets(call) && old(fault)).collect();
        let least = possible.iter().map(count).min()?;
        let rarest: Vec<Fault> = possible.into_iter().filter(|fault| count(fault) == least).collect();
        let turn = state.random() % rarest.len() as u64;
        let fault = rarest.get(usize::try_from(turn).ok()?).copied()?;
        state.left -= 1;
        *state.injected.entry(fault).or_default() += 1;
        Some(fault)
    }

    /// A random one of these.
    fn any<T: Copy, const N: usize>(&self, all: [T; N]) -> T {
        let turn = self.state().random() % N as u64;
        all[usize::try_from(turn).unwrap_or_default()]
    }

    /// Stores the response to a list, as the later response of a lagging API server.
    fn keep(&self, call: &Call, status: StatusCode, answer: &[u8]) {
        if call.verb != Verb::List || status != StatusCode::OK || call.target.contains("continue=") {
            return;
        }
        let mut state = self.state();
        let kept = state.lists.entry(call.target.clone()).or_default();
        if kept.len() == KEPT_LISTS {
            kept.pop_front();
        }
        kept.push_back(answer.to_owned());
    }

    /// The oldest stored response.
    fn stale(&self, call: &Call) -> Option<Vec<u8>> {
        self.state().lists.get(&call.target)?.front().cloned()
    }
}
