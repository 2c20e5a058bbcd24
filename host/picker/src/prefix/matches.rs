//! The parts of a prompt that endpoints have seen.

use super::{
    holders::{Holders, Sets},
    index::EndpointId,
};

/// The result of `PrefixIndex::matches`, with its working memory. Reuse it for the next prompt.
#[derive(Debug, Default)]
pub struct Matches {
    /// The endpoints that have every block so far, as bits.
    active: Vec<u64>,
    /// Endpoints with the number of their leading blocks, fewest first.
    found: Vec<(EndpointId, usize)>,
    /// The same numbers by endpoint; zero for all others.
    blocks: Vec<usize>,
}

impl Matches {
    /// The number of leading blocks that an endpoint has without a gap.
    pub fn blocks(&self, endpoint: EndpointId) -> usize {
        self.blocks.get(endpoint.0 as usize).copied().unwrap_or(0)
    }

    /// The endpoints that have at least the first block, with the number of their blocks, most first.
    pub fn iter(&self) -> impl Iterator<Item = (EndpointId, usize)> {
        self.found.iter().rev().copied()
    }

    /// The maximum number of blocks of any endpoint.
    pub fn longest(&self) -> usize {
        self.found.last().map_or(0, |(_, blocks)| *blocks)
    }

    /// Whether no endpoint has the first block.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn clear(&mut self) {
        for (endpoint, _) in self.found.drain(..) {
            if let Some(blocks) = self.blocks.get_mut(endpoint.0 as usize) {
                *blocks = 0;
            }
        }
        self.active.clear();
    }

    /// Starts with the holders of the first block.
    pub(super) fn begin(&mut self, holders: Holders, sets: &Sets) {
        self.active.extend((0..holders.words(sets)).map(|word| holders.word(word, sets)));
    }

    /// Continues with the holders of the block after the first `blocks`. Endpoints that aren't among them have only these. Returns false if
    /// none remains.
    pub(super) fn narrow(&mut self, blocks: usize, holders: Holders, sets: &Sets) -> bool {
        let mut left = 0;
        for (word, base) in (0..self.active.len()).zip((0u32..).step_by(64)) {
            let active = self.active[word];
            if active != 0 {
                let stay = active & holders.word(word, sets);
                self.active[word] = stay;
                self.settle(base, active & !stay, blocks);
                left |= stay;
            }
        }
        left != 0
    }

    /// Ends with this number of blocks for the remaining endpoints.
    pub(super) fn end(&mut self, blocks: usize) {
        for (word, base) in (0..self.active.len()).zip((0u32..).step_by(64)) {
            let active = std::mem::take(&mut self.active[word]);
            self.settle(base, active, blocks);
        }
    }

    fn settle(&mut self, base: u32, mut endpoints: u64, blocks: usize) {
        while endpoints != 0 {
            let endpoint = base + endpoints.trailing_zeros();
            endpoints &= endpoints - 1;
            let at = endpoint as usize;
            if at >= self.blocks.len() {
                self.blocks.resize(at + 1, 0);
            }
            self.blocks[at] = blocks;
            self.found.push((EndpointId(endpoint), blocks));
        }
    }
}
