//! Remembers which endpoints have seen which blocks.
//!
//! There are two kinds of locks. A shard's lock guards the holders of the blocks of a 256th of all hashes. It is held for one block at a
//! time, and a search takes no others. An endpoint's lock guards the queue of its blocks. Recording holds it throughout, so that the queue
//! always lists exactly the blocks that the endpoint holds. While it is held, shards' locks are taken, never the other way round. Only
//! other recordings for the same endpoint wait for it.
//!
//! Recency is second chance, not strict LRU. The queue is in order of arrival, and a block that is recorded again is only marked. When a
//! marked block is next to be evicted, it loses the mark and moves to the end instead. A marked block may therefore outlive one that was
//! used later, and a block that was marked once is equal to one that was marked often. Without marks, it is exactly LRU. In return,
//! recording a known block moves nothing.
//!
//! Memory, in bytes per block and endpoint: the queue takes 8 (16 while it grows), and for a block that only this endpoint holds, the table
//! takes 20 to 28 (40 after most blocks were forgotten). This is about 32, and at most 56, in addition to about 200 KB for an empty index
//! or for small tables. Endpoints that hold the same block share the table's part. From the fourth holder on, there is also a set. It takes
//! 16 for every 64 endpoints up to the highest number in it, and about 32 for bookkeeping (which stays until a shard has no set). Four
//! holders among 512 endpoints take at most 70 each, and many holders take far less than they would separately.

use super::{matches::Matches, shard::Shard};
use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

/// The default maximum number of blocks per endpoint; see `PrefixIndex::set_capacity`.
pub const DEFAULT_CAPACITY: usize = 31_250;

/// The maximum capacity: an engine's report must not lead to unlimited memory here.
pub const MAX_CAPACITY: usize = 1 << 20;

/// The numbers of endpoints are below this. Nothing is remembered for others.
pub const MAX_ENDPOINTS: u32 = 4_096;

const SHARDS: usize = 256;

/// The maximum number of marked blocks that one eviction skips. After that, it evicts the next one anyway. This limits the time to record
/// one block. It exceeds the number of blocks of most prompts, because a gap in a prefix in use makes all later blocks useless.
const MOST_SPARED: usize = 4_096;

/// The number of blocks that are evicted before the endpoint's lock is released for a moment.
const EVICTED_AT_ONCE: usize = 512;

/// The number of an endpoint. The caller assigns numbers, which should be small. A number that is reused after `PrefixIndex::forget` is
/// another endpoint. If a caller picks and records concurrently, it should reuse the number that it freed last only after all others,
/// because a pending recording would be credited to the new endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// The blocks of an endpoint, in the order of eviction.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) keys: VecDeque<u64>,
    pub(super) capacity: usize,
    /// Whether the endpoint is being forgotten. Until then, nothing is added.
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
            // Doubles, but not beyond the capacity.
            self.keys.reserve_exact(self.capacity.saturating_sub(len).min(len.max(64)).max(1));
        }
        self.keys.push_back(key);
    }
}

/// Keeps locks that are taken by different threads in different cache lines.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);

/// An endpoint's queue, which exists from its first use.
type Place = OnceLock<Box<Aligned<Mutex<Queue>>>>;

/// The blocks that endpoints have seen. All threads share it.
pub struct PrefixIndex {
    pub(super) shards: Box<[Aligned<Mutex<Shard>>]>,
    pub(super) endpoints: Box<[Place]>,
    /// An odd secret number. Hashes are multiplied by it, so that clients can't construct similar keys. Different hashes remain different.
    secret: u64,
}

impl PrefixIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Aligned::default()).collect(),
            endpoints: (0..MAX_ENDPOINTS).map(|_| OnceLock::new()).collect(),
            secret: RandomState::new().hash_one(SHARDS) | 1,
        }
    }

    /// Records that an endpoint is sent a prompt with these block hashes. If the prompt exceeds the endpoint's capacity, only its first
    /// blocks are recorded.
    pub fn record(&self, endpoint: EndpointId, hashes: &[u64]) {
        let Some((number, place)) = self.place(endpoint) else { return };
        let mut queue = lock(&place.get_or_init(Box::default).0);
        if queue.leaving {
            return;
        }
        // In reverse, so that a prompt's last blocks are evicted first: they are useless without the earlier ones, but not vice versa.
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

    /// Computes the number of leading blocks of a prompt that each endpoint has. Stops once no endpoint has all blocks so far. Doesn't mark
    /// the blocks as used: the caller records the picked endpoint later.
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

    /// Forgets an endpoint's blocks and its capacity, including blocks that are recorded for it before this returns.
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

    /// Sets the maximum number of blocks of an endpoint (at most `MAX_CAPACITY`). Blocks beyond it are evicted.
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

    /// The number of remembered blocks, counted per endpoint.
    pub fn len(&self) -> usize {
        self.queues().map(|queue| queue.keys.len()).sum()
    }

    /// Whether no block is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of remembered blocks of one endpoint.
    pub fn endpoint_len(&self, endpoint: EndpointId) -> usize {
        self.place(endpoint).and_then(|(_, place)| place.get()).map_or(0, |place| lock(&place.0).keys.len())
    }

    /// The memory in use, in bytes, without the allocator's overhead.
    pub fn memory(&self) -> usize {
        let fixed = size_of_val(&*self.shards) + size_of_val(&*self.endpoints);
        let shards: usize = self.shards.iter().map(|shard| lock(&shard.0).bytes()).sum();
        let queues: usize = self.queues().map(|queue| size_of::<Aligned<Mutex<Queue>>>() + queue.keys.capacity() * size_of::<u64>()).sum();
        fixed + shards + queues
    }

    /// Evicts the next block of an endpoint.
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

    /// Locks the shard of a key. The shard's table uses the highest bits of the key, so the shard is chosen by other bits.
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

/// Locks even after a panic elsewhere. At worst, the guarded data lacks something.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
