//! Conditions as a plan tells them, and the types of those that all kinds share.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

/// The condition that sums up all others.
pub const READY: &str = "Ready";

/// Whether the policies have said what the objects look like.
pub const DECIDED: &str = "Decided";

/// Whether somebody else works on the subject.
pub const CONTESTED: &str = "Contested";

/// The reason of what serves by its former pods while new ones fail.
pub const UPDATE_STUCK: &str = "UpdateStuck";

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
    pub required_for_ready: bool,
    /// Whether those who watch events want to know of it even if it is fine.
    pub emits_event: bool,
}

impl Condition {
    /// One that is needed for the subject to be ready.
    pub fn new(type_: &'static str, status: Option<bool>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_, status, reason: reason.into(), message: message.into(), required_for_ready: true, emits_event: false }
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
    pub fn optional(self) -> Self {
        Self { required_for_ready: false, ..self }
    }

    /// One that makes an event even where it is fine.
    #[must_use]
    pub fn with_event(self) -> Self {
        Self { emits_event: true, ..self }
    }
}

/// A condition as it stands in a status. As long as it doesn't turn, its time stays.
pub(crate) fn condition_json(condition: Condition, former: Option<&Value>, generation: Option<i64>, now: Timestamp) -> Value {
    let status = status_text(condition.status);
    let since = former.filter(|former| former["status"] == status).and_then(|former| former["lastTransitionTime"].as_str());
    let mut told = Map::new();
    told.insert("type".to_owned(), condition.type_.into());
    told.insert("status".to_owned(), status.into());
    // As Knative's clients read it: one that the service can be ready without is no error.
    if !condition.required_for_ready && condition.status != Some(true) {
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

pub fn status_text(status: Option<bool>) -> &'static str {
    match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}
