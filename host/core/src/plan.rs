//! What is to become of one subject: pure data, which leaves no choice to whoever carries it out.

use crate::{
    condition::Condition,
    contest::Contest,
    decide::{
        Decision,
        propagation::{self, Propagated},
        selection::{self, Selection},
        templating::{self, Templated},
    },
    rules::tally::RuleResults,
    world::{
        ObjectKey, Read,
        child::{PLAN_HASH, PlanHash, fingerprint},
    },
};
use pointsman_sandbox::{digest::Digest, point::propagation::Target};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The full desired outcome for one subject.
#[derive(Debug, Default)]
pub struct Plan {
    /// The objects that it is to have, in the order in which they are written, and no others. None: what there is stays as it is.
    pub objects: Option<Vec<Object>>,
    /// What stays as it is although it is not planned: pods that were taken over run by it.
    pub retained: BTreeSet<ObjectKey>,
    /// What is told of it.
    pub status: Status,
    /// What was read: a change of it asks for another plan.
    pub reads: BTreeSet<Read>,
    /// What was decided, for those who want to know why.
    pub decisions: Vec<Decided>,
    /// The runtime that would be chosen now, whichever is kept; none where none is chosen.
    pub next_choice: Option<String>,
    /// How the subject stands to the rules.
    pub rule_results: RuleResults,
    /// What is created if no object has its name, and then belongs to whoever uses it: it is neither changed nor deleted, and the subject isn't
    /// its owner.
    pub creates: Vec<Object>,
    /// Whether the subject itself is to be deleted: it asked for that, and its time is over.
    pub expired: bool,
    /// When to look again although nothing has changed.
    pub recheck_after: Option<Duration>,
    /// Whose the subject is, if it isn't ours: then the rest of the plan is what we would do.
    pub not_ours: Option<NotOurs>,
}

/// Why a subject isn't ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// It says so itself: a sentence.
    LeftAlone(String),
    /// Another controller works on it.
    Contested(Contest),
}

impl Decided {
    /// The digest of the question.
    pub fn inputs(&self) -> &Digest {
        match self {
            Self::Selection(_, decision) => &decision.inputs,
            Self::Template(_, _, decision) => &decision.inputs,
            Self::Metadata(_, _, decision) => &decision.inputs,
        }
    }
}

/// What is told of a subject that says so itself.
pub fn left_alone(noun: &str) -> String {
    format!("The {noun} is not managed: its annotation pointsman.dev/control is \"false\".")
}

/// An object that a subject is to have.
#[derive(Clone, Debug)]
pub struct Object {
    /// What names it.
    pub key: ObjectKey,
    /// Everything that we say of it but its kind and name.
    pub body: Value,
    /// Whether something else owns its replicas from now on: the number that there is stays.
    pub yields_replicas: bool,
    /// Whether it exists and its pods stay what they were created from: rules judged that when it was created.
    pub keeps_template: bool,
    /// Of the body.
    pub fingerprint: u64,
}

impl Object {
    /// Puts one together.
    pub fn new(key: ObjectKey, body: Value) -> Self {
        Self { key, fingerprint: fingerprint(&body), body, yields_replicas: false, keeps_template: false }
    }

    /// The whole object, as it is written: it says by which plan.
    pub fn written(&self) -> Value {
        let mut whole = self.manifest();
        whole["metadata"]["annotations"][PLAN_HASH] =
            PlanHash::from_plan(self.key.resource, &self.body, self.fingerprint).to_string().into();
        whole
    }

    /// The whole object, as it is planned.
    pub fn manifest(&self) -> Value {
        let ObjectKey { resource, namespace, name } = &self.key;
        let mut whole = Map::new();
        whole.insert("apiVersion".to_owned(), resource.api_version().into());
        whole.insert("kind".to_owned(), resource.kind.into());
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), name.as_str().into());
        if !namespace.is_empty() {
            metadata.insert("namespace".to_owned(), namespace.as_str().into());
        }
        for (key, value) in self.body.get("metadata").and_then(Value::as_object).into_iter().flatten() {
            metadata.insert(key.clone(), value.clone());
        }
        whole.insert("metadata".to_owned(), Value::Object(metadata));
        let rest = self.body.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata");
        whole.extend(rest.map(|(key, value)| (key.clone(), value.clone())));
        Value::Object(whole)
    }
}

/// What is told of a subject.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The states, in the order in which they depend on one another. `Applied` and `Ready` are added when the plan was carried out.
    pub conditions: Vec<Condition>,
    /// Everything else, as it stands in the status; null where there is nothing to tell.
    pub fields: Map<String, Value>,
    /// The conditions that this kind may tell: one that it doesn't tell now goes.
    pub types: &'static [&'static str],
    /// What Ready says once nothing is missing: a reason and a message. None: as most kinds say it.
    pub ready: Option<(&'static str, &'static str)>,
    /// The field that gets the time whenever something else of the status changes, if this kind has one.
    pub changed_field: Option<&'static str>,
    /// What the subject can be ready without, because it runs by what was decided before.
    pub undecided: UndecidedSteps,
}

/// Which conditions say nothing of what runs, where no policy decides anew about a subject that is as it asks to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UndecidedSteps {
    /// None.
    #[default]
    None,
    /// These.
    Some(Vec<&'static str>),
    /// All that are told: Ready stays what it was.
    All,
}

/// One decision, with what it was about.
#[derive(Clone, Debug)]
pub enum Decided {
    /// Which runtime.
    Selection(selection::Inputs, Arc<Decision<Selection>>),
    /// What a pod looks like: the object that makes it, and the decision.
    Template(ObjectKey, templating::Inputs, Arc<Decision<Templated>>),
    /// Which labels and annotations.
    Metadata(Target, propagation::Inputs, Arc<Decision<Propagated>>),
}
