//! What plugins get that were built for WASI: enough of a world for a language's runtime to start in, and nothing in it. All
//! answers are constants, so that purity stays what it is without WASI.

pub(super) mod preview1;
pub(super) mod preview2;

/// How many bytes one call of a stub moves, and how many things it looks at: calls of the host are counted, so that what one of
/// them costs must be bounded too.
const CHUNK: usize = 64 << 10;

/// How many buffers, or things that are waited for, one call may name.
const MANY: u32 = 1024;

/// The monotonic clock, which stands still. Go's runtime takes zero for a broken clock.
const INSTANT: u64 = 1;
