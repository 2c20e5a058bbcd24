//! The next version of the policy, to which the end-to-end tests update: objects also get the label, and its value has a prefix.

use pointsman_plugin::{
    Failure, NoConfig, lookup,
    metadata_propagation::{Answer, Request},
};

const LABEL: &str = "cost-centre";

/// Adds the label to all objects and pods.
pub fn propagate(_: &NoConfig, request: Request) -> Result<Answer, Failure> {
    let value = lookup(&request.subject.namespace_labels, LABEL).map(|number| format!("centre-{number}"));
    let mut answer = Answer::unchanged(request);
    if let Some(value) = value {
        answer.put_label(LABEL, value, "namespace");
    }
    Ok(answer)
}

pointsman_plugin::export! { metadata_propagation: propagate }
