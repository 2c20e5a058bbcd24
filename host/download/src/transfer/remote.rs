//! A model where it is: listed once, and read in ranges, without a disk.

use super::{permanent, retry};
use crate::{
    access::Access,
    error::{Error, Failure},
    http::Http,
    limits::Limits,
    source::{Listing, Reading, Source, SourceFile},
    uri::StorageUri,
};
use futures::TryStreamExt;
use std::{fmt, ops::Range};

/// The largest file that is read whole because its source sends no parts.
const MAX_WHOLE_BYTES: u64 = 64 << 20;

/// A model at its source.
pub struct RemoteModel {
    source: Source,
    listing: Listing,
    limits: Limits,
}

impl fmt::Debug for RemoteModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteModel").field(&self.source.name()).finish()
    }
}

impl RemoteModel {
    /// Lists the files that the source has now.
    pub async fn open(uri: &StorageUri, access: &Access, limits: Limits) -> Result<Self, Error> {
        let source = Source::open(uri, access, &Http::new(&limits, None)?, &limits)?;
        let listing = retry::list(&source, &limits).await.map_err(|failure| permanent(failure, source.name(), 0))?;
        if let Some(archive) = listing.files.iter().find(|file| file.archive.is_some()) {
            let what = format!("reading files within the archive {} of {}", archive.path, source.name());
            return Err(Error::Unsupported { what, remedy: "download the model, and use the files there".to_owned() });
        }
        Ok(Self { source, listing, limits })
    }

    pub fn files(&self) -> &[SourceFile] {
        &self.listing.files
    }

    /// The bytes of a file from `offset`: `length` of them, or fewer if the file ends before.
    pub async fn read(&self, path: &str, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let Some(file) = self.listing.files.iter().find(|file| file.path.as_str() == path) else {
            return Err(Error::NotFound { place: format!("{path} of {}", self.source.name()), remedy: "check its name".to_owned() });
        };
        let range = offset.min(file.size)..offset.saturating_add(length as u64).min(file.size);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let requested = if file.ranges { range.clone() } else { 0..file.size };
        if requested.end - requested.start > MAX_WHOLE_BYTES.max(range.end - range.start) {
            let what = format!("inspecting {path} at a source that sends only whole files ({})", self.source.name());
            return Err(Error::Unsupported { what, remedy: "download the model, and use the files there".to_owned() });
        }
        let mut patience = retry::Patience::new(&self.limits, self.source.name());
        let mut bytes = loop {
            match self.read_once(file, requested.clone()).await {
                Err(Failure::Transient { cause, wait }) => patience.wait(cause, wait).await?,
                read => break read.map_err(|failure| permanent(failure, self.source.name(), 0))?,
            }
        };
        let skipped = usize::try_from(range.start - requested.start).unwrap_or(usize::MAX).min(bytes.len());
        bytes.drain(..skipped);
        bytes.truncate(length);
        Ok(bytes)
    }

    async fn read_once(&self, file: &SourceFile, range: Range<u64>) -> Result<Vec<u8>, Failure> {
        let size = range.end - range.start;
        let Reading { mut body, .. } = self.source.read(file, range).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = body.try_next().await? {
            if (bytes.len() + chunk.len()) as u64 > size {
                return Err(Failure::transient("the server sends more than requested"));
            }
            bytes.extend_from_slice(&chunk);
        }
        if (bytes.len() as u64) < size { Err(Failure::transient("the answer ends early")) } else { Ok(bytes) }
    }
}
