//! How often something happens, where only what happened lately counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What happened so long ago counts e times less than what happens now.
const WINDOW_SECONDS: f32 = 10.0;

/// A rate that many threads count for without a lock: the events of a window in the upper half, and the time of the last one, in
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
        // It never declines.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted).ok();
    }

    /// How many events there are in a second.
    pub(super) fn per_second(&self, now: u64) -> f64 {
        f64::from(faded(self.0.load(Ordering::Relaxed), millis(now)) / WINDOW_SECONDS)
    }
}

/// The events that still count.
fn faded(packed: u64, millis: u32) -> f32 {
    #[allow(clippy::cast_possible_truncation)] // Each half by itself.
    let (events, last) = (f32::from_bits((packed >> 32) as u32), packed as u32);
    #[allow(clippy::cast_precision_loss)] // What is lost of milliseconds doesn't matter.
    let seconds = millis.saturating_sub(last) as f32 / 1_000.0;
    events * (-seconds / WINDOW_SECONDS).exp()
}

/// The clock of a rate goes for 49 days, after which it stands still for a moment of a few events: the subtraction saturates.
#[allow(clippy::cast_possible_truncation)] // It is meant.
fn millis(micros: u64) -> u32 {
    (micros / 1_000) as u32
}
