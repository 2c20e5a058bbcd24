//! A record of the latest placements, to explain why a pod was placed on its node.

use super::rank::first;
use pointsman_sandbox::point::{Subject, image};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashSet, VecDeque},
    mem,
    sync::Arc,
};

/// The maximum number of recorded placements per pod: one that fits nowhere is tried again and again, and must not displace all others.
pub const MAX_PER_POD: usize = 4;

/// The maximum number of recorded nodes with scores per placement: the best ones.
pub const MAX_NODES: usize = 50;

/// The maximum number of recorded excluded nodes per placement.
pub const MAX_EXCLUDED: usize = 50;

/// The maximum size of a recorded subject, in bytes: Kubernetes doesn't limit the number of labels.
const MAX_SUBJECT_BYTES: usize = 16 << 10;

/// The decision on a pod's nodes, with its inputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// The time, in seconds since 1970.
    pub at: u64,
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The subject of the question, by which plugins are selected; none if its labels are too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// The digest of the policy set.
    pub set: String,
    /// The plugins that scored, in order.
    pub plugins: Vec<String>,
    /// The names of the columns.
    pub features: Vec<String>,
    /// The best candidates from best to worst, then some that a plugin excludes, one row each.
    pub nodes: Vec<String>,
    /// The number of omitted candidates with scores: each is worse than the recorded ones.
    pub nodes_left_out: usize,
    /// The rows, one after the other; null means unknown.
    #[serde(with = "image::numbers")]
    pub values: Vec<f64>,
    /// The score of each candidate; null if a plugin excludes it.
    pub scores: Vec<Option<f64>>,
    /// The rank of each candidate for the scheduler.
    pub ranks: Vec<i64>,
    /// The nodes that aren't candidates or are excluded, with the reasons.
    pub excluded: BTreeMap<String, String>,
    /// The number of omitted excluded nodes.
    pub excluded_left_out: usize,
    /// The node that the scheduler chose, once known. It may be an omitted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
}

/// A candidate of a placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedNode<'p> {
    /// Its row index.
    pub row: usize,
    /// Its name.
    pub node: &'p str,
    /// Its score; none if a plugin excludes it.
    pub score: Option<f64>,
    /// Its rank for the scheduler.
    pub rank: i64,
}

impl Placement {
    /// The candidates from best to worst, by rank and then by score; excluded ones last.
    pub fn ranked(&self) -> Vec<RankedNode<'_>> {
        let mut ranked = candidates(self.nodes.iter().map(String::as_str), &self.scores, &self.ranks);
        ranked.sort_unstable_by(RankedNode::best_first);
        ranked
    }

    /// Sorts the candidates, and keeps only the best ones.
    pub(super) fn leave_out_nodes(&mut self) {
        let RecordedRows { rows, surplus } = RecordedRows::new(self.nodes.iter().map(String::as_str), &self.scores, &self.ranks);
        self.values = values_at(&self.values, self.features.len(), &rows);
        self.nodes = at_rows(&self.nodes, &rows);
        self.scores = at_rows(&self.scores, &rows);
        self.ranks = at_rows(&self.ranks, &rows);
        self.nodes_left_out += surplus;
    }

    /// Limits the number of excluded nodes. Those with a row come first.
    fn leave_out_excluded(&mut self) {
        let surplus = self.excluded.len().saturating_sub(MAX_EXCLUDED);
        if surplus == 0 {
            return;
        }
        let rows: HashSet<&str> = self.nodes.iter().map(String::as_str).collect();
        let excluded = mem::take(&mut self.excluded).into_iter();
        let (with_row, others): (Vec<_>, Vec<_>) = excluded.partition(|(node, _)| rows.contains(node.as_str()));
        self.excluded = with_row.into_iter().chain(others).take(MAX_EXCLUDED).collect();
        self.excluded_left_out += surplus;
    }

    /// Limits the placement to what is recorded.
    fn limit(&mut self) {
        self.leave_out_nodes();
        self.leave_out_excluded();
        self.subject = self.subject.take().filter(|subject| subject_bytes(subject) <= MAX_SUBJECT_BYTES);
    }

    /// Its approximate size in bytes.
    fn bytes(&self) -> usize {
        let texts = [&self.plugins, &self.features, &self.nodes].into_iter().flatten();
        let words = [&self.namespace, &self.name, &self.uid, &self.set].into_iter().chain(&self.chosen).chain(texts);
        let excluded = self.excluded.iter().flat_map(|(node, why)| [node, why]);
        let length: usize = words.chain(excluded).map(|text| size_of::<String>() + text.len()).sum();
        let subject = self.subject.as_ref().map_or(0, subject_bytes);
        size_of::<Self>() + length + subject + size_of_val(&*self.values) + size_of_val(&*self.scores) + size_of_val(&*self.ranks)
    }
}

