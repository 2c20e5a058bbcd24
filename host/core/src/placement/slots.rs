//! The places of a cluster's nodes: one a name, in the order of names, so that what is known of nodes can be kept in vectors beside them.

use super::cluster::{Cluster, NodeState};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasher,
    ops::Range,
    sync::Arc,
};

/// A map for what is looked up for each node.
pub(super) type FastMap<K, V> = HashMap<K, V, RandomState>;

/// The same, a set.
pub(super) type FastSet<K> = HashSet<K, RandomState>;

/// The place of a node: pods and downloads may be known before its object is, and after.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slot {
    pub(super) state: NodeState,
    pub(super) exists: bool,
}

impl Slot {
    fn is_empty(&self) -> bool {
        !self.exists && self.state.pods.is_empty() && self.state.downloads.is_empty()
    }
}

/// Names in their order. They change far less often than what is known of nodes, and each call of a scheduler looks all of them up: they are in one
/// piece of memory.
#[derive(Clone, Debug, Default)]
struct Names {
    /// All names, one after the other.
    text: String,
    /// Where in the text each ends.
    ends: Vec<usize>,
    /// The place of each.
    places: HashTable<usize>,
    hasher: RandomState,
}

/// The names that a cluster had when it was asked for them.
#[derive(Clone, Debug, Default)]
pub struct NodeNames(Arc<Names>);

impl NodeNames {
    /// The place of a name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.find(name)
    }

    /// The name at a place.
    pub fn get(&self, at: usize) -> Option<&str> {
        self.0.get(at)
    }

    /// The names at places.
    pub fn at<'n>(&'n self, places: &[usize]) -> impl Iterator<Item = &'n str> {
        places.iter().filter_map(|at| self.get(*at))
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.0.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }
}

/// Nodes that a question is about, with their places: each is looked up once.
#[derive(Clone, Debug, Default)]
pub struct Nodes<'n> {
    names: Vec<&'n str>,
    /// None of a node of which the cluster knows nothing.
    places: Vec<Option<usize>>,
}

impl<'n> Nodes<'n> {
    /// These nodes of a cluster.
    pub fn named(cluster: &Cluster, names: &[&'n str]) -> Self {
        Self { names: names.to_vec(), places: names.iter().map(|name| cluster.names().find(name)).collect() }
    }

    /// The nodes at these places of a cluster.
    pub fn at(cluster: &'n Cluster, places: &[usize]) -> Self {
        Self { names: cluster.names().at(places).collect(), places: places.iter().copied().map(Some).collect() }
    }

    /// Their names.
    pub fn names(&self) -> &[&'n str] {
        &self.names
    }

    pub(super) fn places(&self) -> &[Option<usize>] {
        &self.places
    }
}

/// All places. A copy shares them; the first change of a copy copies a pointer each.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    names: NodeNames,
    slots: Arc<Vec<Arc<Slot>>>,
}

impl PartialEq for Slots {
    fn eq(&self, other: &Self) -> bool {
        self.names.0.is_equal(&other.names.0) && self.slots == other.slots
    }
}

impl Slots {
    pub(super) fn names(&self) -> &NodeNames {
        &self.names
    }

    pub(super) fn at(&self, at: usize) -> Option<&Slot> {
        self.slots.get(at).map(Arc::as_ref)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Slot> {
        self.at(self.names.find(name)?)
    }

    /// All, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Slot)> {
        (0..self.names.len()).filter_map(|at| self.names.get(at)).zip(self.slots.iter().map(Arc::as_ref))
    }

    /// The one with a name, to change it.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Slot> {
        self.names.find(name).map(|at| self.change(at))
    }

    /// The same; it is made if there is none.
    pub(super) fn get_or_insert(&mut self, name: &str) -> &mut Slot {
        let at = self.names.find(name).unwrap_or_else(|| self.insert(name));
        self.change(at)
    }

    /// The one at a place, to change it.
    fn change(&mut self, at: usize) -> &mut Slot {
        let slot = Arc::make_mut(&mut Arc::make_mut(&mut self.slots)[at]);
        slot.state.usage.forget();
        slot
    }

    /// Makes the one with a name, and returns its place.
    fn insert(&mut self, name: &str) -> usize {
        let at = Arc::make_mut(&mut self.names.0).insert(name);
        Arc::make_mut(&mut self.slots).insert(at, Arc::default());
        at
    }

    /// Removes one that holds nothing.
    pub(super) fn remove_if_empty(&mut self, name: &str) {
        let Some(at) = self.names.find(name).filter(|at| self.at(*at).is_some_and(Slot::is_empty)) else { return };
        Arc::make_mut(&mut self.names.0).remove(at);
        Arc::make_mut(&mut self.slots).remove(at);
    }
}

impl Names {
    /// Where in the text a name is.
    fn range(&self, at: usize) -> Option<Range<usize>> {
        let start = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        Some(start?..*self.ends.get(at)?)
    }

    fn get(&self, at: usize) -> Option<&str> {
        self.text.get(self.range(at)?)
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.places.find(self.hasher.hash_one(name), |at| self.get(*at) == Some(name)).copied()
    }

    fn is_equal(&self, other: &Self) -> bool {
        self.text == other.text && self.ends == other.ends
    }

    /// Inserts a name that isn't there in its place, and returns the place.
    fn insert(&mut self, name: &str) -> usize {
        let at = self.first_not_before(name);
        let start = self.range(at).map_or(self.text.len(), |range| range.start);
        self.text.insert_str(start, name);
        self.ends.insert(at, start);
        for end in &mut self.ends[at..] {
            *end += name.len();
        }
        for place in self.places.iter_mut().filter(|place| **place >= at) {
            *place += 1;
        }
        let Self { text, ends, places, hasher } = self;
        let hash = |at: &usize| {
            let start = at.checked_sub(1).map_or(0, |before| ends[before]);
            hasher.hash_one(&text[start..ends[*at]])
        };
        places.insert_unique(hasher.hash_one(name), at, hash);
        at
    }

    /// The place of the first name that isn't before one.
    fn first_not_before(&self, name: &str) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.get(middle).is_some_and(|known| known < name) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Removes the name at a place.
    fn remove(&mut self, at: usize) {
        let Some(range) = self.range(at) else { return };
        if let Ok(entry) = self.places.find_entry(self.hasher.hash_one(&self.text[range.clone()]), |place| *place == at) {
            entry.remove();
        }
        for place in self.places.iter_mut().filter(|place| **place > at) {
            *place -= 1;
        }
        self.ends.remove(at);
        for end in &mut self.ends[at..] {
            *end -= range.len();
        }
        self.text.drain(range);
    }
}
