//! One part of a file: requested, written as it comes, continued where it breaks off.

use super::{
    Job,
    retry::Patience,
    target::{Target, joined},
};
use crate::{
    checksum::Extent,
    error::{Error, Failure},
    folder::{Journal, Record},
    limits::Limits,
    source::Reading,
};
use futures::StreamExt;
use hyper::body::Bytes;
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::task::spawn_blocking;

pub(super) struct Part {
    pub(super) job: Arc<Job>,
    pub(super) journal: Arc<Journal>,
    pub(super) target: Arc<Target>,
    pub(super) range: Range<u64>,
}

/// Bytes that are written and not journaled yet.
struct Written {
    start: u64,
    crc: Extent,
}

impl Part {
    pub(super) async fn run(self) -> Result<(), Failure> {
        // A closed semaphore would be that of a process that ends.
        let _permit = self.job.shared.permits.acquire().await;
        let place = self.job.source.name().to_owned();
        let mut patience = Patience::new(&self.job.shared.limits, &place);
        let mut position = self.range.start;
        let mut written = Written { start: position, crc: Extent::new() };
        while position < self.range.end {
            let before = position;
            let outcome = self.attempt(&mut position, &mut written).await;
            if position > before {
                patience.renew();
            }
            match outcome {
                Ok(()) => {}
                Err(Failure::Transient { cause, wait }) => patience.wait(cause, wait).await?,
                Err(other) => {
                    // What came counts for the next download.
                    self.checkpoint(&mut written, position)?;
                    return Err(other);
                }
            }
        }
        self.checkpoint(&mut written, position)?;
        Ok(())
    }

    /// One request, until its end or a failure. What it wrote is in `position`.
    async fn attempt(&self, position: &mut u64, written: &mut Written) -> Result<(), Failure> {
        let file = &self.target.file;
        let requested = if file.ranges { *position..self.range.end } else { 0..file.size };
        // What a server without ranges sends again.
        let mut passed_over = *position - requested.start;
        let (Reading { mut body, checksum }, peer) = self.job.read(&self.target, &self.range, requested).await?;
        if let Some(checksum) = checksum
            && self.target.learn(&checksum)
        {
            self.journal.write(&Record::Sum(self.target.index, checksum))?;
        }
        let (mut chunks, mut length, most) = (Vec::new(), 0, Limits::flush(file.size));
        loop {
            let next = body.next().await;
            if let Some(Ok(mut chunk)) = next {
                self.job.counters.received.fetch_add(chunk.len() as u64, Relaxed);
                if peer.is_some() {
                    self.job.counters.by_peers.fetch_add(chunk.len() as u64, Relaxed);
                }
                if let Some(rate) = &self.job.shared.rate {
                    rate.take(chunk.len()).await;
                }
                let skipped = passed_over.min(chunk.len() as u64);
                passed_over -= skipped;
                let chunk = chunk.split_off(usize::try_from(skipped).unwrap_or(usize::MAX));
                length += chunk.len();
                if *position + length as u64 > self.range.end {
                    return Err(Failure::transient("the server sends more than requested"));
                }
                chunks.push(chunk);
                if length as u64 >= most {
                    self.flush(std::mem::take(&mut chunks), position, written).await?;
                    length = 0;
                }
                continue;
            }
            // Whatever ended it: what came is right.
            self.flush(chunks, position, written).await?;
            let failure = match next {
                Some(Err(failure)) => failure,
                _ if *position < self.range.end => Failure::transient("the answer ends early"),
                _ => return Ok(()),
            };
            if let Some(node) = &peer {
                self.job.give_up(node, &format!("{failure:?}"));
            }
            return Err(failure);
        }
    }

    async fn flush(&self, chunks: Vec<Bytes>, position: &mut u64, written: &mut Written) -> Result<(), Error> {
        let length: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        if length == 0 {
            return Ok(());
        }
        let (target, offset) = (self.target.clone(), *position);
        let mut crc = std::mem::replace(&mut written.crc, Extent::new());
        let writing = spawn_blocking(move || target.write(offset, &chunks, &mut crc).map(|()| crc));
        written.crc = joined(writing.await).map_err(|error| self.job.claim.explain(error))?;
        self.target.wrote(offset..offset + length);
        self.job.active.wrote();
        self.job.counters.wrote(length);
        *position += length;
        self.job.claim.wrote(length)?;
        if *position - written.start >= Limits::checkpoint(self.target.file.size) {
            self.checkpoint(written, *position)?;
        }
        if self.target.begin_sync(length) {
            let (target, journal) = (self.target.clone(), self.journal.clone());
            // Nobody waits for it: what matters is synced again when the file is whole.
            spawn_blocking(move || target.sync().and_then(|()| journal.sync()));
        }
        Ok(())
    }

    /// Journals what is written.
    fn checkpoint(&self, written: &mut Written, position: u64) -> Result<(), Error> {
        if position > written.start {
            let record = Record::Part(self.target.index, written.start, position - written.start, written.crc.finish());
            self.journal.write(&record).map_err(|error| self.job.claim.explain(error))?;
            *written = Written { start: position, crc: Extent::new() };
        }
        Ok(())
    }
}
