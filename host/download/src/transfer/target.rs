//! A file that is being downloaded: its bytes on disk, and the digest that follows them.

use super::ranges::Ranges;
use crate::{
    checksum::{Checksum, Digests, Extent},
    error::{DiskContext, Error},
    folder::{Dir, Known, State},
    limits::Limits,
    source::SourceFile,
};
use hyper::body::Bytes;
use rustix::fs::OFlags;
use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use tokio::{sync::watch, task::spawn_blocking};

const BUFFER_BYTES: usize = 256 << 10;
/// How much is digested without a pause.
const STEP_BYTES: u64 = 16 << 20;
/// How much is written before the disk is asked to begin storing it.
const SYNC_BYTES: u64 = 64 << 20;

pub(super) struct Target {
    pub(super) index: usize,
    pub(super) file: SourceFile,
    handle: File,
    path: PathBuf,
    ranges: Mutex<Ranges>,
    /// The end of the bytes that are there from the beginning.
    prefix: watch::Sender<u64>,
    /// Known from the list, the journal, or the first answer.
    checksum: OnceLock<Checksum>,
    unsynced: AtomicU64,
    syncing: AtomicBool,
    /// Whether other nodes aren't asked for it: what came before was wrong.
    pub(super) alone: bool,
    /// The system reports that bytes were lost once, to whichever sync is first.
    sync_failure: OnceLock<io::ErrorKind>,
}

impl Target {
    /// Opens a file, and finds which of its journaled parts are on disk as they were.
    pub(super) fn open(folder: &Dir, index: usize, file: SourceFile, known: &Known, alone: bool) -> Result<Self, Error> {
        let (dir, name) = folder.make_parent(&file.path)?;
        if known.parts.is_empty() {
            // What is there may be shared with another model.
            dir.unlink(name)?;
        }
        let path = dir.path().join(name);
        let handle = dir.create_file(name, OFlags::empty())?;
        let mut ranges = Ranges::default();
        let mut buffer = vec![0; if known.parts.is_empty() { 0 } else { BUFFER_BYTES }];
        for &(start, length, crc) in &known.parts {
            let end = start.saturating_add(length);
            if end <= file.size && crc_of(&handle, start..end, &mut buffer).on_disk("reading", &path)? == Some(crc) {
                ranges.insert(start..end);
            }
        }
        handle.set_len(file.size).on_disk("sizing", &path)?;
        let checksum = OnceLock::new();
        if let Some(published) = file.checksum.clone().or_else(|| known.checksum.clone()) {
            let _ = checksum.set(published);
        }
        let (prefix, _) = watch::channel(ranges.prefix());
        let ranges = Mutex::new(ranges);
        Ok(Self {
            index,
            file,
            handle,
            path,
            ranges,
            prefix,
            checksum,
            unsynced: AtomicU64::new(0),
            syncing: AtomicBool::new(false),
            alone,
            sync_failure: OnceLock::new(),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    /// Whether these bytes are there.
    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).covers(range)
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.handle.read_exact_at(buffer, offset)
    }

    /// The parts that are to be requested.
    pub(super) fn missing(&self, limits: &Limits) -> Vec<Range<u64>> {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if self.file.ranges {
            return ranges.missing(self.file.size, limits.part_size(self.file.size));
        }
        // One request for all, whose beginning is passed over.
        let first = ranges.missing(self.file.size, u64::MAX).first().map(|gap| gap.start);
        first.map(|start| start..self.file.size).into_iter().collect()
    }

    /// Notes the checksum that came with the bytes. Returns whether it is news.
    pub(super) fn learn(&self, checksum: &Checksum) -> bool {
        self.file.size > 0 && *self.prefix.borrow() == 0 && self.checksum.set(checksum.clone()).is_ok()
    }

    pub(super) fn published(&self) -> Option<&Checksum> {
        self.checksum.get()
    }

    /// Writes bytes at their place.
    pub(super) fn write(&self, mut offset: u64, chunks: &[Bytes], crc: &mut Extent) -> Result<(), Error> {
        for chunk in chunks {
            self.handle.write_all_at(chunk, offset).on_disk("writing", &self.path)?;
            crc.update(chunk);
            offset += chunk.len() as u64;
        }
        Ok(())
    }

    /// Notes that bytes are written, so that the digest may follow.
    pub(super) fn wrote(&self, range: Range<u64>) {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.insert(range);
        self.prefix.send_replace(ranges.prefix());
    }

    /// Whether it is time to have the disk store what is written.
    pub(super) fn begin_sync(&self, bytes: u64) -> bool {
        if self.unsynced.fetch_add(bytes, Relaxed) + bytes < SYNC_BYTES || self.syncing.swap(true, Relaxed) {
            return false;
        }
        self.unsynced.store(0, Relaxed);
        true
    }

    pub(super) fn sync(&self) -> Result<(), Error> {
        let synced = self.handle.sync_data();
        self.syncing.store(false, Relaxed);
        if let Err(error) = &synced {
            let _ = self.sync_failure.set(error.kind());
        }
        synced.on_disk("syncing", &self.path)
    }

    /// Stores the file, and takes the state by which a change will be noticed.
    pub(super) fn finish(&self) -> Result<State, Error> {
        let earlier = self.sync_failure.get().map_or(Ok(()), |kind| Err(io::Error::from(*kind)));
        earlier.and_then(|()| self.handle.sync_all()).on_disk("syncing", &self.path)?;
        State::for_file(&self.handle).on_disk("reading", &self.path)
    }

    /// Digests the bytes from the beginning as they come, while the system still has them in memory.
    pub(super) async fn follow(self: Arc<Self>) -> Result<(String, String), Error> {
        let mut prefix = self.prefix.subscribe();
        let mut position = 0;
        let mut digests: Option<Digests> = None;
        while position < self.file.size {
            let end = *prefix.borrow_and_update();
            if end == position {
                // The sender is in `self`, so it isn't gone.
                let _ = prefix.changed().await;
                continue;
            }
            let mut taken = digests.take().unwrap_or_else(|| Digests::new(self.published(), self.file.size));
            let range = position..end.min(position + STEP_BYTES);
            position = range.end;
            let target = self.clone();
            let digested = spawn_blocking(move || {
                let mut buffer = vec![0; BUFFER_BYTES];
                read(&target.handle, range, &mut buffer, |bytes| taken.update(bytes)).on_disk("reading", &target.path)?;
                Ok(taken)
            });
            digests = Some(joined(digested.await)?);
        }
        Ok(digests.unwrap_or_else(|| Digests::new(self.published(), self.file.size)).finish())
    }
}

/// The outcome of a blocking call, which ends early only with the process.
pub(super) fn joined<T>(result: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    result.map_err(io::Error::other).on_disk("working on", PathBuf::new()).and_then(|result| result)
}

fn crc_of(handle: &File, range: Range<u64>, buffer: &mut [u8]) -> io::Result<Option<u32>> {
    let mut crc = Extent::new();
    match read(handle, range, buffer, |bytes| crc.update(bytes)) {
        Ok(()) => Ok(Some(crc.finish())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(handle: &File, range: Range<u64>, buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut position = range.start;
    while position < range.end {
        let length = usize::try_from(range.end - position).unwrap_or(usize::MAX).min(buffer.len());
        handle.read_exact_at(&mut buffer[..length], position)?;
        each(&buffer[..length]);
        position += length as u64;
    }
    Ok(())
}
