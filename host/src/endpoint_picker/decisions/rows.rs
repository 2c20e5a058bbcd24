//! Selects the endpoints of a decision that are recorded, and computes their rows.

use super::record::{EXCLUDED, EndpointRecord, Extremes, Shared};
use pointsman_picker::{
    fleet::Endpoint,
    pick::{EndpointFeatures, Feature},
};
use std::sync::Arc;

/// The steps that remove endpoints, and the number of steps that each endpoint has passed.
#[derive(Debug, Default)]
pub(in crate::endpoint_picker) struct Steps {
    types: Vec<&'static str>,
    /// The number of steps that each endpoint has passed.
    passed: Vec<usize>,
}

impl Steps {
    /// Resets the steps for this number of endpoints.
    pub(in crate::endpoint_picker) fn reset(&mut self, endpoints: usize) {
        self.types.clear();
        self.passed.clear();
        self.passed.resize(endpoints, 0);
    }

    /// Adds a step, with the endpoints that remain after it.
    pub(in crate::endpoint_picker) fn add(&mut self, step: &'static str, left: &[usize]) {
        self.types.push(step);
        for at in left {
            self.passed[*at] = self.types.len();
        }
    }

    /// The step that has removed an endpoint.
    fn removed_by(&self, at: usize) -> Option<&'static str> {
        self.types.get(*self.passed.get(at)?).copied()
    }
}

/// The endpoints of a choice. Positions are those in the pool, except in `scores`, which has one entry for each of `kept`.
#[derive(Clone, Copy, Debug)]
pub(in crate::endpoint_picker) struct Considered<'c> {
    pub(in crate::endpoint_picker) endpoints: &'c [Endpoint],
    pub(in crate::endpoint_picker) features: &'c [EndpointFeatures],
    pub(in crate::endpoint_picker) steps: &'c Steps,
    pub(in crate::endpoint_picker) kept: &'c [usize],
    /// NaN means excluded; none if no policy has scored.
    pub(in crate::endpoint_picker) scores: Option<&'c [f64]>,
    pub(in crate::endpoint_picker) chosen: &'c [usize],
}

/// An endpoint's order in a record: smaller ones are recorded first.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Order {
    class: u8,
    /// The position among the chosen ones, or the negative score.
    within: f64,
    at: usize,
}

impl Considered<'_> {
    /// Up to `most` endpoints: the chosen ones, then the scored ones from the best on, then the removed ones.
    pub(in crate::endpoint_picker) fn rows(&self, most: usize) -> Vec<EndpointRecord> {
        let mut scores: Vec<Option<f64>> = vec![None; self.endpoints.len()];
        for (at, score) in self.kept.iter().zip(self.scores.unwrap_or_default()) {
            scores[*at] = Some(*score);
        }
        let mut order: Vec<Order> = (0..self.endpoints.len()).map(|at| self.order(at, scores[at])).collect();
        let compare = |one: &Order, other: &Order| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal);
        if order.len() > most {
            // Sort only the recorded ones.
            order.select_nth_unstable_by(most, compare);
            order.truncate(most);
        }
        order.sort_unstable_by(compare);
        order.into_iter().map(|Order { at, .. }| self.row(at, scores[at])).collect()
    }

    fn order(&self, at: usize, score: Option<f64>) -> Order {
        #[allow(clippy::cast_precision_loss)] // A few.
        let chosen = self.chosen.iter().position(|chosen| *chosen == at).map(|place| place as f64);
        let (class, within) = match (chosen, score) {
            (Some(place), _) => (0, place),
            (None, Some(score)) if !score.is_nan() => (1, -score),
            (None, None) if self.steps.removed_by(at).is_some() => (3, 0.0),
            // The policy has scored it, like those above.
            _ => (2, 0.0),
        };
        Order { class, within, at }
    }

    fn row(&self, at: usize, score: Option<f64>) -> EndpointRecord {
        let endpoint = &self.endpoints[at];
        let excluded = score.filter(|score| score.is_nan()).map(|_| EXCLUDED);
        EndpointRecord {
            pod: Shared(Arc::clone(&endpoint.spec.pod)),
            address: Shared(Arc::clone(&endpoint.text)),
            chosen: self.chosen.contains(&at),
            score: score.filter(|score| !score.is_nan()),
            removed_by: excluded.or_else(|| self.steps.removed_by(at)).map(Into::into),
            features: self.features[at],
        }
    }

    /// The range of each feature over the scored endpoints, if not all of these are among `most` rows.
    pub(in crate::endpoint_picker) fn extremes(&self, most: usize) -> Option<Box<Extremes>> {
        if self.kept.len() <= most {
            return None;
        }
        let mut extremes = Box::<Extremes>::default();
        for feature in Feature::ALL {
            let values = || self.kept.iter().map(|at| feature.value(&self.features[*at]));
            // NaN is neither less nor greater.
            *feature.value_mut(&mut extremes.least) = values().fold(f64::NAN, f64::min);
            *feature.value_mut(&mut extremes.most) = values().fold(f64::NAN, f64::max);
        }
        Some(extremes)
    }
}
