//! The scores of each scorer: from 0 to 1, as in llm-d's endpoint picker, for known and unknown features.

use super::{
    ScorerKind,
    columns::{Column, Endpoint, Range},
};
use crate::NEUTRAL;
use pointsman_plugin::scheduling_scoring::Matrix;

impl ScorerKind {
    /// Adds the weighted score of each candidate to its sum.
    pub(super) fn add(self, matrix: &Matrix, weight: f64, sums: &mut [f64]) {
        match self {
            Self::Queue => add_lowness(matrix, Column::QueueLength, UNREPORTED, weight, sums),
            Self::RunningRequests => add_lowness(matrix, Column::RunningRequests, UNREPORTED, weight, sums),
            // An unknown cache may be full, for the same reason.
            Self::KvCacheUtilization => add(matrix, weight, sums, |endpoint| 1.0 - endpoint.share(Column::KvCacheUtilization, 1.0)),
            Self::PrefixCache { match_length_weight, match_length_scale } => {
                add(matrix, weight, sums, |endpoint| prefix_cache(endpoint, match_length_weight, match_length_scale));
            }
            Self::LoraAffinity => {
                // If the feature is unknown for all, the request is for no adapter, and all are equal. If it is known for others, the
                // endpoint hasn't reported.
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
                // As for the queue scorer: an unknown queue is as long as the threshold.
                let waiting = endpoint.amount(Column::QueueLength, threshold);
                0.5 * (1.0 - (waiting / threshold).min(1.0))
            }),
            // Without a session, no endpoint has served it: 0 for all.
            Self::SessionAffinity => add(matrix, weight, sums, |endpoint| endpoint.share(Column::Session, 0.0)),
            // Unknown for all endpoints at once, unless nothing of the request is cached anywhere.
            Self::NoHitLru => add(matrix, weight, sums, |endpoint| endpoint.share(Column::ColdRequestTurn, NEUTRAL)),
            // An endpoint without a range accepts any prompt. It is worse than one whose range fits well, and better than one whose range
            // doesn't fit.
            Self::ContextLength => add(matrix, weight, sums, |endpoint| endpoint.share(Column::ContextLengthFit, NEUTRAL)),
            // The expectation is based on requests that were sent there. With 0, an endpoint that has had none would never get one.
            Self::Latency => add_lowness(matrix, Column::TimeToFirstTokenSeconds, NEUTRAL, weight, sums),
        }
    }
}

/// The score of an endpoint that has reported nothing, for scorers that depend on reports. It is unknown whether it can respond at all, so
/// it must not look better than an idle one, or than a busy one that has reported.
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

/// Unknown tokens aren't cached. The time for attention grows with the square of a prompt's length, so the cached length is squared.
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

/// The requests that were sent there. The picker itself counts them: without a number, it has sent none.
pub(super) fn in_flight(endpoint: Endpoint<'_>) -> f64 {
    endpoint.amount(Column::InFlightRequests, 0.0)
}

/// The tokens of these requests, and those that the new request would add.
pub(super) fn tokens(endpoint: Endpoint<'_>) -> f64 {
    endpoint.amount(Column::InFlightTokens, 0.0) + endpoint.amount(Column::UncachedTokens, 0.0)
}
