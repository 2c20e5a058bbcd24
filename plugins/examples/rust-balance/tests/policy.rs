//! Tests the policy as an ordinary function, without Wasm.
#![allow(clippy::expect_used)]

use pointsman_example_rust_balance::{Config, explain, score};
use pointsman_plugin::{Question, scheduling_scoring::Matrix};
use serde_json::{Value, json};

const UNKNOWN: f64 = f64::NAN;

fn config(weights: &Value) -> Config {
    serde_json::from_value(json!({ "weights": weights })).expect("the configuration fits")
}

fn matrix(rows: &[[f64; 8]]) -> Matrix {
    Matrix::new(8, rows.concat()).expect("the rows are whole")
}

/// Endpoints of which only the queue and the prefix match are known.
fn endpoints(known: &[(f64, f64)]) -> Matrix {
    let row = |(queue, prefix): &(f64, f64)| [*queue, UNKNOWN, UNKNOWN, *prefix, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN];
    matrix(&known.iter().map(row).collect::<Vec<_>>())
}

fn scores(config: &Config, matrix: &Matrix) -> Vec<f64> {
    score(config, Question::EndpointPick, matrix).expect("it takes this matrix")
}

/// All other weights are 0.
fn only(weights: &[(&str, f64)]) -> Config {
    let mut all = json!({
        "queue-length": 0, "running-requests": 0, "kv-cache-utilization": 0, "prefix-match": 0,
        "adapter-loaded": 0, "requests-per-second": 0, "time-to-first-token-seconds": 0, "time-per-output-token-seconds": 0,
    });
    for (name, weight) in weights {
        all[*name] = json!(weight);
    }
    config(&all)
}

#[test]
fn a_short_queue_and_a_cached_prefix_are_better() {
    let scores = scores(&Config::default(), &endpoints(&[(9.0, 0.0), (9.0, 0.8), (0.0, 0.8)]));
    assert!(scores.is_sorted_by(|worse, better| worse < better), "{scores:?}");
}

#[test]
fn the_best_at_everything_gets_1_and_the_worst_0() {
    let config = only(&[("queue-length", -1.0), ("prefix-match", 3.0)]);
    assert_eq!(scores(&config, &endpoints(&[(0.0, 1.0), (4.0, 0.0), (4.0, 1.0)])), [1.0, 0.0, 0.75]);
}

#[test]
fn what_is_not_known_is_neither_good_nor_bad() {
    assert_eq!(scores(&only(&[("queue-length", -1.0)]), &endpoints(&[(0.0, 1.0), (UNKNOWN, 0.0), (4.0, 1.0)])), [1.0, 0.5, 0.0]);
}

#[test]
fn candidates_of_which_the_same_is_known_suit_alike() {
    assert_eq!(scores(&Config::default(), &endpoints(&[(2.0, 0.1), (2.0, 0.1)])), [0.5, 0.5]);
    assert_eq!(scores(&only(&[]), &endpoints(&[(2.0, 0.1), (3.0, 0.9)])), [0.5, 0.5]);
    assert_eq!(scores(&Config::default(), &endpoints(&[])), [0.0; 0]);
}

#[test]
fn it_answers_nothing_but_its_own_question() {
    let wrong = |question, matrix: &Matrix| score(&Config::default(), question, matrix).expect_err("it must refuse").message;
    assert!(wrong(Question::NodePlacement, &endpoints(&[])).contains("picks endpoints by 8 features"));
    assert!(wrong(Question::EndpointPick, &Matrix::new(1, vec![1.0]).expect("a whole row")).contains("8 features"));
}

#[test]
fn it_says_what_a_score_is_made_of() {
    let config = only(&[("queue-length", -1.0), ("prefix-match", 3.0)]);
    let reasons = explain(&config, Question::EndpointPick, &endpoints(&[(0.0, 1.0), (4.0, 0.0), (1.0, 1.0)]), 2);
    let told: Vec<&str> = reasons.iter().map(|reason| reason.message.as_str()).collect();
    let queue = "queue-length 1 is 0.75 of 1 among the candidates, weight -1 of 4.";
    assert_eq!(told, [queue, "prefix-match 1 is 1.00 of 1 among the candidates, weight 3 of 4."]);
    assert!(explain(&config, Question::EndpointPick, &endpoints(&[]), 2).is_empty());
}

#[test]
fn a_weight_of_something_else_is_refused() {
    let refused = serde_json::from_value::<Config>(json!({"weights": {"queue": 1}})).expect_err("there is no such feature");
    assert!(refused.to_string().contains("unknown field `queue`"), "{refused}");
}
