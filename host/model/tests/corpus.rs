//! Real configs and the published facts of their models: each fact must be found, and the count of parameters must be within two percent.
#![allow(clippy::unwrap_used, clippy::panic)]

mod corpus_files;

use corpus_files::{Model, models};
use pointsman_model::{ModelFacts, inspect_config};
use std::{collections::BTreeSet, fmt::Write as _};

/// The maximum deviation of the formula from the published count, in thousandths.
const MAX_DEVIATION: f64 = 20.0;

fn facts(model: &Model) -> ModelFacts {
    inspect_config(model.config.clone())
}

#[allow(clippy::cast_precision_loss)]
fn deviation(model: &Model, facts: &ModelFacts) -> f64 {
    let count = facts.parameters.as_ref().map_or(0, |parameters| parameters.count) as f64;
    (count - model.parameters) / model.parameters * 1_000.0
}

#[test]
fn parameters_are_within_two_percent_of_what_is_published() {
    let mut wrong = String::new();
    for model in models() {
        let facts = facts(&model);
        let deviation = deviation(&model, &facts);
        if std::env::var_os("POINTSMAN_TEST_PRINT").is_some() {
            println!("{:50} {:>10} {:+.1}", model.name, facts.parameters.as_ref().map_or("-", |found| &found.size), deviation);
        }
        if deviation.abs() > MAX_DEVIATION {
            let found = facts.parameters.as_ref().map_or("none".to_owned(), |found| found.count.to_string());
            writeln!(wrong, "{}: {found}, published {} ({:+.1} ‰) {:?}", model.name, model.parameters, deviation, facts.notes).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_other_fact_is_as_published() {
    let mut wrong = String::new();
    for model in models() {
        let facts = facts(&model);
        let capabilities: Vec<_> = facts.capabilities.iter().map(|capability| capability.as_str()).collect();
        let expected: Vec<_> = model.capabilities.iter().map(String::as_str).collect();
        if capabilities != expected {
            writeln!(wrong, "{}: capabilities {capabilities:?}, not {expected:?}", model.name).unwrap();
        }
        if let Some(context) = model.context
            && facts.max_tokens != Some(context)
        {
            writeln!(wrong, "{}: context {:?}, not {context}", model.name, facts.max_tokens).unwrap();
        }
        let quantization = facts.quantization.as_ref().map(|quantization| quantization.name.as_str());
        if quantization != model.quantization.as_deref() {
            writeln!(wrong, "{}: quantization {quantization:?}, not {:?}", model.name, model.quantization).unwrap();
        }
        let config = |field: &str| model.config.get(field).and_then(|value| value.as_str()).map(str::to_owned);
        let class = model.config.get("architectures").and_then(|classes| classes[0].as_str()).map(str::to_owned);
        if facts.model_type != config("model_type") || facts.architecture != class {
            writeln!(wrong, "{}: {:?} {:?}", model.name, facts.model_type, facts.architecture).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_corpus_is_as_large_as_promised_and_names_each_model_once() {
    let models = models();
    let names: BTreeSet<&str> = models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names.len(), models.len());
    assert!(models.len() >= 54, "{}", models.len());
    assert!(models.iter().all(|model| !model.from.is_empty()));
}
