//! The choice among endpoints by their scores.

use super::EndpointFeatures;
use crate::random::{nth, unit};
use std::cmp::Ordering;

/// The scores of endpoints: the weighted sum of what each scorer says. One that any scorer has excluded stays excluded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    sums: Vec<f64>,
}

impl Scores {
    /// Begins anew, with so many endpoints that suit equally.
    pub fn reset(&mut self, endpoints: usize) {
        self.sums.clear();
        self.sums.resize(endpoints, 0.0);
    }

    /// Adds what a scorer says: a score for each endpoint, of which what lies outside of 0 to 1 is clamped, and NaN excludes. Returns whether
    /// there are as many as endpoints; otherwise nothing is added.
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

    /// The sums; NaN is excluded.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }
}

/// How one of the endpoints is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Those with the highest scores. Of equal ones any, by the seed: otherwise all pickers would choose the same.
    #[default]
    MaxScore,
    /// Any, each as often as its score is high.
    WeightedRandom,
    /// Any.
    Random,
    /// Any of so many with the highest scores.
    TopK(usize),
}

impl Choice {
    /// The places of up to `number` endpoints, the first choice first; fewer if fewer aren't excluded. The same seed and scores give the same.
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
                // The greatest of random(0..1)^(1/weight) is each one as often as its weight says, and so on without it.
                let key = |at: usize| unit(random(seed, at)).ln() / sums[at].max(LEAST_WEIGHT);
                chosen.sort_unstable_by(|one, other| descending(key(*one), key(*other)));
            }
        }
        chosen.truncate(number);
    }
}

/// The weight of an endpoint with the score 0: it is chosen where all have it.
const LEAST_WEIGHT: f64 = 1e-9;

/// Makes another order of the same seed.
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

/// A number that looks random, of a seed and a place.
fn random(seed: u64, at: usize) -> u64 {
    nth(seed, at as u64)
}

/// The endpoint with the least to do, where no policy answers: by what this picker has sent there and what waits there.
pub fn least_loaded(endpoints: &[EndpointFeatures], seed: u64) -> Option<usize> {
    let known = |value: f64| if value.is_nan() { 0.0 } else { value };
    let load = |endpoint: &EndpointFeatures| {
        // What is in flight is also queued or running there, unless others send requests too.
        known(endpoint.in_flight_requests).max(known(endpoint.queue_length) + known(endpoint.running_requests))
    };
    let sums: Vec<f64> = endpoints.iter().map(|endpoint| -load(endpoint)).collect();
    best(&sums, seed)
}
