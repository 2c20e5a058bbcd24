//! The extender's metrics.

use super::Extender;
use crate::metrics::{Labels, family, single};
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};
use std::{fmt, sync::Arc, time::Duration};

/// The upper bounds of the buckets of a call's duration, in seconds. In the shipped configuration, a scheduler waits for two.
const SECONDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 1.0, 2.0];

/// The metrics that are counted as events happen.
#[derive(Debug)]
pub struct ExtenderCounts {
    calls: Family<Labels<2>, Counter>,
    seconds: Family<Labels<1>, Histogram>,
    pods: Family<Labels<1>, Counter>,
    policy_failures: Family<Labels<1>, Counter>,
    dissolved: Counter,
    feature_failures: Family<[(&'static str, String); 1], Counter>,
}

impl Default for ExtenderCounts {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            pods: Family::default(),
            policy_failures: Family::default(),
            dissolved: Counter::default(),
            feature_failures: Family::default(),
        }
    }
}

impl ExtenderCounts {
    /// Counts a call.
    pub fn called(&self, verb: &'static str, outcome: &'static str, took: Duration) {
        self.calls.get_or_create(&[("verb", verb), ("outcome", outcome)]).inc();
        self.seconds.get_or_create(&[("verb", verb)]).observe(took.as_secs_f64());
    }

    /// Counts a pod to be placed.
    pub fn asked(&self, is_in_scope: bool) {
        self.pods.get_or_create(&[("scope", if is_in_scope { "in" } else { "out" })]).inc();
    }

    /// Counts a call for which policies failed.
    pub fn undecided(&self, reason: &'static str) {
        self.policy_failures.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a gang whose members were deleted so that it starts again.
    pub fn dissolved(&self) {
        self.dissolved.inc();
    }

    /// Counts a feature that has no value on a node.
    pub fn feature_failed(&self, feature: &str) {
        self.feature_failures.get_or_create(&[("feature", feature.to_owned())]).inc();
    }

    /// Adds these metrics to the page. The format adds `_total` to counters.
    pub fn register(&self, registry: &mut Registry) {
        let Self { calls, seconds, pods, policy_failures, dissolved, feature_failures } = self;
        let name = |name: &str| format!("pointsman_extender_{name}");
        registry.register(name("calls"), "Calls of schedulers, by verb and outcome", calls.clone());
        registry.register(name("call_duration_seconds"), "Duration of a call, by verb", seconds.clone());
        registry.register(name("pods"), "Filter calls for pods that are in scope or out of it", pods.clone());
        registry.register(name("policy_failures"), "Questions that policies haven't answered, by why", policy_failures.clone());
        let help = "Gangs whose placed members were deleted because the rest found no nodes in time";
        registry.register(name("gangs_dissolved"), help, dissolved.clone());
        let help = "Values of custom features that an expression didn't give, by feature";
        registry.register(name("feature_failures"), help, feature_failures.clone());
    }
}

/// The state that is read while the page is written.
#[derive(Debug)]
pub struct ExtenderState(pub Arc<Extender>);

impl Collector for ExtenderState {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut page;
        single(page, "pointsman_extender_ready", "1 while calls are answered, else 0.", self.0.obstacle().is_none().into())?;
        let objects = self.0.objects().into_iter().map(|(kind, count)| ([("kind", kind)], ConstGauge::new(count)));
        family(page, "pointsman_extender_objects", "Objects in the cache.", objects)?;
        let gangs = self.0.gangs().into_iter().map(|(state, count)| ([("state", state)], ConstGauge::new(count)));
        family(page, "pointsman_extender_gangs", "Gangs that a scheduler has asked about, by how far they are.", gangs)?;
        let digest = self.0.policies().active().digest().to_string();
        let info = [([("digest", digest.as_str())], ConstGauge::new(1_u64))];
        family(page, "pointsman_policy_set_info", "The digest of the policy set whose plugins score nodes.", info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Format;

    #[test]
    fn calls_are_counted_by_verb_and_outcome() {
        let counts = ExtenderCounts::default();
        counts.called("filter", "answered", Duration::from_millis(2));
        counts.called("filter", "unready", Duration::from_millis(1));
        counts.asked(true);
        counts.undecided("PolicyFailed");
        counts.dissolved();
        counts.feature_failed("node.cost");
        let mut registry = Registry::default();
        counts.register(&mut registry);
        let page = Format::Prometheus.page(&registry).unwrap();
        for line in [
            "pointsman_extender_calls_total{verb=\"filter\",outcome=\"answered\"} 1",
            "pointsman_extender_call_duration_seconds_count{verb=\"filter\"} 2",
            "pointsman_extender_pods_total{scope=\"in\"} 1",
            "pointsman_extender_policy_failures_total{reason=\"PolicyFailed\"} 1",
            "pointsman_extender_gangs_dissolved_total 1",
            "pointsman_extender_feature_failures_total{feature=\"node.cost\"} 1",
        ] {
            assert!(page.lines().any(|written| written == line), "{line} is not in\n{page}");
        }
    }
}
