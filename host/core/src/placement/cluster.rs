//! Nodes, pods, and the resources that pods take on nodes, updated object by object.

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

/// Nodes, pods, and the resources that pods take on nodes. A copy shares the unchanged parts, so that trials are cheap.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    slots: Slots,
    /// The pods, each with its assumed node if it has one.
    pods: HashTrieMapSync<PodKey, Arc<Pod>>,
    /// The pods that are assumed on a node which their objects don't have yet.
    assumed: RedBlackTreeSetSync<PodKey>,
    /// The members of each gang, by the gang's namespace and name.
    gangs: Index<PodKey>,
    owners: Index<Owner>,
    version: u64,
}

type Index<K> = RedBlackTreeMapSync<K, BTreeSet<PodKey>>;

/// A node with its pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeState {
    /// The node.
    pub node: Arc<Node>,
    /// The resources that its pods take.
    pub taken: Resources,
    /// Its pods, including assumed ones.
    pub pods: BTreeSet<PodKey>,
    /// The downloads in its model agent's report, by the models' node labels.
    pub downloads: BTreeMap<String, Download>,
    /// Derived values for features, cached.
    pub usage: Derived<Usage>,
}

/// The progress of a model's download on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Download {
    /// The downloaded share of its bytes, from 0 to 1.
    pub share: f64,
    /// The remaining time in seconds, if known.
    pub seconds: Option<f64>,
}

impl NodeState {
    /// The resources that are free.
    pub fn free(&self) -> Resources {
        let mut free = self.node.allocatable.clone();
        free.subtract(&self.taken);
        free
    }

    /// The free amount of one resource.
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

    /// Removes a node. Its pods stay known.
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

    /// Adds a pod, or replaces it. While its object has no node, it keeps its assumed one.
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

    /// Sets the downloads that a node's model agent reports, by the models' node labels.
    pub fn put_downloads(&mut self, node: &str, downloads: BTreeMap<String, Download>) {
        if self.slots.get(node).map_or(downloads.is_empty(), |slot| slot.state.downloads == downloads) {
            return;
        }
        self.slots.get_or_insert(node).state.downloads = downloads;
        self.slots.remove_if_empty(node);
        self.version += 1;
    }

    /// Removes the downloads of a node.
    pub fn remove_downloads(&mut self, node: &str) {
        self.put_downloads(node, BTreeMap::new());
    }

    /// Assumes that a pod is on a node before a watch shows it: until `forget`, until its object has a node, or until its removal. Does
    /// nothing for a pod that is unknown or has a node of its own.
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

    /// Removes the assumed node of a pod.
    pub fn forget(&mut self, namespace: &str, name: &str) {
        if self.is_assumed(namespace, name) {
            self.assume(namespace, name, "");
        }
    }

    /// Whether a pod is assumed on a node that its object doesn't have yet.
    pub fn is_assumed(&self, namespace: &str, name: &str) -> bool {
        self.assumed.contains(&(namespace.to_owned(), name.to_owned()))
    }

    /// A number that increases with each change. Replacing an object by an equal one is no change; copies count independently.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.slots.get(name).filter(|slot| slot.exists).map(|slot| &slot.state)
    }

    /// The names of nodes with their indices, including nodes that only pods or downloads refer to.
    pub fn names(&self) -> &NodeNames {
        self.slots.names()
    }

    /// The node at an index.
    pub fn node_at(&self, at: usize) -> Option<&NodeState> {
        self.slots.at(at).filter(|slot| slot.exists).map(|slot| &slot.state)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &NodeState)> {
        self.slots.iter().filter(|(_, slot)| slot.exists).map(|(name, slot)| (name, &slot.state))
    }

    /// A pod, with its assumed node if it has one.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        self.find_pod(&(namespace.to_owned(), name.to_owned()))
    }

    /// All pods, in any order.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values().map(Arc::as_ref)
    }

    /// The pods on a node, including assumed ones, by name.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Pod> + use<'_> {
        let keys = self.slots.get(node).map(|slot| &slot.state.pods);
        keys.into_iter().flatten().filter_map(move |key| self.find_pod(key))
    }

    /// The members of a gang, with or without a node, by name.
    pub fn gang(&self, namespace: &str, gang: &str) -> impl Iterator<Item = &Pod> + use<'_> {
        let keys = self.gangs.get(&(namespace.to_owned(), gang.to_owned()));
        keys.into_iter().flatten().filter_map(move |key| self.find_pod(key))
    }

    /// The namespaces and names of all gangs, in order.
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

    /// Replaces, adds or removes a pod.
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

    /// Removes a pod from its node. The requests of the others are summed again, because a saturated sum can't be reduced by subtraction.
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

/// Moves a pod within an index.
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
