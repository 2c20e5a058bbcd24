//! The results of the rules for the live subjects: recorded whenever one is planned, and reported in the status of ValidationRules.

use super::judge::{Finding, Judgement};
use crate::world::ObjectKey;
use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

/// The maximum number of subjects in a rule's status.
const MAX_SUBJECTS_NAMED: usize = 16;

/// The results of the rules for one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleResults {
    /// The rules that apply to it or to one of its objects.
    pub matched: BTreeSet<String>,
    /// The rules that it breaks.
    pub breaks: BTreeSet<String>,
    /// The rules that can't be evaluated for it.
    pub fails: BTreeSet<String>,
}

impl RuleResults {
    /// Adds results.
    pub(crate) fn add(&mut self, judgement: &Judgement) {
        self.matched.extend(judgement.matched.iter().cloned());
        let found = |failed: bool| judgement.findings.iter().filter(move |finding: &&Finding| finding.failed == failed);
        self.breaks.extend(found(false).map(|finding| finding.rule.clone()));
        self.fails.extend(found(true).map(|finding| finding.rule.clone()));
        self.fails.extend(judgement.ignored.iter().map(|(rule, _)| rule.clone()));
    }
}

/// The results of one rule for all subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of subjects that it applies to.
    pub matched: usize,
    /// The number of subjects that break it.
    pub breaks: usize,
    /// The number of subjects for which it can't be evaluated.
    pub fails: usize,
    /// The first subjects that break it, as KIND NAMESPACE/NAME.
    pub named: Vec<String>,
}

/// The results of all rules for all subjects.
#[derive(Debug, Default)]
pub struct Tally {
    state: Mutex<TallyState>,
}

#[derive(Debug, Default)]
struct TallyState {
    subjects: HashMap<ObjectKey, SubjectResults>,
    /// Most subjects have the same rules, so each distinct list is stored once.
    lists: BTreeSet<Arc<BTreeSet<String>>>,
    version: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct SubjectResults {
    matched: Arc<BTreeSet<String>>,
    breaks: BTreeSet<String>,
    fails: BTreeSet<String>,
}

impl Tally {
    /// Records the current results for a subject.
    pub fn note(&self, key: &ObjectKey, stands: RuleResults) {
        let mut state = locked(&self.state);
        let RuleResults { matched, breaks, fails } = stands;
        let matched = if let Some(known) = state.lists.get(&matched) {
            Arc::clone(known)
        } else {
            let list = Arc::new(matched);
            state.lists.insert(Arc::clone(&list));
            list
        };
        let stood = SubjectResults { matched, breaks, fails };
        if state.subjects.get(key) != Some(&stood) {
            state.subjects.insert(key.clone(), stood);
            state.version += 1;
        }
    }

    /// Removes a subject that is deleted or no longer ours.
    pub fn forget(&self, key: &ObjectKey) {
        let mut state = locked(&self.state);
        if state.subjects.remove(key).is_some() {
            state.version += 1;
        }
    }

    /// Increases with every change.
    pub fn version(&self) -> u64 {
        locked(&self.state).version
    }

    /// The counts per rule.
    pub fn counts(&self) -> BTreeMap<String, Count> {
        let mut state = locked(&self.state);
        let used: BTreeSet<Arc<BTreeSet<String>>> = state.subjects.values().map(|stood| Arc::clone(&stood.matched)).collect();
        state.lists = used;
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        let mut named: BTreeMap<&str, BTreeSet<&ObjectKey>> = BTreeMap::new();
        for (key, SubjectResults { matched, breaks, fails }) in &state.subjects {
            for rule in matched.iter() {
                counts.entry(rule.clone()).or_default().matched += 1;
            }
            for rule in breaks {
                counts.entry(rule.clone()).or_default().breaks += 1;
                let first = named.entry(rule).or_default();
                first.insert(key);
                if first.len() > MAX_SUBJECTS_NAMED {
                    first.pop_last();
                }
            }
            for rule in fails {
                counts.entry(rule.clone()).or_default().fails += 1;
            }
        }
        for (rule, keys) in named {
            if let Some(count) = counts.get_mut(rule) {
                count.named = keys.into_iter().map(|key| format!("{} {}/{}", key.resource.kind, key.namespace, key.name)).collect();
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::INFERENCE_SERVICE;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { resource: &INFERENCE_SERVICE, namespace: "n".to_owned(), name: name.to_owned() }
    }

    fn stands(matched: &[&str], breaks: &[&str]) -> RuleResults {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        RuleResults { matched: set(matched), breaks: set(breaks), fails: BTreeSet::new() }
    }

    #[test]
    fn each_subject_counts_once_and_as_it_stood_last() {
        let tally = Tally::default();
        tally.note(&key("a"), stands(&["r", "s"], &["r"]));
        tally.note(&key("b"), stands(&["r", "s"], &["r", "s"]));
        tally.note(&key("a"), stands(&["r", "s"], &[]));
        let counts = tally.counts();
        assert_eq!((counts["r"].matched, counts["r"].breaks, &counts["r"].named[..]), (2, 1, &["InferenceService n/b".to_owned()][..]));
        tally.forget(&key("b"));
        assert_eq!(tally.counts()["s"], Count { matched: 1, ..Count::default() });
    }

    #[test]
    fn what_has_not_changed_is_no_news() {
        let tally = Tally::default();
        tally.note(&key("a"), stands(&["r"], &[]));
        let version = tally.version();
        tally.note(&key("a"), stands(&["r"], &[]));
        assert_eq!(tally.version(), version);
    }
}
