//! Downloads that run, as other nodes see them: which parts of which files are there already.

use super::{Shared, target::Target};
use crate::{
    error::Error,
    folder::{Dir, Manifest, ModelFolder},
    path::RelativePath,
    peers::{PartRequest, PeerError, PeerPart},
};
use futures::stream;
use hyper::body::Bytes;
use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

/// How much is read from the disk at once.
const CHUNK_BYTES: u64 = 128 << 10;

/// A download that runs.
#[derive(Debug)]
pub(crate) struct Active {
    version: String,
    scope: String,
    files: Mutex<Files>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Files {
    /// Those that are being downloaded.
    targets: HashMap<RelativePath, Arc<Target>>,
    /// Those that are whole, with the folders in which they are.
    done: HashMap<RelativePath, Dir>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let targets: HashSet<_> = self.targets.keys().collect();
        f.debug_struct("Files").field("targets", &targets).field("done", &self.done.keys()).finish()
    }
}

/// All of a root, by the models' paths.
pub(crate) type AllActive = Mutex<HashMap<RelativePath, Arc<Active>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends what others see of a download.
pub(super) struct ActiveGuard {
    shared: Arc<Shared>,
    path: RelativePath,
    pub(super) active: Arc<Active>,
}

impl ActiveGuard {
    pub(super) fn new(shared: &Arc<Shared>, path: &RelativePath, version: &str, scope: &str) -> Self {
        let (version, scope) = (version.to_owned(), scope.to_owned());
        let active = Arc::new(Active { version, scope, files: Mutex::default(), changed: watch::Sender::new(()) });
        locked(&shared.active).insert(path.clone(), active.clone());
        Self { shared: shared.clone(), path: path.clone(), active }
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        let mut all = locked(&self.shared.active);
        if all.get(&self.path).is_some_and(|active| Arc::ptr_eq(active, &self.active)) {
            all.remove(&self.path);
        }
        self.active.changed.send_replace(());
    }
}

impl Active {
    pub(super) fn began(&self, target: &Arc<Target>) {
        locked(&self.files).targets.insert(target.file.path.clone(), target.clone());
        self.changed.send_replace(());
    }

    pub(super) fn wrote(&self) {
        self.changed.send_replace(());
    }

    /// A file is whole, in this folder; or it has to be downloaded again.
    pub(super) fn ended(&self, path: &RelativePath, folder: Option<&Dir>) {
        let mut files = locked(&self.files);
        files.targets.remove(path);
        if let Some(folder) = folder {
            files.done.insert(path.clone(), folder.clone());
        }
        drop(files);
        self.changed.send_replace(());
    }

    /// The open file, if the range is there.
    fn find(&self, path: &RelativePath, range: &Range<u64>) -> Result<Option<Opened>, Error> {
        let folder = {
            let files = locked(&self.files);
            if let Some(target) = files.targets.get(path) {
                return Ok(target.covers(range).then(|| Opened::Target(target.clone())));
            }
            files.done.get(path).cloned()
        };
        let Some((parent, name)) =
            folder.map(|folder| folder.parent(path).map(|found| found.map(|(dir, name)| (dir, name.to_owned())))).transpose()?.flatten()
        else {
            return Ok(None);
        };
        Ok(parent.open_file(&name)?.map(|file| Opened::File(Arc::new(file))))
    }
}

#[derive(Clone)]
enum Opened {
    Target(Arc<Target>),
    File(Arc<File>),
}

impl Opened {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Target(target) => target.read_at(buffer, offset),
            Self::File(file) => file.read_exact_at(buffer, offset),
        }
    }

    fn stream(self, range: Range<u64>, sha256: Option<String>) -> PeerPart {
        let body = stream::unfold((self, range), |(opened, range)| async move {
            if range.is_empty() {
                return None;
            }
            let end = range.end.min(range.start + CHUNK_BYTES);
            let (reading, part) = (opened.clone(), range.start..end);
            let read = spawn_blocking(move || {
                let mut buffer = vec![0; usize::try_from(part.end - part.start).unwrap_or_default()];
                reading.read(&mut buffer, part.start).map(|()| Bytes::from(buffer))
            });
            match read.await.map_err(io::Error::other).and_then(|read| read) {
                Ok(bytes) => Some((Ok(bytes), (opened, end..range.end))),
                Err(error) => Some((Err(error), (opened, range.end..range.end))),
            }
        });
        PeerPart { body: Box::pin(body), sha256 }
    }
}

impl Shared {
    /// A part of the version that a path leads to, or that is downloaded for it. Waits a while for what isn't there yet.
    pub(super) async fn part(&self, path: &RelativePath, scope: &str, part: &PartRequest, wait: Duration) -> Result<PeerPart, PeerError> {
        let failed = |error: Error| PeerError::Failed(error.to_string());
        let (range, until) = (part.start..part.end, Instant::now() + wait);
        loop {
            let active = locked(&self.active).get(path).cloned();
            let Some(active) = active.filter(|active| active.version == part.version && active.scope == scope) else {
                let (root, path, scope, part) = (self.root.clone(), path.clone(), scope.to_owned(), part.clone());
                let found = spawn_blocking(move || complete(ModelFolder::current(&root, &path)?.as_ref(), &scope, &part));
                return match found.await.map_err(|error| PeerError::Failed(error.to_string()))?.map_err(failed)? {
                    Some((opened, sha256)) => Ok(opened.stream(range, Some(sha256))),
                    None => Err(PeerError::Absent),
                };
            };
            let mut changed = active.changed.subscribe();
            if let Some(opened) = active.find(&part.path, &range).map_err(failed)? {
                return Ok(opened.stream(range, None));
            }
            if timeout_at(until, changed.changed()).await.is_err() {
                return Err(PeerError::NotYet);
            }
        }
    }
}

/// The open file of a complete version, with its digest.
fn complete(current: Option<&(Dir, Manifest)>, scope: &str, part: &PartRequest) -> Result<Option<(Opened, String)>, Error> {
    let Some((folder, manifest)) = current.filter(|(_, manifest)| manifest.version == part.version && manifest.scope == scope) else {
        return Ok(None);
    };
    let Some(file) = manifest.files.iter().find(|file| file.path == part.path && file.size() >= part.end && !file.damaged) else {
        return Ok(None);
    };
    let Some((parent, name)) = folder.parent(&file.path)? else { return Ok(None) };
    Ok(parent.open_file(name)?.map(|opened| (Opened::File(Arc::new(opened)), file.sha256.clone())))
}
