//! The placements that were decided last, from which somebody can find out why a pod went where it did.

use pointsman_sandbox::point::image;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// How many placements of one pod are recorded: one that fits nowhere is asked about again and again, and must not replace all others.
pub const MAX_PER_POD: usize = 4;

/// What was decided of the nodes of a pod, and from what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// When, in seconds since 1970.
    pub at: u64,
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The digest of the policy set.
    pub set: String,
    /// The plugins that have scored, in line.
    pub plugins: Vec<String>,
    /// The names of the columns.
    pub features: Vec<String>,
    /// The candidates, a row each.
    pub nodes: Vec<String>,
    /// The rows, one after the other; null is unknown.
    #[serde(with = "image::numbers")]
    pub values: Vec<f64>,
    /// The score of each candidate; null if a plugin excludes it.
    pub scores: Vec<Option<f64>>,
    /// What the scheduler was answered for each candidate.
    pub ranks: Vec<i64>,
    /// The nodes that aren't candidates, or that are excluded, and why.
    pub excluded: BTreeMap<String, String>,
    /// The node that the scheduler chose, once that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
}

impl Placement {
    /// How many bytes it has, about.
    fn bytes(&self) -> usize {
        let texts = [&self.plugins, &self.features, &self.nodes].into_iter().flatten();
        let words = [&self.namespace, &self.name, &self.uid, &self.set].into_iter().chain(&self.chosen).chain(texts);
        let excluded = self.excluded.iter().flat_map(|(node, why)| [node, why]);
        let length: usize = words.chain(excluded).map(|text| size_of::<String>() + text.len()).sum();
        size_of::<Self>() + length + size_of_val(&*self.values) + size_of_val(&*self.scores) + size_of_val(&*self.ranks)
    }
}

/// The last placements. The oldest give way when there are too many, or too large ones.
#[derive(Debug)]
pub struct Placements {
    max_number: usize,
    max_bytes: usize,
    bytes: usize,
    next: u64,
    /// By their numbers, each with its bytes.
    by_number: BTreeMap<u64, (usize, Arc<Placement>)>,
    /// The numbers of each pod's, the oldest first.
    by_pod: BTreeMap<(String, String), VecDeque<u64>>,
}

impl Placements {
    /// Room for so many placements with so many bytes in all.
    pub fn new(max_number: usize, max_bytes: usize) -> Self {
        Self { max_number, max_bytes, bytes: 0, next: 0, by_number: BTreeMap::new(), by_pod: BTreeMap::new() }
    }

    /// Takes a placement. One that is larger than all may be together isn't recorded.
    pub fn put(&mut self, placement: Placement) {
        let bytes = placement.bytes();
        if self.max_number == 0 || bytes > self.max_bytes {
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

    /// Notes which node the scheduler chose for a pod, in its last placement. Whether there is one that didn't know it yet.
    pub fn choose(&mut self, namespace: &str, name: &str, node: &str) -> bool {
        let numbers = self.by_pod.get(&(namespace.to_owned(), name.to_owned()));
        let Some((_, placement)) = numbers.and_then(|numbers| self.by_number.get_mut(numbers.back()?)) else { return false };
        if placement.chosen.is_some() {
            return false;
        }
        Arc::make_mut(placement).chosen = Some(node.to_owned());
        true
    }

    /// The placements of a pod, the newest first.
    pub fn find(&self, namespace: &str, name: &str) -> Vec<Arc<Placement>> {
        let numbers = self.by_pod.get(&(namespace.to_owned(), name.to_owned()));
        let numbers = numbers.into_iter().flatten().rev();
        numbers.filter_map(|number| self.by_number.get(number)).map(|(_, placement)| Arc::clone(placement)).collect()
    }

    /// All placements, the newest first.
    pub fn newest(&self) -> impl Iterator<Item = &Arc<Placement>> {
        self.by_number.values().rev().map(|(_, placement)| placement)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
