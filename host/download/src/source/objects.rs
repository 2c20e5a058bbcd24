//! Object stores: S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage, OCI Object Storage.
//!
//! `object_store` signs requests and reads lists; our own client sends them. Its retries are off: ours continue a part where it broke off.

mod build;
mod connector;

use super::{Listing, Reading, SourceFile, checked_path, too_many};
use crate::{
    access::{Access, invalid},
    checksum::Checksum,
    error::{Error, Failure},
    http::{Body, Http, Place, protocol},
    limits::Limits,
    text::is_hex,
    uri::StorageUri,
};
use connector::{Found, Published};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, path::Path};
use std::{collections::HashSet, ops::Range, sync::Arc, time::Duration};
use tokio::time::timeout;

pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Whether an ETag of 32 hexadecimal digits is the MD5 of the bytes.
    etag_is_md5: bool,
    silence: Duration,
}

impl Objects {
    pub(super) fn new(uri: &StorageUri, access: &Access, http: &Http) -> Result<Self, Error> {
        let (store, prefix) = build::store(uri, access, http)?;
        let prefix = Path::parse(prefix).map_err(|error| invalid("the prefix", error.to_string()))?;
        let is_s3 = matches!(uri, StorageUri::S3 { .. } | StorageUri::OciObjects { .. });
        let etag_is_md5 = access.flag("etag_is_md5")?.unwrap_or(true) && is_s3;
        Ok(Self { store, prefix, etag_is_md5, silence: http.silence() })
    }

    pub(super) async fn list(&self, place: &Place, limits: &Limits) -> Result<Listing, Failure> {
        let mut listed = self.store.list(Some(&self.prefix));
        let mut objects = Vec::new();
        while let Some(object) = self.awaited(listed.next()).await? {
            objects.push(object.map_err(|error| failed(error, place, None))?);
            too_many(&place.name, objects.len(), limits)?;
        }
        drop(listed);
        if objects.is_empty() && !self.prefix.as_ref().is_empty() {
            // The prefix may be one object.
            let object = self.awaited(self.store.head(&self.prefix)).await?.map_err(|error| failed(error, place, None))?;
            let name = self.prefix.filename().unwrap_or_default().to_owned();
            return Ok(Listing::from_files(vec![file(place, &name, &object)?]));
        }
        let parents: HashSet<String> = objects.iter().flat_map(|object| parents(object.location.as_ref())).collect();
        let mut files = Vec::new();
        for object in &objects {
            let key = object.location.as_ref();
            let path = key.strip_prefix(self.prefix.as_ref()).unwrap_or(key).trim_start_matches('/');
            // Consoles make empty objects for folders.
            if path.is_empty() || object.size == 0 && parents.contains(key) {
                continue;
            }
            files.push(file(place, path, object)?);
        }
        Ok(Listing::from_files(files))
    }

    pub(super) async fn read(&self, place: &Place, file: &SourceFile, range: Range<u64>) -> Result<Reading, Failure> {
        let etag = file.validator.clone().filter(|validator| validator.contains('"') || is_hex(validator, 32));
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(range.clone()))).with_if_match(etag.clone());
        let location = Path::parse(&file.key).map_err(Failure::transient)?;
        let result = self.awaited(self.store.get_opts(&location, options)).await?;
        let result = result.map_err(|error| failed(error, place, Some(file)))?;
        if result.meta.size != file.size || result.range != range {
            return Err(Failure::Changed { file: file.path.to_string() });
        }
        let published = result.extensions.get::<Published>().cloned().unwrap_or_default();
        let from_etag = || {
            let etag = etag.as_deref()?.trim_matches('"');
            (self.etag_is_md5 && !published.is_encrypted && is_hex(etag, 32)).then(|| Checksum::Md5(etag.to_owned()))
        };
        let checksum = published.checksum.clone().or_else(from_etag);
        let (place, file, silence) = (place.clone(), file.clone(), self.silence);
        let bytes = result.into_stream().map_err(move |error| match failed(error, &place, Some(&file)) {
            // What breaks within a body is the connection.
            Failure::Permanent(Error::Protocol { reason, .. }) => Failure::transient(reason),
            other => other,
        });
        let body: Body = stream::try_unfold(bytes.boxed(), move |mut bytes| async move {
            match timeout(silence, bytes.next()).await {
                Err(_) => Err(Failure::transient(format!("the server is silent for {} seconds", silence.as_secs()))),
                Ok(None) => Ok(None),
                Ok(Some(chunk)) => Ok(Some((chunk?, bytes))),
            }
        })
        .boxed();
        Ok(Reading { body, checksum })
    }

    async fn awaited<T>(&self, answer: impl Future<Output = T>) -> Result<T, Failure> {
        timeout(self.silence, answer).await.map_err(|_| Failure::transient(format!("no answer within {} seconds", self.silence.as_secs())))
    }
}

fn file(place: &Place, path: &str, object: &ObjectMeta) -> Result<SourceFile, Error> {
    Ok(SourceFile {
        path: checked_path(place, path)?,
        size: object.size,
        // It is published with the bytes, together with whether the ETag is one.
        checksum: None,
        validator: Some(object.e_tag.clone().unwrap_or_else(|| object.last_modified.to_rfc3339())),
        key: object.location.as_ref().to_owned(),
        archive: None,
        ranges: true,
    })
}

/// The keys that are folders of a key.
fn parents(key: &str) -> impl Iterator<Item = String> {
    key.match_indices('/').map(|(index, _)| key[..index].to_owned()).collect::<Vec<_>>().into_iter()
}

/// What an error of the store means; `file` is what was read.
fn failed(error: object_store::Error, place: &Place, file: Option<&SourceFile>) -> Failure {
    use object_store::Error as Store;
    let unauthorized =
        |status| Failure::Permanent(Error::Unauthorized { place: place.name.clone(), status, remedy: place.if_unauthorized.to_owned() });
    let missing = || match file {
        Some(file) => Failure::Changed { file: file.path.to_string() },
        None => Failure::Permanent(Error::NotFound { place: place.name.clone(), remedy: place.if_missing.to_owned() }),
    };
    match (connector::find(&error), error) {
        (Some(Found::Failure(failure)), _) => failure,
        (Some(Found::Status(404)), _) | (None, Store::NotFound { .. } | Store::Precondition { .. } | Store::NotModified { .. }) => {
            missing()
        }
        (Some(Found::Status(status)), _) => unauthorized(status),
        (None, other) => {
            let cause: String = crate::http::root_cause(&other).chars().take(300).collect();
            protocol(&place.name, cause)
        }
    }
}
