//! A histogram of the latency of a plugin's calls.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The upper bounds of the buckets, in seconds. By default, calls at a hot point may take 0.2 s, others 1 s.
pub const BUCKETS: [f64; 12] = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.1, 0.2, 1.0];

/// The latencies of a plugin at a policy point.
#[derive(Debug, Default)]
pub struct Latency {
    /// The calls per bucket; the last one is for those above all bounds.
    counts: [AtomicU64; BUCKETS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Latency {
    /// Counts a call.
    pub fn record(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanoseconds.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The calls per bucket; the last one is for those above all bounds.
    pub fn counts(&self) -> [u64; BUCKETS.len() + 1] {
        array::from_fn(|bucket| self.counts.get(bucket).map_or(0, |count| count.load(Ordering::Relaxed)))
    }

    /// The total duration of all calls.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_in_the_first_bucket_that_it_fits() {
        let latency = Latency::default();
        for duration in
            [Duration::ZERO, Duration::from_micros(50), Duration::from_micros(51), Duration::from_secs(1), Duration::from_secs(9)]
        {
            latency.record(duration);
        }
        assert_eq!(latency.counts(), [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(latency.total(), Duration::from_secs(10) + Duration::from_micros(101));
    }
}
