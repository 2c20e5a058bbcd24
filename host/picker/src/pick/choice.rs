//! The choice of endpoints by their scores.

use super::EndpointFeatures;
use crate::random::{nth, unit};
use std::cmp::Ordering;

/// The scores of endpoints: the weighted sums of all scorers. An endpoint that any scorer has excluded stays excluded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    sums: Vec<f64>,
}

impl Scores {
    /// Starts from scratch with this number of equal endpoints.
    pub fn reset(&mut self, endpoints: usize) {
        self.sums.clear();
        self.sums.resize(endpoints, 0.0);
    }

    /// Adds a scorer's scores, one per endpoint. Scores outside of 0 to 1 are clamped, and NaN excludes the endpoint. Returns false and
    /// adds nothing if the number of scores is wrong.
    pub fn add(&mut self, weight: f64, scores: &[f64]) -> bool {
        if scores.len() != self.sums.len() {
            return false;
        }
        for (sum, score) in self.sums.iter_mut().zip(scores) {
            *sum += weight * score.clamp(0.0, 1.0);
        }
        true
    }

    /// Excludes an endpoint.
    pub fn exclude(&mut self, endpoint: usize) {
        if let Some(sum) = self.sums.get_mut(endpoint) {
            *sum = f64::NAN;
        }
    }

    /// The sums; NaN for excluded endpoints.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }
}

/// The method to choose endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The highest scores. Equal ones are chosen randomly by the seed: otherwise all pickers would choose the same.
    #[default]
    MaxScore,
    /// Random, with probabilities proportional to the scores.
    WeightedRandom,
    /// Random.
    Random,
    /// Random among this number of endpoints with the highest scores.
    TopK(usize),
}

impl Choice {
    /// The positions of up to `number` endpoints, first choice first. There are fewer if too many are excluded. Equal seeds and scores give
    /// equal results.
    pub fn choose(self, scores: &Scores, number: usize, seed: u64, chosen: &mut Vec<usize>) {
        chosen.clear();
        let sums = scores.sums();
        let number = number.max(1);
        if self == Self::MaxScore && number == 1 {
            chosen.extend(best(sums, seed));
            return;
        }
        chosen.extend((0..sums.len()).filter(|at| !sums[*at].is_nan()));
        let by_score =
            |one: &usize, other: &usize| descending(sums[*one], sums[*other]).then_with(|| random(seed, *one).cmp(&random(seed, *other)));
        match self {
            Self::MaxScore => chosen.sort_unstable_by(by_score),
            Self::TopK(most) => {
                chosen.sort_unstable_by(by_score);
                chosen.truncate(most.max(1));
                chosen.sort_unstable_by_key(|at| random(seed ^ SHUFFLED, *at));
            }
            Self::Random => chosen.sort_unstable_by_key(|at| random(seed, *at)),
            Self::WeightedRandom => {
                // With random(0..1)^(1/weight) as the key, the probability of the maximum is proportional to the weight, and so on for the
                // rest.
                let key = |at: usize| unit(random(seed, at)).ln() / sums[at].max(LEAST_WEIGHT);
                chosen.sort_unstable_by(|one, other| descending(key(*one), key(*other)));
            }
        }
        chosen.truncate(number);
    }
}

/// The weight of an endpoint with the score 0. It is chosen if all have this score.
const LEAST_WEIGHT: f64 = 1e-9;

/// Changes the order for the same seed.
const SHUFFLED: u64 = 0x5851_F42D_4C95_7F2D;

fn descending(one: f64, other: f64) -> Ordering {
    other.total_cmp(&one)
}

/// The best endpoint.
fn best(sums: &[f64], seed: u64) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for (at, sum) in sums.iter().copied().enumerate().filter(|(_, sum)| !sum.is_nan()) {
        let is_better = best.is_none_or(|(most, chosen)| {
            // Exactly equal: both are sums of the same kind.
            sum > most || sum.total_cmp(&most) == Ordering::Equal && random(seed, at) < random(seed, chosen)
        });
        if is_better {
            best = Some((sum, at));
        }
    }
    best.map(|(_, at)| at)
}

/// A pseudorandom number for a seed and a position.
fn random(seed: u64, at: usize) -> u64 {
    nth(seed, at as u64)
}

/// The least loaded endpoint, for requests without a policy's answer: by the requests that this picker has in flight there, and by its
/// queue.
pub fn least_loaded(endpoints: &[EndpointFeatures], seed: u64) -> Option<usize> {
    let known = |value: f64| if value.is_nan() { 0.0 } else { value };
    let load = |endpoint: &EndpointFeatures| {
        // Requests in flight are also queued or running there, unless others send requests too.
        known(endpoint.in_flight_requests).max(known(endpoint.queue_length) + known(endpoint.running_requests))
    };
    let sums: Vec<f64> = endpoints.iter().map(|endpoint| -load(endpoint)).collect();
    best(&sums, seed)
}
