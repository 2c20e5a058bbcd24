//! The results of a simulation.

use super::seconds;
use crate::endpoint_picker::refusal::Dropped;
use pointsman_picker::simulation::Micros;
use serde::Serialize;
use std::collections::BTreeMap;

/// The results of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The contender.
    pub policy: String,
    /// The number of served requests.
    pub requests: usize,
    /// The number of refused requests, by the reason for clients.
    pub refused: BTreeMap<&'static str, u64>,
    /// The time from the arrival of a request to its first token; none if no request was served.
    pub time_to_first_token_seconds: Option<TimeToFirstToken>,
    /// The mean over the requests of the time per further token; none if there was none.
    pub time_per_output_token_seconds: Option<f64>,
    /// Tokens of output per second, from the first arrival to the last token.
    pub output_tokens_per_second: f64,
    /// The share of the prompts' tokens that were cached at the chosen endpoint.
    pub prefix_hit_share: f64,
    /// The maximum number of requests that waited at an endpoint.
    pub max_queue: usize,
    /// The maximum number that waited in the picker, in flow control.
    pub max_waiting: usize,
    /// The time from the first arrival to the last token.
    pub seconds: f64,
    /// The number of a policy's failures, by reason; the next policy decided.
    pub policy_failures: BTreeMap<&'static str, u64>,
}

/// The times to the first token, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TimeToFirstToken {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// The counts during a simulation.
#[derive(Debug, Default)]
pub(super) struct Measures {
    first_tokens: Vec<Micros>,
    refused: BTreeMap<&'static str, u64>,
    /// The sum over requests of the time per further token, in seconds, and the number of these requests.
    further_tokens: (f64, u32),
    prompt_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    max_queue: usize,
    max_waiting: usize,
    last: Micros,
}

impl Measures {
    pub(super) fn refused(&mut self, why: Dropped) {
        *self.refused.entry(why.reason()).or_default() += 1;
    }

    pub(super) fn started(&mut self, prompt_tokens: usize, cached_tokens: usize) {
        self.prompt_tokens += prompt_tokens as u64;
        self.cached_tokens += cached_tokens as u64;
    }

    pub(super) fn queued(&mut self, queue: usize) {
        self.max_queue = self.max_queue.max(queue);
    }

    pub(super) fn waiting(&mut self, waiting: usize) {
        self.max_waiting = self.max_waiting.max(waiting);
    }

    /// Counts a response: the time from the arrival to the first token, the time per further token, and the number of tokens.
    pub(super) fn answered(&mut self, at: Micros, first_token: Micros, further_token: Option<f64>, tokens: usize) {
        self.first_tokens.push(first_token);
        if let Some(seconds) = further_token {
            self.further_tokens = (self.further_tokens.0 + seconds, self.further_tokens.1 + 1);
        }
        self.output_tokens += tokens as u64;
        self.last = self.last.max(at);
    }

    #[allow(clippy::cast_precision_loss)] // Counts are far below 2^52.
    pub(super) fn outcome(mut self, policy: &str, policy_failures: BTreeMap<&'static str, u64>) -> Outcome {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let (sum, requests) = self.further_tokens;
        Outcome {
            policy: policy.to_owned(),
            requests: self.first_tokens.len(),
            refused: self.refused,
            time_to_first_token_seconds: first_tokens(&mut self.first_tokens),
            time_per_output_token_seconds: (requests > 0).then(|| sum / f64::from(requests)),
            output_tokens_per_second: share(self.output_tokens as f64, seconds(self.last)),
            prefix_hit_share: share(self.cached_tokens as f64, self.prompt_tokens as f64),
            max_queue: self.max_queue,
            max_waiting: self.max_waiting,
            seconds: seconds(self.last),
            policy_failures,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Counts are far below 2^52.
fn first_tokens(times: &mut [Micros]) -> Option<TimeToFirstToken> {
    times.sort_unstable();
    // The smallest value that this percentage doesn't exceed.
    let within = |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied().map(seconds);
    let mean = seconds(times.iter().sum()) / times.len() as f64;
    Some(TimeToFirstToken { mean, p50: within(50)?, p90: within(90)?, p99: within(99)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_has_means_and_percentiles_and_none_of_nothing() {
        let mut measures = Measures::default();
        for first_token in (1..=200).rev() {
            measures.answered(4_000_000, first_token * 1_000_000, (first_token > 100).then_some(0.5), 2);
        }
        measures.started(10, 4);
        measures.refused(Dropped::Saturated);
        let outcome = measures.outcome("any", BTreeMap::new());
        let expected = TimeToFirstToken { mean: 100.5, p50: 100.0, p90: 180.0, p99: 198.0 };
        assert_eq!(outcome.time_to_first_token_seconds, Some(expected));
        assert_eq!((outcome.requests, outcome.time_per_output_token_seconds, outcome.prefix_hit_share), (200, Some(0.5), 0.4));
        assert_eq!((outcome.output_tokens_per_second, outcome.refused["rejected-saturated"]), (100.0, 1));
        let nothing = Measures::default().outcome("any", BTreeMap::new());
        assert_eq!((nothing.time_to_first_token_seconds, nothing.output_tokens_per_second), (None, 0.0));
    }
}
