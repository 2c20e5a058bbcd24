//! A prompt as an engine sees it: how many tokens it has, and which of its blocks are those of other prompts.

use crate::prefix::blocks;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// How many bytes of text are a token, which is also what the picker estimates.
pub const BYTES_PER_TOKEN: usize = blocks::BYTES_PER_TOKEN as usize;

/// A prompt in blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptBlocks {
    /// The hashes of its whole blocks, each with what is before it and with the model: equal ones are shared.
    pub hashes: Arc<[u64]>,
    /// How many tokens it has.
    pub tokens: usize,
}

/// What an engine takes as a prompt.
pub trait EnginePrompt {
    /// Its blocks, for a model, in an engine whose blocks have so many tokens.
    fn into_blocks(self, model: usize, block_size: usize) -> PromptBlocks;
}

/// Text. The same one for another model has other hashes.
impl EnginePrompt for Vec<u8> {
    fn into_blocks(self, model: usize, block_size: usize) -> PromptBlocks {
        let mut parent = model as u64;
        let hash = |block: &[u8]| {
            // Its keys are fixed.
            let mut hasher = DefaultHasher::new();
            (parent, block).hash(&mut hasher);
            parent = hasher.finish();
            parent
        };
        let hashes = self.chunks_exact(block_size * BYTES_PER_TOKEN).map(hash).collect();
        PromptBlocks { hashes, tokens: self.len().div_ceil(BYTES_PER_TOKEN) }
    }
}

/// Blocks of the engine's size, whose hashes tell models apart already.
impl EnginePrompt for PromptBlocks {
    fn into_blocks(self, _: usize, block_size: usize) -> PromptBlocks {
        let whole = self.tokens / block_size;
        // A block that isn't full is nobody else's.
        if self.hashes.len() > whole { Self { hashes: self.hashes[..whole].into(), ..self } } else { self }
    }
}
