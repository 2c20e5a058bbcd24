//! Earlier answers, by the digests of all their inputs.

use super::digest::Digest;
use crate::sync::locked;
use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex},
};

/// A store of limited size with two generations. Entries that were used since the last change of generations survive the next.
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
    /// The size of the young entries, in bytes.
    size: usize,
}

/// The overhead of an entry in bytes.
const OVERHEAD: usize = 128;

impl Cache {
    /// A store of about `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// The value that is stored under a key.
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

    /// Stores a value of about `size` bytes.
    pub fn keep<T: Send + Sync + 'static>(&self, key: Digest, value: Arc<T>, size: usize) {
        locked(&self.state).keep(key, value, size + OVERHEAD, self.most);
    }

    /// Stores a value of about `size` bytes, unless one is stored already. Returns the stored value.
    pub fn share<T: Send + Sync + 'static>(&self, key: Digest, value: Arc<T>, size: usize) -> Arc<T> {
        if let Some(kept) = self.get(&key) {
            return kept;
        }
        self.keep(key, Arc::clone(&value), size);
        value
    }

    /// The number of stored values.
    pub fn len(&self) -> usize {
        let state = locked(&self.state);
        state.young.len() + state.old.len()
    }

    /// Whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl CacheState {
    /// Stores a value whose size includes the overhead.
    fn keep(&mut self, key: Digest, value: Arc<dyn Any + Send + Sync>, size: usize, most: usize) {
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
    fn an_entry_keeps_its_size_while_it_is_used() {
        let cache = Cache::new(10_000);
        let hot = Digest::hash(b"hot");
        cache.keep(hot, Arc::new(0_u32), 900);
        for number in 0_u32..1_000 {
            cache.keep(Digest::hash(&number.to_le_bytes()), Arc::new(number), 2_000);
            cache.get::<u32>(&hot).unwrap();
        }
        assert_eq!(locked(&cache.state).young.get(&hot).unwrap().1, 900 + OVERHEAD);
    }

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
