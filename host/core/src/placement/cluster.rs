//! Nodes and pods, and what pods take of nodes, kept up to date one object at a time.

use super::{
    derived::Derived,
    node::Node,
    pod::{Owner, Pod, PodKey},
    resources::Resources,
    slots::{NodeNames, Slot, Slots},
    usage::Usage,
};
use rpds::{HashTrieMapSync, RedBlackTreeMapSync, RedBlackTreeSetSync};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Nodes and pods, and what pods take of nodes. A copy shares what doesn't change, so that a trial is cheap.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    slots: Slots,
    /// Each with the node where it counts.
    pods: HashTrieMapSync<PodKey, Arc<Pod>>,
    /// The pods that count on a node which their objects don't have yet.
    assumed: RedBlackTreeSetSync<PodKey>,
    /// By the namespace and the name of the gang.
    gangs: Index<PodKey>,
    owners: Index<Owner>,
    version: u64,
}

type Index<K> = RedBlackTreeMapSync<K, BTreeSet<PodKey>>;

/// A node, with what is on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeState {
    /// The node.
    pub node: Arc<Node>,
    /// What its pods take of it.
    pub taken: Resources,
    /// Its pods, and those that are assumed there.
    pub pods: BTreeSet<PodKey>,
    /// What its model agent reports, by the models' labels of nodes.
    pub downloads: BTreeMap<String, Download>,
    /// What features read of that, found once.
    pub usage: Derived<Usage>,
}

/// How much of a model is on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Download {
    /// The share of its bytes that is there, from 0 to 1.
    pub share: f64,
    /// How many seconds the rest takes, if that is known.
    pub seconds: Option<f64>,
}

impl NodeState {
    /// What its pods leave of it.
    pub fn free(&self) -> Resources {
        let mut free = self.node.allocatable.clone();
        free.subtract(&self.taken);
        free
    }

    /// What its pods leave of one resource.
    pub fn free_amount(&self, resource: &str) -> i64 {
        self.node.allocatable.get(resource).saturating_sub(self.taken.get(resource))
    }
}

impl Cluster {
    /// Adds a node, or replaces it.
    pub fn put_node(&mut self, name: &str, node: impl Into<Arc<Node>>) {
        let node: Arc<Node> = node.into();
        if self.node(name).is_some_and(|state| state.node == node) {
            return;
        }
        let slot = self.slots.get_or_insert(name);
        slot.state.node = node;
        slot.exists = true;
        self.version += 1;
    }

    /// Removes a node. Pods that are on it stay known.
    pub fn remove_node(&mut self, name: &str) {
        if self.node(name).is_none() {
            return;
        }
        if let Some(slot) = self.slots.get_mut(name) {
            slot.state.node = Arc::default();
            slot.exists = false;
        }
        self.slots.remove_if_empty(name);
        self.version += 1;
    }

    /// Adds a pod, or replaces it. While it has no node, it stays where it is assumed.
    pub fn put_pod(&mut self, pod: impl Into<Arc<Pod>>) {
        let mut pod: Arc<Pod> = pod.into();
        let key = pod.key();
        let known = self.pods.get(&key).filter(|known| pod.node.is_empty() && known.uid == pod.uid && self.assumed.contains(&key));
        if let Some(known) = known {
            Arc::make_mut(&mut pod).node.clone_from(&known.node);
        } else if self.assumed.remove_mut(&key) {
            self.version += 1;
        }
        self.replace(key, Some(pod));
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.assumed.remove_mut(&key);
        self.replace(key, None);
    }

    /// Sets what a model agent reports of a node, by the models' labels of nodes.
    pub fn put_downloads(&mut self, node: &str, downloads: BTreeMap<String, Download>) {
        if self.slots.get(node).map_or(downloads.is_empty(), |slot| slot.state.downloads == downloads) {
            return;
        }
        self.slots.get_or_insert(node).state.downloads = downloads;
        self.slots.remove_if_empty(node);
        self.version += 1;
    }

    /// Removes what a model agent has reported of a node.
    pub fn remove_downloads(&mut self, node: &str) {
        self.put_downloads(node, BTreeMap::new());
    }

    /// Counts a pod on a node that no watch shows it on yet: until `forget`, until its object has a node, or until its removal. A pod that is
    /// unknown, or has a node of its own, stays as it is.
    pub fn assume(&mut self, namespace: &str, name: &str, node: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(pod) = self.pods.get(&key).filter(|pod| pod.node.is_empty() || self.assumed.contains(&key)) else { return };
        let mut pod = Pod::clone(pod);
        node.clone_into(&mut pod.node);
        if node.is_empty() {
            self.assumed.remove_mut(&key);
        } else {
            self.assumed.insert_mut(key.clone());
        }
        self.replace(key, Some(Arc::new(pod)));
    }

    /// Counts a pod no longer where it is assumed.
    pub fn forget(&mut self, namespace: &str, name: &str) {
        if self.is_assumed(namespace, name) {
            self.assume(namespace, name, "");
        }
    }

