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

/// The types of which True is what needs attention. `Suspended`, `Restarting` and `Failed` are a TrainingJob's.
const ABNORMAL: [&str; 4] = [CONTESTED, "Failed", "Restarting", "Suspended"];

/// A job has done what it was for: that it says so by an event is no warning.
const COMPLETED: &str = "Completed";

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

    /// Whether something isn't as it should be, isn't known yet, or is to be warned of.
    pub fn needs_attention(&self) -> bool {
        let warns = || self.emits_event && self.type_ != COMPLETED || self.reason == UPDATE_STUCK;
        self.status.is_none_or(|status| status == ABNORMAL.contains(&self.type_)) || warns()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_attention_depends_on_what_a_condition_is_about() {
        let fine = [
            Condition::satisfied("Decided", "Decided", "."),
            Condition::no(CONTESTED, "NobodyElse", ".").optional(),
            Condition::no("Failed", "Running", "."),
            Condition::satisfied(COMPLETED, "Completed", ".").with_event(),
        ];
        for condition in fine {
            assert!(!condition.needs_attention(), "{condition:?}");
        }
        let not_fine = [
            Condition::no("Decided", "PolicyFailed", "."),
            Condition::unknown("EngineReady", "Progressing", "."),
            Condition::satisfied(CONTESTED, "StatusOfOthers", ".").optional(),
            Condition::satisfied("Failed", "JobFailed", ".").optional(),
            Condition::no("RuntimeUpToDate", "BetterRuntime", ".").optional(),
            Condition::satisfied("Valid", "Warned", ".").with_event(),
            Condition::satisfied("EngineReady", UPDATE_STUCK, "."),
        ];
        for condition in not_fine {
            assert!(condition.needs_attention(), "{condition:?}");
        }
    }
}
