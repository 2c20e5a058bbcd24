//! The decisions of the allocation, per subject.

use super::ObjectKey;
use crate::allocation::Entry;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The entries of the latest ledger.
#[derive(Debug, Default)]
pub(super) struct Allocated(BTreeMap<ObjectKey, Arc<Entry>>);

impl Allocated {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Entry>> {
        self.0.get(key)
    }

    /// Replaces the entries, and returns the subjects whose entries differ.
    pub(super) fn replace(&mut self, entries: &BTreeMap<ObjectKey, Entry>) -> BTreeSet<ObjectKey> {
        let mut changed: BTreeSet<ObjectKey> = self.0.keys().filter(|key| !entries.contains_key(*key)).cloned().collect();
        self.0.retain(|key, _| entries.contains_key(key));
        for (key, entry) in entries {
            if self.0.get(key).is_none_or(|known| **known != *entry) {
                self.0.insert(key.clone(), Arc::new(entry.clone()));
                changed.insert(key.clone());
            }
        }
        changed
    }
}
