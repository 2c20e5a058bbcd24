//! How each scorer scores: from 0 to 1, as llm-d's endpoint picker does, whatever is known.

use super::{
    ScorerKind,
    columns::{Column, Endpoint, Range},
};
use crate::NEUTRAL;
use pointsman_plugin::scheduling_scoring::Matrix;

impl ScorerKind {
    /// Adds to each candidate's sum what it scores, times the weight.
    pub(super) fn add(self, matrix: &Matrix, weight: f64, sums: &mut [f64]) {
        match self {
            Self::Queue => add_lowness(matrix, Column::QueueLength, UNREPORTED, weight, sums),
            Self::RunningRequests => add_lowness(matrix, Column::RunningRequests, UNREPORTED, weight, sums),
            // What isn't known may be full, for the same reason.
            Self::KvCacheUtilization => add(matrix, weight, sums, |endpoint| 1.0 - endpoint.share(Column::KvCacheUtilization, 1.0)),
            Self::PrefixCache { match_length_weight, match_length_scale } => {
                add(matrix, weight, sums, |endpoint| prefix_cache(endpoint, match_length_weight, match_length_scale));
            }
            Self::LoraAffinity => {
                // Known of none: the request is for no adapter, and all are alike. Known of others: it hasn't reported.
                let is_known = Range::new(matrix, Column::AdapterLoaded).is_known();
                let unknown = if is_known { UNREPORTED } else { NEUTRAL };
                add(matrix, weight, sums, |endpoint| lora_affinity(endpoint, unknown));
            }
            Self::TokenLoad { threshold } => add(matrix, weight, sums, |endpoint| 1.0 - (tokens(endpoint) / threshold).min(1.0)),
            Self::ActiveRequest { idle_threshold, max_busy_score } => {
                let most = Range::new(matrix, Column::InFlightRequests).most;
                add(matrix, weight, sums, |endpoint| {
                    let requests = in_flight(endpoint);
                    if requests <= idle_threshold { 1.0 } else { (most - requests) / most * max_busy_score }
                });
            }
            Self::LoadAware { threshold } => add(matrix, weight, sums, |endpoint| {
                // As for the queue scorer: what isn't known counts as the threshold.
                let waiting = endpoint.amount(Column::QueueLength, threshold);
                0.5 * (1.0 - (waiting / threshold).min(1.0))
            }),
            // Without a session nobody has served it: 0 for all.
            Self::SessionAffinity => add(matrix, weight, sums, |endpoint| endpoint.share(Column::Session, 0.0)),
            // Unknown unless nobody has cached anything of the request, which is unknown of all at once.
            Self::NoHitLru => add(matrix, weight, sums, |endpoint| endpoint.share(Column::ColdRequestTurn, NEUTRAL)),
            // An endpoint without a range takes any prompt: it is worse than one whose range fits well, and better than one whose doesn't.
            Self::ContextLength => add(matrix, weight, sums, |endpoint| endpoint.share(Column::ContextLengthFit, NEUTRAL)),
            // An expectation comes from requests that were sent there: with 0, an endpoint that has had none would never get one.
            Self::Latency => add_lowness(matrix, Column::TimeToFirstTokenSeconds, NEUTRAL, weight, sums),
        }
    }
}

/// What an endpoint scores that has reported nothing, where others score by what they report: nobody knows whether it can answer at all, so it
/// must not look better than an idle one, or than one that works and has reported so.
const UNREPORTED: f64 = 0.0;

fn add(matrix: &Matrix, weight: f64, sums: &mut [f64], score: impl Fn(Endpoint<'_>) -> f64) {
    for (sum, endpoint) in sums.iter_mut().zip(Endpoint::all(matrix)) {
        *sum += weight * score(endpoint);
    }
}

fn add_lowness(matrix: &Matrix, column: Column, unknown: f64, weight: f64, sums: &mut [f64]) {
    let range = Range::new(matrix, column);
    add(matrix, weight, sums, |endpoint| range.lowness(endpoint.value(column), unknown));
}

/// What isn't known to be cached isn't cached. Attention takes time that grows with the square of a prompt's length, so the length that is
/// saved counts by its square.
fn prefix_cache(endpoint: Endpoint<'_>, match_length_weight: f64, match_length_scale: f64) -> f64 {
    let share = endpoint.share(Column::PrefixMatch, 0.0);
    let length = (endpoint.amount(Column::CachedTokens, 0.0) / match_length_scale).min(1.0);
    match_length_weight * (length * length) + (1.0 - match_length_weight) * share
}

fn lora_affinity(endpoint: Endpoint<'_>, unknown: f64) -> f64 {
    let loaded = endpoint.value(Column::AdapterLoaded);
    if loaded.is_nan() {
        unknown
    } else if loaded > 0.5 {
        1.0
    } else if endpoint.value(Column::AdapterSlots) > 0.0 {
        0.8
    } else if endpoint.value(Column::AdapterWaiting) > 0.5 {
        0.6
    } else {
        0.0
    }
}

/// The requests that were sent there. The picker itself counts them: where it has no number, it has sent none.
pub(super) fn in_flight(endpoint: Endpoint<'_>) -> f64 {
    endpoint.amount(Column::InFlightRequests, 0.0)
}

/// The tokens of these, and those that the request itself would add.
pub(super) fn tokens(endpoint: Endpoint<'_>) -> f64 {
    endpoint.amount(Column::InFlightTokens, 0.0) + endpoint.amount(Column::UncachedTokens, 0.0)
}
