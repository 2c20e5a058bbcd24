//! Configurations as users of llm-d write them, and their results.

mod errors;
mod generated;
mod mapped;
mod remarks;

use super::*;

/// A configuration, with its remarks as texts.
fn read(yaml: &str) -> (PickerConfig, Vec<String>) {
    let (config, remarks) = PickerConfig::read(yaml).unwrap_or_else(|error| panic!("{error}"));
    (config, remarks.iter().map(ToString::to_string).collect())
}

/// A configuration that has no remarks.
fn mapped(yaml: &str) -> PickerConfig {
    let (config, remarks) = read(yaml);
    assert_eq!(remarks, [""; 0]);
    config
}

fn refusal(yaml: &str) -> String {
    match PickerConfig::read(yaml) {
        Ok((config, _)) => panic!("{config:?}"),
        Err(error) => error.to_string(),
    }
}

/// The start of all configurations.
const HEAD: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n";

/// A configuration with this text after its kind. Its first line is line 3.
fn with_head(rest: &str) -> String {
    format!("{HEAD}{rest}")
}

fn scorer(kind: ScorerKind, weight: f64) -> Scorer {
    Scorer { kind, weight }
}

fn profile(name: &str, filters: Vec<Filter>, scorers: Vec<Scorer>) -> Profile {
    Profile { name: name.to_owned(), filters, scorers, picker: Picker::default() }
}
