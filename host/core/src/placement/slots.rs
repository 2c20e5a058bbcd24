//! The slots of a cluster's nodes: one per name, sorted by name, so that data about nodes can be stored in vectors with the same indices.

use super::cluster::{Cluster, NodeState};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasher,
    ops::Range,
    sync::Arc,
};

/// A map for look-ups per node.
pub(super) type FastMap<K, V> = HashMap<K, V, RandomState>;

/// A set for look-ups per node.
pub(super) type FastSet<K> = HashSet<K, RandomState>;

/// The slot of a node: pods and downloads may be known before and after its object exists.
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

/// Sorted names. They change much less often than other data about nodes, and each call of a scheduler looks all of them up, so they are in
/// contiguous memory.
#[derive(Clone, Debug, Default)]
struct Names {
    /// All names, concatenated.
    text: String,
    /// The end of each name in the text.
    ends: Vec<usize>,
    /// The index of each name.
    places: HashTable<usize>,
    hasher: RandomState,
}

/// A snapshot of a cluster's node names.
#[derive(Clone, Debug, Default)]
pub struct NodeNames(Arc<Names>);

impl NodeNames {
    /// The index of a name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.find(name)
    }

    /// The name at an index.
    pub fn get(&self, at: usize) -> Option<&str> {
        self.0.get(at)
    }

    /// The names at these indices.
    pub fn at<'n>(&'n self, places: &[usize]) -> impl Iterator<Item = &'n str> {
        places.iter().filter_map(|at| self.get(*at))
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.0.ends.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }
}

/// The nodes of a question with their indices, so that each is looked up only once.
#[derive(Clone, Debug, Default)]
pub struct Nodes<'n> {
    names: Vec<&'n str>,
    /// None for a node that the cluster doesn't know.
    places: Vec<Option<usize>>,
}

impl<'n> Nodes<'n> {
    /// Looks up nodes of a cluster by name.
    pub fn named(cluster: &Cluster, names: &[&'n str]) -> Self {
        Self { names: names.to_vec(), places: names.iter().map(|name| cluster.names().find(name)).collect() }
    }

    /// Takes the nodes of a cluster at these indices.
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

/// All slots. A copy shares them; the first change of a copy copies one pointer per slot.
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

    /// All slots, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Slot)> {
        (0..self.names.len()).filter_map(|at| self.names.get(at)).zip(self.slots.iter().map(Arc::as_ref))
    }

    /// The slot with a name, for changing.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Slot> {
        self.names.find(name).map(|at| self.change(at))
    }

    /// The slot with a name, for changing; creates a missing one.
    pub(super) fn get_or_insert(&mut self, name: &str) -> &mut Slot {
        let at = self.names.find(name).unwrap_or_else(|| self.insert(name));
        self.change(at)
    }

    /// The slot at an index, for changing.
    fn change(&mut self, at: usize) -> &mut Slot {
        let slot = Arc::make_mut(&mut Arc::make_mut(&mut self.slots)[at]);
        slot.state.usage.forget();
        slot
    }

    /// Inserts the slot with a name, and returns its index.
    fn insert(&mut self, name: &str) -> usize {
        let at = Arc::make_mut(&mut self.names.0).insert(name);
        Arc::make_mut(&mut self.slots).insert(at, Arc::default());
        at
    }

    /// Removes a slot if it is empty.
    pub(super) fn remove_if_empty(&mut self, name: &str) {
        let Some(at) = self.names.find(name).filter(|at| self.at(*at).is_some_and(Slot::is_empty)) else { return };
        Arc::make_mut(&mut self.names.0).remove(at);
        Arc::make_mut(&mut self.slots).remove(at);
    }
}

impl Names {
    /// The range of a name in the text.
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

    /// Inserts a new name in order, and returns its index.
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

    /// The index of the first name that isn't less than this one.
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

    /// Removes the name at an index.
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
