//! The features of all endpoints of a pool for one request.

use super::{EndpointFeatures, context_length};
use crate::{
    fleet::Endpoint,
    latency::{LatencyEstimate, Sent},
    prefix::Matches,
};

/// The properties of a request that affect its routing.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTraits<'r> {
    /// The model that it is sent to, which may be an adapter.
    pub model: &'r str,
    /// The estimated tokens of its prompt.
    pub tokens: u64,
    /// The number of complete blocks in its prompt.
    pub blocks: usize,
    /// The pod that has served its session.
    pub session: Option<&'r str>,
}

/// The data from which features are computed.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge<'k> {
    /// The time, in microseconds.
    pub now: u64,
    /// The parts of the prompt that endpoints have seen.
    pub matches: &'k Matches,
    /// The estimate of the time to the first token.
    pub first_token: &'k LatencyEstimate,
    /// The estimate of the time per further token.
    pub further_tokens: &'k LatencyEstimate,
    /// Whether to compute `cold_request_turn`, which requires a sort.
    pub wants_cold_turn: bool,
    /// The label with ranges of context lengths, if they are needed.
    pub context_length: Option<&'k str>,
}

#[allow(clippy::cast_precision_loss)] // Counts are far below 2^52.
fn number(count: u64) -> f64 {
    count as f64
}

/// Computes the features of all endpoints, in their order, into a reusable buffer.
pub fn features(endpoints: &[Endpoint], request: &RequestTraits<'_>, knowledge: &Knowledge<'_>, features: &mut Vec<EndpointFeatures>) {
    features.clear();
    features.extend(endpoints.iter().map(|endpoint| one(endpoint, request, knowledge)));
    if knowledge.wants_cold_turn && knowledge.matches.is_empty() {
        cold_turns(endpoints, features);
    }
    if let Some(label) = knowledge.context_length {
        let fits = context_length::fits(endpoints.iter().map(|endpoint| endpoint.label(label)), request.tokens);
        for (features, fit) in features.iter_mut().zip(fits) {
            features.context_length_fit = fit;
        }
    }
}

fn one(endpoint: &Endpoint, request: &RequestTraits<'_>, knowledge: &Knowledge<'_>) -> EndpointFeatures {
    let state = &endpoint.state;
    let known = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let (in_flight_requests, in_flight_tokens) = (number(state.in_flight_requests()), number(state.in_flight_tokens()));
    let share = match (request.blocks, knowledge.matches.blocks(state.id())) {
        (0, _) => 0.0,
        (blocks, seen) => number(seen as u64) / number(blocks as u64),
    };
    let tokens = number(request.tokens);
    let mut features = EndpointFeatures {
        prefix_match: share,
        cached_tokens: share * tokens,
        uncached_tokens: (1.0 - share) * tokens,
        in_flight_requests,
        in_flight_tokens,
        requests_per_second: state.requests_per_second(knowledge.now),
        ..EndpointFeatures::default()
    };
    if let Some(report) = &*state.report_guard() {
        let metrics = &report.metrics;
        features.queue_length = known(metrics.waiting);
        features.running_requests = known(metrics.running);
        features.kv_cache_utilization = known(metrics.kv_usage);
        features.report_age_seconds = number(knowledge.now.saturating_sub(report.at)) / 1e6;
        if let Some(adapters) = &metrics.loras {
            let has = |list: &[String]| f64::from(u8::from(list.iter().any(|name| name == request.model)));
            features.adapter_loaded = has(&adapters.running);
            features.adapter_waiting = has(&adapters.waiting);
            let taken = (adapters.running.len() + adapters.waiting.len()) as u64;
            features.adapter_slots = number(u64::from(adapters.max).saturating_sub(taken));
        }
    }
    if let Some(session) = request.session {
        features.session = f64::from(u8::from(*session == *endpoint.spec.pod));
    }
    let sent = sent(&features);
    features.time_to_first_token_seconds = known(knowledge.first_token.seconds(&sent));
    features.time_per_output_token_seconds = known(knowledge.further_tokens.seconds(&sent));
    features
}

/// The inputs of an estimate, for predicting and learning.
pub fn sent(features: &EndpointFeatures) -> Sent {
    Sent {
        uncached_tokens: features.uncached_tokens,
        queue_length: features.queue_length,
        running_requests: features.running_requests,
        in_flight_tokens: features.in_flight_tokens,
    }
}

/// 1 for the endpoints that got a request with an unknown prefix longest ago or never, 0 for the one that got the latest.
fn cold_turns(endpoints: &[Endpoint], features: &mut [EndpointFeatures]) {
    let mut times: Vec<u64> = endpoints.iter().map(|endpoint| endpoint.state.cold_request()).collect();
    times.sort_unstable();
    times.dedup();
    let last = number(times.len().saturating_sub(1).max(1) as u64);
    for (endpoint, features) in endpoints.iter().zip(features) {
        // It may have changed since then, and is then the latest.
        let rank = times.partition_point(|time| *time < endpoint.state.cold_request()).min(times.len() - 1);
        features.cold_request_turn = 1.0 - number(rank as u64) / last;
    }
}
