//! Types that several policy points share.

use crate::image;
use serde::{Deserialize, Serialize};
#[cfg(feature = "host")]
use wasmtime::component::{ComponentType, Lift, Lower};

/// A label or annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// The custom resource that a decision is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Subject {
    /// Its API group.
    pub group: String,
    /// Its API version.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for a cluster-scoped kind.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels, by key.
    #[serde(deserialize_with = "image::list")]
    pub labels: Vec<Entry>,
    /// Its annotations, by key.
    #[serde(deserialize_with = "image::list")]
    pub annotations: Vec<Entry>,
    /// The labels of its namespace, by key.
    #[cfg_attr(feature = "host", component(name = "namespace-labels"))]
    #[serde(deserialize_with = "image::list")]
    pub namespace_labels: Vec<Entry>,
}

enumeration! {
    /// The role of a pod in its subject.
    #[derive(Default)]
    pub enum Role {
        /// It runs the model, or only its prefill phase if there is a decoder.
        #[default]
        Engine = "engine",
        /// It runs the decode phase.
        Decoder = "decoder",
        /// It distributes requests to the others.
        Router = "router",
        /// It leads a group of pods that run one model together.
        Leader = "leader",
        /// It is a member of such a group.
        Worker = "worker",
        /// It runs the main workload of an LLMInferenceService.
        Main = "main",
        /// It runs the prefill workload of an LLMInferenceService.
        Prefill = "prefill",
        /// It picks the endpoint of each request.
        Scheduler = "scheduler",
        /// It runs once to completion, such as a benchmark.
        Job = "job",
        /// It serves an InferenceModel.
        Server = "server",
        /// It trains a model, alone or as one of several.
        Trainer = "trainer",
        /// It starts the trainers of its group, but doesn't train.
        Launcher = "launcher",
        /// It turns text into tokens for the scheduler.
        Tokenizer = "tokenizer",
    }
}

enumeration! {
    /// What scheduling-scoring scores.
    pub enum Question {
        /// Which node a pod runs on.
        NodePlacement = "node-placement",
        /// Which model gets memory if there isn't enough for all.
        MemoryAdmission = "memory-admission",
        /// Which endpoint serves a request.
        EndpointPick = "endpoint-pick",
    }
}

/// One reason for an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// A code for programs: one CamelCase word.
    pub code: String,
    /// A message for people: one sentence.
    pub message: String,
}

enumeration! {
    /// The cause of a failure.
    #[derive(Default)]
    pub enum FailureKind {
        /// The request can't be answered as it is. This doesn't count against the plugin.
        #[default]
        Refusal = "refusal",
        /// The plugin is broken. This counts against it like a trap.
        Fault = "fault",
    }
}

/// Why a plugin can't answer a question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The cause.
    #[serde(default)]
    pub kind: FailureKind,
    /// A sentence that describes the problem and the remedy.
    pub message: String,
    /// The field of the subject that causes the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// Information in a question that has no field of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "host", derive(ComponentType, Lift, Lower), component(record))]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Its name.
    pub name: String,
    /// Its value, in JSON.
    #[serde(with = "image::json")]
    pub value: String,
}

/// Creates a label or annotation.
pub fn entry(key: impl Into<String>, value: impl Into<String>) -> Entry {
    Entry { key: key.into(), value: value.into() }
}

/// Creates a reason from one CamelCase word and a sentence.
pub fn reason(code: impl Into<String>, message: impl Into<String>) -> Reason {
    Reason { code: code.into(), message: message.into() }
}

/// Returns the value of a label or annotation.
pub fn lookup<'a>(entries: &'a [Entry], key: &str) -> Option<&'a str> {
    entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

impl<K: Into<String>, V: Into<String>> From<(K, V)> for Entry {
    fn from((key, value): (K, V)) -> Self {
        entry(key, value)
    }
}

impl Failure {
    /// The request can't be answered as it is: the author of the subject must change something.
    pub fn refusal(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Refusal, message: message.into(), field: None }
    }

    /// The plugin is broken: the author of the plugin must change something.
    pub fn fault(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Fault, message: message.into(), field: None }
    }

    /// Sets the field of the subject that causes the failure, such as `spec.engine.runner.args`.
    #[must_use]
    pub fn at(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }
}

/// Creates a refusal.
impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::refusal(message)
    }
}

/// Creates a refusal.
impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::refusal(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_label_by_its_key() {
        let labels = [entry("a", "1"), ("b", "2").into()];
        assert_eq!(lookup(&labels, "b"), Some("2"));
        assert_eq!(lookup(&labels, "c"), None);
    }

    #[test]
    fn a_case_has_the_name_and_the_number_of_wit() {
        assert_eq!(Role::ALL.iter().map(|role| Role::_lift(*role as u8)).collect::<Vec<_>>(), Role::ALL);
        assert_eq!(serde_json::to_string(&Role::Prefill).unwrap(), format!("{:?}", Role::Prefill.name()));
    }

    #[test]
    fn a_failure_is_a_refusal_unless_it_says_otherwise() {
        let written: Failure = serde_json::from_str(r#"{"message": "no"}"#).unwrap();
        assert_eq!(written, Failure::refusal("no"));
        let fault = serde_json::to_string(&Failure::fault("no").at("spec.a")).unwrap();
        assert_eq!(fault, r#"{"kind":"fault","message":"no","field":"spec.a"}"#);
    }
}
