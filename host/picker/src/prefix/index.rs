//! Which endpoints have seen which blocks.
//!
//! Two kinds of locks. A shard's guards who holds the blocks of a 256th of all hashes; it is held for one block at a time, and all that a search
//! takes. An endpoint's guards the queue of its blocks; recording holds it throughout, so that the queue always lists exactly the blocks that
//! the endpoint holds, and takes shards' locks under it, never the other way round. Only recording for the same endpoint waits for it.
//!
//! Recency is second chance, not strict LRU: the queue is in the order of arrival, a block that is recorded again is only marked, and when a
//! marked block's turn to go comes it loses the mark and goes to the end instead. So a marked block may outlive one that was used later, and
//! blocks that were marked once or often are alike. Without marks it is exactly LRU. In return, recording a known block moves nothing.
//!
//! Memory, in bytes for each block of each endpoint: 8 of the queue (16 while it grows), and for a block that only this endpoint holds 20 to 28
//! of the table (40 after most was forgotten). That is about 32, and 56 at worst, beside some 200 KB that even an empty index has or small tables
//! come to. Endpoints that hold the same block share the table's part. From the fourth holder on there is also a set, of 16 for every 64
//! endpoints up to the highest number in it and about 32 of bookkeeping (which stays until a shard has no set): four holders among 512 endpoints
//! come to 70 each at worst, and many to far less than they do apart.

use super::{matches::Matches, shard::Shard};
use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

/// The blocks that an endpoint holds at most, unless `PrefixIndex::set_capacity` says otherwise.
pub const DEFAULT_CAPACITY: usize = 31_250;

/// The greatest capacity: what an engine reports is not a licence to use any amount of memory here.
pub const MAX_CAPACITY: usize = 1 << 20;

/// Endpoints' numbers are below this; nothing is remembered for others.
pub const MAX_ENDPOINTS: u32 = 4_096;

const SHARDS: usize = 256;

/// How many marked blocks one eviction passes over before it takes the next all the same. That bounds how long one recorded block takes, yet is
/// more than the blocks of most prompts: a gap in a prefix that is in use costs all behind it.
const MOST_SPARED: usize = 4_096;

/// How many blocks are evicted before the endpoint's lock is let go for a moment.
const EVICTED_AT_ONCE: usize = 512;

/// The number of an endpoint. Numbers are the caller's and had better be small; one that is given again after `PrefixIndex::forget` is another
/// endpoint. A caller that picks and records concurrently reuses last the number that it freed last: a record on its way would count for the
/// new endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// The blocks of an endpoint, the next to go first.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) keys: VecDeque<u64>,
    pub(super) capacity: usize,
    /// The endpoint is being forgotten: nothing is added meanwhile.
    leaving: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self { keys: VecDeque::new(), capacity: DEFAULT_CAPACITY, leaving: false }
    }
}

impl Queue {
    fn push(&mut self, key: u64) {
        let len = self.keys.len();
        if len == self.keys.capacity() {
            // Doubles, yet never beyond the capacity.
            self.keys.reserve_exact(self.capacity.saturating_sub(len).min(len.max(64)).max(1));
        }
        self.keys.push_back(key);
    }
}

/// Keeps locks that different threads take at once in different cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// Where an endpoint's queue is from its first use on.
type Place = OnceLock<Box<Aligned<Mutex<Queue>>>>;

/// The blocks that endpoints have seen, shared by all threads.
pub struct PrefixIndex {
    pub(super) shards: Box<[Aligned<Mutex<Shard>>]>,
    pub(super) endpoints: Box<[Place]>,
    /// Odd and unknown outside: multiplied with it, hashes are keys that a client can't choose to be alike, and different ones stay different.
    secret: u64,
}

