//! Tests the policy as an ordinary function, without Wasm.
#![allow(clippy::unwrap_used)]

use pointsman_plugin::scheduling_scoring::{Matrix, Question};
use pointsman_scheduling_scoring::{Config, FEATURES, NODE_FEATURES, explain, score};

const GIB: f64 = 1_073_741_824.0;

/// A model with these features and usual values for the others.
fn model(features: &[(&str, f64)]) -> Vec<f64> {
    let usual = [("memory-bytes", 40.0 * GIB), ("pool-pressure", 0.9), ("load-seconds", 40.0)];
    let find = |name: &str| features.iter().chain(&usual).find(|(known, _)| *known == name).map_or(0.0, |(_, value)| *value);
    FEATURES.iter().map(|name| find(name)).collect()
}

fn idle(seconds: f64, features: &[(&str, f64)]) -> Vec<f64> {
    model(&[&[("resident", 1.0), ("idle-seconds", seconds)], features].concat())
}

fn waiting(requests: f64, features: &[(&str, f64)]) -> Vec<f64> {
    model(&[&[("waiting-requests", requests), ("idle-seconds", f64::NAN)], features].concat())
}

fn scores(config: &str, models: &[Vec<f64>]) -> Vec<f64> {
    let config: Config = serde_json::from_str(config).unwrap();
    score(&config, Question::MemoryAdmission, &Matrix::new(FEATURES.len(), models.concat()).unwrap()).unwrap()
}

/// Checks that each of these scores higher than the next.
fn ordered(models: &[Vec<f64>]) {
    let scores = scores("{}", models);
    assert!(scores.is_sorted_by(|a, b| a > b), "{scores:?}");
    assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)));
}

#[test]
fn a_model_that_requests_wait_for_is_worth_more_than_one_that_has_been_idle_for_long_and_less_than_one_that_was_just_used() {
    ordered(&[idle(0.0, &[]), waiting(2.0, &[]), idle(600.0, &[]), idle(3600.0, &[])]);
}

#[test]
fn each_feature_moves_the_score_as_documented() {
    ordered(&[waiting(1.0, &[("priority", 10.0)]), waiting(1.0, &[]), waiting(1.0, &[("priority", -10.0)])]);
    ordered(&[waiting(9.0, &[]), waiting(1.0, &[]), waiting(0.0, &[])]);
    ordered(&[waiting(1.0, &[("age-seconds", 600.0)]), waiting(1.0, &[("age-seconds", 60.0)])]);
    ordered(&[idle(300.0, &[("load-seconds", 600.0)]), idle(300.0, &[("load-seconds", 5.0)])]);
    ordered(&[waiting(1.0, &[("load-seconds", 5.0)]), waiting(1.0, &[("load-seconds", 600.0)])]);
    ordered(&[idle(300.0, &[("wakes-per-hour", 9.0)]), idle(300.0, &[])]);
    ordered(&[waiting(1.0, &[]), waiting(1.0, &[("wakes-per-hour", 9.0)])]);
    ordered(&[idle(300.0, &[("dependants", 1.0)]), idle(300.0, &[])]);
    ordered(&[waiting(1.0, &[("memory-bytes", GIB)]), waiting(1.0, &[("memory-bytes", 400.0 * GIB)])]);
}

#[test]
fn a_weight_below_zero_turns_a_part_around_and_without_weights_all_are_alike() {
    let models = [waiting(1.0, &[("priority", 10.0)]), waiting(1.0, &[])];
    let turned = scores(r#"{"memoryAdmission": {"priority": -4}}"#, &models);
    assert!(turned[0] < turned[1]);
    let none = r#"{"memoryAdmission": {"priority": 0, "demand": 0, "wait": 0, "load": 0, "wakes": 0, "dependants": 0, "size": 0}}"#;
    assert_eq!(scores(none, &models), [0.5, 0.5]);
}

#[test]
fn what_is_not_known_or_not_finite_never_makes_a_score_that_excludes() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, f64::MAX] {
        for resident in [0.0, 1.0] {
            let mut row = vec![value; FEATURES.len()];
            row[0] = resident;
            let score = scores("{}", &[row])[0];
            assert!((0.0..=1.0).contains(&score), "{value}: {score}");
        }
    }
}

