//! Pointsman's host: everything but the judgement, which WebAssembly policies bring.

pub mod apply;
pub mod cli;
pub mod contest;
pub mod control;
pub mod controller;
pub mod crds;
pub mod explain;
pub mod kinds;
pub mod leader;
pub mod objects;
pub mod pace;
pub mod plan;
pub mod policy;
pub mod queue;
pub mod rules;
pub mod serve;
pub mod shadow;
pub mod status;
pub mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// For what is right at every moment, whatever panicked.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error and its causes, without those that the error before has told already.
pub fn sentence(error: &(dyn std::error::Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.to_string();
        if told.last().is_none_or(|before| !before.contains(&cause)) {
            told.push(cause);
        }
        next = error.source();
    }
    told.join(": ")
}