impl RankedNode<'_> {
    fn best_first(one: &Self, other: &Self) -> Ordering {
        let score = |candidate: &Self| candidate.score.unwrap_or(f64::NEG_INFINITY);
        let by_score = score(other).total_cmp(&score(one));
        other.rank.cmp(&one.rank).then(by_score).then_with(|| one.node.cmp(other.node)).then(one.row.cmp(&other.row))
    }
}

fn candidates<'n>(nodes: impl Iterator<Item = &'n str>, scores: &[Option<f64>], ranks: &[i64]) -> Vec<RankedNode<'n>> {
    let candidates = nodes.zip(scores).zip(ranks).enumerate();
    candidates.map(|(row, ((node, score), rank))| RankedNode { row, node, score: *score, rank: *rank }).collect()
}

/// The rows of the recorded candidates.
pub(super) struct RecordedRows {
    /// From best to worst, then some that a plugin excludes: another policy may permit them.
    pub(super) rows: Vec<usize>,
    /// The number of omitted candidates with scores.
    pub(super) surplus: usize,
}

impl RecordedRows {
    pub(super) fn new<'n>(nodes: impl Iterator<Item = &'n str>, scores: &[Option<f64>], ranks: &[i64]) -> Self {
        let all = candidates(nodes, scores, ranks);
        let (mut scored, mut excluded): (Vec<_>, Vec<_>) = all.into_iter().partition(|candidate| candidate.score.is_some());
        let surplus = scored.len().saturating_sub(MAX_NODES);
        let best = first(&mut scored, MAX_NODES, RankedNode::best_first).iter();
        let best = best.chain(first(&mut excluded, MAX_EXCLUDED, RankedNode::best_first));
        Self { rows: best.map(|candidate| candidate.row).collect(), surplus }
    }
}

/// The selected rows of a matrix with this many columns.
pub(super) fn values_at(values: &[f64], columns: usize, rows: &[usize]) -> Vec<f64> {
    rows.iter().filter_map(|row| values.get(row * columns..(row + 1) * columns)).flatten().copied().collect()
}

pub(super) fn at_rows<T: Clone>(all: &[T], rows: &[usize]) -> Vec<T> {
    rows.iter().filter_map(|row| all.get(*row)).cloned().collect()
}

/// The approximate size of a subject's texts in bytes.
fn subject_bytes(subject: &Subject) -> usize {
    let Subject { group, version, kind, namespace, name, labels, annotations, namespace_labels } = subject;
    let entries = [labels, annotations, namespace_labels].into_iter().flatten();
    let words = entries.flat_map(|entry| [&entry.key, &entry.value]).chain([group, version, kind, namespace, name]);
    words.map(|text| size_of::<String>() + text.len()).sum()
}

/// The latest placements. The oldest are removed if the number or the total size exceeds its limit.
#[derive(Debug)]
pub struct Placements {
    max_number: usize,
    max_bytes: usize,
    bytes: usize,
    next: u64,
    /// By number, each with its size in bytes.
    by_number: BTreeMap<u64, (usize, Arc<Placement>)>,
    /// The numbers of each pod's placements, the oldest first.
    by_pod: BTreeMap<(String, String), VecDeque<u64>>,
}

impl Placements {
    /// An empty record with a maximum number of placements and a maximum total size in bytes.
    pub fn new(max_number: usize, max_bytes: usize) -> Self {
        Self { max_number, max_bytes, bytes: 0, next: 0, by_number: BTreeMap::new(), by_pod: BTreeMap::new() }
    }

