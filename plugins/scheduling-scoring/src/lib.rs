//! The default policy at scheduling-scoring. It weighs which models are worth their memory; of endpoints and nodes it prefers none.

mod memory;

use pointsman_plugin::{
    Failure,
    scheduling_scoring::{Matrix, Question, Term},
};
use schemars::JsonSchema;
use serde::Deserialize;

pub use memory::{FEATURES, Weights};

/// In the middle between best and worst, so that a policy beside this one can move a candidate either way.
const NEUTRAL: f64 = 0.5;

/// What can be configured.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// How much each part counts for which model gets memory.
    memory_admission: Weights,
}

/// A score for each candidate.
#[allow(clippy::unnecessary_wraps, reason = "it has the form that all policies have")]
pub fn score(config: &Config, question: Question, matrix: &Matrix) -> Result<Vec<f64>, Failure> {
    Ok(match question {
        Question::MemoryAdmission => matrix.rows().map(|row| config.memory_admission.score(row)).collect(),
        _ => vec![NEUTRAL; matrix.rows().len()],
    })
}

/// Says what a score is made of.
pub fn explain(config: &Config, question: Question, matrix: &Matrix, row: usize) -> Vec<Term> {
    match (question, matrix.row(row)) {
        (Question::MemoryAdmission, Some(row)) => config.memory_admission.explain(row),
        _ => vec![Term::new("Equal", format!("Every candidate suits equally well, and has the score {NEUTRAL}."), NEUTRAL)],
    }
}

pointsman_plugin::export! {
    config: Config,
    scheduling_scoring: score,
    explain: explain,
    features: [(Question::MemoryAdmission, &FEATURES)],
}
