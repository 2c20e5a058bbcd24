//! Answers that were given before, by the digests of everything that they depend on.

use super::digest::Digest;
use crate::sync::locked;
use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// A bounded store in two generations: what was used since the last change of generations survives the next.
#[derive(Debug)]
pub struct Cache {
    most: usize,
    state: Mutex<CacheState>,
}

type CachedValue = (Arc<dyn Any + Send + Sync>, usize);

#[derive(Debug, Default)]
struct CacheState {
    young: HashMap<Digest, CachedValue>,
    old: HashMap<Digest, CachedValue>,
    /// What the young ones take, in bytes.
    size: usize,
}

impl Cache {
    /// A store of about so many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// What was kept under a key.
    pub fn get<T: Send + Sync + 'static>(&self, key: &Digest) -> Option<Arc<T>> {
        let mut state = locked(&self.state);
        let kept = if let Some((kept, _)) = state.young.get(key) {
            Arc::clone(kept)
        } else {
            let (kept, size) = state.old.remove(key)?;
            state.keep(*key, Arc::clone(&kept), size, self.most);
            kept
        };
        drop(state);
        kept.downcast().ok()
    }

    /// Keeps something that takes about `size` bytes.
    pub fn keep<T: Send + Sync + 'static>(&self, key: Digest, value: Arc<T>, size: usize) {
        locked(&self.state).keep(key, value, size, self.most);
    }

    /// Keeps something that takes about `size` bytes, unless it is kept already; and tells what is kept.
    pub fn share<T: Send + Sync + 'static>(&self, key: Digest, value: Arc<T>, size: usize) -> Arc<T> {
        if let Some(kept) = self.get(&key) {
            return kept;
        }
        self.keep(key, Arc::clone(&value), size);
        value
    }

    /// How many answers are kept.
    pub fn len(&self) -> usize {
        let state = locked(&self.state);
        state.young.len() + state.old.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl CacheState {
    fn keep(&mut self, key: Digest, value: Arc<dyn Any + Send + Sync>, size: usize, most: usize) {
        // What an entry costs beside its value.
        let size = size + 128;
        if self.size + size > most / 2 {
            self.old = std::mem::take(&mut self.young);
            self.size = 0;
        }
        if self.young.insert(key, (value, size)).is_none() {
            self.size += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes_before_there_is_too_much() {
        let cache = Cache::new(100_000);
        let hot = Digest::hash(b"hot");
        cache.keep(hot, Arc::new(0_u32), 900);
        for number in 0_u32..10_000 {
            cache.keep(Digest::hash(&number.to_le_bytes()), Arc::new(number), 900);
            assert_eq!(cache.get::<u32>(&hot).as_deref(), Some(&0));
        }
        assert!(cache.len() < 100, "{}", cache.len());
        assert_eq!(cache.get::<u32>(&Digest::hash(&1_u32.to_le_bytes())), None);
        assert_eq!(cache.get::<String>(&hot), None, "another type is another answer");
    }
}
