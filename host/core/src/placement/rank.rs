//! Scores as the integers that kube-scheduler accepts from an extender. It multiplies each by ten times the extender's weight and adds its
//! own plugins' scores, at most 100 times the sum of their weights: the extender alone determines the node if ten times its weight is more
//! than that. Among nodes with equal totals, the scheduler chooses randomly.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// The highest rank that kube-scheduler accepts.
pub const MAX_RANK: i64 = 10;

/// Scores that differ by less are equal: the same sum in a different order may differ in its last digits.
pub const EPSILON: f64 = 1e-9;

/// How a node is chosen among those with equal scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ties {
    /// By the extender, by name: always the same node, so it is predictable.
    #[default]
    Name,
    /// By the scheduler, with its own plugins.
    Scheduler,
}

/// A node with a score: the score, and the node's index.
type Scored = (f64, usize);

/// A rank for each node: the best gets 10, the next 9, and all after the first ten get 0, as do nodes without a score. The order of the
/// first ten is therefore exact, even if their scores differ only slightly. Equal scores get the same rank or successive ranks by name,
/// according to `ties`. If the scheduler breaks ties and all nodes are equal, all get 0: the extender expresses no preference.
pub fn ranks(nodes: &[&str], scores: &[Option<f64>], ties: Ties) -> Vec<i64> {
    let mut ranks = vec![0; nodes.len()];
    let mut scored = finite(nodes, scores);
    if ties == Ties::Name {
        // Only ten nodes get a rank: the ten best, or among those equal to the tenth the first by name.
        keep_best(&mut scored, usize::try_from(MAX_RANK).unwrap_or_default());
    }
    scored.sort_unstable_by(best_first);
    let is_undecided =
        scored.len() == nodes.len() && scored.first().zip(scored.last()).is_none_or(|(best, worst)| are_equal(best.0, worst.0));
    if ties == Ties::Scheduler && is_undecided {
        return ranks;
    }
    let mut rest = scored.as_mut_slice();
    let mut rank = MAX_RANK;
    while rank > 0 && !rest.is_empty() {
        let (group, others) = split_group(rest);
        rest = others;
        match ties {
            Ties::Scheduler => {
                for (_, at) in group {
                    ranks[*at] = rank;
                }
                rank -= 1;
            }
            Ties::Name => {
                for (_, at) in first_by_name(nodes, group, usize::try_from(rank).unwrap_or_default()) {
                    ranks[*at] = rank;
                    rank -= 1;
                }
            }
        }
    }
    ranks
}

/// The nodes with a score from best to worst, equal ones by name.
pub fn order<'n>(nodes: &[&'n str], scores: &[Option<f64>]) -> Vec<&'n str> {
    let mut scored = finite(nodes, scores);
    scored.sort_unstable_by(best_first);
    let mut ordered = Vec::with_capacity(scored.len());
    let mut rest = scored.as_mut_slice();
    while !rest.is_empty() {
        let (group, others) = split_group(rest);
        rest = others;
        let all = group.len();
        ordered.extend(first_by_name(nodes, group, all).iter().map(|(_, at)| nodes[*at]));
    }
    ordered
}

fn are_equal(better: f64, worse: f64) -> bool {
    better - worse < EPSILON
}

/// The nodes with a score.
fn finite(nodes: &[&str], scores: &[Option<f64>]) -> Vec<Scored> {
    let finite = scores.iter().take(nodes.len()).enumerate().filter_map(|(at, score)| Some((score.filter(|score| score.is_finite())?, at)));
    finite.collect()
}

fn best_first((one, at): &Scored, (other, place): &Scored) -> Ordering {
    other.total_cmp(one).then(at.cmp(place))
}

/// Removes nodes that are worse than this many others and equal to none of them: often the majority of thousands.
fn keep_best(scored: &mut Vec<Scored>, most: usize) {
    if let Some(last) = most.checked_sub(1).filter(|last| *last < scored.len()) {
        let (_, (worst, _), _) = scored.select_nth_unstable_by(last, best_first);
        let worst = *worst;
        scored.retain(|(score, _)| *score >= worst || are_equal(worst, *score));
    }
}

/// Splits off the nodes that are equal to the best one. All are compared with the best one, because a chain of small differences could add
/// up.
fn split_group(scored: &mut [Scored]) -> (&mut [Scored], &mut [Scored]) {
    let best = scored.first().map_or(f64::NAN, |(score, _)| *score);
    let equal = scored.partition_point(|(score, _)| are_equal(best, *score));
    // Never empty, so that a loop over the groups ends.
    scored.split_at_mut(equal.clamp(usize::from(!scored.is_empty()), scored.len()))
}

