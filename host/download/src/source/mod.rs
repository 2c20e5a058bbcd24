//! A model's files at their source: listed under one version, read in ranges.

mod hub;
mod objects;
mod registry;
mod release;
mod web;

use crate::{
    access::Access,
    checksum::{Checksum, sha256_hex},
    error::{Error, Failure},
    http::{Answer, Body, Http, Place, check_range, failure},
    limits::Limits,
    path::RelativePath,
    uri::StorageUri,
};
use ::http::StatusCode;
use std::{collections::HashSet, ops::Range};
use url::Url;

/// All files of a model at one moment.
#[derive(Clone, Debug)]
pub struct Listing {
    /// A commit, an image's digest, or a digest over the list. It is safe as the name of a folder.
    pub version: String,
    /// In the order of their paths.
    pub files: Vec<SourceFile>,
}

/// A file at its source.
#[derive(Clone, Debug)]
pub struct SourceFile {
    pub path: RelativePath,
    pub size: u64,
    pub checksum: Option<Checksum>,
    /// What differs once the file does: an ETag, a date.
    pub(crate) validator: Option<String>,
    /// The file's name at the source: a key, a digest, a URL.
    pub(crate) key: String,
    /// It is unpacked, and not a file of the model itself.
    pub(crate) archive: Option<Archive>,
    /// Whether parts of it can be requested.
    pub(crate) ranges: bool,
}

/// An archive of a model's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Archive {
    pub(crate) gzip: bool,
    /// The folder in it whose files are the model's, and which is left out of their paths.
    pub(crate) below: Option<RelativePath>,
    /// Whether it is a layer of an image, which can remove files of the layers below.
    pub(crate) layer: bool,
}

impl Archive {
    /// The form that a file's name tells.
    fn for_name(name: &str) -> Option<Self> {
        let parts: Vec<_> = name.rsplit('.').map(str::to_ascii_lowercase).collect();
        let gzip = match parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["tgz", _, ..] | ["gz", "tar", _, ..] => true,
            ["tar", _, ..] => false,
            _ => return None,
        };
        Some(Self { gzip, below: None, layer: false })
    }
}

impl SourceFile {
    /// What tells two states of a file apart, as well as the source can.
    pub(crate) fn identity(&self) -> String {
        let checksum = self.checksum.as_ref().map(|checksum| format!("{}:{}", checksum.algorithm(), checksum.value()));
        format!("{}/{}/{}", self.size, checksum.unwrap_or_default(), self.validator.as_deref().unwrap_or_default())
    }
}

/// A part of a file, as it comes.
pub(crate) struct Reading {
    pub(crate) body: Body,
    /// A checksum of the whole file that is published with its bytes alone.
    pub(crate) checksum: Option<Checksum>,
}

/// Where a model's files are read.
pub(crate) struct Source {
    place: Place,
    kind: Kind,
}

enum Kind {
    Hub(hub::Hub),
    Objects(objects::Objects),
    Registry(registry::Registry),
    Release(release::Release),
    Web(web::Web),
}

impl Source {
    /// The source of a storageUri; it sends no request yet.
    pub(crate) fn open(uri: &StorageUri, access: &Access, http: &Http, limits: &Limits) -> Result<Self, Error> {
        access.check()?;
        let own_trust = access.certificates().map(|pem| Http::new(limits, Some(pem))).transpose()?;
        let http = own_trust.as_ref().unwrap_or(http);
        let (kind, if_unauthorized, if_missing) = match uri {
            StorageUri::HuggingFace { repository, revision } => (
                Kind::Hub(hub::Hub::new(repository, revision.as_deref(), access, http)?),
                "set a token that may read the repository as `token` in the Secret of storage.key, and accept the model's terms on the hub",
                "check the repository and the revision, and set a token if the repository is private",
            ),
            StorageUri::S3 { .. } | StorageUri::Gcs { .. } | StorageUri::Azure { .. } | StorageUri::OciObjects { .. } => (
                Kind::Objects(objects::Objects::new(uri, access, http)?),
                "set credentials that may list and read the bucket in the Secret of storage.key",
                "check the bucket, the prefix and the region",
            ),
            StorageUri::Http { url } => (
                Kind::Web(web::Web::new(url, access, http)?),
                "set `token`, or `username` and `password`, in the Secret of storage.key",
                "check the URL",
            ),
            StorageUri::OciImage { registry, repository, reference } => (
                Kind::Registry(registry::Registry::new(registry, repository, reference, access, http)?),
                "set `username` and `password`, or `.dockerconfigjson`, in the Secret of storage.key",
                "check the repository and the tag",
            ),
            StorageUri::GitHub { owner, repository, tag } => (
                Kind::Release(release::Release::new(owner, repository, tag.as_deref(), access, http)?),
                "set a token that may read the repository as `token` in the Secret of storage.key",
                "check the repository and that it has this release",
            ),
            StorageUri::Local { .. } | StorageUri::Vendor { .. } | StorageUri::Pvc { .. } => {
                return Err(Error::Unsupported { what: format!("downloading {uri}"), remedy: "use the files where they are".to_owned() });
            }
        };
        // The query of a URL may be a signature.
        let name = uri.to_string().split('?').next().unwrap_or_default().to_owned();
        Ok(Self { place: Place { name, if_unauthorized, if_missing }, kind })
    }

