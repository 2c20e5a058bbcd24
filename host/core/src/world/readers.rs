//! The objects that each subject has read, so that a change requeues only the subjects that depend on it.

use super::ObjectKey;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Something that a plan has read, whether it exists or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Read {
    /// An object.
    Object(ObjectKey),
    /// The candidates in a namespace, or the cluster-scoped ones if the namespace is empty.
    Candidates(String),
    /// The labels of a namespace.
    Namespace(String),
    /// The `ReferenceGrants` of a namespace.
    Grants(String),
    /// The older subjects in a namespace, or in all namespaces if it is empty.
    Older(String),
}

/// The maximum number of stored changes that no subject has read, because names come and go.
const MAX_UNREAD_CHANGES: usize = 10_000;

/// The readers of each object.
#[derive(Debug, Default)]
pub(super) struct Readers {
    by_subject: HashMap<ObjectKey, BTreeSet<Read>>,
    by_read: HashMap<Read, HashSet<ObjectKey>>,
    /// The revision of the last change: a plan may be built before a change and recorded after it.
    changed: HashMap<Read, u64>,
    /// The number of stored changes after the last cleanup, and the latest revision that was removed: a plan from before that revision may
    /// be outdated.
    kept: usize,
    forgotten: u64,
}

impl Readers {
    /// Records what a subject's plan has read at a revision. Returns whether any of it has changed since.
    pub(super) fn note(&mut self, subject: &ObjectKey, reads: BTreeSet<Read>, revision: u64) -> bool {
        let changed = |read: &Read| self.changed.get(read).is_some_and(|changed| *changed > revision);
        let stale = revision < self.forgotten || reads.iter().any(changed);
        if self.by_subject.get(subject) != Some(&reads) {
            self.forget(subject);
            for read in &reads {
                self.by_read.entry(read.clone()).or_default().insert(subject.clone());
            }
            self.by_subject.insert(subject.clone(), reads);
        }
        stale
    }

    pub(super) fn forget(&mut self, subject: &ObjectKey) {
        for read in self.by_subject.remove(subject).unwrap_or_default() {
            if let Some(readers) = self.by_read.get_mut(&read) {
                readers.remove(subject);
                if readers.is_empty() {
                    self.by_read.remove(&read);
                }
            }
        }
    }

    /// Records a change, and returns the subjects that have read it.
    pub(super) fn changed(&mut self, read: &Read, revision: u64) -> Vec<ObjectKey> {
        if self.changed.len() > self.kept + MAX_UNREAD_CHANGES {
            let Self { changed, by_read, forgotten, .. } = self;
            changed.retain(|read, changed| {
                let is_read = by_read.contains_key(read);
                if !is_read {
                    *forgotten = (*changed).max(*forgotten);
                }
                is_read
            });
            self.kept = self.changed.len();
        }
        self.changed.insert(read.clone(), revision);
        self.by_read.get(read).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::INFERENCE_SERVICE;

    #[test]
    fn a_change_between_a_snapshot_and_its_note_is_never_forgotten() {
        let subject = ObjectKey { resource: &INFERENCE_SERVICE, namespace: "chat".to_owned(), name: "a".to_owned() };
        let namespace = |name: &str| Read::Namespace(name.to_owned());
        let mut readers = Readers::default();
        let snapshot = 7;
        readers.changed(&namespace("chat"), 8);
        let last = 8 + MAX_UNREAD_CHANGES as u64;
        for revision in 9..=last {
            readers.changed(&namespace(&revision.to_string()), revision);
        }
        assert!(readers.note(&subject, BTreeSet::from([namespace("chat")]), snapshot), "nobody had read it when the names became too many");
        readers.changed(&namespace("one more"), last + 1);
        assert!(readers.changed.len() < 3, "they are forgotten");
        assert!(readers.note(&subject, BTreeSet::from([namespace("9")]), snapshot), "it has changed since, and is forgotten");
        assert!(!readers.note(&subject, BTreeSet::from([namespace("chat")]), last + 1));
    }
}