/// The first of a group by name, up to a maximum.
fn first_by_name<'g>(nodes: &[&str], group: &'g mut [Scored], most: usize) -> &'g [Scored] {
    first(group, most, |(_, one), (_, other)| (nodes[*one], *one).cmp(&(nodes[*other], *other)))
}

/// The first elements in an order, up to a maximum. Only these are sorted: often all nodes are equal, or there are thousands.
pub(super) fn first<T>(all: &mut [T], most: usize, order: impl Fn(&T, &T) -> Ordering) -> &[T] {
    let first = if most < all.len() {
        let (first, ..) = all.select_nth_unstable_by(most, &order);
        first
    } else {
        all
    };
    first.sort_unstable_by(order);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: [&str; 4] = ["d", "c", "b", "a"];

    #[test]
    fn ten_nodes_are_told_apart_and_the_others_get_nothing() {
        let names: Vec<String> = (0..12).map(|at| format!("n{at:02}")).collect();
        let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
        let scores: Vec<Option<f64>> = (0_u32..12).map(|at| Some(0.5 - f64::from(at) * 1e-6)).collect();
        for ties in [Ties::Name, Ties::Scheduler] {
            assert_eq!(ranks(&nodes, &scores, ties), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]);
        }
    }

    #[test]
    fn equal_scores_follow_each_other_by_name_or_share_a_rank() {
        let scores = [Some(0.5), Some(0.7), Some(0.5 + EPSILON / 2.0), None];
        assert_eq!(ranks(&NAMES, &scores, Ties::Name), [8, 10, 9, 0]);
        assert_eq!(ranks(&NAMES, &scores, Ties::Scheduler), [9, 10, 9, 0]);
        assert_eq!(order(&NAMES, &scores), ["c", "b", "d"]);
    }

    #[test]
    fn if_no_two_nodes_differ_the_names_decide_or_nothing_does() {
        let equal = [Some(0.5); 4];
        assert_eq!(ranks(&NAMES, &equal, Ties::Name), [7, 8, 9, 10]);
        assert_eq!(ranks(&NAMES, &equal, Ties::Scheduler), [0; 4]);
        // An excluded node differs from the others.
        assert_eq!(ranks(&NAMES, &[Some(0.5), Some(0.5), None, Some(0.5)], Ties::Scheduler), [10, 10, 0, 10]);
        for ties in [Ties::Name, Ties::Scheduler] {
            assert_eq!(ranks(&NAMES, &[None; 4], ties), [0; 4]);
            assert_eq!(ranks(&[], &[], ties), [0; 0]);
        }
    }

    #[test]
    fn a_node_without_a_finite_score_has_none() {
        let scores = [Some(f64::NAN), Some(f64::INFINITY), Some(0.1)];
        assert_eq!(ranks(&NAMES, &scores, Ties::Name), [0, 0, 10, 0]);
        assert_eq!(order(&NAMES, &scores), ["b"]);
    }

    #[test]
    fn a_chain_of_small_steps_is_no_tie() {
        let scores = [Some(0.5), Some(0.5 - 0.8 * EPSILON), Some(0.5 - 1.6 * EPSILON), Some(0.5 - 2.4 * EPSILON)];
        assert_eq!(ranks(&NAMES, &scores, Ties::Scheduler), [10, 10, 9, 9]);
    }

    /// Nodes with names in any order, and with scores of which many are equal or almost equal.
    fn scored_nodes() -> impl Strategy<Value = (Vec<String>, Vec<Option<f64>>)> {
        let score = prop::option::weighted(0.85, (0_u32..24, 0_u32..3));
        let nodes = prop::collection::btree_map("[a-e]{1,4}", score, 1..60).prop_map(|nodes| nodes.into_iter().collect::<Vec<_>>());
        nodes.prop_shuffle().prop_map(|nodes| {
            let score = |(step, jitter): (u32, u32)| f64::from(step) / 24.0 + f64::from(jitter) * EPSILON / 4.0;
            nodes.into_iter().map(|(name, given)| (name, given.map(score))).unzip::<_, _, Vec<String>, Vec<Option<f64>>>()
        })
    }

    fn ties() -> impl Strategy<Value = Ties> {
        prop_oneof![Just(Ties::Name), Just(Ties::Scheduler)]
    }

    fn names(nodes: &[String]) -> Vec<&str> {
        nodes.iter().map(String::as_str).collect()
    }

    proptest! {
        #[test]
        fn the_order_of_scores_is_kept_and_excluded_nodes_never_outrank((nodes, scores) in scored_nodes(), ties in ties()) {
            let ranks = ranks(&names(&nodes), &scores, ties);
            prop_assert!(ranks.iter().all(|rank| (0..=MAX_RANK).contains(rank)));
            for (one, rank) in ranks.iter().enumerate() {
                for (other, lower) in ranks.iter().enumerate() {
                    match (scores[one], scores[other]) {
                        (None, _) => prop_assert!(*rank == 0),
                        (Some(better), Some(worse)) if better - worse > 2.0 * EPSILON => {
                            prop_assert!(rank > lower || *rank == 0 && *lower == 0);
                        }
                        _ => {}
                    }
                }
            }
        }

        #[test]
        fn the_first_ten_distinct_scores_have_distinct_ranks((nodes, scores) in scored_nodes()) {
            let ranks = ranks(&names(&nodes), &scores, Ties::Scheduler);
            let mut steps: Vec<u32> = scores.iter().flatten().map(|score| step(*score)).collect();
            steps.sort_unstable_by(|one, other| other.cmp(one));
            steps.dedup();
            if steps.len() < 2 && scores.iter().all(Option::is_some) {
                prop_assert!(ranks.iter().all(|rank| *rank == 0));
            } else {
                for (score, rank) in scores.iter().zip(&ranks) {
                    let place = score.and_then(|score| steps.iter().position(|known| *known == step(score)));
                    let expected = place.and_then(|place| i64::try_from(place).ok()).map_or(0, |place| (MAX_RANK - place).max(0));
                    prop_assert_eq!(*rank, expected);
                }
            }
        }

        #[test]
        fn by_name_the_ranks_are_those_of_the_order_and_no_two_of_the_first_ten_are_equal((nodes, scores) in scored_nodes()) {
            let nodes = names(&nodes);
            let ranks = ranks(&nodes, &scores, Ties::Name);
            let ordered = order(&nodes, &scores);
            prop_assert_eq!(ordered.len(), scores.iter().flatten().count());
            let keys = nodes.iter().zip(&scores).filter_map(|(name, score)| Some((std::cmp::Reverse(step((*score)?)), *name)));
            let mut keys: Vec<_> = keys.collect();
            keys.sort_unstable();
            prop_assert_eq!(&ordered, &keys.into_iter().map(|(_, name)| name).collect::<Vec<_>>());
            for (name, rank) in nodes.iter().zip(&ranks) {
                let place = ordered.iter().position(|known| known == name).and_then(|place| i64::try_from(place).ok());
                prop_assert_eq!(*rank, place.map_or(0, |place| (MAX_RANK - place).max(0)));
            }
        }

        #[test]
        fn the_order_of_the_nodes_doesnt_matter((nodes, scores) in scored_nodes(), ties in ties()) {
            let there = ranks(&names(&nodes), &scores, ties);
            let reversed: Vec<&str> = names(&nodes).into_iter().rev().collect();
            let scores: Vec<Option<f64>> = scores.iter().rev().copied().collect();
            let mut back = ranks(&reversed, &scores, ties);
            back.reverse();
            prop_assert_eq!(there, back);
        }

        /// Simulates kube-scheduler: the total is the rank times ten times the extender's weight, plus the scores of its own plugins, whose
        /// weights sum to 12 here.
        #[test]
        fn with_enough_weight_other_plugins_decide_among_equal_ranks_alone(
            (nodes, scores) in scored_nodes(), ties in ties(), others in prop::collection::vec(0_i64..=1_200, 60),
        ) {
            const WEIGHT: i64 = 121;
            let ranks = ranks(&names(&nodes), &scores, ties);
            let totals: Vec<i64> = ranks.iter().zip(&others).map(|(rank, others)| rank * WEIGHT * 10 + others).collect();
            let (best, highest) = (totals.iter().max(), ranks.iter().max());
            for (total, rank) in totals.iter().zip(&ranks) {
                prop_assert!(Some(total) != best || Some(rank) == highest);
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is one of 24")]
    fn step(score: f64) -> u32 {
        (score * 24.0).round() as u32
    }
}
