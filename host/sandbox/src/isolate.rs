//! Isolates the work on one subject: a panic ends only that work.

use crate::digest::Digest;
use std::{
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook},
    sync::atomic::{AtomicU64, Ordering},
};

thread_local! {
    /// The nesting depth of isolated work on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The message of the last panic in isolated work.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The number of panics so far.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A bug of ours that caused a panic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("internal error {number}: search the log of the host for this number, and report what it says")]
pub struct InternalError {
    /// The number in the log. The same bug has the same number.
    pub number: String,
}

/// Runs work for one subject. Logs a panic, and returns its number as an error.
pub fn isolated<T>(work: impl FnOnce() -> T) -> Result<T, InternalError> {
    DEPTH.with(|depth| depth.set(depth.get() + 1));
    // Shared data is consistent at every moment: see `sync`.
    let done = catch_unwind(AssertUnwindSafe(work));
    DEPTH.with(|depth| depth.set(depth.get() - 1));
    done.map_err(|_| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        let said = LAST.with(RefCell::take).unwrap_or_else(|| "a panic without a message".to_owned());
        let number: String = Digest::hash(said.as_bytes()).short().chars().take(8).collect();
        tracing::error!(number, "internal error: {said}");
        InternalError { number }
    })
}

/// The number of panics in isolated work.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Records panics in isolated work instead of printing them. Other panics are printed, and then `otherwise` is called.
pub fn install_hook(otherwise: impl Fn() + Send + Sync + 'static) {
    let print = take_hook();
    set_hook(Box::new(move |panic| {
        if DEPTH.with(Cell::get) > 0 {
            LAST.with(|last| last.replace(Some(words(panic))));
        } else {
            print(panic);
            otherwise();
        }
    }));
}

fn words(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let said = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    format!("{} at {place}", said.unwrap_or("a panic without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::panic)]
    fn a_panic_is_told_by_a_number_and_the_thread_goes_on() {
        let before = count();
        assert_eq!(isolated(|| 1), Ok(1));
        let panicking = |what: &'static str| isolated(move || if what.is_empty() { 1 } else { panic!("{what}") }).unwrap_err();
        let (one, same) = (panicking("one"), panicking("one"));
        assert_eq!((one.number.len(), &one), (8, &same));
        // Tests that run in parallel may also panic.
        assert!(count() >= before + 2);
        assert!(one.to_string().starts_with(&format!("internal error {}: ", one.number)));
        let nested = isolated(|| isolated(|| panicking("inner")).is_ok());
        assert_eq!(nested, Ok(true));
    }
}