impl PrefixIndex {
    /// An index that has seen nothing.
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Aligned::default()).collect(),
            endpoints: (0..MAX_ENDPOINTS).map(|_| OnceLock::new()).collect(),
            secret: RandomState::new().hash_one(SHARDS) | 1,
        }
    }

    /// Remembers that an endpoint is sent a prompt with these block hashes. Of a prompt with more than the endpoint's capacity, the first blocks
    /// count.
    pub fn record(&self, endpoint: EndpointId, hashes: &[u64]) {
        let Some((number, place)) = self.place(endpoint) else { return };
        let mut queue = lock(&place.get_or_init(Box::default).0);
        if queue.leaving {
            return;
        }
        // From the end, so that a prompt's last blocks are the next to go: the others are of use without them, but not they without the others.
        for hash in hashes.iter().take(queue.capacity).rev() {
            let key = self.key(*hash);
            if self.shard(key).add(key, number) {
                while queue.keys.len() >= queue.capacity {
                    self.evict(number, &mut queue);
                }
                queue.push(key);
            }
        }
    }

    /// Works out how many leading blocks of a prompt each endpoint has. Ends at the first block that no endpoint has which has all before, and
    /// counts as no use of the blocks: the endpoint that is picked is yet to be recorded.
    pub fn matches(&self, hashes: &[u64], matches: &mut Matches) {
        matches.clear();
        for (before, hash) in hashes.iter().enumerate() {
            let key = self.key(*hash);
            let shard = self.shard(key);
            let Some((holders, sets)) = shard.holders(key) else { return matches.end(before) };
            if before == 0 {
                matches.begin(holders, sets);
            } else if !matches.narrow(before, holders, sets) {
                return;
            }
        }
        matches.end(hashes.len());
    }

    /// Forgets an endpoint: its blocks and its capacity. What is recorded for it before this returns is forgotten too.
    pub fn forget(&self, endpoint: EndpointId) {
        let Some((number, place)) = self.place(endpoint) else { return };
        let Some(place) = place.get() else { return };
        loop {
            let mut queue = lock(&place.0);
            queue.leaving = true;
            for _ in 0..EVICTED_AT_ONCE {
                let Some(key) = queue.keys.pop_front() else {
                    *queue = Queue::default();
                    return;
                };
                self.shard(key).take(key, number, false);
            }
        }
    }

    /// Sets how many blocks an endpoint holds at most (`MAX_CAPACITY` if more); those over it go.
    pub fn set_capacity(&self, endpoint: EndpointId, blocks: usize) {
        let Some((number, place)) = self.place(endpoint) else { return };
        let place = place.get_or_init(Box::default);
        lock(&place.0).capacity = blocks.min(MAX_CAPACITY);
        loop {
            let mut queue = lock(&place.0);
            for _ in 0..EVICTED_AT_ONCE {
                if queue.keys.len() <= queue.capacity {
                    let capacity = queue.capacity;
                    queue.keys.shrink_to(capacity);
                    return;
                }
                self.evict(number, &mut queue);
            }
        }
    }

    /// How many blocks are remembered, counted for each endpoint.
    pub fn len(&self) -> usize {
        self.queues().map(|queue| queue.keys.len()).sum()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many blocks of one endpoint are remembered.
    pub fn endpoint_len(&self, endpoint: EndpointId) -> usize {
        self.place(endpoint).and_then(|(_, place)| place.get()).map_or(0, |place| lock(&place.0).keys.len())
    }

    /// The bytes in use, without what the allocator adds.
    pub fn memory(&self) -> usize {
        let fixed = size_of_val(&*self.shards) + size_of_val(&*self.endpoints);
        let shards: usize = self.shards.iter().map(|shard| lock(&shard.0).bytes()).sum();
        let queues: usize = self.queues().map(|queue| size_of::<Aligned<Mutex<Queue>>>() + queue.keys.capacity() * size_of::<u64>()).sum();
        fixed + shards + queues
    }

    /// Takes the next block to go from an endpoint.
    fn evict(&self, number: u16, queue: &mut Queue) {
        let mut spared = 0;
        while let Some(key) = queue.keys.pop_front() {
            if !self.shard(key).take(key, number, spared < MOST_SPARED) {
                return;
            }
            queue.keys.push_back(key);
            spared += 1;
        }
    }

    pub(super) fn key(&self, hash: u64) -> u64 {
        hash.wrapping_mul(self.secret)
    }

    /// Locks the shard of a key. The shard's table uses the highest bits of the key, so the shard is chosen by others.
    pub(super) fn shard(&self, key: u64) -> MutexGuard<'_, Shard> {
        let [_, _, _, byte, ..] = key.to_le_bytes();
        lock(&self.shards[usize::from(byte)].0)
    }

    fn place(&self, endpoint: EndpointId) -> Option<(u16, &Place)> {
        let number = u16::try_from(endpoint.0).ok()?;
        Some((number, self.endpoints.get(usize::from(number))?))
    }

    fn queues(&self) -> impl Iterator<Item = MutexGuard<'_, Queue>> {
        self.endpoints.iter().filter_map(|place| place.get()).map(|place| lock(&place.0))
    }
}

impl Default for PrefixIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PrefixIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixIndex").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Locks; after a panic elsewhere too, since the guarded data is at worst forgetful.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
