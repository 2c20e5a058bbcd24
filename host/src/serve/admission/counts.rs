//! The metrics of admission.

use crate::metrics::Labels;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

/// The upper bounds of the buckets of a response's latency, in seconds. The goal for the 99th percentile is 10 ms.
const LATENCY_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// The counts of admission.
#[derive(Debug)]
pub struct AdmissionCounts {
    requests: Family<Labels<2>, Counter>,
    latencies: Family<Labels<1>, Histogram>,
}

impl Default for AdmissionCounts {
    fn default() -> Self {
        Self { requests: Family::default(), latencies: Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS)) }
    }
}

impl AdmissionCounts {
    /// Counts a response to a request on a path, about an operation on an object.
    pub fn answered(&self, path: &'static str, operation: &'static str, allowed: bool, seconds: f64) {
        let allowed = if allowed { "true" } else { "false" };
        self.requests.get_or_create(&[("operation", operation), ("allowed", allowed)]).inc();
        self.latencies.get_or_create(&[("webhook", path)]).observe(seconds);
    }

    /// Adds these metrics to the page.
    pub fn register(&self, registry: &mut Registry) {
        let Self { requests, latencies } = self;
        let help = "Answers of the admission webhook, by operation and whether it was allowed";
        registry.register("pointsman_admission_requests", help, requests.clone());
        registry.register("controller_runtime_webhook_latency_seconds", "Latency of the admission webhook, by path", latencies.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Format;

    #[test]
    fn answers_are_counted_by_operation_and_their_time_by_path() {
        let counts = AdmissionCounts::default();
        counts.answered("/validate", "CREATE", true, 0.002);
        counts.answered("/validate", "CREATE", false, 0.02);
        let mut registry = Registry::default();
        counts.register(&mut registry);
        let page = Format::Prometheus.page(&registry).unwrap();
        for line in [
            "pointsman_admission_requests_total{operation=\"CREATE\",allowed=\"false\"} 1",
            "controller_runtime_webhook_latency_seconds_bucket{le=\"0.001\",webhook=\"/validate\"} 0",
            "controller_runtime_webhook_latency_seconds_bucket{le=\"0.0025\",webhook=\"/validate\"} 1",
            "controller_runtime_webhook_latency_seconds_bucket{le=\"+Inf\",webhook=\"/validate\"} 2",
            "controller_runtime_webhook_latency_seconds_count{webhook=\"/validate\"} 2",
        ] {
            assert!(page.lines().any(|written| written == line), "{line} is not in\n{page}");
        }
    }
}
