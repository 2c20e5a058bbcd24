//! The policy's next version, as the end-to-end tests update to it: objects get the label as well, and its value tells what it is.

use pointsman_plugin::{
    Failure, NoConfig, lookup,
    metadata_propagation::{Answer, Request},
};

const LABEL: &str = "cost-centre";

/// Adds the label to whatever is made.
pub fn propagate(_: &NoConfig, request: Request) -> Result<Answer, Failure> {
    let value = lookup(&request.subject.namespace_labels, LABEL).map(|number| format!("centre-{number}"));
    let mut answer = Answer::unchanged(request);
    if let Some(value) = value {
        answer.put_label(LABEL, value, "namespace");
    }
    Ok(answer)
}

pointsman_plugin::export! { metadata_propagation: propagate }
