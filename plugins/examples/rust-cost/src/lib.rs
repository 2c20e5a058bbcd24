//! Prefers cheaper runtimes, and keeps those out that cost too much. It goes after the default policy: whether a runtime can serve
//! the model at all is none of its business.

use pointsman_plugin::{
    Failure, lookup, reason,
    runtime_selection::{Candidate, Request, Verdict, eligible, excluded},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// What can be configured.
// The ranges are checked by the host, because they are in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The annotation, or else the label, of a runtime that tells its price for an hour.
    price: String,
    /// The score of a runtime that costs nothing; one that costs 1 an hour gets half of it, one that costs 3 a quarter.
    #[schemars(range(min = 0))]
    weight: f64,
    /// The highest price for an hour that is allowed; absent means any.
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
    // Not passed over like a missing one: a slip of the pen would get around the limit.
    let Some(price) = parse(written) else {
        return excluded(
            "PriceUnparsable",
            format!("The runtime's {key} is {written:?}, which is no price: write a number such as 2.48, or remove it."),
        );
    };
    if let Some(most) = max_per_hour.filter(|most| price > *most) {
        return excluded("TooExpensive", format!("The runtime costs {price} an hour, and at most {most} is allowed."));
    }
    // Of this runtime alone: a score that looked at the others would change whenever one of them comes or goes.
    let score = weight / (1.0 + price);
    eligible(score, vec![reason("Price", format!("Score {score:.3}: weight {weight} / (1 + {price} an hour)."))])
}

/// Rust takes `inf` and `NaN` for numbers too.
fn parse(written: &str) -> Option<f64> {
    written.trim().parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0)
}

pointsman_plugin::export! { config: Config, runtime_selection: judge }
