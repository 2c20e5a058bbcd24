//! Chooses the node for a model: the one that the policies prefer, and among equal ones the one with the least free memory.

use super::{Choice, NodeAnswer, amounts::Amounts, decide::Decision};
use std::collections::BTreeMap;

/// Scores that differ by less count as equal, so that memory decides if the policies have only a slight preference: an image that is
/// already present is worth less than capacity for a larger model.
const MARGIN: f64 = 0.03;

/// How soon the policies are queried again if they had no answer, in seconds.
const ASK_AGAIN: u64 = 2;

impl Decision<'_> {
    /// The best node with capacity for a model, now or later.
    pub(super) fn best_node(&mut self, at: usize, now: bool) -> Option<usize> {
        let nodes = self.room.with_room(at, self.model(at), now);
        let scored = self.score_nodes(at, nodes, now, &BTreeMap::new());
        let highest = scored.iter().map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
        let best = scored.into_iter().filter(|(_, score)| highest - score < MARGIN).map(|(node, _)| node);
        // The fullest node, so that large gaps stay free.
        best.min_by_key(|&node| (self.room.later[node].memory, node))
    }

    /// The scores of the nodes that the policies don't exclude for a model, in order. If no plugin scores nodes, all are equal. `freed` is
    /// what the victims on each node would release.
    pub(super) fn score_nodes(
        &mut self,
        at: usize,
        mut nodes: Vec<usize>,
        now: bool,
        freed: &BTreeMap<usize, Amounts>,
    ) -> Vec<(usize, f64)> {
        nodes.retain(|node| !self.excluded[at].contains(node));
        if nodes.is_empty() {
            return Vec::new();
        }
        let (model, room) = (self.key(at), &self.room);
        let names: Vec<&str> = nodes.iter().map(|&node| room.nodes[node].0.as_str()).collect();
        let left = |node: usize| freed.get(&node).copied().unwrap_or_default();
        let taken = |name: &str| room.find(name).map(|node| room.taken(node, now) - left(node)).unwrap_or_default();
        let scores = match (self.choose)(&Choice { model, nodes: &names, taken: &taken }) {
            NodeAnswer::Scores(scores) => scores,
            NodeAnswer::Equal => return nodes.into_iter().map(|node| (node, 0.0)).collect(),
            NodeAnswer::Later => {
                self.undecided[at] = true;
                self.recheck_at(self.now + ASK_AGAIN);
                return Vec::new();
            }
        };
        let mut scored = Vec::with_capacity(nodes.len());
        for (node, score) in nodes.into_iter().zip(scores) {
            match score {
                Some(score) => scored.push((node, score)),
                None => _ = self.excluded[at].insert(node),
            }
        }
        scored
    }
}
