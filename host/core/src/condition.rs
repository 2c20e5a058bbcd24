//! Conditions as a plan tells them, and the types of those that all kinds share.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

/// The condition that sums up all others.
pub const READY: &str = "Ready";

/// Whether somebody else works on the subject.
pub const CONTESTED: &str = "Contested";

/// A state that is told, without a time: that is when it is first told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What it is about.
    pub type_: &'static str,
    /// Whether that is so; none while it isn't known.
    pub status: Option<bool>,
    /// One CamelCase word.
    pub reason: String,
    /// What is the case, and what to do about it.
    pub message: String,
    /// Whether the subject can't be ready without it.
    pub needed: bool,
    /// Whether those who watch events want to know of it even if it is fine.
    pub notable: bool,
}

impl Condition {
    /// One that is needed for the subject to be ready.
    pub fn new(type_: &'static str, status: Option<bool>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_, status, reason: reason.into(), message: message.into(), needed: true, notable: false }
    }

    /// That something is so.
    pub fn satisfied(type_: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, Some(true), reason, message)
    }

    /// That something isn't so.
    pub fn no(type_: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, Some(false), reason, message)
    }

    /// That something isn't known.
    pub fn unknown(type_: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, None, reason, message)
    }

    /// One that the subject can be ready without.
    #[must_use]
    pub fn aside(self) -> Self {
        Self { needed: false, ..self }
    }

    /// One that makes an event even where it is fine.
    #[must_use]
    pub fn with_event(self) -> Self {
        Self { notable: true, ..self }
    }
}

/// A condition as it stands in a status. As long as it doesn't turn, its time stays.
pub(crate) fn written(condition: Condition, former: Option<&Value>, generation: Option<i64>, now: Timestamp) -> Value {
    let status = word(condition.status);
    let since = former.filter(|former| former["status"] == status).and_then(|former| former["lastTransitionTime"].as_str());
    let mut told = Map::new();
    told.insert("type".to_owned(), condition.type_.into());
    told.insert("status".to_owned(), status.into());
    // As Knative's clients read it: one that the service can be ready without is no error.
    if !condition.needed && condition.status != Some(true) {
        told.insert("severity".to_owned(), "Info".into());
    }
    let now = || now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    told.insert("lastTransitionTime".to_owned(), since.map_or_else(now, str::to_owned).into());
    told.insert("reason".to_owned(), condition.reason.into());
    told.insert("message".to_owned(), condition.message.into());
    if let Some(generation) = generation {
        told.insert("observedGeneration".to_owned(), generation.into());
    }
    Value::Object(told)
}

pub fn word(status: Option<bool>) -> &'static str {
    match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}
