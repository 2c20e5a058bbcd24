//! What pods take of a node of the resources that features read, found once after each change: to look four names up in the requests of 5,000 nodes
//! takes a millisecond.

use super::{
    features::facts::NodeFacts,
    resources::{CPU, MEMORY, Resources},
};
use std::sync::OnceLock;

/// What is taken of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Thousandths of a processor.
    pub(super) cpu: i64,
    pub(super) memory: i64,
    /// Of each kind in [`NodeFacts::accelerators`].
    pub(super) accelerators: Vec<i64>,
}

impl Usage {
    /// What is taken of the resources that a node has.
    pub(super) fn new(facts: &NodeFacts, taken: impl Fn(&str) -> i64) -> Self {
        let accelerators = facts.accelerators.iter().map(|(kind, _)| taken(kind)).collect();
        Self { cpu: taken(CPU), memory: taken(MEMORY), accelerators }
    }
}

/// What is taken of a node, once somebody has asked for it. It says nothing that the node's pods don't: two are always equal.
#[derive(Debug, Default)]
pub struct KeptUsage(OnceLock<Usage>);

impl Clone for KeptUsage {
    /// A copy is made to be changed, and finds its own.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for KeptUsage {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl KeptUsage {
    pub(super) fn get(&self, facts: &NodeFacts, taken: &Resources) -> &Usage {
        self.0.get_or_init(|| Usage::new(facts, |resource| taken.get(resource)))
    }

    /// Has it found anew: the node or its pods are about to change.
    pub(super) fn forget(&mut self) {
        self.0.take();
    }
}
