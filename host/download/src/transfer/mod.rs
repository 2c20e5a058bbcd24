//! Downloads models into a root, in parallel parts that continue after any interruption.

mod active;
mod assemble;
mod disk;
mod nodes;
mod part;
mod progress;
mod ranges;
mod rate;
mod remote;
mod retry;
mod reuse;
mod schedule;
mod target;

pub use progress::{Phase, Progress};
pub use remote::RemoteModel;

use crate::{
    access::Access,
    error::{Error, Failure},
    folder::{Dir, Manifest, ModelFolder, Root, StoredModel, Usage, Verification},
    http::Http,
    limits::Limits,
    path::RelativePath,
    peers::{PartRequest, Peer, PeerError, PeerPart, Peers},
    source::{Listing, Source},
    uri::StorageUri,
};
use active::{Active, ActiveGuard, AllActive};
use disk::{Claim, Disk};
use progress::Counters;
use rate::Rate;
use schedule::transfer;
use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::Duration,
};
use target::joined;
use tokio::{sync::Semaphore, task::spawn_blocking};

/// How often a download begins again because its source changed.
const MAX_CHANGES: u32 = 3;

/// A model to download.
#[derive(Clone, Debug)]
pub struct Request {
    pub uri: StorageUri,
    pub access: Access,
    /// The model's `storage.path`, below the root.
    pub path: PathBuf,
    /// Who may read what the credentials open, such as a namespace: only downloads of an equal scope share files.
    pub scope: String,
    /// Other nodes that want the same, and may read it.
    pub peers: Option<Arc<dyn Peers>>,
    /// Whether files that another model of the scope has on this disk are linked instead of downloaded.
    pub reuses_files: bool,
}

/// What a download has done.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub version: String,
    /// The version's own folder, to which the model's path leads.
    pub folder: PathBuf,
    pub files: u64,
    pub bytes: u64,
    /// Bytes that came over the network now.
    pub downloaded_bytes: u64,
    /// Those of them that came from other nodes.
    pub peer_bytes: u64,
    /// Bytes that another version or model had already.
    pub shared_bytes: u64,
    /// Whether the model's path led elsewhere before.
    pub changed: bool,
    /// How often the source changed in the middle.
    pub source_changes: u32,
}

/// What all downloads of a root share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    root: Root,
    http: Http,
    permits: Semaphore,
    rate: Option<Rate>,
    disk: Arc<Disk>,
    pub(crate) active: AllActive,
}

/// Downloads, verifies and removes the models of one root.
#[derive(Clone)]
pub struct Downloader(Arc<Shared>);

impl fmt::Debug for Downloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Downloader").field(&self.0.root.dir.path()).finish()
    }
}

impl Downloader {
    /// Opens a root, which must be a folder on one file system.
    pub fn open(root: &Path, limits: Limits) -> Result<Self, Error> {
        let root = Root::open(root)?;
        let disk = Arc::new(Disk::new(root.clone(), limits.reserve_bytes));
        let http = Http::new(&limits, None)?;
        let permits = Semaphore::new(limits.parallel_parts.max(1));
        let rate = limits.bytes_per_second.map(Rate::new);
        Ok(Self(Arc::new(Shared { limits, root, http, permits, rate, disk, active: AllActive::default() })))
    }

    /// A download that does nothing until it is run.
    pub fn download(&self, request: Request) -> Download {
        Download { shared: self.0.clone(), request, counters: Arc::default() }
    }

    /// The files that a source has now; nothing is downloaded.
    pub async fn list(&self, uri: &StorageUri, access: &Access) -> Result<Listing, Error> {
        let source = Source::open(uri, access, &self.0.http, &self.0.limits)?;
        retry::list(&source, &self.0.limits).await.map_err(|failure| permanent(failure, source.name(), 1))
    }

    /// Compares the version to which a model's path leads with its manifest: sizes and times, or every byte. `None` if there is none.
    pub async fn verify(&self, path: &Path, full: bool) -> Result<Option<Verification>, Error> {
        let (shared, path) = (self.0.clone(), self.0.root.relative(path)?);
        let verifying = spawn_blocking(move || {
            let Some((folder, manifest)) = ModelFolder::current(&shared.root, &path)? else { return Ok(None) };
            let verification = manifest.verify(&folder, full)?;
            if full && !verification.is_intact() {
                ModelFolder::lock(&shared.root, &path)?.mark_damaged(&folder, &manifest, &verification)?;
            }
            Ok(Some(verification))
        });
        joined(verifying.await)
    }

