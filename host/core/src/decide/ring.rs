//! The last decisions, for those who ask.

use super::{Decision, Undecided};
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::{
    digest::Digest,
    point::{Reason, Subject},
    sync::locked,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

/// How many reasons of a decision are remembered.
const REASONS: usize = 16;

/// An answer that says why.
pub(super) trait Reasoned {
    /// The first of its reasons.
    fn reasons(&self, most: usize) -> Vec<Reason>;
}

/// One decision, as it is remembered.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it fell.
    pub at: SystemTime,
    /// Where.
    pub point: PolicyPoint,
    /// Whom it is for: group, kind, namespace and name.
    pub subject: [String; 4],
    /// The set that it fell under.
    pub set: Digest,
    /// The digest of the question.
    pub inputs: Digest,
    /// The plugins that gave it, or why there is none.
    pub outcome: Result<Vec<super::Asked>, Undecided>,
    /// Why it fell so: the first of the answer's reasons.
    pub reasons: Vec<Reason>,
    /// How long it took.
    pub took: Duration,
}

impl Record {
    pub(super) fn new<Answer: Reasoned>(
        point: PolicyPoint,
        subject: &Subject,
        set: &Digest,
        inputs: Digest,
        decided: &Result<Arc<Decision<Answer>>, Undecided>,
        took: Duration,
    ) -> Self {
        let Subject { group, kind, namespace, name, .. } = subject;
        Self {
            at: SystemTime::now(),
            point,
            subject: [group, kind, namespace, name].map(Clone::clone),
            set: *set,
            inputs,
            reasons: decided.as_ref().map(|decision| decision.answer.reasons(REASONS)).unwrap_or_default(),
            outcome: decided.as_ref().map(|decision| decision.plugins.clone()).map_err(Clone::clone),
            took,
        }
    }
}

/// A bounded number of them.
#[derive(Debug)]
pub(super) struct Ring {
    most: usize,
    records: Mutex<VecDeque<Arc<Record>>>,
}

impl Ring {
    pub(super) fn new(most: usize) -> Self {
        Self { most, records: Mutex::default() }
    }

    pub(super) fn add(&self, record: Record) {
        let mut records = locked(&self.records);
        if records.len() == self.most {
            records.pop_front();
        }
        records.push_back(Arc::new(record));
    }

    /// The newest first.
    pub(super) fn all(&self) -> Vec<Arc<Record>> {
        locked(&self.records).iter().rev().cloned().collect()
    }
}
