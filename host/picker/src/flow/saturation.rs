//! The saturation of a pool. At 1 and above, requests that can wait are queued.

/// The load of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The length of its queue, if its report is recent.
    pub waiting: Option<f64>,
    /// The used share of its KV cache, if its report is recent.
    pub kv_usage: Option<f64>,
    /// The requests that this picker has sent to it and whose responses haven't ended.
    pub in_flight: u64,
}

/// The measure of saturation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detector {
    /// The endpoints' reports. An endpoint without a recent report is full.
    Utilization {
        /// The length of the queue at which an endpoint is full.
        queue_depth: f64,
        /// The used share of the KV cache at which an endpoint is full.
        kv_usage: f64,
    },
    /// The requests that this picker has in flight.
    Concurrency {
        /// The number of requests at which an endpoint is full.
        max_in_flight: f64,
    },
}

impl Default for Detector {
    fn default() -> Self {
        Self::Utilization { queue_depth: 5.0, kv_usage: 0.8 }
    }
}

impl Detector {
    /// The average saturation of these endpoints. A pool without endpoints is full.
    pub fn saturation(self, endpoints: &[Load]) -> f64 {
        if endpoints.is_empty() {
            return 1.0;
        }
        #[allow(clippy::cast_precision_loss)] // Far below 2^52.
        let number = endpoints.len() as f64;
        self.demand(endpoints) / number
    }

    /// The number of endpoints that this load would exactly fill.
    pub fn demand(self, endpoints: &[Load]) -> f64 {
        endpoints.iter().map(|load| self.part(load)).sum()
    }

    /// The saturation of one endpoint.
    fn part(self, load: &Load) -> f64 {
        match self {
            Self::Utilization { queue_depth, kv_usage } => match (load.waiting, load.kv_usage) {
                (None, None) => 1.0,
                // Some engines report only one of them.
                (waiting, usage) => share(waiting.unwrap_or(0.0), queue_depth).max(share(usage.unwrap_or(0.0), kv_usage)),
            },
            #[allow(clippy::cast_precision_loss)] // Far below 2^52.
            Self::Concurrency { max_in_flight } => share(load.in_flight as f64, max_in_flight),
        }
    }

    /// The saturation that one more request adds to this number of endpoints.
    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    pub fn one_more(self, endpoints: usize) -> f64 {
        let limit = match self {
            Self::Utilization { queue_depth, .. } => queue_depth,
            Self::Concurrency { max_in_flight } => max_in_flight,
        };
        share(1.0, limit) / endpoints.max(1) as f64
    }
}

/// With a limit of 0, any value is full.
fn share(value: f64, limit: f64) -> f64 {
    if limit > 0.0 { (value / limit).max(0.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(waiting: f64, usage: f64) -> Load {
        Load { waiting: Some(waiting), kv_usage: Some(usage), in_flight: 0 }
    }

    fn is(saturation: f64, expected: f64) {
        assert!((saturation - expected).abs() < 1e-9, "{saturation} and not {expected}");
    }

    #[test]
    fn the_worse_of_queue_and_cache_counts_and_endpoints_are_averaged() {
        let detector = Detector::default();
        is(detector.saturation(&[load(0.0, 0.4)]), 0.5);
        is(detector.saturation(&[load(5.0, 0.4), load(0.0, 0.0)]), 0.5);
        is(detector.saturation(&[load(10.0, 0.8)]), 2.0);
        is(detector.saturation(&[Load { kv_usage: None, ..load(4.0, 0.0) }]), 0.8);
    }

    #[test]
    fn demand_is_the_number_of_endpoints_that_the_same_load_fills() {
        let detector = Detector::default();
        is(detector.demand(&[load(20.0, 0.1), load(0.0, 0.4), Load::default()]), 4.0 + 0.5 + 1.0);
        is(detector.demand(&[]), 0.0);
        is(detector.one_more(1), 0.2);
        let detector = Detector::Concurrency { max_in_flight: 10.0 };
        is(detector.demand(&[Load { in_flight: 25, ..Load::default() }, Load::default()]), 2.5);
        is(detector.one_more(1), 0.1);
    }

    #[test]
    fn a_silent_endpoint_is_full_and_so_is_an_empty_pool() {
        let detector = Detector::default();
        is(detector.saturation(&[Load::default(), load(0.0, 0.0)]), 0.5);
        is(detector.saturation(&[]), 1.0);
        is(Detector::Concurrency { max_in_flight: 100.0 }.saturation(&[]), 1.0);
    }

    #[test]
    fn concurrency_counts_what_is_in_flight_alone() {
        let in_flight = |in_flight| Load { in_flight, ..Load::default() };
        is(Detector::Concurrency { max_in_flight: 100.0 }.saturation(&[in_flight(50), in_flight(150)]), 1.0);
        is(Detector::Concurrency { max_in_flight: 0.0 }.saturation(&[in_flight(0)]), 1.0);
    }
}
