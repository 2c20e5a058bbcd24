//! The parameters of prefix caching.

use super::{ConfigError, PrefixSettings, fields::Fields, plugins::Context};
use crate::prefix::{
    blocks::{BYTES_PER_TOKEN, MAX_PROMPT_TOKENS, MIN_BLOCK_TOKENS},
    index::MAX_CAPACITY,
};

/// Upstream's default block size.
const DEFAULT_BLOCK_TOKENS: u64 = 16;

/// Upstream's default maximum number of blocks per prompt, if tokens aren't limited.
const DEFAULT_MAX_BLOCKS: i64 = 2_048;

/// `approx-prefix-cache-producer`.
pub(super) fn producer(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<PrefixSettings, ConfigError> {
    let old_block = parameters.positive("blockSize")?;
    let auto_tune = parameters.boolean("autoTune")?.unwrap_or(true);
    let block = match parameters.get("blockSizeTokens") {
        Some(part) => {
            let tokens = part.integer()?;
            if tokens <= 0 && !auto_tune {
                return Err(part.error(format_args!("is {tokens}: set an integer that is at least 1, or set `autoTune: true`")));
            }
            u64::try_from(tokens).ok()
        }
        None => None,
    };
    // As upstream: the old field has an effect only if the new one has its default.
    let block = match (block, old_block) {
        (None | Some(DEFAULT_BLOCK_TOKENS), Some(old)) => old,
        (block, _) => block.unwrap_or(DEFAULT_BLOCK_TOKENS),
    };
    let blocks = parameters.integer("maxPrefixBlocksToMatch")?;
    let tokens = parameters.at_least("maxPrefixTokensToMatch", 0)?;
    let capacity = parameters.positive("lruCapacityPerServer")?;
    Ok(settings(auto_tune, block, blocks, tokens, capacity, context))
}

/// The fields of `prefix-cache-scorer` before there were producers. Its blocks were counted in characters.
pub(super) fn old_scorer(parameters: &mut Fields<'_>, context: &mut Context<'_, '_>) -> Result<Option<PrefixSettings>, ConfigError> {
    let fields = ["autoTune", "blockSizeTokens", "blockSize", "hashBlockSize", "maxPrefixBlocksToMatch", "lruCapacityPerServer"];
    let is_old = parameters.names().any(|name| fields.contains(&name));
    let characters = parameters.positive("blockSize")?.or(parameters.positive("hashBlockSize")?);
    let auto_tune = parameters.boolean("autoTune")?.unwrap_or(true);
    let block = parameters.positive("blockSizeTokens")?;
    let blocks = parameters.integer("maxPrefixBlocksToMatch")?;
    let capacity = parameters.positive("lruCapacityPerServer")?;
    if !is_old {
        return Ok(None);
    }
    let block = block.or(characters.map(|characters| characters.div_ceil(BYTES_PER_TOKEN.into()))).unwrap_or(DEFAULT_BLOCK_TOKENS);
    let tokens = blocks.map(|_| 0);
    Ok(Some(settings(auto_tune, block, blocks, tokens, capacity, context)))
}

/// The settings within Pointsman's limits. If a limit reduces a value, there is a remark.
fn settings(
    auto_tune: bool,
    block: u64,
    blocks: Option<i64>,
    tokens: Option<u64>,
    capacity: Option<u64>,
    context: &mut Context<'_, '_>,
) -> PrefixSettings {
    let block_tokens = u32::try_from(block).unwrap_or(u32::MAX).clamp(MIN_BLOCK_TOKENS, MAX_PROMPT_TOKENS);
    let wanted = match tokens {
        None => u64::from(MAX_PROMPT_TOKENS),
        // Without either limit, upstream matches the whole prompt.
        Some(0) => match u64::try_from(blocks.unwrap_or(DEFAULT_MAX_BLOCKS)) {
            Ok(0) | Err(_) => u64::MAX,
            Ok(blocks) => blocks.saturating_mul(block_tokens.into()),
        },
        Some(tokens) => tokens,
    };
    let max_tokens = u32::try_from(wanted).unwrap_or(u32::MAX).min(MAX_PROMPT_TOKENS);
    if u64::from(max_tokens) < wanted {
        context.remark(format!(
            "Pointsman matches the first {MAX_PROMPT_TOKENS} tokens of a prompt: set `maxPrefixTokensToMatch` to at most that"
        ));
    }
    let default = PrefixSettings::default().capacity;
    let wanted = capacity.map_or(default, |capacity| usize::try_from(capacity).unwrap_or(usize::MAX));
    if wanted > MAX_CAPACITY {
        context.remark(format!("Pointsman remembers {MAX_CAPACITY} blocks of an endpoint: set `lruCapacityPerServer` to at most that"));
    }
    PrefixSettings { auto_tune, block_tokens, capacity: wanted.min(MAX_CAPACITY), max_tokens }
}
