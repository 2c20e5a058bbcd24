//! What a download may use, and how persistent it is.

use std::time::Duration;

/// The limits of all downloads into one root together, and of each.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests for parts that run at once, over all downloads.
    pub parallel_parts: usize,
    /// Requests for parts that one download runs at once.
    pub parallel_parts_per_model: usize,
    /// The size of a part. A file of more than 1,024 of them has larger ones.
    pub part_bytes: u64,
    /// Bytes a second over all downloads; `None` doesn't limit them.
    pub bytes_per_second: Option<u64>,
    /// Bytes of the disk that stay free.
    pub reserve_bytes: u64,
    /// The largest model.
    pub max_model_bytes: u64,
    /// The most files of a model.
    pub max_files: usize,
    /// Attempts without a byte of progress before a source counts as unreachable.
    pub attempts: u32,
    /// The first delay between two attempts; it doubles up to `MAX_DELAY`.
    pub delay: Duration,
    /// How long a server may be silent, before and within an answer.
    pub silence: Duration,
    /// Whether sources on this machine may be read. Other addresses of the machine's own network are never refused, except link-local
    /// ones, where clouds publish the machine's credentials.
    pub loopback: bool,
}

/// The longest delay between two attempts, unless the server requests a longer one.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(30);
/// The longest delay that a server may request.
pub(crate) const MAX_REQUESTED_DELAY: Duration = Duration::from_mins(5);
/// The most parts of a file.
const MAX_PARTS: u64 = 1024;
/// The least and the most of a part that is in memory before it is written and journaled. A process that is killed loses that much of each part
/// that it was downloading.
const FLUSH_BYTES: std::ops::RangeInclusive<u64> = 128 << 10..=1 << 20;
/// The largest answer that is read whole: lists, manifests.
pub(crate) const MAX_ANSWER_BYTES: usize = 8 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            parallel_parts: 8,
            parallel_parts_per_model: 8,
            part_bytes: 16 << 20,
            bytes_per_second: None,
            reserve_bytes: 10 << 30,
            max_model_bytes: 4 << 40,
            max_files: 20_000,
            attempts: 8,
            delay: Duration::from_millis(500),
            silence: Duration::from_mins(1),
            loopback: false,
        }
    }
}

impl Limits {
    /// The parts of a file of this size.
    pub(crate) fn part_size(&self, file_bytes: u64) -> u64 {
        self.part_bytes.max(64 << 10).max(file_bytes.div_ceil(MAX_PARTS))
    }

    /// How much of a part of a file of this size is written at once.
    pub(crate) fn flush(file_bytes: u64) -> u64 {
        (file_bytes >> 10).clamp(*FLUSH_BYTES.start(), *FLUSH_BYTES.end())
    }

    /// How much of a file is journaled at once: at most 65,536 entries a file.
    pub(crate) fn checkpoint(file_bytes: u64) -> u64 {
        Self::flush(file_bytes).max(file_bytes >> 16)
    }
}
