//! What follows from the rest of an object, found once and kept beside it.

use std::sync::OnceLock;

/// Something that follows from the rest of an object, once somebody has asked for it. It is no part of what the object is: two are always equal, and
/// a copy, which may become another object, finds its own.
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

    /// Has it found anew: the object is about to change.
    pub(super) fn forget(&mut self) {
        self.0.take();
    }
}
