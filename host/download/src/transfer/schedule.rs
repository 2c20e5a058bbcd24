//! Which parts of which files are requested at a time.

use super::{
    Job,
    part::Part,
    target::{Target, joined},
};
use crate::{
    error::{Error, Failure},
    folder::{Dir, Done, Journal, Known, Record},
    source::{Listing, SourceFile},
};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};
use tokio::task::{JoinSet, spawn_blocking};

/// A version whose files aren't all there.
pub(super) struct Partial {
    pub(super) files: Dir,
    pub(super) blobs: Dir,
    pub(super) journal: Arc<Journal>,
    pub(super) known: BTreeMap<usize, Known>,
}

impl Partial {
    fn folder(&self, file: &SourceFile) -> Dir {
        if file.archive.is_some() { self.blobs.clone() } else { self.files.clone() }
    }
}

/// A digested file, and whether it was downloaded a second time.
type Digested = (Arc<Target>, Result<(String, String), Error>);

struct Schedule<'a> {
    job: &'a Arc<Job>,
    partial: &'a mut Partial,
    /// Files that aren't begun, each with whether it was downloaded before.
    files: VecDeque<(usize, SourceFile)>,
    queue: VecDeque<(Arc<Target>, Range<u64>)>,
    /// Parts that other nodes read from the source: they come after this node's own, which others wait for.
    peers_queue: VecDeque<(Arc<Target>, Range<u64>)>,
    parts: JoinSet<Result<(), Failure>>,
    digests: JoinSet<Digested>,
    failed_once: Vec<usize>,
    done: BTreeMap<usize, Done>,
}

/// Downloads what is missing. Dropping this ends all requests, and loses what isn't journaled yet.
pub(super) async fn transfer(job: &Arc<Job>, listing: &Listing, partial: &mut Partial) -> Result<BTreeMap<usize, Done>, Failure> {
    let done: BTreeMap<_, _> = partial.known.iter().filter_map(|(index, known)| Some((*index, known.done.clone()?))).collect();
    for index in done.keys() {
        let file = &listing.files[*index];
        job.counters.wrote(file.size);
        job.counters.completed_file();
        job.active.ended(&file.path, Some(&partial.folder(file)));
    }
    let files = listing.files.iter().cloned().enumerate().filter(|(index, _)| !done.contains_key(index)).collect();
    let mut schedule = Schedule {
        job,
        partial,
        files,
        queue: VecDeque::new(),
        peers_queue: VecDeque::new(),
        parts: JoinSet::new(),
        digests: JoinSet::new(),
        failed_once: Vec::new(),
        done,
    };
    schedule.run().await?;
    Ok(schedule.done)
}

impl Schedule<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let parallel = self.job.shared.limits.parallel_parts_per_model.max(1);
        loop {
            while self.parts.len() < parallel {
                if let Some((target, range)) = self.queue.pop_front() {
                    if self.job.peer(&target, &range).is_some() {
                        // Of a node that has shown itself since.
                        self.peers_queue.push_back((target, range));
                    } else {
                        self.spawn((target, range));
                    }
                } else if self.digests.len() < parallel.saturating_mul(2)
                    && let Some((index, file)) = self.files.pop_front()
                {
                    self.begin(index, file).await?;
                } else if let Some(next) = self.peers_queue.pop_front() {
                    self.spawn(next);
                } else {
                    break;
                }
            }
            tokio::select! {
                Some(part) = self.parts.join_next() => part.map_err(Failure::transient)??,
                Some(digested) = self.digests.join_next() => {
                    let (target, digests) = digested.map_err(Failure::transient)?;
                    self.finish(&target, digests?).await?;
                }
                else => return Ok(()),
            }
        }
    }

    fn spawn(&mut self, (target, range): (Arc<Target>, Range<u64>)) {
        let part = Part { job: self.job.clone(), journal: self.partial.journal.clone(), target, range };
        self.parts.spawn(part.run());
    }

    async fn begin(&mut self, index: usize, file: SourceFile) -> Result<(), Error> {
        let known = self.partial.known.remove(&index).unwrap_or_default();
        let folder = self.partial.folder(&file);
        let alone = self.failed_once.contains(&index);
        let opening = spawn_blocking(move || Target::open(&folder, index, file, &known, alone));
        let target = Arc::new(joined(opening.await).map_err(|error| self.job.claim.explain(error))?);
        self.job.counters.wrote(target.bytes());
        let missing = target.missing(&self.job.shared.limits);
        self.job.active.began(&target);
        for range in missing {
            let queue = if self.job.peer(&target, &range).is_some() { &mut self.peers_queue } else { &mut self.queue };
            queue.push_back((target.clone(), range));
        }
        self.digests.spawn(async move {
            let digests = target.clone().follow().await;
            (target, digests)
        });
        Ok(())
    }

    /// Compares the digest of a whole file with what is published.
    async fn finish(&mut self, target: &Arc<Target>, (sha256, computed): (String, String)) -> Result<(), Failure> {
        let index = target.index;
        if let Some(published) = target.published()
            && *published.value() != computed
        {
            self.partial.journal.write(&Record::Drop(index))?;
            self.job.active.ended(&target.file.path, None);
            self.job.counters.lost(target.file.size);
            if self.failed_once.contains(&index) {
                return Err(Failure::Permanent(Error::Checksum {
                    place: self.job.source.name().to_owned(),
                    file: target.file.path.to_string(),
                    algorithm: published.algorithm(),
                    expected: published.value().to_owned(),
                    found: computed,
                }));
            }
            tracing::warn!(
                file = target.file.path.as_str(),
                source = self.job.source.name(),
                "a file's checksum differs: it is downloaded again"
            );
            self.failed_once.push(index);
            self.files.push_front((index, target.file.clone()));
            return Ok(());
        }
        let (finished, journal) = (target.clone(), self.partial.journal.clone());
        let storing = spawn_blocking(move || {
            let done = Done { sha256, state: finished.finish()? };
            journal.write(&Record::Done(finished.index, done.clone()))?;
            Ok(done)
        });
        let done = joined(storing.await).map_err(|error| self.job.claim.explain(error))?;
        self.done.insert(index, done);
        self.job.active.ended(&target.file.path, Some(&self.partial.folder(&target.file)));
        self.job.counters.completed_file();
        Ok(())
    }
}
