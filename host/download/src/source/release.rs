//! GitHub: the assets of a release.

use super::{Listing, Reading, SourceFile, below, checked_path, partial};
use crate::{
    access::Access,
    checksum::Checksum,
    error::{Error, Failure},
    http::{Http, Place, range_header, secret_header},
};
use http::{HeaderMap, HeaderValue, header};
use serde::Deserialize;
use std::ops::Range;
use url::Url;

const API: &str = "https://api.github.com";

pub(super) struct Release {
    http: Http,
    endpoint: Url,
    owner: String,
    repository: String,
    tag: Option<String>,
    headers: HeaderMap,
}

#[derive(Deserialize)]
struct Answer {
    assets: Vec<Asset>,
}

#[derive(Deserialize)]
struct Asset {
    id: u64,
    name: String,
    size: u64,
    /// Missing of assets from before 2025.
    digest: Option<String>,
    updated_at: Option<String>,
}

impl Release {
    pub(super) fn new(owner: &str, repository: &str, tag: Option<&str>, access: &Access, http: &Http) -> Result<Self, Error> {
        let mut headers = HeaderMap::new();
        if let Some(token) = access.token(&["token", "github_token"]) {
            headers.insert(header::AUTHORIZATION, secret_header("token", &format!("Bearer {token}"))?);
        }
        let endpoint = match access.endpoint(&["endpoint", "github_endpoint"])? {
            Some(url) => url,
            None => API.parse().map_err(|_| crate::access::invalid("endpoint", "isn't a URL"))?,
        };
        let tag = tag.or_else(|| access.find(&["github_tag"])).map(str::to_owned);
        Ok(Self { http: http.clone(), endpoint, owner: owner.to_owned(), repository: repository.to_owned(), tag, headers })
    }

    pub(super) async fn list(&self, place: &Place) -> Result<Listing, Failure> {
        let base = ["repos", &self.owner, &self.repository, "releases"];
        let url = match &self.tag {
            Some(tag) => below(&self.endpoint, base.into_iter().chain(["tags", tag])),
            None => below(&self.endpoint, base.into_iter().chain(["latest"])),
        };
        let mut headers = self.headers.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
        let (release, _): (Answer, _) = self.http.json(place, &url, &headers).await?;
        let mut files = Vec::new();
        for asset in release.assets {
            files.push(SourceFile {
                path: checked_path(place, &asset.name)?,
                size: asset.size,
                checksum: asset.digest.as_deref().and_then(Checksum::sha256),
                // An asset that is replaced has another id.
                validator: Some(format!("{} {}", asset.id, asset.updated_at.unwrap_or_default())),
                key: asset.id.to_string(),
                archive: None,
                ranges: true,
            });
        }
        Ok(Listing::from_files(files))
    }

    pub(super) async fn read(&self, place: &Place, file: &SourceFile, range: Range<u64>) -> Result<Reading, Failure> {
        let mut headers = self.headers.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/octet-stream"));
        headers.insert(header::RANGE, range_header(&range)?);
        let url = below(&self.endpoint, ["repos", &self.owner, &self.repository, "releases", "assets", &file.key]);
        let answer = self.http.get(&url, &headers).await?;
        Ok(Reading { body: partial(answer, place, file, &range)?, checksum: None })
    }
}
