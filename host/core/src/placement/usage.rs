//! What pods take of a node of the resources that features read, found once after each change: to look four names up in the requests of 5,000 nodes
//! takes a millisecond.

use super::{
    cluster::NodeState,
    features::facts::NodeFacts,
    resources::{CPU, MEMORY},
};

/// What is taken of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Thousandths of a processor.
    pub(super) cpu: i64,
    pub(super) memory: i64,
    /// Of each kind in [`NodeFacts::accelerators`].
    pub(super) accelerators: Vec<i64>,
}

impl Usage {
    /// What its pods take of a node.
    pub(super) fn for_state<'s>(state: &'s NodeState, facts: &NodeFacts) -> &'s Self {
        state.usage.get(|| Self::new(facts, |resource| state.taken.get(resource)))
    }

    /// What is taken of the resources that a node has.
    pub(super) fn new(facts: &NodeFacts, taken: impl Fn(&str) -> i64) -> Self {
        let accelerators = facts.accelerators.iter().map(|(kind, _)| taken(kind)).collect();
        Self { cpu: taken(CPU), memory: taken(MEMORY), accelerators }
    }
}
