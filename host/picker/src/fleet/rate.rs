//! A rate of events in which old events fade.

use std::sync::atomic::{AtomicU64, Ordering};

/// The weight of an event decreases by the factor e in this time.
const WINDOW_SECONDS: f32 = 10.0;

/// A rate that many threads update without a lock: the faded number of events in the upper half, and the time of the last event, in
/// milliseconds, in the lower.
#[derive(Debug, Default)]
pub(super) struct Rate(AtomicU64);

impl Rate {
    /// Counts an event.
    pub(super) fn count(&self, now: u64) {
        let millis = millis(now);
        let counted = |packed: u64| {
            let events = faded(packed, millis) + 1.0;
            Some(u64::from(events.to_bits()) << 32 | u64::from(millis))
        };
        // It never fails.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted).ok();
    }

    /// The number of events per second.
    pub(super) fn per_second(&self, now: u64) -> f64 {
        f64::from(faded(self.0.load(Ordering::Relaxed), millis(now)) / WINDOW_SECONDS)
    }
}

/// The faded number of events.
fn faded(packed: u64, millis: u32) -> f32 {
    #[allow(clippy::cast_possible_truncation)] // Each half separately.
    let (events, last) = (f32::from_bits((packed >> 32) as u32), packed as u32);
    #[allow(clippy::cast_precision_loss)] // The lost precision of milliseconds doesn't matter.
    let seconds = elapsed(millis, last) as f32 / 1_000.0;
    events * (-seconds / WINDOW_SECONDS).exp()
}

/// The time since the last event. The times wrap after 49 days. A time in the future is that of another thread, which was faster.
fn elapsed(millis: u32, last: u32) -> u32 {
    let elapsed = millis.wrapping_sub(last);
    if elapsed > u32::MAX / 2 { 0 } else { elapsed }
}

#[allow(clippy::cast_possible_truncation)] // Intended.
fn millis(micros: u64) -> u32 {
    (micros / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_fades_after_the_times_have_wrapped() {
        let (before, after) = ((u64::from(u32::MAX) - 1_000) * 1_000, (u64::from(u32::MAX) + 60_000) * 1_000);
        let rate = Rate::default();
        rate.count(before);
        assert!(rate.per_second(before) > 0.09);
        assert!(rate.per_second(after) < 0.001, "{}", rate.per_second(after));
        // A thread with a slightly earlier time doesn't let it fade.
        assert!(rate.per_second(before - 5_000) > 0.09);
    }
}