    /// What the version to which a model's path leads has. `None` if there is none.
    pub async fn manifest(&self, path: &Path) -> Result<Option<Manifest>, Error> {
        let (shared, path) = (self.0.clone(), self.0.root.relative(path)?);
        let reading = spawn_blocking(move || ModelFolder::current(&shared.root, &path));
        Ok(joined(reading.await)?.map(|(_, manifest)| manifest))
    }

    /// Removes a model: its link, its versions and what is unfinished, and nothing else.
    pub async fn remove(&self, path: &Path) -> Result<(), Error> {
        let (shared, path) = (self.0.clone(), self.0.root.relative(path)?);
        joined(spawn_blocking(move || ModelFolder::lock(&shared.root, &path)?.remove()).await)
    }

    /// Removes those versions of a model to which its path doesn't lead and that `retain` doesn't choose by the names of their folders.
    /// Returns their names.
    pub async fn prune(&self, path: &Path, retain: impl Fn(&str) -> bool + Send + 'static) -> Result<Vec<String>, Error> {
        let (shared, path) = (self.0.clone(), self.0.root.relative(path)?);
        joined(spawn_blocking(move || ModelFolder::lock(&shared.root, &path)?.prune(&retain)).await)
    }

    /// A part of a model for another node: of the version that its path leads to, or of the one that is downloaded. Waits a while for what isn't
    /// there yet.
    pub async fn part(&self, path: &Path, scope: &str, part: &PartRequest, wait: Duration) -> Result<PeerPart, PeerError> {
        let path = self.0.root.relative(path).map_err(|error| PeerError::Failed(error.to_string()))?;
        self.0.part(&path, scope, part, wait).await
    }

    /// All models that are on the disk, complete or not.
    pub async fn stored(&self) -> Result<Vec<StoredModel>, Error> {
        let shared = self.0.clone();
        joined(spawn_blocking(move || shared.root.stored()).await)
    }

    /// Notes something of a model, for whoever asks for [`Self::stored`] later.
    pub async fn note(&self, path: &Path, note: String) -> Result<(), Error> {
        let (shared, path) = (self.0.clone(), self.0.root.relative(path)?);
        joined(spawn_blocking(move || shared.root.note(&path, &note)).await)
    }

    /// What models hold of the disk.
    pub async fn usage(&self) -> Result<Usage, Error> {
        let shared = self.0.clone();
        joined(spawn_blocking(move || shared.root.usage()).await)
    }
}

/// A download of one model.
pub struct Download {
    shared: Arc<Shared>,
    request: Request,
    counters: Arc<Counters>,
}

/// Reads the progress of a download while it runs.
#[derive(Clone, Debug)]
pub struct Watcher(Arc<Counters>);

impl Watcher {
    pub fn progress(&self) -> Progress {
        self.0.snapshot()
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("request", &self.request).field("progress", &self.counters.snapshot()).finish_non_exhaustive()
    }
}

/// One attempt at one version: what its parts share.
pub(crate) struct Job {
    shared: Arc<Shared>,
    source: Arc<Source>,
    counters: Arc<Counters>,
    claim: Claim,
    active: Arc<Active>,
    peers: Option<Nodes>,
}

/// The nodes that are asked for parts of a version.
struct Nodes {
    peers: Arc<dyn Peers>,
    version: String,
    /// Those that aren't asked any more.
    failed: Mutex<HashSet<Peer>>,
}

impl Download {
    pub fn watcher(&self) -> Watcher {
        Watcher(self.counters.clone())
    }

    /// Downloads the model, and makes its path lead to it. Dropping the future ends the download, and a later one continues it.
    pub async fn run(self) -> Result<Outcome, Error> {
        let source = Arc::new(Source::open(&self.request.uri, &self.request.access, &self.shared.http, &self.shared.limits)?);
        let path = self.shared.root.relative(&self.request.path)?;
        let folder = Arc::new(self.lock(path).await?);
        let mut changes = 0;
        loop {
            match self.attempt(&source, &folder).await {
                Ok(mut outcome) => {
                    self.counters.set_phase(Phase::Complete);
                    outcome.downloaded_bytes = self.counters.received.load(Relaxed);
                    outcome.peer_bytes = self.counters.by_peers.load(Relaxed);
                    outcome.source_changes = changes;
                    return Ok(outcome);
                }
                Err(Failure::Changed { file }) if changes < MAX_CHANGES => {
                    changes += 1;
                    tracing::info!(source = source.name(), file, "the source changed during the download: it begins again");
                }
                Err(failure) => return Err(permanent(failure, source.name(), changes)),
            }
        }
    }

