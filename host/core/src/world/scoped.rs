//! Objects that subjects depend on, by scope and name.

use std::{collections::BTreeMap, sync::Arc};

/// The objects of one type, by scope: cluster-scoped ones, and those of each namespace.
#[derive(Clone, Debug)]
pub struct Scoped<T> {
    pub(super) cluster: BTreeMap<String, Arc<T>>,
    pub(super) namespaced: BTreeMap<String, BTreeMap<String, Arc<T>>>,
}

impl<T> Default for Scoped<T> {
    fn default() -> Self {
        Self { cluster: BTreeMap::new(), namespaced: BTreeMap::new() }
    }
}

impl<T> Scoped<T> {
    /// The object with this name in the namespace; cluster-scoped if the namespace is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        if namespace.is_empty() { self.cluster.get(name) } else { self.namespaced.get(namespace)?.get(name) }
    }

    /// Whether an object with this name exists.
    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        self.get(namespace, name).is_some()
    }

    /// All objects, cluster-scoped and namespaced, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Arc<T>)> {
        let namespaced = self.namespaced.values().flatten();
        self.cluster.iter().chain(namespaced).map(|(name, one)| (name.as_str(), one))
    }

    /// The names in a scope.
    pub fn names(&self, namespace: &str) -> impl Iterator<Item = &str> {
        let namespaced = self.namespaced.get(namespace).into_iter().flatten();
        self.cluster.iter().chain(namespaced).map(|(name, _)| name.as_str())
    }

    /// All names of cluster-scoped or of namespaced objects, each with its namespace.
    pub(super) fn keys(&self, namespaced: bool) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
        if namespaced {
            let all = self.namespaced.iter();
            Box::new(all.flat_map(|(namespace, all)| all.keys().map(move |name| (namespace.as_str(), name.as_str()))))
        } else {
            Box::new(self.cluster.keys().map(|name| ("", name.as_str())))
        }
    }

    pub(super) fn set(&mut self, namespace: &str, name: &str, value: Option<T>) {
        let scope = if namespace.is_empty() { &mut self.cluster } else { self.namespaced.entry(namespace.to_owned()).or_default() };
        match value {
            Some(value) => {
                scope.insert(name.to_owned(), Arc::new(value));
            }
            None => {
                scope.remove(name);
            }
        }
    }
}
