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
    /// The `ReferenceGrants` of a namespace.
    Grants(String),
    /// The subjects in a namespace that are older, or of all of them where that is empty.
    Older(String),
}

/// How many changes are remembered beside those of what somebody reads, before they are forgotten: names come and go.
const MAX_UNREAD_CHANGES: usize = 10_000;

/// Who reads what.
#[derive(Debug, Default)]
pub(super) struct Readers {
    by_subject: HashMap<ObjectKey, BTreeSet<Read>>,
    by_read: HashMap<Read, HashSet<ObjectKey>>,
    /// When something changed last: a plan may have been made before, and be noted after.
    changed: HashMap<Read, u64>,
    /// How many of those were left when some were forgotten last, and the newest that was: of a plan that was made before it nobody knows
    /// whether it still holds.
    kept: usize,
    forgotten: u64,
}

impl Readers {
    /// Notes what a subject's plan has read of the world at a revision. True if some of that has changed since.
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

    /// Takes it that something has changed, and tells who has read it.
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
