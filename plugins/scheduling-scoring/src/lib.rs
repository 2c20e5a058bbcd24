//! The default policy at scheduling-scoring. Until it weighs features, it leaves the choice open: every candidate suits equally well.

use pointsman_plugin::{
    Failure, NoConfig,
    scheduling_scoring::{Matrix, Question, Term},
};

/// In the middle between best and worst, so that a policy beside this one can move a candidate either way.
const SCORE: f64 = 0.5;

/// The same score for every candidate.
#[allow(clippy::unnecessary_wraps, reason = "it has the form that all policies have")]
pub fn score(_: &NoConfig, _: Question, matrix: &Matrix) -> Result<Vec<f64>, Failure> {
    Ok(vec![SCORE; matrix.rows().len()])
}

/// Says that no candidate is preferred.
pub fn explain(_: &NoConfig, _: Question, _: &Matrix, _: usize) -> Vec<Term> {
    vec![Term::new("Equal", format!("Every candidate suits equally well, and has the score {SCORE}."), SCORE)]
}

pointsman_plugin::export! { scheduling_scoring: score, explain: explain }
