//! The objects of a kind that the keeper knows: from a watch, or from the response to its own last write.

use kube::ResourceExt;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};
use tokio::time::Instant;

/// The objects of a kind, by name.
#[derive(Debug)]
pub(super) struct Objects<K> {
    known: BTreeMap<String, K>,
    /// When our last write of each was confirmed.
    answered: BTreeMap<String, Instant>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), answered: BTreeMap::new() }
    }
}

impl<K> Deref for Objects<K> {
    type Target = BTreeMap<String, K>;

    fn deref(&self) -> &Self::Target {
        &self.known
    }
}

impl<K: ResourceExt> Objects<K> {
    /// Handles an object from a watch, or from a list that was requested at this time. Returns the previous version, or an error if that is
    /// newer.
    pub(super) fn see(&mut self, told: K, listed: Option<Instant>) -> Result<Option<K>, Outdated> {
        let name = told.name_any();
        let known = self.known.get(&name).filter(|known| known.uid() == told.uid());
        let known = known.and_then(|known| number(known.resource_version().as_ref()));
        if is_outdated(number(told.resource_version().as_ref()), known, listed, self.answered.get(&name)) {
            return Err(Outdated);
        }
        Ok(self.known.insert(name, told))
    }

    /// Handles the response to our own write.
    pub(super) fn answer(&mut self, written: K) {
        let name = written.name_any();
        self.answered.insert(name.clone(), Instant::now());
        self.known.insert(name, written);
    }

    /// Removes a deleted object.
    pub(super) fn remove(&mut self, name: &str) {
        self.known.remove(name);
        self.answered.remove(name);
    }

    /// Removes the objects that weren't in a list, except those we have written since.
    pub(super) fn retain_listed(&mut self, names: &BTreeSet<String>, listed: Instant) {
        let Self { known, answered } = self;
        known.retain(|name, _| names.contains(name) || answered.get(name).is_some_and(|at| *at >= listed));
        answered.retain(|name, _| known.contains_key(name));
    }
}

/// A newer version is known.
#[derive(Debug)]
pub(super) struct Outdated;

/// Whether a version is older than the known one: our last write may be newer than the watch. But a list that was requested after that
/// write is never outdated: versions go back when the cluster is restored from a backup.
pub(super) fn is_outdated(told: Option<u64>, known: Option<u64>, listed: Option<Instant>, answered: Option<&Instant>) -> bool {
    let older = told.is_some() && told < known;
    older && listed.is_none_or(|listed| answered.is_some_and(|answered| *answered >= listed))
}

/// A resource version as a number.
pub(super) fn number(version: Option<&String>) -> Option<u64> {
    version?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn map(name: &str, uid: &str, version: u64) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.uid = Some(uid.to_owned());
        map.metadata.resource_version = Some(version.to_string());
        map
    }

    fn version(maps: &Objects<ConfigMap>) -> Option<u64> {
        number(maps.get("a")?.resource_version().as_ref())
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_watch_brings_late_is_outdated_and_what_is_listed_anew_counts() {
        let second = async || tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let mut maps = Objects::default();
        assert!(maps.see(map("a", "1", 7), Some(Instant::now())).is_ok());
        let listed = Instant::now();
        second().await;
        maps.answer(map("a", "1", 9));
        assert!(maps.see(map("a", "1", 8), None).is_err(), "the watch is behind our own write");
        assert!(maps.see(map("a", "1", 8), Some(listed)).is_err(), "so is a list that was asked for before");
        maps.retain_listed(&BTreeSet::new(), listed);
        assert_eq!(version(&maps), Some(9));
        assert!(maps.see(map("a", "2", 3), None).is_ok(), "another of the same name");
        maps.answer(map("a", "2", 9));
        second().await;
        assert!(maps.see(map("a", "2", 4), Some(Instant::now())).is_ok(), "the cluster was restored from a backup");
        assert_eq!(version(&maps), Some(4));
        maps.retain_listed(&BTreeSet::new(), Instant::now());
        assert_eq!(version(&maps), None);
    }
}
