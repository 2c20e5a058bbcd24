//! How far a download is: counters that cost nothing to read.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What a download does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Queued,
    Listing,
    Downloading,
    Unpacking,
    Complete,
}

const PHASES: [Phase; 5] = [Phase::Queued, Phase::Listing, Phase::Downloading, Phase::Unpacking, Phase::Complete];

/// A moment of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    pub total_bytes: u64,
    /// Bytes on disk, whether downloaded now, before, or for another model.
    pub completed_bytes: u64,
    pub total_files: u64,
    pub completed_files: u64,
    /// Over the last seconds.
    pub bytes_per_second: u64,
}

/// The counters behind it.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    phase: AtomicU8,
    total_bytes: AtomicU64,
    completed_bytes: AtomicU64,
    total_files: AtomicU64,
    completed_files: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) by_peers: AtomicU64,
    speed: Mutex<Option<Speed>>,
}

#[derive(Debug)]
struct Speed {
    since: Instant,
    received: u64,
    bytes_per_second: u64,
}

/// The shortest time over which a speed is measured.
const SPEED_INTERVAL: Duration = Duration::from_secs(2);

impl Counters {
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    pub(crate) fn begin(&self, files: u64, bytes: u64) {
        self.total_files.store(files, Relaxed);
        self.total_bytes.store(bytes, Relaxed);
        self.completed_bytes.store(0, Relaxed);
        self.completed_files.store(0, Relaxed);
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        self.completed_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn lost(&self, bytes: u64) {
        self.completed_bytes.fetch_sub(bytes.min(self.completed_bytes.load(Relaxed)), Relaxed);
    }

    pub(crate) fn completed_file(&self) {
        self.completed_files.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Progress {
        let received = self.received.load(Relaxed);
        let mut speed = self.speed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let measured = speed.get_or_insert(Speed { since: now, received, bytes_per_second: 0 });
        let elapsed = now.duration_since(measured.since);
        if elapsed >= SPEED_INTERVAL {
            let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
            let bytes_per_second = received.saturating_sub(measured.received).saturating_mul(1000) / millis;
            *measured = Speed { since: now, received, bytes_per_second };
        }
        Progress {
            phase: PHASES.get(usize::from(self.phase.load(Relaxed))).copied().unwrap_or(Phase::Queued),
            total_bytes: self.total_bytes.load(Relaxed),
            completed_bytes: self.completed_bytes.load(Relaxed),
            total_files: self.total_files.load(Relaxed),
            completed_files: self.completed_files.load(Relaxed),
            bytes_per_second: measured.bytes_per_second,
        }
    }
}
