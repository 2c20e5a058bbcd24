//! The ranks of the last filter calls, for the prioritize calls that follow them, so that nodes aren't scored twice.

use pointsman_core::placement::{NodeNames, Ties, rank};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

/// The maximum number of cached results. A scheduler requests ranks right after it has filtered.
const MAX_KEPT: usize = 32;

/// The results of the last filter calls.
#[derive(Debug, Default)]
pub(in crate::scheduler_extender) struct KeptRanks(VecDeque<Kept>);

/// The result of one filter call.
#[derive(Debug)]
pub(super) struct Kept {
    /// The pod.
    uid: String,
    names: NodeNames,
    /// The positions of the nodes that have passed, in the order of the response: the scheduler sends them in the same order.
    passed: Vec<usize>,
    /// The scores of nodes by position; none for a node that was excluded, or that the scheduler didn't offer.
    scores: Vec<Option<f64>>,
    /// The nodes that were also offered, but aren't known yet.
    unknown: Vec<String>,
}

impl Kept {
    pub(super) fn new(uid: String, names: NodeNames, by_place: impl Iterator<Item = (usize, Option<f64>)>, unknown: Vec<String>) -> Self {
        let (mut passed, mut scores) = (Vec::with_capacity(names.len()), vec![None; names.len()]);
        for (place, score) in by_place {
            if let Some(kept) = scores.get_mut(place) {
                *kept = score;
            }
            if score.is_some() {
                passed.push(place);
            }
        }
        Self { uid, names, passed, scores, unknown }
    }

    /// The scores of nodes in this order, each if it may be ranked; NaN, which ranks last, for an unknown node.
    pub(super) fn scores(&self, nodes: &[&str]) -> impl Iterator<Item = Option<f64>> {
        nodes.iter().enumerate().map(|(at, node)| {
            let expected = self.passed.get(at).copied().filter(|place| self.names.get(*place) == Some(node));
            let known = expected.or_else(|| self.names.find(node)).and_then(|place| *self.scores.get(place)?);
            known.or_else(|| self.unknown.iter().any(|unknown| unknown == node).then_some(f64::NAN))
        })
    }
}

impl KeptRanks {
    /// Stores the result of a call, in place of the pod's previous one.
    pub(super) fn put(&mut self, kept: Kept) {
        self.forget(&kept.uid);
        if self.0.len() >= MAX_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(kept);
    }

    /// Drops the result for a pod.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.retain(|kept| kept.uid != uid);
    }

    /// The ranks of nodes for a pod, if all of them were offered before and none was excluded.
    pub(super) fn ranks(&self, uid: &str, nodes: &[&str], ties: Ties) -> Option<Vec<i64>> {
        let kept = self.0.iter().find(|kept| kept.uid == uid)?;
        let scores = kept.scores(nodes).map(|score| score.map(Some)).collect::<Option<Vec<_>>>()?;
        Some(rank::ranks(nodes, &scores, ties))
    }
}

/// The nodes that schedulers offered for the last pods for which none was left.
#[derive(Debug, Default)]
pub(in crate::scheduler_extender) struct KeptOffers(VecDeque<(String, Arc<BTreeSet<String>>)>);

impl KeptOffers {
    /// Stores the nodes of a pod, in place of previous ones.
    pub(super) fn put(&mut self, uid: &str, nodes: BTreeSet<String>) {
        self.0.retain(|(known, _)| known != uid);
        if self.0.len() >= MAX_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((uid.to_owned(), Arc::new(nodes)));
    }

    /// The nodes of a pod; none if its call was too long ago.
    pub(super) fn nodes(&self, uid: &str) -> Arc<BTreeSet<String>> {
        self.0.iter().find(|(known, _)| known == uid).map(|(_, nodes)| Arc::clone(nodes)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::placement::{Cluster, Node};

    /// A result in a cluster with the nodes a, b and d.
    fn kept(uid: &str, nodes: &[(&str, f64)]) -> Kept {
        let mut cluster = Cluster::default();
        for name in ["a", "b", "d"] {
            cluster.put_node(name, Node::default());
        }
        let (known, unknown): (Vec<_>, Vec<_>) = nodes.iter().copied().partition(|(node, _)| cluster.names().find(node).is_some());
        let scores = known.into_iter().filter_map(|(node, score)| Some((cluster.names().find(node)?, Some(score))));
        Kept::new(uid.to_owned(), cluster.names().clone(), scores, unknown.into_iter().map(|(node, _)| node.to_owned()).collect())
    }

    #[test]
    fn ranks_are_of_the_nodes_that_are_asked_about_and_unknown_ones_are_asked_again() {
        let mut all = KeptRanks::default();
        // c was unknown, so nothing has scored it.
        all.put(kept("u1", &[("a", 0.5), ("b", 0.9), ("c", f64::NAN)]));
        let ranks = |uid: &str, nodes: &[&str]| all.ranks(uid, nodes, Ties::Name);
        assert_eq!(ranks("u1", &["a", "b", "c"]), Some(vec![9, 10, 0]));
        assert_eq!(ranks("u1", &["c", "a"]), Some(vec![0, 10]));
        assert_eq!((ranks("u1", &["a", "d"]), ranks("u2", &["a"])), (None, None));
        assert_eq!(ranks("u1", &["a", "new"]), None, "it wasn't offered");
    }

    #[test]
    fn only_the_last_ones_are_kept_and_one_a_pod() {
        let mut all = KeptRanks::default();
        for number in 0..=MAX_KEPT {
            all.put(kept(&number.to_string(), &[("a", 1.0)]));
        }
        let nodes = ["a"];
        assert_eq!((all.0.len(), all.ranks("0", &nodes, Ties::Name)), (MAX_KEPT, None));
        all.put(kept("1", &[("b", 1.0)]));
        assert_eq!((all.0.len(), all.ranks("1", &nodes, Ties::Name)), (MAX_KEPT, None));
        all.forget("2");
        assert_eq!(all.0.len(), MAX_KEPT - 1);
    }
}
