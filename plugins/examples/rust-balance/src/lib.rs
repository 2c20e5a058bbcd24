//! Picks the endpoint of a request by a weighted sum of its features: queues, caches, latencies.

use pointsman_plugin::{
    Failure, Question,
    scheduling_scoring::{Matrix, Term},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The columns of the matrix, in the order of the weights.
pub const FEATURES: [&str; 8] = [
    "queue-length",
    "running-requests",
    "kv-cache-utilization",
    "prefix-match",
    "adapter-loaded",
    "requests-per-second",
    "time-to-first-token-seconds",
    "time-per-output-token-seconds",
];

/// The configuration.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The weight of each feature.
    weights: Weights,
}

/// The relative weight of each feature. Above 0, higher values are better; below 0, lower values are better; 0 ignores the feature.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
struct Weights {
    queue_length: f64,
    running_requests: f64,
    kv_cache_utilization: f64,
    prefix_match: f64,
    adapter_loaded: f64,
    requests_per_second: f64,
    time_to_first_token_seconds: f64,
    time_per_output_token_seconds: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            queue_length: -3.0,
            running_requests: -1.0,
            kv_cache_utilization: -2.0,
            prefix_match: 3.0,
            adapter_loaded: 1.0,
            requests_per_second: -0.5,
            time_to_first_token_seconds: -1.0,
            time_per_output_token_seconds: -0.5,
        }
    }
}

impl Weights {
    fn in_order(&self) -> [f64; FEATURES.len()] {
        [
            self.queue_length,
            self.running_requests,
            self.kv_cache_utilization,
            self.prefix_match,
            self.adapter_loaded,
            self.requests_per_second,
            self.time_to_first_token_seconds,
            self.time_per_output_token_seconds,
        ]
    }
}

/// One feature of all candidates.
#[derive(Clone, Copy)]
struct Column {
    weight: f64,
    least: f64,
    most: f64,
}

impl Column {
    /// How good a value is compared with the others, from 0 to 1.
    fn good(&self, value: f64) -> f64 {
        // Unknown values, and values that are the same for all, are neutral.
        if !value.is_finite() || self.least >= self.most {
            return 0.5;
        }
        let part = (value - self.least) / (self.most - self.least);
        if self.weight < 0.0 { 1.0 - part } else { part }
    }
}

fn columns(config: &Config, matrix: &Matrix) -> [Column; FEATURES.len()] {
    let mut columns = config.weights.in_order().map(|weight| Column { weight, least: f64::INFINITY, most: f64::NEG_INFINITY });
    for row in matrix.rows() {
        for (column, value) in columns.iter_mut().zip(row).filter(|(_, value)| value.is_finite()) {
            if *value < column.least {
                column.least = *value;
            }
            if *value > column.most {
                column.most = *value;
            }
        }
    }
    columns
}

fn total(columns: &[Column]) -> f64 {
    columns.iter().map(|column| column.weight.abs()).sum()
}

/// Scores every candidate, in their order.
pub fn score(config: &Config, question: Question, matrix: &Matrix) -> Result<Vec<f64>, Failure> {
    if question != Question::EndpointPick || matrix.columns() != FEATURES.len() {
        return Err(format!("this plugin picks endpoints by {} features; ask it nothing else", FEATURES.len()).into());
    }
    let columns = columns(config, matrix);
    let total = total(&columns);
    if total <= 0.0 {
        return Ok(vec![0.5; matrix.rows().len()]);
    }
    let score = |row: &[f64]| columns.iter().zip(row).map(|(column, value)| column.weight.abs() * column.good(*value)).sum::<f64>() / total;
    Ok(matrix.rows().map(score).collect())
}

/// Explains the parts of one score.
pub fn explain(config: &Config, _: Question, matrix: &Matrix, row: usize) -> Vec<Term> {
    let columns = columns(config, matrix);
    let total = total(&columns);
    let part = |((column, value), name): ((&Column, &f64), &str)| {
        let (good, weight) = (column.good(*value), column.weight);
        let sentence = format!("{name} {value} is {good:.2} of 1 among the candidates, weight {weight} of {total}.");
        Term::new("Feature", sentence, weight.abs() * good / total)
    };
    let values = matrix.row(row).unwrap_or_default();
    columns.iter().zip(values).zip(FEATURES).filter(|((column, _), _)| column.weight != 0.0).map(part).collect()
}

pointsman_plugin::export! {
    config: Config,
    scheduling_scoring: score,
    explain: explain,
    features: [(Question::EndpointPick, &FEATURES)],
}