    /// Adds a placement, limited to the recorded number of nodes. One that exceeds the maximum total size isn't recorded.
    pub fn put(&mut self, mut placement: Placement) {
        if self.max_number == 0 {
            return;
        }
        placement.limit();
        let bytes = placement.bytes();
        if bytes > self.max_bytes {
            return;
        }
        let numbers = self.by_pod.entry((placement.namespace.clone(), placement.name.clone())).or_default();
        numbers.push_back(self.next);
        let surplus = if numbers.len() > MAX_PER_POD { numbers.front().copied() } else { None };
        self.by_number.insert(self.next, (bytes, Arc::new(placement)));
        self.bytes += bytes;
        self.next += 1;
        if let Some(number) = surplus {
            self.remove(number);
        }
        while self.by_number.len() > self.max_number || self.bytes > self.max_bytes {
            let Some(oldest) = self.by_number.keys().next().copied() else { return };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some((bytes, placement)) = self.by_number.remove(&number) else { return };
        self.bytes -= bytes;
        let pod = (placement.namespace.clone(), placement.name.clone());
        if let Some(numbers) = self.by_pod.get_mut(&pod) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.by_pod.remove(&pod);
            }
        }
    }

    /// Records the node that the scheduler chose for a pod in its latest placement. Returns whether that is new.
    pub fn choose(&mut self, namespace: &str, name: &str, node: &str) -> bool {
        let numbers = self.by_pod.get(&(namespace.to_owned(), name.to_owned()));
        let Some((_, placement)) = numbers.and_then(|numbers| self.by_number.get_mut(numbers.back()?)) else { return false };
        if placement.chosen.is_some() {
            return false;
        }
        Arc::make_mut(placement).chosen = Some(node.to_owned());
        true
    }

    /// The placements of a pod, the latest first.
    pub fn find(&self, namespace: &str, name: &str) -> Vec<Arc<Placement>> {
        let numbers = self.by_pod.get(&(namespace.to_owned(), name.to_owned()));
        let numbers = numbers.into_iter().flatten().rev();
        numbers.filter_map(|number| self.by_number.get(number)).map(|(_, placement)| Arc::clone(placement)).collect()
    }

    /// All placements, the latest first.
    pub fn newest(&self) -> impl Iterator<Item = &Arc<Placement>> {
        self.by_number.values().rev().map(|(_, placement)| placement)
    }

    /// The number of placements.
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Whether there are no placements.
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sandbox::point::Entry;
    use serde_json::json;

    fn placement(name: &str, at: u64) -> Placement {
        Placement {
            at,
            namespace: "ml".into(),
            name: name.into(),
            features: vec!["pods".into()],
            nodes: vec!["a".into(), "b".into()],
            values: vec![1.0, f64::NAN],
            scores: vec![Some(0.25), None],
            ranks: vec![10, 0],
            ..Placement::default()
        }
    }

    fn times(placements: &Placements, name: &str) -> Vec<u64> {
        placements.find("ml", name).iter().map(|placement| placement.at).collect()
    }

    #[test]
    fn what_is_unknown_is_null_and_is_read_back() {
        let written = serde_json::to_value(placement("x", 1)).unwrap();
        assert_eq!(written["values"], json!([1.0, null]));
        assert_eq!(written["scores"], json!([0.25, null]));
        assert!(written.get("chosen").is_none());
        let read: Placement = serde_json::from_value(written.clone()).unwrap();
        assert!(read.values[1].is_nan());
        assert_eq!(serde_json::to_value(read).unwrap(), written);
    }

    #[test]
    fn what_an_older_extender_has_recorded_is_read() {
        let read: Placement = serde_json::from_value(json!({"namespace": "ml", "name": "x", "nodes": ["a"], "scores": [0.5]})).unwrap();
        assert_eq!((read.subject, read.nodes_left_out, read.excluded_left_out), (None, 0, 0));
    }

    /// 5,000 nodes, every second one excluded. Later nodes are better.
    fn large() -> Placement {
        let names: Vec<String> = (0..5_000).map(|at| format!("n{at:04}")).collect();
        let scores: Vec<Option<f64>> = (0_u32..5_000).map(|at| (at % 2 == 1).then_some(f64::from(at) / 5_000.0)).collect();
        let excluded = names.iter().step_by(2).map(|name| (name.clone(), "a policy".to_owned()));
        let reserved = (0..3).map(|at| (format!("a{at}"), "a gang".to_owned()));
        Placement {
            features: vec!["a".into(), "b".into()],
            values: (0_u32..10_000).map(f64::from).collect(),
            ranks: vec![0; names.len()],
            excluded: excluded.chain(reserved).collect(),
            scores,
            nodes: names,
            ..placement("x", 1)
        }
    }

    #[test]
    fn of_many_nodes_the_best_are_recorded_and_the_others_are_counted() {
        let mut placements = Placements::new(10, usize::MAX);
        placements.put(large());
        let recorded = placements.find("ml", "x").remove(0);
        assert_eq!((&*recorded.nodes[0], &*recorded.nodes[49], &*recorded.nodes[50]), ("n4999", "n4901", "n0000"));
        assert_eq!((&recorded.values[..2], &recorded.values[100..102]), (&[9_998.0, 9_999.0][..], &[0.0, 1.0][..]));
        assert_eq!((recorded.nodes.len(), recorded.scores.len(), recorded.ranks.len(), recorded.values.len()), (100, 100, 100, 200));
        assert_eq!(recorded.scores.iter().flatten().count(), MAX_NODES);
        assert_eq!((recorded.nodes_left_out, recorded.excluded_left_out), (2_450, 2_453));
        // Nodes with a row come before others, regardless of their names.
        assert!(recorded.excluded.keys().eq(&recorded.nodes[MAX_NODES..]));
        assert!(recorded.bytes() < 16_000, "{}", recorded.bytes());
    }

    #[test]
    fn a_node_with_a_rank_is_recorded_before_those_with_better_scores() {
        let mut reserved = large();
        reserved.ranks[1] = 10;
        reserved.leave_out_nodes();
        assert_eq!((&*reserved.nodes[0], reserved.ranks[0], reserved.nodes_left_out), ("n0001", 10, 2_450));
        let once = reserved.clone();
        reserved.leave_out_nodes();
        assert_eq!(reserved, once);
    }

    #[test]
    fn the_chosen_node_may_be_one_that_was_left_out() {
        let mut placements = Placements::new(10, usize::MAX);
        placements.put(large());
        assert!(placements.choose("ml", "x", "n0001"));
        let recorded = placements.find("ml", "x").remove(0);
        assert_eq!((recorded.chosen.as_deref(), recorded.nodes.len()), (Some("n0001"), 100));
    }

    #[test]
    fn a_subject_with_too_many_labels_is_not_recorded() {
        let label = |at: usize| Entry { key: format!("label-{at}"), value: "x".repeat(63) };
        let subject = |labels: usize| Subject { name: "chat".into(), labels: (0..labels).map(label).collect(), ..Subject::default() };
        let mut placements = Placements::new(10, usize::MAX);
        let mut recorded = |labels| {
            placements.put(Placement { subject: Some(subject(labels)), ..placement("x", 1) });
            placements.find("ml", "x").remove(0).subject.clone()
        };
        assert_eq!((recorded(10), recorded(1_000)), (Some(subject(10)), None));
    }

    #[test]
    fn the_oldest_give_way() {
        let mut placements = Placements::new(2, usize::MAX);
        for (name, at) in [("x", 1), ("y", 2), ("x", 3)] {
            placements.put(placement(name, at));
        }
        assert_eq!((times(&placements, "x"), times(&placements, "y")), (vec![3], vec![2]));
        placements.put(placement("z", 4));
        assert_eq!((times(&placements, "x"), times(&placements, "y")), (vec![3], vec![]));
        assert_eq!(placements.newest().map(|placement| placement.at).collect::<Vec<_>>(), [4, 3]);
        assert_eq!((placements.len(), placements.by_pod.len()), (2, 2));
    }

    #[test]
    fn there_are_never_more_bytes_than_may_be() {
        let one = placement("x", 1).bytes();
        let mut placements = Placements::new(100, 3 * one);
        for (at, name) in (1..).zip(["a", "b", "c", "d", "e"]) {
            placements.put(placement(name, at));
            assert!(placements.bytes <= 3 * one);
        }
        assert_eq!(placements.len(), 3);
        placements.put(Placement { nodes: vec!["n".repeat(4 * one)], ..placement("f", 6) });
        assert_eq!((placements.len(), times(&placements, "f")), (3, vec![]));
        let sum: usize = placements.newest().map(|placement| placement.bytes()).sum();
        assert_eq!(placements.bytes, sum);
        let mut off = Placements::new(0, usize::MAX);
        off.put(placement("x", 1));
        assert!(off.is_empty());
    }

    #[test]
    fn a_pod_that_is_asked_about_again_and_again_replaces_its_own() {
        let mut placements = Placements::new(100, usize::MAX);
        placements.put(placement("other", 0));
        for at in 1..=10 {
            placements.put(placement("x", at));
        }
        assert_eq!(times(&placements, "x"), [10, 9, 8, 7]);
        assert_eq!(times(&placements, "other"), [0]);
    }

    #[test]
    fn the_choice_belongs_to_the_last_placement() {
        let mut placements = Placements::new(100, usize::MAX);
        assert!(!placements.choose("ml", "x", "a"));
        placements.put(placement("x", 1));
        placements.put(placement("x", 2));
        assert!(placements.choose("ml", "x", "a"));
        let chosen: Vec<_> = placements.find("ml", "x").iter().map(|placement| placement.chosen.clone()).collect();
        assert_eq!(chosen, [Some("a".to_owned()), None]);
        assert!(!placements.choose("ml", "x", "b") && !placements.choose("other", "x", "b"));
    }
}
