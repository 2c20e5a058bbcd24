//! The default policy at metadata-propagation: which labels and annotations are propagated to the objects of a service.
//!
//! The rules depend on the subject's kind. For a kind without rules, the host's frame stays unchanged and nothing is propagated.

pub mod config;
pub mod inference_service;
pub mod internal;
pub mod llm_inference_service;
pub mod monitoring;
pub mod offer;
pub mod source;
pub mod training_job;
pub mod upstream;
pub mod words;

pub use config::{Config, LlmInferenceService, Pattern};
pub use words::valid_label_value;

use pointsman_plugin::{
    Failure,
    metadata_propagation::{Answer, Request},
    reason,
};

/// Returns the labels and annotations of the target.
#[allow(clippy::unnecessary_wraps, reason = "it has the form that all policies have")]
pub fn propagate(config: &Config, request: Request) -> Result<Answer, Failure> {
    let rules = match (request.subject.group.as_str(), request.subject.kind.as_str()) {
        ("ome.io", "InferenceService" | "BenchmarkJob") => inference_service::propagate,
        ("ome.io", "TrainingJob") => training_job::propagate,
        ("serving.kserve.io", "LLMInferenceService") => llm_inference_service::propagate,
        _ => without_rules,
    };
    Ok(rules(config, request))
}

fn without_rules(_: &Config, request: Request) -> Answer {
    let message = format!(
        "This policy has no rules for the kind {} of {}: nothing is copied to its objects.",
        request.subject.kind, request.subject.group
    );
    let mut answer = Answer::unchanged(request);
    answer.labels.sort_by(|one, other| one.key.cmp(&other.key));
    answer.annotations.sort_by(|one, other| one.key.cmp(&other.key));
    answer.reasons.push(reason("NoRules", message));
    answer
}

pointsman_plugin::export! { config: Config, metadata_propagation: propagate }
