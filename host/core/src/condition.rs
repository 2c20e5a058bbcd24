//! The conditions of a plan, and the types that all kinds share.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

/// The summary of all other conditions.
pub const READY: &str = "Ready";

/// Whether the policies have decided on the objects.
pub const DECIDED: &str = "Decided";

/// Whether another controller manages the subject.
pub const CONTESTED: &str = "Contested";

/// The reason if the previous pods serve while the new ones fail.
pub const UPDATE_STUCK: &str = "UpdateStuck";

/// The types that need attention if they are True. `Suspended`, `Restarting` and `Failed` are a TrainingJob's.
const ABNORMAL: [&str; 4] = [CONTESTED, "Failed", "Restarting", "Suspended"];

/// The condition of a completed job: it needs no attention, although it has an event.
pub(crate) const COMPLETED: &str = "Completed";

/// A condition without a time, which is set when the condition is first reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub type_: &'static str,
    /// Whether it is true; none if unknown.
    pub status: Option<bool>,
    /// A reason in CamelCase.
    pub reason: String,
    /// The state, and how to fix it.
    pub message: String,
    /// Whether the subject is only ready if it is true.
    pub required_for_ready: bool,
    /// Whether an event reports it even if it needs no attention.
    pub emits_event: bool,
}

impl Condition {
    /// A condition that is required for Ready.
    pub fn new(type_: &'static str, status: Option<bool>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_, status, reason: reason.into(), message: message.into(), required_for_ready: true, emits_event: false }
    }

    /// A required condition that is true.
    pub fn satisfied(type_: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, Some(true), reason, message)
    }

    /// A required condition that is false.
    pub fn no(type_: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, Some(false), reason, message)
    }

    /// A required condition that is unknown.
    pub fn unknown(type_: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, None, reason, message)
    }

    /// The condition, no longer required for Ready.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { required_for_ready: false, ..self }
    }

    /// Whether the status is abnormal or unknown, or the condition is a warning.
    pub fn needs_attention(&self) -> bool {
        let warns = || self.emits_event && self.type_ != COMPLETED || self.reason == UPDATE_STUCK;
        self.status.is_none_or(|status| status == ABNORMAL.contains(&self.type_)) || warns()
    }

    /// The condition, with an event even if it needs no attention.
    #[must_use]
    pub fn with_event(self) -> Self {
        Self { emits_event: true, ..self }
    }
}

/// The condition's JSON for a status. The transition time changes only if the status does.
pub(crate) fn condition_json(condition: Condition, former: Option<&Value>, generation: Option<i64>, now: Timestamp) -> Value {
    let status = status_text(condition.status);
    let since = former.filter(|former| former["status"] == status).and_then(|former| former["lastTransitionTime"].as_str());
    let mut told = Map::new();
    told.insert("type".to_owned(), condition.type_.into());
    told.insert("status".to_owned(), status.into());
    // Knative's clients take a false condition without this severity for an error.
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
