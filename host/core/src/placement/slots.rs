//! The places of a cluster's nodes: one a name, in the order of names, so that what is known of nodes can be kept in vectors beside them.

use super::cluster::{Cluster, NodeState};
use foldhash::fast::RandomState;
use std::{
    collections::{HashMap, HashSet},
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

/// Names in their order. They change far less often than what is known of nodes.
#[derive(Clone, Debug, Default)]
struct Names {
    sorted: Vec<Arc<str>>,
    places: FastMap<Arc<str>, usize>,
}

/// The names that a cluster had when it was asked for them.
#[derive(Clone, Debug, Default)]
pub struct NodeNames(Arc<Names>);

impl NodeNames {
    /// The place of a name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.places.get(name).copied()
    }

    /// The name at a place.
    pub fn get(&self, at: usize) -> Option<&str> {
        self.0.sorted.get(at).map(AsRef::as_ref)
    }

    /// The names at places.
    pub fn at<'n>(&'n self, places: &[usize]) -> impl Iterator<Item = &'n str> {
        places.iter().filter_map(|at| self.get(*at))
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.0.sorted.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.sorted.is_empty()
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
        self.names.0.sorted == other.names.0.sorted && self.slots == other.slots
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
        self.names.0.sorted.iter().map(AsRef::as_ref).zip(self.slots.iter().map(Arc::as_ref))
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
        let names = Arc::make_mut(&mut self.names.0);
        let at = names.sorted.partition_point(|known| **known < *name);
        names.sorted.insert(at, name.into());
        names.number_from(at);
        Arc::make_mut(&mut self.slots).insert(at, Arc::default());
        at
    }

    /// Removes one that holds nothing.
    pub(super) fn remove_if_empty(&mut self, name: &str) {
        let Some(at) = self.names.find(name).filter(|at| self.at(*at).is_some_and(Slot::is_empty)) else { return };
        let names = Arc::make_mut(&mut self.names.0);
        names.sorted.remove(at);
        names.places.remove(name);
        names.number_from(at);
        Arc::make_mut(&mut self.slots).remove(at);
    }
}

impl Names {
    /// Notes the places of all names from one on.
    fn number_from(&mut self, first: usize) {
        for (at, name) in self.sorted.iter().enumerate().skip(first) {
            if let Some(place) = self.places.get_mut(name) {
                *place = at;
            } else {
                self.places.insert(Arc::clone(name), at);
            }
        }
    }
}
