//! A limited number of slots, for calls and for compilers.

use crate::sync::locked;
use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A limited number of slots.
#[derive(Debug)]
pub(super) struct Slots {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Slots {
    pub(super) fn new(free: usize) -> Self {
        Self { free: Mutex::new(free), changed: Condvar::new() }
    }

    /// Waits for a slot, at most `within` if that is set.
    pub(super) fn take(&self, within: Option<Duration>) -> Option<Slot<'_>> {
        let until = within.map(|within| Instant::now() + within);
        let mut free = locked(&self.free);
        while *free == 0 {
            free = match until {
                None => self.changed.wait(free).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.checked_duration_since(Instant::now())?;
                    self.changed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *free -= 1;
        Some(Slot(self))
    }
}

/// A slot that is held until it is dropped.
#[derive(Debug)]
pub(super) struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *locked(&self.0.free) += 1;
        self.0.changed.notify_one();
    }
}
