//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For what is right at every moment, whatever panicked.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
