//! The plan for one subject: pure data, which leaves no choice to the code that carries it out.

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
    /// The planned objects, in the order in which they are written; others are deleted. None: existing objects stay unchanged.
    pub objects: Option<Vec<Object>>,
    /// Existing objects that stay unchanged although they aren't planned, because adopted pods need them.
    pub retained: BTreeSet<ObjectKey>,
    /// The status to report.
    pub status: Status,
    /// The status to report instead if the rules deny the objects. None: the same.
    pub status_if_denied: Option<Status>,
    /// The objects that were read: a change of one of them requires another plan.
    pub reads: BTreeSet<Read>,
    /// The decisions, for explanations.
    pub decisions: Vec<Decided>,
    /// The runtime that would be chosen now, even if another one is retained; none if none is chosen.
    pub next_choice: Option<String>,
    /// The results of the rules for the subject.
    pub rule_results: RuleResults,
    /// Objects to create if no object has their names. After that they belong to their users: they are neither changed nor deleted, and the
    /// subject doesn't own them.
    pub creates: Vec<Object>,
    /// Whether the subject itself must be deleted, because its time to live is over.
    pub expired: bool,
    /// When to recheck although nothing has changed.
    pub recheck_after: Option<Duration>,
    /// Why the subject isn't ours, if so: the rest of the plan is then what we would do.
    pub not_ours: Option<NotOurs>,
}

/// Why a subject isn't ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// Its own spec or annotation excludes it: a message.
    LeftAlone(String),
    /// Another controller manages it.
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

/// The message for a subject whose annotation excludes it.
pub fn left_alone(noun: &str) -> String {
    format!("The {noun} is not managed: its annotation pointsman.dev/control is \"false\".")
}

/// A planned object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its identity.
    pub key: ObjectKey,
    /// All fields that we set except its apiVersion and kind, its name and its namespace.
    pub body: Value,
    /// Whether another controller sets its replicas: the current number stays.
    pub yields_replicas: bool,
    /// Whether it exists with an immutable pod template, which the rules checked when it was created.
    pub keeps_template: bool,
    /// The fingerprint of the body.
    pub fingerprint: u64,
}

impl Object {
    /// An object with the fingerprint of its body.
    pub fn new(key: ObjectKey, body: Value) -> Self {
        Self { key, fingerprint: fingerprint(&body), body, yields_replicas: false, keeps_template: false }
    }

    /// The complete object as it is written, with the hash of its plan.
    pub fn written(&self) -> Value {
        let mut whole = self.manifest();
        whole["metadata"]["annotations"][PLAN_HASH] =
            PlanHash::from_plan(self.key.resource, &self.body, self.fingerprint).to_string().into();
        whole
    }

    /// The complete object as planned.
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

/// The status to report for a subject.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The conditions, in the order of their dependencies. `Applied` and `Ready` are added after the plan is carried out.
    pub conditions: Vec<Condition>,
    /// The other fields of the status; null if there is no value.
    pub fields: Map<String, Value>,
    /// The condition types of this kind: those that aren't reported now are removed.
    pub types: &'static [&'static str],
    /// The reason and message of Ready when all conditions are met. None: those of most kinds.
    pub ready: Option<(&'static str, &'static str)>,
    /// The field that gets the time of each change of the status, if the kind has one.
    pub changed_field: Option<&'static str>,
    /// The conditions that aren't required for Ready, because the subject runs by earlier decisions.
    pub undecided: UndecidedSteps,
}

/// The conditions that don't apply to running objects, if no policy could decide and the spec is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UndecidedSteps {
    /// None.
    #[default]
    None,
    /// These.
    Some(Vec<&'static str>),
    /// All conditions: Ready stays unchanged.
    All,
}

/// A decision with its inputs.
#[derive(Clone, Debug)]
pub enum Decided {
    /// A choice of a runtime.
    Selection(selection::Inputs, Arc<Decision<Selection>>),
    /// A pod template: the object that contains it, and the decision.
    Template(ObjectKey, templating::Inputs, Arc<Decision<Templated>>),
    /// Labels and annotations.
    Metadata(Target, propagation::Inputs, Arc<Decision<Propagated>>),
}
