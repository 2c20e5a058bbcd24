//! The KV cache of a simulated model server: its blocks, and which of them still contain the start of a prompt.

use std::collections::{BTreeMap, HashMap};

/// The blocks of a request.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The blocks that others can share, from the start of the prompt.
    shared: Vec<u64>,
    /// The number of its own blocks.
    own: usize,
}

/// A block that can be shared.
#[derive(Debug)]
struct Shared {
    holders: usize,
    /// Its position among the unused blocks.
    released: u64,
}

/// All blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    total: usize,
    size: usize,
    /// The number of blocks that only one request holds.
    own: usize,
    shared: HashMap<u64, Shared>,
    /// The blocks without a holder, longest unused first.
    unused: BTreeMap<u64, u64>,
    releases: u64,
}

impl Blocks {
    pub(super) fn new(total: usize, size: usize) -> Self {
        Self { total, size, own: 0, shared: HashMap::new(), unused: BTreeMap::new(), releases: 0 }
    }

    /// The number of blocks for this number of tokens.
    pub(super) fn needed(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.size)
    }

    /// Takes blocks for this number of tokens: cached ones for the known hashes of the prompt, and others for the rest. None if there
    /// aren't enough.
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

    /// Makes the blocks of a prompt shareable after its prefill.
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

    /// Releases blocks. Shareable ones stay cached until the memory is needed. The end of a prompt is evicted first.
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

    /// The number of a prompt's tokens that were cached when the request took its blocks.
    pub(super) fn cached_tokens(&self, held: &Held) -> usize {
        held.shared.len() * self.size
    }

    /// The share of all blocks that requests hold.
    #[allow(clippy::cast_precision_loss)] // The numbers are small.
    pub(super) fn usage(&self) -> f64 {
        (self.own + self.shared.len() - self.unused.len()) as f64 / self.total as f64
    }
}
