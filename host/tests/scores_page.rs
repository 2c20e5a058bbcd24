//! The table of scores in docs/policies.md has the numbers of the built-in policies.

use pointsman_core::allocation::HYSTERESIS;
use pointsman_plugin::{
    Question,
    runtime_selection::{Candidate, Model, Request, Supported, SupportedModel, Verdict, Versioned},
    scheduling_scoring::Matrix,
};
use pointsman_runtime_selection as selection;
use pointsman_scheduling_scoring::{self as scoring, ENDPOINT_FEATURES, FEATURES, NODE_FEATURES};

const PAGE: &str = include_str!("../../docs/policies.md");

/// The last cells of the table's row with this name: the built-in policy's score, and the three ranges.
fn row(name: &str) -> (&'static str, [f64; 3]) {
    let line = PAGE.lines().find(|line| line.starts_with(&format!("| {name} |")) && line.matches(" | ").count() == 5);
    let cells: Vec<&str> = line.unwrap_or_else(|| panic!("there is no row {name}")).trim_matches('|').split(" | ").collect();
    (cells[2], [3, 4, 5].map(|cell| cells[cell].trim().parse().unwrap()))
}

/// The built-in policy's score of a runtime, for a model with a format and a framework.
fn score(framework: bool, priority: Option<i32>) -> f64 {
    let versioned = |name: &str| Versioned { name: name.to_owned(), version: None };
    let supported = |name: &str| Supported { name: name.to_owned(), ..Supported::default() };
    let entry = SupportedModel {
        format: Some(supported("safetensors")),
        framework: framework.then(|| supported("transformers")),
        auto_select: Some(true),
        priority,
        ..SupportedModel::default()
    };
    let model =
        Model { format: Some(versioned("safetensors")), framework: framework.then(|| versioned("transformers")), ..Model::default() };
    let candidates = vec![Candidate { models: vec![entry], ..Candidate::default() }];
    let verdicts = selection::judge(&selection::Config::default(), Request { model, candidates, ..Request::default() }).unwrap();
    let [Verdict::Eligible(eligible)] = &verdicts[..] else { panic!("{verdicts:?}") };
    eligible.score
}

#[test]
fn runtime_selection_gives_what_the_table_says() {
    let (gives, [tie, step, overrule]) = row("runtime-selection");
    let (format, both) = (score(false, None), score(true, None));
    let sentence = format!("{format} for a matching format, {both} with a matching framework; times the `priority` of the runtime's entry");
    assert_eq!(gives, sentence);
    assert!(tie < both - format, "{tie}");
    assert!((step - (score(false, Some(3)) - score(false, Some(2)))).abs() < f64::EPSILON, "{step} is one step of priority");
    assert!(overrule > score(true, Some(60)), "{overrule}");
}

/// The parts of a score with their weights, by their messages.
fn parts(question: Question, columns: usize) -> Vec<(String, f64)> {
    let matrix = Matrix::new(columns, vec![f64::NAN; columns]).unwrap();
    let terms = scoring::explain(&scoring::Config::default(), question, &matrix, 0);
    let counts = |message: &str| -> f64 {
        let (_, counts) = message.trim_end_matches('.').rsplit_once("weight ").unwrap();
        let (weight, total) = counts.split_once(" of ").unwrap();
        weight.parse::<f64>().unwrap() / total.parse::<f64>().unwrap()
    };
    terms.into_iter().map(|term| (term.code, counts(&term.message))).collect()
}

#[test]
fn scheduling_scoring_counts_its_parts_as_the_table_says() {
    let renamed = |code: &str| match code {
        "Model" => "locality".to_owned(),
        "Images" => "image".to_owned(),
        "Queue" => "queue-scorer".to_owned(),
        "KvCache" => "kv-cache-utilization-scorer".to_owned(),
        "PrefixCache" => "prefix-cache-scorer".to_owned(),
        other => other.to_lowercase(),
    };
    let questions = [
        ("node-placement", Question::NodePlacement, NODE_FEATURES.len()),
        ("memory-admission", Question::MemoryAdmission, FEATURES.len()),
        ("endpoint-pick", Question::EndpointPick, ENDPOINT_FEATURES.len()),
    ];
    for (name, question, columns) in questions {
        let (gives, [tie, weigh, overrule]) = row(name);
        let parts = parts(question, columns);
        let list: Vec<String> = parts.iter().map(|(code, counts)| format!("`{}` {counts:.2}", renamed(code))).collect();
        assert!(gives.contains(&list.join(", ")), "{name}: {}", list.join(", "));
        let smallest = parts.iter().map(|(_, counts)| *counts).fold(f64::INFINITY, f64::min);
        let largest = parts.iter().map(|(_, counts)| *counts).fold(0.0, f64::max);
        assert!(tie < smallest && smallest < weigh && weigh < largest && largest < overrule, "{name}: {smallest} to {largest}");
        let all: f64 = parts.iter().map(|(_, counts)| *counts).sum();
        assert!((all - overrule).abs() < 1e-9, "{name}: all parts together count {all}");
        if question == Question::MemoryAdmission {
            assert!(gives.contains(&format!("at least {HYSTERESIS}")) && tie < HYSTERESIS, "{gives}");
        }
    }
}
