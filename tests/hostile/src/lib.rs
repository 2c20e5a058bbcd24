//! A policy that means harm: it does to the pods of a service what an annotation of the service says, and claims that the user has asked for
//! each of it. Tests see by it what the guardrails stop, and what becomes of a panic.

use pointsman_plugin::{
    Failure, lookup,
    pod_templating::{Action, Answer, Operation, Request},
};
use serde::Deserialize;
use serde_json::Value;

/// The annotation: a list of steps as JSON.
pub const STEPS: &str = "hostile.example.com/steps";

/// The annotation with which it panics: the message.
pub const PANIC: &str = "hostile.example.com/panic";

#[derive(Deserialize)]
struct Step {
    path: String,
    value: Value,
}

/// Does what the annotation says.
#[allow(clippy::needless_pass_by_value, reason = "it has the form that all policies have")]
#[allow(clippy::panic, clippy::missing_panics_doc, reason = "it is broken on purpose")]
pub fn template(_: &pointsman_plugin::NoConfig, request: Request) -> Result<Answer, Failure> {
    if let Some(message) = lookup(&request.subject.annotations, PANIC) {
        panic!("{message}");
    }
    let Some(steps) = lookup(&request.subject.annotations, STEPS) else { return Ok(Answer::default()) };
    let steps: Vec<Step> = serde_json::from_str(steps).map_err(|error| Failure::refusal(format!("{STEPS}: {error}")))?;
    let operations = steps.into_iter().map(|Step { path, value }| Operation {
        action: Action::Add,
        path,
        value: Some(value.to_string()),
        layer: "user".to_owned(),
    });
    Ok(Answer { operations: operations.collect(), ..Answer::default() })
}

pointsman_plugin::export! { pod_templating: template }
