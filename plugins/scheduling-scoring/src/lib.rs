//! The default policy at scheduling-scoring. It scores which models get memory, how suitable a node is for a pod, and how suitable an
//! endpoint is for a request.

mod endpoints;
mod mean;
mod memory;
mod nodes;

use pointsman_plugin::{
    Failure,
    scheduling_scoring::{Matrix, Question, Term},
};
use schemars::JsonSchema;
use serde::Deserialize;

pub use endpoints::{EndpointPick, FEATURES as ENDPOINT_FEATURES};
pub use memory::{FEATURES, Weights};
pub use nodes::{FEATURES as NODE_FEATURES, NodePlacement};

/// Halfway between best and worst, so that an additional policy can move a candidate in either direction.
const NEUTRAL: f64 = 0.5;

/// The configuration.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The weights for memory-admission: which model gets memory.
    memory_admission: Weights,
    /// The weights for node-placement: which node a pod gets.
    node_placement: NodePlacement,
    /// How endpoints are picked.
    endpoint_pick: EndpointPick,
}

/// A score for each candidate.
#[allow(clippy::unnecessary_wraps, reason = "it has the form that all policies have")]
pub fn score(config: &Config, question: Question, matrix: &Matrix) -> Result<Vec<f64>, Failure> {
    Ok(match question {
        Question::MemoryAdmission => matrix.rows().map(|row| config.memory_admission.score(row)).collect(),
        Question::EndpointPick => config.endpoint_pick.score(matrix),
        Question::NodePlacement => config.node_placement.score(matrix),
    })
}

/// Explains the parts of a score.
pub fn explain(config: &Config, question: Question, matrix: &Matrix, row: usize) -> Vec<Term> {
    let terms = match (question, matrix.row(row)) {
        (Question::MemoryAdmission, Some(row)) => config.memory_admission.explain(row),
        (Question::EndpointPick, Some(_)) => config.endpoint_pick.explain(matrix, row),
        (Question::NodePlacement, Some(values)) => config.node_placement.explain(matrix, values),
        (_, None) => Vec::new(),
    };
    if terms.is_empty() { vec![equal()] } else { terms }
}

fn equal() -> Term {
    Term::new("Equal", format!("All candidates suit equally well, with the score {NEUTRAL}."), NEUTRAL)
}

pointsman_plugin::export! {
    config: Config,
    scheduling_scoring: score,
    explain: explain,
    features: [
        (Question::NodePlacement, &NODE_FEATURES),
        (Question::MemoryAdmission, &FEATURES),
        (Question::EndpointPick, &ENDPOINT_FEATURES),
    ],
}