#[test]
fn an_explanation_has_the_parts_that_make_up_the_score() {
    let row = waiting(1.0, &[("priority", 10.0)]);
    let matrix = Matrix::new(FEATURES.len(), row.clone()).unwrap();
    let terms = explain(&Config::default(), Question::MemoryAdmission, &matrix, 0);
    let sum: f64 = terms.iter().filter_map(|term| term.value).sum();
    assert!((sum - scores("{}", &[row])[0]).abs() < 1e-12);
    assert_eq!(terms[0].message, "Its priority is 10: 0.75 of 1, weight 4 of 11.");
    assert_eq!(terms[1].message, "1 requests wait for it: 0.60 of 1, weight 3 of 11.");
}

/// Nodes of which two features are known: whether they have the model, and their price.
fn nodes(known: &[(f64, f64)]) -> Matrix {
    let row = |(present, price): &(f64, f64)| {
        let value = |name: &&str| match *name {
            "model-present" => *present,
            "price" => *price,
            _ => f64::NAN,
        };
        NODE_FEATURES.iter().map(value).collect::<Vec<_>>()
    };
    Matrix::new(NODE_FEATURES.len(), known.iter().flat_map(row).collect()).unwrap()
}

#[test]
fn a_node_that_has_the_model_is_better_and_the_parts_make_up_its_score() {
    let matrix = nodes(&[(1.0, 9.0), (0.0, 1.0)]);
    let config = Config::default();
    let scores = score(&config, Question::NodePlacement, &matrix).unwrap();
    assert!(scores[0] > scores[1], "{scores:?}");
    let terms = explain(&config, Question::NodePlacement, &matrix, 0);
    let sum: f64 = terms.iter().filter_map(|term| term.value).sum();
    assert!((sum - scores[0]).abs() < 1e-12, "{terms:?}");
    assert_eq!(terms[0].message, "It has the model: 1.00 of 1, weight 8 of 24.5.");
}

#[test]
fn a_node_can_be_excluded_and_then_its_explanation_has_no_number() {
    let config: Config = serde_json::from_str(r#"{"nodePlacement": {"requireModel": true, "maxPrice": 4.5}}"#).unwrap();
    let matrix = nodes(&[(1.0, 9.0), (0.0, 1.0), (1.0, f64::NAN)]);
    let scores = score(&config, Question::NodePlacement, &matrix).unwrap();
    assert_eq!(scores.iter().map(|score| score.is_nan()).collect::<Vec<_>>(), [true, true, false]);
    let terms = explain(&config, Question::NodePlacement, &matrix, 0);
    assert_eq!((terms[0].code.as_str(), terms[0].value), ("TooExpensive", None));
}

#[test]
fn without_weights_nodes_are_alike_and_the_explanation_says_so() {
    let parts = ["locality", "gang", "packing", "domain", "spread", "proximity", "adjacency", "image", "spot", "price"];
    let none = parts.map(|part| format!("\"{part}\": 0")).join(", ");
    let config: Config = serde_json::from_str(&format!("{{\"nodePlacement\": {{{none}}}}}")).unwrap();
    let matrix = nodes(&[(1.0, 9.0), (0.0, 1.0)]);
    assert_eq!(score(&config, Question::NodePlacement, &matrix), Ok(vec![0.5; 2]));
    let terms = explain(&config, Question::NodePlacement, &matrix, 1);
    assert_eq!(terms[0].message, "All candidates suit equally well, with the score 0.5.");
    assert!(serde_json::from_str::<Config>(r#"{"nodePlacement": {"localty": 1}}"#).is_err());
}
