//! A prompt in an engine: the number of its tokens, and the blocks that it shares with other prompts.

use crate::prefix::blocks;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// The number of text bytes per token, as in the picker's estimate.
pub const BYTES_PER_TOKEN: usize = blocks::BYTES_PER_TOKEN as usize;

/// A prompt in blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptBlocks {
    /// The hashes of its complete blocks. Each includes everything before the block, and the model. Blocks with equal hashes are shared.
    pub hashes: Arc<[u64]>,
    /// The number of its tokens.
    pub tokens: usize,
}

/// A prompt for an engine.
pub trait EnginePrompt {
    /// The blocks for a model, in an engine with this block size in tokens.
    fn into_blocks(self, model: usize, block_size: usize) -> PromptBlocks;
}

/// Text. The same text has different hashes for different models.
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

/// Blocks of the engine's size. Their hashes already distinguish models.
impl EnginePrompt for PromptBlocks {
    fn into_blocks(self, _: usize, block_size: usize) -> PromptBlocks {
        let whole = self.tokens / block_size;
        // An incomplete block is never shared.
        if self.hashes.len() > whole { Self { hashes: self.hashes[..whole].into(), ..self } } else { self }
    }
}
