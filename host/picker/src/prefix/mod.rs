//! Which prompt prefixes endpoints have seen, so that a request goes where its KV cache is likely warm.
//!
//! A prompt becomes a chain of block hashes (`blocks`), and an index remembers for each endpoint the blocks of the prompts that were sent there
//! (`index`). It is an approximation of what engines hold: nothing of an engine's own evictions arrives here.

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
