//! How full the endpoints of a pool are: at 1 and above no request goes on that can wait.

/// What an endpoint has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests that wait in its queue, if its report is recent.
    pub waiting: Option<f64>,
    /// The share of its KV cache that is in use, if its report is recent.
    pub kv_usage: Option<f64>,
    /// Requests that this picker has sent there and whose answers haven't ended.
    pub in_flight: u64,
}

/// By what saturation is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detector {
    /// By what endpoints report. One that has reported nothing recently counts as full.
    Utilization {
        /// The length of a queue at which an endpoint is full.
        queue_depth: f64,
        /// The share of the KV cache at which it is.
        kv_usage: f64,
    },
    /// By what this picker has in flight.
    Concurrency {
        /// How many requests an endpoint takes.
        max_in_flight: f64,
    },
}

impl Default for Detector {
    fn default() -> Self {
        Self::Utilization { queue_depth: 5.0, kv_usage: 0.8 }
    }
}

impl Detector {
    /// How full these endpoints are together; a pool without any is full.
    pub fn saturation(self, endpoints: &[Load]) -> f64 {
        if endpoints.is_empty() {
            return 1.0;
        }
        #[allow(clippy::cast_precision_loss)] // Far below 2^52.
        let number = endpoints.len() as f64;
        self.demand(endpoints) / number
    }

    /// How many endpoints would be just full by what these have. None is full by nothing.
    pub fn demand(self, endpoints: &[Load]) -> f64 {
        endpoints.iter().map(|load| self.part(load)).sum()
    }

    /// How full an endpoint is.
    fn part(self, load: &Load) -> f64 {
        match self {
            Self::Utilization { queue_depth, kv_usage } => match (load.waiting, load.kv_usage) {
                (None, None) => 1.0,
                // Some engines report one of them only.
                (waiting, usage) => share(waiting.unwrap_or(0.0), queue_depth).max(share(usage.unwrap_or(0.0), kv_usage)),
            },
            #[allow(clippy::cast_precision_loss)] // Far below 2^52.
            Self::Concurrency { max_in_flight } => share(load.in_flight as f64, max_in_flight),
        }
    }

    /// How much one more request adds to the saturation of so many endpoints.
    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    pub fn one_more(self, endpoints: usize) -> f64 {
        let limit = match self {
            Self::Utilization { queue_depth, .. } => queue_depth,
            Self::Concurrency { max_in_flight } => max_in_flight,
        };
        share(1.0, limit) / endpoints.max(1) as f64
    }
}

/// A limit of 0 is reached by anything.
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
