//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ignores poisoning: only for data that is consistent at every moment, even after a panic.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
