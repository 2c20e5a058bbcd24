//! Remembers which prompt prefixes endpoints have seen, so that a request is sent to an endpoint whose KV cache is probably warm.
//!
//! A prompt becomes a chain of block hashes (`blocks`), and an index remembers for each endpoint the blocks of the prompts that it was sent
//! (`index`). This only approximates the content of engines' caches: an engine's own evictions aren't reported here.

pub mod blocks;
pub mod index;
pub mod matches;

mod holders;
mod shard;
mod table;
#[cfg(test)]
mod tests;

pub use blocks::{BlockSize, PrefixHasher, hash_pieces};
pub use index::{EndpointId, PrefixIndex};
pub use matches::Matches;
