//! Which subjects have read what, so that a change requeues them and no others.

use super::ObjectKey;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Something that a plan has read, there or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Read {
    /// An object.
    Object(ObjectKey),
    /// What can be chosen from in a namespace, or cluster-wide where that is empty.
    Candidates(String),
    /// A namespace's labels.
    Namespace(String),
    /// The subjects in a namespace that are older, or of all of them where that is empty.
    Older(String),
}

/// How many changes are remembered before those are forgotten that nobody has read: names come and go.
const MAX_REMEMBERED_CHANGES: usize = 10_000;

/// Who reads what.
#[derive(Debug, Default)]
pub(super) struct Readers {
    by_subject: HashMap<ObjectKey, BTreeSet<Read>>,
    by_read: HashMap<Read, HashSet<ObjectKey>>,
    /// When something changed last: a plan may have been made before, and be noted after.
    changed: HashMap<Read, u64>,
}

impl Readers {
    /// Notes what a subject's plan has read of the world at a revision. True if some of that has changed since.
    pub(super) fn note(&mut self, subject: &ObjectKey, reads: BTreeSet<Read>, revision: u64) -> bool {
        let stale = reads.iter().any(|read| self.changed.get(read).is_some_and(|changed| *changed > revision));
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

    /// Takes it that something has changed, and tells who has read it.
    pub(super) fn changed(&mut self, read: &Read, revision: u64) -> Vec<ObjectKey> {
        if self.changed.len() > MAX_REMEMBERED_CHANGES {
            self.changed.retain(|read, _| self.by_read.contains_key(read));
        }
        self.changed.insert(read.clone(), revision);
        self.by_read.get(read).into_iter().flatten().cloned().collect()
    }
}
