//! Why a model isn't on the node, in sentences that say what, where and what to do.

use crate::text::Bytes;
use std::{io, path::PathBuf};

/// Why something wasn't done. Each variant reads as a sentence with its remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the storageUri {uri} {reason}: {remedy}")]
    InvalidUri { uri: String, reason: &'static str, remedy: &'static str },
    #[error("{name} of the storage {reason}: correct it in the model's storage.parameters or in its Secret")]
    Setting { name: String, reason: String },
    #[error("{what} isn't supported: {remedy}")]
    Unsupported { what: String, remedy: String },
    #[error("{place} has a file whose path {path:?} {reason}: rename it at the source")]
    InvalidPath { place: String, path: String, reason: String },
    #[error("{place} refuses the credentials ({status}): {remedy}")]
    Unauthorized { place: String, status: u16, remedy: String },
    #[error("{place} doesn't exist: {remedy}")]
    NotFound { place: String, remedy: String },
    #[error(
        "{place} can't be reached after {attempts} attempts ({cause}): check the network and the source; what is downloaded is retained"
    )]
    Unreachable { place: String, attempts: u32, cause: String },
    #[error(
        "{file} of {place} has the {algorithm} {found}, and the source publishes {expected}, in two downloads: upload the file to the source again"
    )]
    Checksum { place: String, file: String, algorithm: &'static str, expected: String, found: String },
    #[error("{place} changed {changes} times during the download, last in {file}: download it when nobody writes to it")]
    SourceChanged { place: String, file: String, changes: u32 },
    #[error(
        "{folder} lacks space: {} are needed, {} are available beyond the reserve of {}, and unfinished downloads hold {}: \
         free space, remove models, or lower the reserve",
        Bytes(*needed), Bytes(*available), Bytes(*reserve), Bytes(*partial)
    )]
    DiskFull { folder: PathBuf, needed: u64, available: u64, reserve: u64, partial: u64 },
    #[error("{place} has {found} {what}, and the limit is {limit}: {remedy}")]
    TooLarge { place: String, what: &'static str, found: u64, limit: u64, remedy: &'static str },
    #[error("{place} sends an answer that can't be used: {reason}: check that the storageUri and the endpoint name the right service")]
    Protocol { place: String, reason: String },
    #[error("the archive {archive} {reason}: pack it again without that")]
    Archive { archive: String, reason: String },
    #[error("{} {reason}: {remedy}", path.display())]
    Occupied { path: PathBuf, reason: &'static str, remedy: &'static str },
    #[error("another process downloads or removes {}: wait until it has ended", path.display())]
    Busy { path: PathBuf },
    #[error("{action} {} fails ({source}): check the disk and its permissions", path.display())]
    Disk { action: &'static str, path: PathBuf, source: io::Error },
}

/// What went wrong in a request, and what follows from it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may pass: the request is repeated after the server's own delay, or a growing one.
    Transient {
        cause: String,
        wait: Option<std::time::Duration>,
    },
    /// The file isn't any more what was listed.
    Changed {
        file: String,
    },
    Permanent(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Permanent(error)
    }
}

impl Failure {
    pub(crate) fn transient(cause: impl std::fmt::Display) -> Self {
        Self::Transient { cause: cause.to_string(), wait: None }
    }
}

/// Says where an error of the disk arose.
pub(crate) trait DiskContext<T> {
    fn on_disk(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> DiskContext<T> for Result<T, E> {
    fn on_disk(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, Error> {
        self.map_err(|error| Error::Disk { action, path: path.into(), source: error.into() })
    }
}
