//! Filters the endpoints that may be picked.

use super::{EndpointFeatures, context_length};
use crate::{
    config::{Filter, PrefixAffinity, Profile, Role},
    fleet::Endpoint,
    random::unit,
};

/// The label with an endpoint's role.
pub const ROLE: &str = "llm-d.ai/role";

/// The data for filters.
#[derive(Clone, Copy, Debug)]
pub struct Filtering<'f> {
    /// All endpoints of the pool.
    pub endpoints: &'f [Endpoint],
    /// Their features.
    pub features: &'f [EndpointFeatures],
    /// The number of the prompt's tokens.
    pub tokens: u64,
    /// The time, in microseconds.
    pub now: u64,
    /// The maximum age of a report, in microseconds.
    pub staleness: u64,
    /// The seed for random choices.
    pub seed: u64,
}

impl Filtering<'_> {
    /// Keeps the positions of endpoints that pass a profile's filters. Without a filter by role, a profile never picks endpoints that only
    /// prefill or encode, because they generate no responses.
    ///
    /// After each filter, `passed` is called with the type of its plugin and the remaining positions.
    pub fn keep(&self, profile: &Profile, kept: &mut Vec<usize>, mut passed: impl FnMut(&'static str, &[usize])) {
        if !profile.filters.iter().any(|filter| matches!(filter, Filter::Role(_))) {
            kept.retain(|at| Role::Decode.accepts(self.endpoints[*at].label(ROLE)));
            passed(Role::Decode.plugin_type(), kept);
        }
        for filter in &profile.filters {
            self.apply(filter, kept);
            passed(filter.plugin_type(), kept);
        }
    }

    fn apply(&self, filter: &Filter, kept: &mut Vec<usize>) {
        let label = |at: usize, key: &str| self.endpoints[at].label(key);
        match filter {
            Filter::Role(role) => kept.retain(|at| role.accepts(label(*at, ROLE))),
            Filter::Labels(requirements) => {
                kept.retain(|at| requirements.iter().all(|requirement| requirement.rule.accepts(label(*at, &requirement.key))));
            }
            Filter::PrefixAffinity(affinity) => self.stay_with_prefix(affinity, kept),
            Filter::ContextLength { label: key } => kept.retain(|at| context_length::includes(label(*at, key), self.tokens)),
            Filter::Unsaturated(detector) => {
                let has_room = |at: &usize| detector.saturation(&[self.endpoints[*at].load(self.now, self.staleness)]) < 1.0;
                if kept.iter().any(has_room) {
                    kept.retain(has_room);
                }
            }
        }
    }

    fn stay_with_prefix(&self, affinity: &PrefixAffinity, kept: &mut Vec<usize>) {
        if unit(self.seed) < affinity.exploration {
            return;
        }
        let has_prefix = |at: &usize| self.features[*at].prefix_match >= affinity.threshold;
        let seconds = |at: &usize| {
            let features = &self.features[*at];
            let estimate = features.time_to_first_token_seconds;
            if estimate.is_nan() { (features.in_flight_tokens + features.uncached_tokens) / affinity.prefill_throughput } else { estimate }
        };
        let best = |has: bool| kept.iter().filter(|at| has_prefix(at) == has).map(seconds).reduce(f64::min);
        let Some(with) = best(true) else { return };
        let is_too_slow = affinity.max_penalty.zip(best(false)).is_some_and(|(most, without)| with - without > most.as_secs_f64());
        if !is_too_slow {
            kept.retain(has_prefix);
        }
    }
}
