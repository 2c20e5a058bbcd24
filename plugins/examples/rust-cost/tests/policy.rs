//! Tests the policy as an ordinary function, without Wasm.
#![allow(clippy::expect_used)]

use pointsman_example_rust_cost::{Config, judge};
use pointsman_plugin::{
    entry,
    runtime_selection::{Candidate, Request, Verdict},
};
use serde_json::{Value, json};

fn priced(price: &str) -> Candidate {
    Candidate { annotations: vec![entry("cost.example.com/per-hour", price)], ..Candidate::default() }
}

fn ask(config: Value, candidates: Vec<Candidate>) -> Vec<Verdict> {
    let config: Config = serde_json::from_value(config).expect("the configuration fits");
    judge(&config, Request { candidates, ..Request::default() }).expect("it never fails")
}

/// The verdict on one runtime, in one line.
fn verdict_line(config: Value, candidate: Candidate) -> String {
    match ask(config, vec![candidate]).remove(0) {
        Verdict::Eligible(eligible) => format!("{}: {}", eligible.score, eligible.reasons[0].message),
        Verdict::Excluded(reason) => format!("{}: {}", reason.code, reason.message),
        Verdict::Abstain => "Abstain".to_owned(),
    }
}

#[test]
fn the_cheaper_the_better() {
    let scores: Vec<f64> = ask(json!({}), ["0", "0.5", "2.48", "98"].map(priced).into())
        .into_iter()
        .map(|verdict| match verdict {
            Verdict::Eligible(eligible) => eligible.score,
            other => panic!("{other:?} is no score"),
        })
        .collect();
    assert_eq!(scores[0].to_bits(), 10f64.to_bits());
    assert!(scores.is_sorted_by(|cheaper, dearer| cheaper > dearer), "{scores:?}");
}

#[test]
fn a_score_says_what_it_is_made_of() {
    assert_eq!(verdict_line(json!({}), priced("3")), "2.5: Score 2.500: weight 10 / (1 + 3 an hour).");
    assert_eq!(verdict_line(json!({"weight": 4}), priced("3")), "1: Score 1.000: weight 4 / (1 + 3 an hour).");
}

#[test]
fn what_costs_too_much_is_excluded() {
    let limited = || json!({"maxPerHour": 10});
    assert_eq!(verdict_line(limited(), priced("12.5")), "TooExpensive: The runtime costs 12.5 an hour, and at most 10 is allowed.");
    assert!(verdict_line(limited(), priced("10")).starts_with("0.909"));
}

#[test]
fn a_runtime_without_a_price_is_left_to_others() {
    assert_eq!(verdict_line(json!({"maxPerHour": 10}), Candidate::default()), "Abstain");
}

#[test]
fn what_is_no_price_is_excluded_with_or_without_a_limit() {
    for written in ["", "cheap", "$3", "1,5", "-1", "inf", "NaN"] {
        let sentence = format!(
            "PriceUnparsable: The runtime's cost.example.com/per-hour is {written:?}, which is no price: \
             write a number such as 2.48, or remove it."
        );
        assert_eq!(verdict_line(json!({}), priced(written)), sentence);
    }
}

#[test]
fn a_label_tells_the_price_where_no_annotation_does() {
    let label = vec![entry("cost.example.com/per-hour", "1")];
    assert!(verdict_line(json!({}), Candidate { labels: label.clone(), ..Candidate::default() }).starts_with("5: "));
    assert!(verdict_line(json!({}), Candidate { labels: label, ..priced("3") }).starts_with("2.5: "));
}

#[test]
fn the_configuration_names_the_annotation() {
    let candidate = Candidate { annotations: vec![entry("price", "1")], ..priced("3") };
    assert!(verdict_line(json!({"price": "price"}), candidate).starts_with("5: "));
}

#[test]
fn every_candidate_has_its_verdict_in_order() {
    let verdicts = ask(json!({"maxPerHour": 1}), vec![Candidate::default(), priced("2"), priced("1")]);
    assert!(matches!(verdicts[..], [Verdict::Abstain, Verdict::Excluded(_), Verdict::Eligible(_)]), "{verdicts:?}");
}
