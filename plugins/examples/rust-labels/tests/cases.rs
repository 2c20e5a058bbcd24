//! The cases in `../labels-cases.json`, for which this policy gives the same answers in every language.
#![allow(clippy::panic)]

use pointsman_example_rust_labels::{Config, propagate};
use pointsman_plugin::metadata_propagation::{Answer, Request};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    config: Config,
    request: Request,
    answer: Answer,
}

#[test]
fn the_policy_answers_like_the_same_one_in_other_languages() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../labels-cases.json")).expect("the cases are a list of cases");
    assert!(!cases.is_empty());
    for Case { name, config, request, answer } in cases {
        let said = propagate(&config, request).unwrap_or_else(|failure| panic!("{name}: {}", failure.message));
        assert_eq!(said, answer, "{name}");
    }
}
