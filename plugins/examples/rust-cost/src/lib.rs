//! Prefers cheaper runtimes, and excludes those that are too expensive. It follows the default policy, which decides whether a runtime can
//! serve the model at all.

use pointsman_plugin::{
    Failure, lookup, reason,
    runtime_selection::{Candidate, Request, Verdict, eligible, excluded},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration.
// The host checks the ranges, because they are in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The annotation of a runtime with its price per hour, or the label if there is no such annotation.
    price: String,
    /// The score of a runtime that costs nothing. One that costs 1 per hour gets half of it, one that costs 3 a quarter.
    #[schemars(range(min = 0))]
    weight: f64,
    /// The maximum price per hour; if absent, there is no limit.
    #[schemars(range(min = 0))]
    max_per_hour: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Self { price: "cost.example.com/per-hour".to_owned(), weight: 10.0, max_per_hour: None }
    }
}

/// Judges every candidate, in their order.
#[allow(clippy::needless_pass_by_value, reason = "it has the form that all policies have")]
pub fn judge(config: &Config, request: Request) -> Result<Vec<Verdict>, Failure> {
    Ok(request.candidates.iter().map(|candidate| verdict(config, candidate)).collect())
}

fn verdict(config: &Config, candidate: &Candidate) -> Verdict {
    let Config { price: key, weight, max_per_hour } = config;
    let Some(written) = lookup(&candidate.annotations, key).or_else(|| lookup(&candidate.labels, key)) else {
        return Verdict::Abstain;
    };
    // Unlike a missing price, it isn't ignored: otherwise a typing error would bypass the limit.
    let Some(price) = parse(written) else {
        return excluded(
            "PriceUnparsable",
            format!("The runtime's {key} is {written:?}, which is no price: write a number such as 2.48, or remove it."),
        );
    };
    if let Some(most) = max_per_hour.filter(|most| price > *most) {
        return excluded("TooExpensive", format!("The runtime costs {price} an hour, and at most {most} is allowed."));
    }
    // It depends only on this runtime. If it depended on others, it would change whenever one is created or deleted.
    let score = weight / (1.0 + price);
    eligible(score, vec![reason("Price", format!("Score {score:.3}: weight {weight} / (1 + {price} an hour)."))])
}

/// Rust also accepts `inf` and `NaN` as numbers.
fn parse(written: &str) -> Option<f64> {
    written.trim().parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0)
}

pointsman_plugin::export! { config: Config, runtime_selection: judge }
