//! Copies a label of the namespace, such as its cost centre, to every pod in it.

use pointsman_plugin::{
    Failure, lookup,
    metadata_propagation::{Answer, Place, Request},
    reason,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The label's key.
    label: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { label: "cost-centre".to_owned() }
    }
}

/// Adds the label to the pods, unless a more specific source has already set it.
pub fn propagate(config: &Config, request: Request) -> Result<Answer, Failure> {
    let value = lookup(&request.subject.namespace_labels, &config.label).map(str::to_owned);
    let wanted = request.target.place == Place::PodTemplate && request.labels.iter().all(|label| label.key != config.label);
    let mut answer = Answer::unchanged(request);
    if let Some(value) = value.filter(|_| wanted) {
        answer.reasons.push(reason("NamespaceLabel", format!("The namespace's {} is {value}.", config.label)));
        answer.put_label(&config.label, value, "namespace");
    }
    Ok(answer)
}

pointsman_plugin::export! { config: Config, metadata_propagation: propagate }