    /// The source in messages.
    pub(crate) fn name(&self) -> &str {
        &self.place.name
    }

    /// The files that are there now.
    pub(crate) async fn list(&self, limits: &Limits) -> Result<Listing, Failure> {
        let mut listing = match &self.kind {
            Kind::Hub(hub) => hub.list(&self.place, limits).await,
            Kind::Objects(objects) => objects.list(&self.place, limits).await,
            Kind::Registry(registry) => registry.list(&self.place).await,
            Kind::Release(release) => release.list(&self.place).await,
            Kind::Web(web) => web.list(&self.place, limits).await,
        }?;
        listing.check(self.name(), limits)?;
        Ok(listing)
    }

    /// A range of a file.
    pub(crate) async fn read(&self, file: &SourceFile, range: Range<u64>) -> Result<Reading, Failure> {
        match &self.kind {
            Kind::Hub(hub) => hub.read(&self.place, file, range).await,
            Kind::Objects(objects) => objects.read(&self.place, file, range).await,
            Kind::Registry(registry) => registry.read(&self.place, file, range).await,
            Kind::Release(release) => release.read(&self.place, file, range).await,
            Kind::Web(web) => web.read(&self.place, file, range).await,
        }
    }
}

impl Listing {
    /// A listing whose version is a digest over what is known of its files.
    fn from_files(mut files: Vec<SourceFile>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let lines: Vec<_> = files.iter().flat_map(|file| [file.path.to_string(), file.identity()]).collect();
        Self { version: sha256_hex(lines.join("\n")).split_off(24), files }
    }

    /// Sorts the files, and checks that they can be on one disk together.
    fn check(&mut self, place: &str, limits: &Limits) -> Result<(), Error> {
        let too_large = |what, found, limit, remedy| Error::TooLarge { place: place.to_owned(), what, found, limit, remedy };
        if self.files.is_empty() {
            return Err(Error::NotFound { place: format!("a file of {place}"), remedy: "check the path, and upload the model".to_owned() });
        }
        too_many(place, self.files.len(), limits)?;
        let total = self.files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
        if total > limits.max_model_bytes {
            return Err(too_large("bytes", total, limits.max_model_bytes, "raise the limit of the agent, or choose a smaller model"));
        }
        if !self.files.iter().any(|file| file.archive.is_some()) {
            self.files.sort_by(|a, b| a.path.cmp(&b.path));
        }
        let mut seen = HashSet::new();
        for file in &self.files {
            if !seen.insert(file.path.as_str()) {
                return Err(refused(place, file.path.as_str(), "is listed twice"));
            }
        }
        for file in &self.files {
            let mut parents = file.path.as_path().ancestors().skip(1).filter_map(std::path::Path::to_str);
            if parents.any(|parent| seen.contains(parent)) {
                return Err(refused(place, file.path.as_str(), "is below another file"));
            }
        }
        Ok(())
    }
}

/// Checks the number of files while they are listed.
fn too_many(place: &str, files: usize, limits: &Limits) -> Result<(), Error> {
    if files <= limits.max_files {
        return Ok(());
    }
    Err(Error::TooLarge {
        place: place.to_owned(),
        what: "files",
        found: files as u64,
        limit: limits.max_files as u64,
        remedy: "point the storageUri to the model alone",
    })
}

fn refused(place: &str, path: &str, reason: impl Into<String>) -> Error {
    let path = path.chars().take(200).collect();
    Error::InvalidPath { place: place.to_owned(), path, reason: reason.into() }
}

/// A path that a source names.
fn checked_path(place: &Place, path: &str) -> Result<RelativePath, Error> {
    RelativePath::parse(path).map_err(|reason| refused(&place.name, path, reason))
}

/// The URL of a service's path, each of whose parts is encoded.
fn below<'a>(base: &Url, parts: impl IntoIterator<Item = &'a str>) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(parts);
    }
    url
}

/// The body of an answer to a request for a range.
fn partial(answer: Answer, place: &Place, file: &SourceFile, range: &Range<u64>) -> Result<Body, Failure> {
    let path = file.path.as_str();
    match answer.status {
        StatusCode::PARTIAL_CONTENT => check_range(&answer, range, file.size, path)?,
        // The whole file, since it was requested whole, or since it isn't what it was.
        StatusCode::OK if *range == (0..file.size) && answer.content_length().is_none_or(|length| length == file.size) => {}
        StatusCode::OK | StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::NOT_FOUND | StatusCode::GONE => {
            return Err(Failure::Changed { file: path.to_owned() });
        }
        status => return Err(failure(place, status, &answer.headers)),
    }
    Ok(answer.stream())
}
