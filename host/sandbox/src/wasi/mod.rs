//! WASI for plugins that were built for it: enough for a language's runtime to start, and nothing more. All results are constants, so
//! plugins stay as pure as without WASI.

pub(super) mod preview1;
pub(super) mod preview2;

/// The maximum number of bytes that one call of a stub moves. Host calls are counted, so the cost of each must be limited too.
const CHUNK: usize = 64 << 10;

/// The maximum number of buffers, or of things to wait for, in one call.
const MANY: u32 = 1024;

/// The monotonic clock, which never advances. Go's runtime considers a clock at zero broken.
const INSTANT: u64 = 1;