    /// Whether a pod counts on a node that its object doesn't have yet.
    pub fn is_assumed(&self, namespace: &str, name: &str) -> bool {
        self.assumed.contains(&(namespace.to_owned(), name.to_owned()))
    }

    /// Another number after each change. What is put again as it was is no change; a copy goes on counting by itself.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.slots.get(name).filter(|slot| slot.exists).map(|slot| &slot.state)
    }

    /// The names of nodes with their places, also of nodes of which only pods or downloads are known.
    pub fn names(&self) -> &NodeNames {
        self.slots.names()
    }

    /// The node at a place.
    pub fn node_at(&self, at: usize) -> Option<&NodeState> {
        self.slots.at(at).filter(|slot| slot.exists).map(|slot| &slot.state)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &NodeState)> {
        self.slots.iter().filter(|(_, slot)| slot.exists).map(|(name, slot)| (name, &slot.state))
    }

    /// A pod. One that is assumed has the node where it is assumed.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.find_pod(&(namespace.to_owned(), name.to_owned()))
    }

    /// All pods, in no order.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values().map(Arc::as_ref)
    }

    /// The pods on a node, and those that are assumed there, by name.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Pod> + use<'_> {
        let keys = self.slots.get(node).map(|slot| &slot.state.pods);
        keys.into_iter().flatten().filter_map(move |key| self.find_pod(key))
    }

    /// The members of a gang, placed or not, by name.
    pub fn gang(&self, namespace: &str, gang: &str) -> impl Iterator<Item = &Pod> + use<'_> {
        let keys = self.gangs.get(&(namespace.to_owned(), gang.to_owned()));
        keys.into_iter().flatten().filter_map(move |key| self.find_pod(key))
    }

    /// The namespaces and the names of all gangs, in their order.
    pub fn gangs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.gangs.keys().map(|(namespace, gang)| (namespace.as_str(), gang.as_str()))
    }

    /// The pods of an owner, by name.
    pub fn of_owner(&self, owner: &Owner) -> impl Iterator<Item = &Pod> + use<'_> {
        let keys = self.owners.get(owner);
        keys.into_iter().flatten().filter_map(move |key| self.find_pod(key))
    }

    fn find_pod(&self, key: &PodKey) -> Option<&Pod> {
        self.pods.get(key).map(Arc::as_ref)
    }

    /// Puts a pod, or none, in the place of what was known by its name.
    fn replace(&mut self, key: PodKey, pod: Option<Arc<Pod>>) {
        let known = self.pods.get(&key).cloned();
        let (old, new) = (known.as_deref(), pod.as_deref());
        if old == new {
            return;
        }
        self.version += 1;
        reindex(&mut self.gangs, old.and_then(gang_key).as_ref(), new.and_then(gang_key).as_ref(), &key);
        let owner = |pod: Option<&Pod>| pod.and_then(|pod| pod.owner.clone());
        reindex(&mut self.owners, owner(old).as_ref(), owner(new).as_ref(), &key);
        let stays = old.zip(new).is_some_and(|(old, new)| old.node == new.node && old.requests == new.requests);
        if !stays {
            if let Some(old) = old {
                self.leave(&key, &old.node);
            }
            if let Some(new) = new.filter(|new| !new.node.is_empty()) {
                let state = &mut self.slots.get_or_insert(&new.node).state;
                state.taken.add(&new.requests);
                state.pods.insert(key.clone());
            }
        }
        if let Some(pod) = pod {
            self.pods.insert_mut(key, pod);
        } else if known.is_some() {
            self.pods.remove_mut(&key);
        }
    }

    /// Removes a pod from its node. What the others take is summed again: of a sum that is as large as it gets nothing can be subtracted.
    fn leave(&mut self, key: &PodKey, node: &str) {
        let Some(Slot { state, .. }) = self.slots.get_mut(node) else { return };
        state.pods.remove(key);
        state.taken = Resources::default();
        for pod in state.pods.iter().filter_map(|key| self.pods.get(key)) {
            state.taken.add(&pod.requests);
        }
        self.slots.remove_if_empty(node);
    }
}

/// The namespace and the name of a pod's gang.
fn gang_key(pod: &Pod) -> Option<PodKey> {
    pod.gang.as_ref().map(|gang| (pod.namespace.clone(), gang.name.clone()))
}

/// Moves a pod in an index.
fn reindex<K: Ord + Clone>(index: &mut Index<K>, old: Option<&K>, new: Option<&K>, pod: &PodKey) {
    if old == new {
        return;
    }
    if let Some(old) = old
        && let Some(pods) = index.get_mut(old)
    {
        pods.remove(pod);
        if pods.is_empty() {
            index.remove_mut(old);
        }
    }
    if let Some(new) = new {
        if let Some(pods) = index.get_mut(new) {
            pods.insert(pod.clone());
        } else {
            index.insert_mut(new.clone(), BTreeSet::from([pod.clone()]));
        }
    }
}

#[cfg(test)]
mod tests;
