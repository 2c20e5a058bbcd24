//! The space that downloads may use: never the reserve, and never what is promised to another download.

use crate::{error::Error, folder::Root};
use std::{
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// How much is written between two questions about the free space.
const CHECK_BYTES: u64 = 32 << 20;

#[derive(Debug)]
pub(super) struct Disk {
    root: Root,
    reserve: u64,
    promised: AtomicU64,
    unchecked: AtomicU64,
}

/// Space that is promised to one download until it is written.
#[derive(Debug)]
pub(super) struct Claim {
    disk: Arc<Disk>,
    left: AtomicU64,
}

impl Disk {
    pub(super) fn new(root: Root, reserve: u64) -> Self {
        Self { root, reserve, promised: AtomicU64::new(0), unchecked: AtomicU64::new(0) }
    }

    /// Promises space, if it is there.
    pub(super) fn claim(self: &Arc<Self>, bytes: u64) -> Result<Claim, Error> {
        let before = self.promised.fetch_add(bytes, Relaxed);
        let claim = Claim { disk: self.clone(), left: AtomicU64::new(bytes) };
        let available = self.root.dir.space()?.available.saturating_sub(before);
        if bytes > 0 && available.saturating_sub(self.reserve) < bytes {
            return Err(self.full(bytes, available));
        }
        Ok(claim)
    }

    /// An error of the disk with the numbers, if it is that the disk is full.
    pub(super) fn explain(&self, error: Error, needed: u64) -> Error {
        match &error {
            Error::Disk { source, .. } if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                let available = self.root.dir.space().map_or(0, |space| space.available);
                self.full(needed, available)
            }
            _ => error,
        }
    }

    fn full(&self, needed: u64, available: u64) -> Error {
        let partial = self.root.usage().map_or(0, |usage| usage.partial);
        let available = available.saturating_sub(self.reserve);
        Error::DiskFull { folder: self.root.dir.path().to_owned(), needed, available, reserve: self.reserve, partial }
    }
}

impl Claim {
    /// Counts what was written, and checks the reserve now and then, since others write too.
    pub(super) fn wrote(&self, bytes: u64) -> Result<(), Error> {
        let used = bytes.min(self.left.load(Relaxed));
        self.left.fetch_sub(used, Relaxed);
        self.disk.promised.fetch_sub(used, Relaxed);
        if self.disk.unchecked.fetch_add(bytes, Relaxed) + bytes < CHECK_BYTES {
            return Ok(());
        }
        self.disk.unchecked.store(0, Relaxed);
        self.check()
    }

    fn check(&self) -> Result<(), Error> {
        let available = self.disk.root.dir.space()?.available;
        if available < self.disk.reserve { Err(self.disk.full(self.left.load(Relaxed), available)) } else { Ok(()) }
    }

    pub(super) fn explain(&self, error: Error) -> Error {
        self.disk.explain(error, self.left.load(Relaxed))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.disk.promised.fetch_sub(self.left.load(Relaxed), Relaxed);
    }
}
