//! Hugging Face: the hub's documented HTTP API, at the hub or a mirror.
//!
//! Not the crate `hf-hub`: it brings reqwest with aws-lc, and writes files into a cache of its own rather than ranges into ours. What the hub
//! stores as Xet is read through its HTTP bridge, to which it redirects clients without Xet.

use super::{Listing, Reading, SourceFile, below, checked_path, partial, too_many};
use crate::{
    access::Access,
    checksum::Checksum,
    error::{Error, Failure},
    http::{Http, Place, protocol, range_header, secret_header},
    limits::Limits,
    text::is_hex,
};
use http::{HeaderMap, header};
use serde::Deserialize;
use std::{
    collections::HashMap,
    ops::Range,
    sync::{Mutex, PoisonError},
};
use url::Url;

const HUB: &str = "https://huggingface.co";
/// More pages than the most files fill.
const MAX_PAGES: usize = 1000;
const IGNORED: &str = ".gitattributes";

pub(super) struct Hub {
    http: Http,
    endpoint: Url,
    repository: String,
    revision: String,
    headers: HeaderMap,
    /// Where the hub redirects for a file, since it limits requests and its CDN doesn't.
    redirects: Mutex<HashMap<String, Url>>,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: u64,
}

impl Hub {
    pub(super) fn new(repository: &str, revision: Option<&str>, access: &Access, http: &Http) -> Result<Self, Error> {
        let mut headers = HeaderMap::new();
        if let Some(token) = access.token(&["token", "hf_token", "huggingface_api_key"]) {
            headers.insert(header::AUTHORIZATION, secret_header("token", &format!("Bearer {token}"))?);
        }
        let endpoint = match access.endpoint(&["endpoint", "hf_endpoint"])? {
            Some(url) => url,
            None => HUB.parse().map_err(|_| crate::access::invalid("endpoint", "isn't a URL"))?,
        };
        let revision = revision.or_else(|| access.find(&["revision"])).unwrap_or("main").to_owned();
        Ok(Self { http: http.clone(), endpoint, repository: repository.to_owned(), revision, headers, redirects: Mutex::default() })
    }

    pub(super) async fn list(&self, place: &Place, limits: &Limits) -> Result<Listing, Failure> {
        let repository = || ["api", "models"].into_iter().chain(self.repository.split('/'));
        let url = below(&self.endpoint, repository().chain(["revision", &self.revision]));
        let (revision, _): (Revision, _) = self.http.json(place, &url, &self.headers).await?;
        if !is_hex(&revision.sha, 40) {
            return Err(protocol(&place.name, "the hub's sha isn't a commit"));
        }
        let mut next = Some(below(&self.endpoint, repository().chain(["tree", &revision.sha])));
        if let Some(url) = &mut next {
            url.query_pairs_mut().append_pair("recursive", "true");
        }
        let mut files = Vec::new();
        for _ in 0..MAX_PAGES {
            let Some(url) = next.take() else { break };
            let (entries, headers): (Vec<Entry>, _) = self.http.json(place, &url, &self.headers).await?;
            for entry in entries.into_iter().filter(|entry| entry.kind == "file" && entry.path != IGNORED) {
                files.push(entry.into_file(place)?);
            }
            too_many(&place.name, files.len(), limits)?;
            next = next_page(&url, &headers);
            if next.as_ref().is_some_and(|next| next.origin() != url.origin()) {
                return Err(protocol(&place.name, "the list goes on at another server"));
            }
        }
        if next.is_some() {
            return Err(protocol(&place.name, format!("the list has more than {MAX_PAGES} pages")));
        }
        // The same file may be behind another redirect now.
        self.redirects.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for file in &mut files {
            file.key = format!("{}/{}", revision.sha, file.path);
        }
        Ok(Listing { version: revision.sha, files })
    }

    pub(super) async fn read(&self, place: &Place, file: &SourceFile, range: Range<u64>) -> Result<Reading, Failure> {
        let mut headers = self.headers.clone();
        headers.insert(header::RANGE, range_header(&range)?);
        let stored = self.redirects.lock().unwrap_or_else(PoisonError::into_inner).get(&file.key).cloned();
        if let Some(url) = stored {
            headers.remove(header::AUTHORIZATION);
            let answer = self.http.get(&url, &headers).await?;
            // The signature of a redirect ends after some time.
            if !answer.status.is_client_error() || answer.status.as_u16() == 429 {
                return Ok(Reading { body: partial(answer, place, file, &range)?, checksum: None });
            }
            self.redirects.lock().unwrap_or_else(PoisonError::into_inner).remove(&file.key);
            headers = self.headers.clone();
            headers.insert(header::RANGE, range_header(&range)?);
        }
        let url = below(&self.endpoint, self.repository.split('/').chain(["resolve"]).chain(file.key.split('/')));
        let mut answer = self.http.get_once(&url, &headers).await?;
        if let Some(target) = answer.redirect() {
            let target = target?;
            headers.remove(header::AUTHORIZATION);
            answer = self.http.get(&target, &headers).await?;
            if answer.status.is_success() {
                self.redirects.lock().unwrap_or_else(PoisonError::into_inner).insert(file.key.clone(), target);
            } else if answer.status.is_client_error() && answer.status.as_u16() != 429 {
                return Err(Failure::transient(format!("the hub redirects to what refuses with status {}", answer.status.as_u16())));
            }
        }
        Ok(Reading { body: partial(answer, place, file, &range)?, checksum: None })
    }
}

impl Entry {
    fn into_file(self, place: &Place) -> Result<SourceFile, Error> {
        let (size, checksum) = match &self.lfs {
            Some(lfs) => (lfs.size, Checksum::sha256(&lfs.oid)),
            None => (self.size, is_hex(&self.oid, 40).then(|| Checksum::GitBlob(self.oid.clone()))),
        };
        Ok(SourceFile {
            path: checked_path(place, &self.path)?,
            size,
            checksum,
            validator: None,
            key: String::new(),
            archive: None,
            ranges: true,
        })
    }
}

/// The `rel="next"` of a `Link` header.
fn next_page(url: &Url, headers: &HeaderMap) -> Option<Url> {
    let links = headers.get(header::LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    url.join(next.trim().strip_prefix('<')?.split_once('>')?.0).ok()
}
