//! Values that are derived from an object and cached in it.

use std::sync::OnceLock;

/// A value that is derived from its object on first use. It doesn't count as part of the object: two are always equal, and a copy, which
/// may be changed afterwards, derives its own.
#[derive(Debug)]
pub struct Derived<T>(OnceLock<T>);

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> Clone for Derived<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> PartialEq for Derived<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Derived<T> {
    pub(super) fn get(&self, find: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(find)
    }

    /// Clears the value, because the object is about to change.
    pub(super) fn forget(&mut self) {
        self.0.take();
    }
}
