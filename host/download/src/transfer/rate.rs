//! The bandwidth of all downloads together.

use std::sync::{Mutex, PoisonError};
use tokio::time::{Duration, Instant, sleep_until};

/// How much may come at once after a pause.
const BURST: Duration = Duration::from_millis(100);

/// Gives out so many bytes a second, in the order in which they are requested.
#[derive(Debug)]
pub(super) struct Rate {
    bytes_per_second: u64,
    /// When all that was given out has been used at this rate.
    spent: Mutex<Instant>,
}

impl Rate {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), spent: Mutex::new(Instant::now()) }
    }

    /// Waits until these bytes may have come.
    pub(super) async fn take(&self, bytes: usize) {
        let nanoseconds = (bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_second;
        let duration = Duration::from_nanos(nanoseconds);
        let ready = {
            let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = Instant::now().checked_sub(BURST).unwrap_or(*spent);
            *spent = (*spent).max(earliest) + duration;
            *spent
        };
        sleep_until(ready).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_mebibyte_a_second_is_ten_in_ten_seconds() {
        let rate = Rate::new(1 << 20);
        let start = Instant::now();
        for _ in 0..160 {
            rate.take(64 << 10).await;
        }
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(9800) && elapsed <= Duration::from_millis(10_200), "{elapsed:?}");
    }
}
