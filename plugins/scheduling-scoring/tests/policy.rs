//! The policy as an ordinary function: no Wasm is needed to test it.

use pointsman_plugin::{
    NoConfig,
    scheduling_scoring::{Matrix, Question},
};
use pointsman_scheduling_scoring::{explain, score};

#[test]
fn every_candidate_has_the_same_score_and_the_explanation_says_so() {
    let matrix = Matrix::new(1, vec![0.0, 9.0, f64::NAN]).unwrap();
    assert_eq!(score(&NoConfig {}, Question::NodePlacement, &matrix), Ok(vec![0.5; 3]));
    let terms = explain(&NoConfig {}, Question::NodePlacement, &matrix, 1);
    assert_eq!(terms[0].value, Some(0.5));
    assert_eq!(terms[0].message, "Every candidate suits equally well, and has the score 0.5.");
}
