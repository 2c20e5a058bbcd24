//! Images and artifacts of an OCI registry: a model's files as layers, in the forms of ModelPack, ORAS and KServe's modelcars.
//!
//! Not the crate `oci-client`: it brings reqwest, a second HTTP stack, and this needs a token, a manifest and ranges of blobs.

mod layer;
mod token;

use super::{Listing, Reading, SourceFile, below, partial};
use crate::{
    access::Access,
    checksum::{Checksum, sha256_hex},
    error::{Error, Failure},
    http::{Answer, Http, Place, failure, protocol, range_header},
    limits::MAX_ANSWER_BYTES,
    path::RelativePath,
    uri::Reference,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use layer::Layer;
use serde::Deserialize;
use std::ops::Range;
use token::Token;
use url::Url;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Where a modelcar has its files, by KServe's convention.
const MODEL_FOLDER: &str = "models";

pub(super) struct Registry {
    http: Http,
    base: Url,
    repository: String,
    reference: Reference,
    folder: RelativePath,
    token: Token,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
    #[serde(default)]
    manifests: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

impl Registry {
    pub(super) fn new(registry: &str, repository: &str, reference: &Reference, access: &Access, http: &Http) -> Result<Self, Error> {
        let (host, repository) = match registry {
            // Docker Hub's registry has another name than its images.
            "docker.io" if !repository.contains('/') => ("registry-1.docker.io", format!("library/{repository}")),
            "docker.io" => ("registry-1.docker.io", repository.to_owned()),
            _ => (registry, repository.to_owned()),
        };
        let scheme = if access.flag("plain_http")?.unwrap_or(false) { "http" } else { "https" };
        let base = format!("{scheme}://{host}/v2/").parse().map_err(|_| crate::access::invalid("the registry", "isn't a host"))?;
        let folder = access.find(&["image_path"]).unwrap_or(MODEL_FOLDER).trim_matches('/');
        let folder = RelativePath::parse(folder).map_err(|reason| crate::access::invalid("image_path", reason))?;
        let token = Token::new(registry, &repository, access)?;
        Ok(Self { http: http.clone(), base, repository, reference: reference.clone(), folder, token })
    }

    pub(super) async fn list(&self, place: &Place) -> Result<Listing, Failure> {
        let (mut manifest, mut digest) = self.manifest(place, &self.reference.to_string()).await?;
        if !manifest.manifests.is_empty() {
            let architecture = match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            };
            let fits = |choice: &&Choice| {
                choice.platform.as_ref().is_some_and(|platform| platform.os == "linux" && platform.architecture == architecture)
            };
            let only = if manifest.manifests.len() == 1 { manifest.manifests.first() } else { None };
            let Some(choice) = manifest.manifests.iter().find(fits).or(only) else {
                return Err(protocol(&place.name, format!("the index has no image for linux/{architecture}")));
            };
            (manifest, digest) = self.manifest(place, &choice.digest.clone()).await?;
        }
        let ranges = match manifest.layers.first() {
            Some(layer) => self.has_ranges(place, layer).await?,
            None => return Err(protocol(&place.name, "the manifest has no layers")),
        };
        let files = manifest.layers.iter().enumerate();
        let files = files.map(|(index, layer)| layer.file(place, index, &self.folder, ranges)).collect::<Result<_, _>>()?;
        Ok(Listing { version: digest, files })
    }

    /// A manifest and its digest, which is that of the reference if that is one.
    async fn manifest(&self, place: &Place, reference: &str) -> Result<(Manifest, String), Failure> {
        let mut headers = HeaderMap::new();
        for media_type in [MANIFEST, DOCKER_MANIFEST, INDEX, DOCKER_INDEX] {
            headers.append(header::ACCEPT, HeaderValue::from_static(media_type));
        }
        let answer = self.get(place, &["manifests", reference], headers).await?;
        let bytes = answer.expect(place, StatusCode::OK)?.bytes(place, MAX_ANSWER_BYTES).await?;
        let digest = sha256_hex(&bytes);
        if let Some(wanted) = reference.strip_prefix("sha256:")
            && wanted != digest
        {
            return Err(protocol(&place.name, format!("the manifest {reference} has the digest sha256:{digest}")));
        }
        let manifest =
            serde_json::from_slice(&bytes).map_err(|error| protocol(&place.name, format!("the manifest isn't one ({error})")))?;
        Ok((manifest, digest))
    }

    async fn has_ranges(&self, place: &Place, layer: &Layer) -> Result<bool, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-0"));
        let answer = self.get(place, &["blobs", &layer.digest], headers).await?;
        match answer.status {
            StatusCode::PARTIAL_CONTENT => Ok(true),
            StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE => Ok(false),
            status => Err(failure(place, status, &answer.headers)),
        }
    }

    pub(super) async fn read(&self, place: &Place, file: &SourceFile, range: Range<u64>) -> Result<Reading, Failure> {
        let mut headers = HeaderMap::new();
        if file.ranges {
            headers.insert(header::RANGE, range_header(&range)?);
        }
        let answer = self.get(place, &["blobs", &file.key], headers).await?;
        Ok(Reading { body: partial(answer, place, file, &range)?, checksum: None })
    }

    /// A request with the token, which is fetched again when the registry refuses it.
    async fn get(&self, place: &Place, path: &[&str], headers: HeaderMap) -> Result<Answer, Failure> {
        let url = below(&self.base, self.repository.split('/').chain(path.iter().copied()));
        let with_token = |token: Option<HeaderValue>| {
            let mut headers = headers.clone();
            headers.extend(token.map(|token| (header::AUTHORIZATION, token)));
            headers
        };
        let answer = self.http.get(&url, &with_token(self.token.current())).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        match self.token.fetch(&self.http, place, &answer).await? {
            Some(token) => self.http.get(&url, &with_token(Some(token))).await,
            None => Ok(answer),
        }
    }
}

impl Layer {
    fn file(&self, place: &Place, index: usize, folder: &RelativePath, ranges: bool) -> Result<SourceFile, Failure> {
        let checksum = Checksum::sha256(&self.digest).filter(|_| self.digest.starts_with("sha256:"));
        let Some(checksum) = checksum else {
            return Err(protocol(&place.name, "a layer's digest isn't a SHA-256"));
        };
        let (path, archive) = self.content(place, index, folder)?;
        Ok(SourceFile { path, size: self.size, checksum: Some(checksum), validator: None, key: self.digest.clone(), archive, ranges })
    }
}
