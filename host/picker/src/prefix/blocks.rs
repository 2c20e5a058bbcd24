//! A prompt as a chain of block hashes. A block's hash covers the block and everything before it.
//!
//! With `xxh64` of seed 0, numbers as 8 little-endian bytes, and `++` for concatenation:
//!
//! - `h(0) = xxh64(model)`, or with a cache salt `xxh64(model ++ 0xff ++ salt)`;
//! - `h(i) = xxh64(xxh64(block i) ++ h(i-1))`, with blocks numbered from 1.
//!
//! The hashes of a prompt are `h(1)` and the following ones. They are the same in every process. An incomplete last block has none.

use std::num::NonZeroU32;
use xxhash_rust::xxh64::{Xxh64, xxh64};

/// The estimated number of a prompt's bytes per token.
pub const BYTES_PER_TOKEN: u32 = 4;

/// The minimum block size for engines, in tokens. Smaller blocks cost more memory and time than they add precision.
pub const MIN_BLOCK_TOKENS: u32 = 64;

/// The maximum number of a prompt's tokens that are hashed. The rest is ignored.
pub const MAX_PROMPT_TOKENS: u32 = 131_072;

/// Separates the model's name from a salt. UTF-8 never contains it, so different pairs of model and salt never have the same input.
const SALT_FOLLOWS: u8 = 0xff;

/// The size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSize {
    tokens: NonZeroU32,
}

impl BlockSize {
    /// The block size for an engine with blocks of `tokens` tokens: its own, but at least `MIN_BLOCK_TOKENS`.
    pub const fn of_engine(tokens: u32) -> Self {
        Self::exactly(if tokens < MIN_BLOCK_TOKENS { MIN_BLOCK_TOKENS } else { tokens })
    }

    /// Exactly this number of tokens; 0 becomes 1.
    pub const fn exactly(tokens: u32) -> Self {
        match NonZeroU32::new(tokens) {
            Some(tokens) => Self { tokens },
            None => Self { tokens: NonZeroU32::MIN },
        }
    }

    /// The number of tokens in a block.
    pub const fn tokens(self) -> u32 {
        self.tokens.get()
    }

    /// The number of bytes in a block.
    pub const fn bytes(self) -> usize {
        (self.tokens.get() as usize).saturating_mul(BYTES_PER_TOKEN as usize)
    }

    /// The maximum number of a prompt's blocks.
    pub const fn max_blocks(self) -> usize {
        (MAX_PROMPT_TOKENS / self.tokens.get()) as usize
    }

    /// The number of blocks of this size that fit in an engine's cache, which has `engine_blocks` blocks of `engine_block_tokens` tokens.
    /// The sizes differ for engines with small blocks, whose number of blocks alone would overstate the capacity.
    pub fn capacity(self, engine_blocks: u64, engine_block_tokens: u32) -> usize {
        let blocks = engine_blocks.saturating_mul(u64::from(engine_block_tokens)) / u64::from(self.tokens());
        usize::try_from(blocks).unwrap_or(usize::MAX)
    }
}

impl Default for BlockSize {
    fn default() -> Self {
        Self::exactly(MIN_BLOCK_TOKENS)
    }
}

/// Hashes a prompt that arrives in pieces. It stores no piece: a block that spans pieces is hashed incrementally.
#[derive(Clone)]
pub struct PrefixHasher {
    size: BlockSize,
    hashes: Vec<u64>,
    previous: u64,
    partial: Xxh64,
    partial_bytes: usize,
}

impl PrefixHasher {
    /// Starts a prompt for a model, with the request's cache salt (empty for none).
    pub fn new(model: &str, salt: &str, size: BlockSize) -> Self {
        let mut first = Xxh64::new(0);
        first.update(model.as_bytes());
        if !salt.is_empty() {
            first.update(&[SALT_FOLLOWS]);
            first.update(salt.as_bytes());
        }
        Self { size, hashes: Vec::new(), previous: first.digest(), partial: Xxh64::new(0), partial_bytes: 0 }
    }

    /// Adds the next piece.
    pub fn write(&mut self, mut piece: &[u8]) {
        let block_bytes = self.size.bytes();
        while !self.is_full() {
            if self.partial_bytes == 0
                && let Some((block, rest)) = piece.split_at_checked(block_bytes)
            {
                self.end_block(xxh64(block, 0));
                piece = rest;
                continue;
            }
            let (part, rest) = piece.split_at(piece.len().min(block_bytes - self.partial_bytes));
            if part.is_empty() {
                return;
            }
            self.partial.update(part);
            self.partial_bytes += part.len();
            piece = rest;
            if self.partial_bytes == block_bytes {
                let block = self.partial.digest();
                self.partial.reset(0);
                self.partial_bytes = 0;
                self.end_block(block);
            }
        }
    }

    /// Whether the maximum number of blocks is reached, so that further pieces are ignored.
    pub fn is_full(&self) -> bool {
        self.hashes.len() >= self.size.max_blocks()
    }

    /// The hashes of the blocks so far.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The hashes of all blocks, in order.
    pub fn finish(self) -> Vec<u64> {
        self.hashes
    }

    fn end_block(&mut self, block: u64) {
        let mut link = [0; 16];
        link[..8].copy_from_slice(&block.to_le_bytes());
        link[8..].copy_from_slice(&self.previous.to_le_bytes());
        self.previous = xxh64(&link, 0);
        self.hashes.push(self.previous);
    }
}

impl std::fmt::Debug for PrefixHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixHasher")
            .field("size", &self.size)
            .field("blocks", &self.hashes.len())
            .field("partial_bytes", &self.partial_bytes)
            .finish_non_exhaustive()
    }
}

/// The block hashes of a prompt in pieces. It takes no more pieces than necessary.
pub fn hash_pieces<'a>(model: &str, salt: &str, size: BlockSize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u64> {
    let mut hasher = PrefixHasher::new(model, salt, size);
    for piece in pieces {
        hasher.write(piece);
        if hasher.is_full() {
            break;
        }
    }
    hasher.finish()
}
