//! The default policy at metadata-propagation. Until it carries some, it leaves the labels and annotations so far as they are.

use pointsman_plugin::{
    Failure, NoConfig,
    metadata_propagation::{Answer, Request},
    reason,
};

/// Carries nothing, and says so.
#[allow(clippy::unnecessary_wraps, reason = "it has the form that all policies have")]
pub fn propagate(_: &NoConfig, request: Request) -> Result<Answer, Failure> {
    let mut answer = Answer::of(request);
    answer.reasons.push(reason("Unchanged", "The labels and annotations so far stay as they are."));
    Ok(answer)
}

pointsman_plugin::export! { metadata_propagation: propagate }
