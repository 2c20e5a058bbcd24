//! The KV cache of a simulated model server: blocks, and which of them still have the beginning of a prompt.

use std::collections::{BTreeMap, HashMap};

/// What blocks a request holds.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Those that others can share, from the beginning of the prompt.
    shared: Vec<u64>,
    /// How many are its own.
    own: usize,
}

/// A block that can be shared.
#[derive(Debug)]
struct Shared {
    holders: usize,
    /// Its place among those that nobody holds.
    released: u64,
}

/// All blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    total: usize,
    size: usize,
    /// How many are held by one request alone.
    own: usize,
    shared: HashMap<u64, Shared>,
    /// Those that nobody holds, the longest unused first.
    unused: BTreeMap<u64, u64>,
    releases: u64,
}

impl Blocks {
    pub(super) fn new(total: usize, size: usize) -> Self {
        Self { total, size, own: 0, shared: HashMap::new(), unused: BTreeMap::new(), releases: 0 }
    }

    /// How many blocks so many tokens take.
    pub(super) fn needed(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.size)
    }

    /// Takes blocks for so many tokens: cached ones as far as the prompt's hashes are known, others for the rest. None if there aren't enough.
    pub(super) fn take(&mut self, hashes: &[u64], tokens: usize) -> Option<Held> {
        let known: Vec<u64> = hashes.iter().copied().take_while(|hash| self.shared.contains_key(hash)).collect();
        let own = self.needed(tokens) - known.len();
        let unused_known = known.iter().filter(|hash| self.shared.get(hash).is_some_and(|block| block.holders == 0)).count();
        let available = self.total - self.own - self.shared.len() + self.unused.len() - unused_known;
        if own > available {
            return None;
        }
        for hash in &known {
            self.hold(*hash);
        }
        while self.total - self.own - self.shared.len() < own {
            let (_, evicted) = self.unused.pop_first()?;
            self.shared.remove(&evicted);
        }
        self.own += own;
        Some(Held { shared: known, own })
    }

    fn hold(&mut self, hash: u64) {
        if let Some(block) = self.shared.get_mut(&hash) {
            if block.holders == 0 {
                self.unused.remove(&block.released);
            }
            block.holders += 1;
        }
    }

    /// Lets others share the blocks of a prompt that has been read.
    pub(super) fn share(&mut self, held: &mut Held, hashes: &[u64]) {
        for hash in &hashes[held.shared.len()..] {
            held.own -= 1;
            self.own -= 1;
            if self.shared.contains_key(hash) {
                // The last block is computed even if it is cached.
                self.hold(*hash);
            } else {
                self.shared.insert(*hash, Shared { holders: 1, released: 0 });
            }
            held.shared.push(*hash);
        }
    }

    /// Takes blocks back. What can be shared stays cached until the room is needed, and the end of a prompt goes first.
    pub(super) fn release(&mut self, held: Held) {
        self.own -= held.own;
        for hash in held.shared.into_iter().rev() {
            let Some(block) = self.shared.get_mut(&hash) else { continue };
            block.holders -= 1;
            if block.holders == 0 {
                self.releases += 1;
                block.released = self.releases;
                self.unused.insert(self.releases, hash);
            }
        }
    }

    /// How many tokens of a request's prompt were cached when it took its blocks.
    pub(super) fn cached_tokens(&self, held: &Held) -> usize {
        held.shared.len() * self.size
    }

    /// The part of all blocks that requests hold.
    #[allow(clippy::cast_precision_loss)] // There are not so many.
    pub(super) fn usage(&self) -> f64 {
        (self.own + self.shared.len() - self.unused.len()) as f64 / self.total as f64
    }
}
