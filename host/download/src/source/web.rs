//! A web server: one file or archive, or a folder whose `SHA256SUMS` lists its files.

use super::{Archive, Listing, Reading, SourceFile, checked_path, partial, too_many};
use crate::{
    access::{Access, invalid},
    checksum::Checksum,
    error::{Error, Failure},
    http::{Http, Place, failure, protocol, range_header, secret_header},
    limits::{Limits, MAX_ANSWER_BYTES},
    path::RelativePath,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{StreamExt, TryStreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use percent_encoding::percent_decode_str;
use std::ops::Range;
use url::Url;

const SUMS: &str = "SHA256SUMS";
/// What a file with one checksum has at most.
const MAX_SIDECAR_BYTES: usize = 4096;
const PROBES: usize = 8;

pub(super) struct Web {
    http: Http,
    url: Url,
    headers: HeaderMap,
    checksum: Option<Checksum>,
    unpack: bool,
}

impl Web {
    pub(super) fn new(url: &str, access: &Access, http: &Http) -> Result<Self, Error> {
        let url = url.parse().map_err(|_| invalid("storageUri", "isn't a URL"))?;
        let mut headers = HeaderMap::new();
        if let Some(token) = access.token(&["token"]) {
            headers.insert(header::AUTHORIZATION, secret_header("token", &format!("Bearer {token}"))?);
        } else if let Some(header) = basic(access)? {
            headers.insert(header::AUTHORIZATION, header);
        }
        let checksum = match access.find(&["sha256"]) {
            Some(text) => Some(Checksum::sha256(text).ok_or_else(|| invalid("sha256", "isn't a SHA-256 in 64 hexadecimal digits"))?),
            None => None,
        };
        Ok(Self { http: http.clone(), url, headers, checksum, unpack: access.flag("unpack")?.unwrap_or(true) })
    }

    pub(super) async fn list(&self, place: &Place, limits: &Limits) -> Result<Listing, Failure> {
        if self.url.path().ends_with('/') {
            return self.list_folder(place, limits).await;
        }
        let name = self.url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
        let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
        let checksum = match &self.checksum {
            Some(checksum) => Some(checksum.clone()),
            None => self.sidecar(place).await?,
        };
        let mut file = self.probe(place, checked_path(place, &name)?, self.url.clone(), checksum).await?;
        if self.unpack {
            file.archive = Archive::for_name(&name);
        }
        Ok(Listing::from_files(vec![file]))
    }

    async fn list_folder(&self, place: &Place, limits: &Limits) -> Result<Listing, Failure> {
        let sums = self.url.join(SUMS).map_err(Failure::transient)?;
        let answer = self.http.get(&sums, &self.headers).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Err(Failure::Permanent(Error::NotFound {
                place: format!("{SUMS} of {}", place.name),
                remedy: "put the output of `sha256sum` over the model's files there, or write the URL of one file".to_owned(),
            }));
        }
        let text = answer.expect(place, StatusCode::OK)?.bytes(place, MAX_ANSWER_BYTES).await?;
        let text = String::from_utf8(text).map_err(|_| protocol(&place.name, format!("{SUMS} isn't UTF-8")))?;
        let mut wanted = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (sum, path) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            let path = path.trim_start().trim_start_matches('*').trim_start_matches("./");
            let Some(checksum) = Checksum::sha256(sum) else {
                return Err(protocol(&place.name, format!("{SUMS} has a line without a SHA-256")));
            };
            let path = checked_path(place, path)?;
            let mut url = self.url.clone();
            if let Ok(mut parts) = url.path_segments_mut() {
                parts.pop_if_empty().extend(path.as_str().split('/'));
            }
            wanted.push((path, url, checksum));
            too_many(&place.name, wanted.len(), limits)?;
        }
        let files = stream::iter(wanted.into_iter().map(|(path, url, checksum)| self.probe(place, path, url, Some(checksum))))
            .buffered(PROBES)
            .try_collect()
            .await?;
        Ok(Listing::from_files(files))
    }

    /// The checksum that stands beside a file, if there is one.
    async fn sidecar(&self, place: &Place) -> Result<Option<Checksum>, Failure> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}.sha256", self.url.path()));
        let answer = self.http.get(&url, &self.headers).await?;
        match answer.status {
            StatusCode::OK => {
                let is_short = answer.content_length().is_none_or(|length| length <= MAX_SIDECAR_BYTES as u64);
                let text = if is_short { answer.bytes(place, MAX_SIDECAR_BYTES).await.unwrap_or_default() } else { Vec::new() };
                // A server may answer any URL with a page.
                Ok(String::from_utf8_lossy(&text).split_whitespace().next().and_then(Checksum::sha256))
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => Err(failure(place, status, &answer.headers)),
            _ => Ok(None),
        }
    }

    /// A file's size, and whether parts of it can be requested, by a request for its first byte: not every server answers HEAD.
    async fn probe(&self, place: &Place, path: RelativePath, url: Url, checksum: Option<Checksum>) -> Result<SourceFile, Failure> {
        let mut headers = self.headers.clone();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-0"));
        let answer = self.http.get(&url, &headers).await?;
        let total = answer.header(header::CONTENT_RANGE).and_then(|range| range.rsplit_once('/')).and_then(|(_, size)| size.parse().ok());
        let (size, ranges) = match answer.status {
            StatusCode::PARTIAL_CONTENT => (total, true),
            StatusCode::RANGE_NOT_SATISFIABLE => (total.filter(|size| *size == 0), true),
            StatusCode::OK => (answer.content_length(), false),
            status => return Err(failure(place, status, &answer.headers)),
        };
        let Some(size) = size else {
            return Err(protocol(&place.name, format!("{path} has no published size")));
        };
        // If-Range needs a strong validator.
        let strong = answer.header(header::ETAG).filter(|etag| etag.starts_with('"'));
        let validator = strong.or_else(|| answer.header(header::LAST_MODIFIED)).map(str::to_owned);
        Ok(SourceFile { path, size, checksum, validator, key: url.into(), archive: None, ranges })
    }

    pub(super) async fn read(&self, place: &Place, file: &SourceFile, range: Range<u64>) -> Result<Reading, Failure> {
        let mut headers = self.headers.clone();
        if file.ranges {
            headers.insert(header::RANGE, range_header(&range)?);
            if let Some(validator) = &file.validator {
                headers.insert(header::IF_RANGE, HeaderValue::from_str(validator).map_err(Failure::transient)?);
            }
        }
        let url: Url = file.key.parse().map_err(Failure::transient)?;
        let answer = self.http.get(&url, &headers).await?;
        Ok(Reading { body: partial(answer, place, file, &range)?, checksum: None })
    }
}

/// `Authorization: Basic`, if there are a name and a password.
pub(super) fn basic(access: &Access) -> Result<Option<HeaderValue>, Error> {
    let (Some(name), Some(password)) = (access.find(&["username"]), access.find(&["password"])) else { return Ok(None) };
    secret_header("password", &format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}")))).map(Some)
}