    async fn lock(&self, path: RelativePath) -> Result<ModelFolder, Error> {
        let root = self.shared.root.clone();
        let locking = spawn_blocking(move || {
            let folder = ModelFolder::lock(&root, &path)?;
            // Before anything is downloaded for a path that can't be used.
            folder.check_path()?;
            Ok(folder)
        });
        joined(locking.await)
    }

    /// Downloads the version that the source has now.
    async fn attempt(&self, source: &Arc<Source>, folder: &Arc<ModelFolder>) -> Result<Outcome, Failure> {
        self.counters.set_phase(Phase::Listing);
        let listing = retry::list(source, &self.shared.limits).await?;
        self.version(source, folder, listing).await
    }

    /// Downloads one version, unless it is there.
    async fn version(&self, source: &Arc<Source>, folder: &Arc<ModelFolder>, listing: Listing) -> Result<Outcome, Failure> {
        let bytes = listing.files.iter().map(|file| file.size).sum();
        self.counters.begin(listing.files.len() as u64, bytes);
        let (found, scope, version) = (folder.clone(), self.request.scope.clone(), listing.version.clone());
        let existing = joined(spawn_blocking(move || found.find_intact(&version, &scope)).await)?;
        if let Some((version, manifest)) = existing {
            self.counters.wrote(bytes);
            listing.files.iter().for_each(|_| self.counters.completed_file());
            return Ok(self.publish(folder, version, &manifest, 0).await?);
        }
        self.counters.set_phase(Phase::Downloading);
        let listing = Arc::new(listing);
        let opened = reuse::open(&self.shared.root, folder, &listing, &self.request).await;
        let (mut partial, dir, shared_bytes) = opened.map_err(|error| self.shared.disk.explain(error, bytes))?;
        let guard = ActiveGuard::new(&self.shared, folder.path(), &listing.version, &self.request.scope);
        let peers = self.request.peers.clone().map(|peers| Nodes { peers, version: listing.version.clone(), failed: Mutex::default() });
        let job = Arc::new(Job {
            shared: self.shared.clone(),
            source: source.clone(),
            counters: self.counters.clone(),
            claim: self.shared.disk.claim(reuse::missing_bytes(&listing, &partial))?,
            active: guard.active.clone(),
            peers,
        });
        let done = transfer(&job, &listing, &mut partial).await?;
        if listing.files.iter().any(|file| file.archive.is_some()) {
            self.counters.set_phase(Phase::Unpacking);
        }
        let (source_name, scope) = (source.name().to_owned(), self.request.scope.clone());
        let (model, list) = (folder.clone(), listing.clone());
        let assembling = spawn_blocking(move || {
            let assembled = assemble::assemble(&job, &model, &dir, &list, done, source_name, scope);
            assembled.map_err(|error| job.claim.explain(error))
        });
        let (version, manifest) = joined(assembling.await)?;
        let outcome = self.publish(folder, version, &manifest, shared_bytes).await?;
        // From here on others find the version by its path.
        drop(guard);
        Ok(outcome)
    }

    async fn publish(&self, folder: &Arc<ModelFolder>, version: Dir, manifest: &Manifest, shared_bytes: u64) -> Result<Outcome, Error> {
        let (model, target) = (folder.clone(), version.clone());
        let changed = joined(spawn_blocking(move || model.publish(&target)).await)?;
        Ok(Outcome {
            version: manifest.version.clone(),
            folder: version.path().to_owned(),
            files: manifest.files.len() as u64,
            bytes: manifest.bytes(),
            downloaded_bytes: 0,
            peer_bytes: 0,
            shared_bytes,
            changed,
            source_changes: 0,
        })
    }
}

/// The error that a failure is once nothing repeats it.
fn permanent(failure: Failure, place: &str, changes: u32) -> Error {
    match failure {
        Failure::Permanent(error) => error,
        Failure::Changed { file } => Error::SourceChanged { place: place.to_owned(), file, changes: changes + 1 },
        Failure::Transient { cause, .. } => Error::Unreachable { place: place.to_owned(), attempts: 1, cause },
    }
}
