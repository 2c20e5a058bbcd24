//! What features read of a node and of what pods take of it, found once after each change and kept in one piece of memory: a question about 5,000
//! nodes has a few milliseconds, and each step from one object of a node to the next costs as much as all sums.

use super::{
    cluster::NodeState,
    features::facts::{NodeBasics, NodeFacts, word},
    resources::{CPU, MEMORY},
    settings::Settings,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a node has and what is taken of it.
#[derive(Clone, Debug)]
pub struct Usage {
    pub(super) basics: NodeBasics,
    pub(super) facts: Arc<NodeFacts>,
    /// What is taken, in thousandths of a processor.
    pub(super) cpu: i64,
    pub(super) memory: i64,
    /// Of most nodes there is one kind.
    pub(super) accelerators: SmallVec<[Accelerators; 2]>,
}

/// A node's accelerators of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accelerators {
    /// The word for the kind.
    pub(super) kind: u64,
    pub(super) amount: i64,
    pub(super) taken: i64,
}

impl Usage {
    /// What its pods take of a node, which was read under the settings.
    pub(super) fn for_state<'s>(state: &'s NodeState, settings: &Settings) -> &'s Self {
        state.usage.get(|| Self::new(NodeFacts::for_node(&state.node, settings), |resource| state.taken.get(resource)))
    }

    /// What is taken of the resources that a node has.
    pub(super) fn new(facts: &Arc<NodeFacts>, taken: impl Fn(&str) -> i64) -> Self {
        let accelerators =
            facts.accelerators.iter().map(|(kind, amount)| Accelerators { kind: word(kind), amount: *amount, taken: taken(kind) });
        Self {
            basics: facts.basics,
            facts: Arc::clone(facts),
            cpu: taken(CPU),
            memory: taken(MEMORY),
            accelerators: accelerators.collect(),
        }
    }
}
