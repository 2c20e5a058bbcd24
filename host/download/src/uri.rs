//! Where a model's files are: the schemes of `storageUri`.

use crate::error::Error;
use std::{fmt, path::PathBuf, str::FromStr};

/// The longest storageUri; the CRD has the same limit.
pub(crate) const MAX_URI_BYTES: usize = 2048;

/// A parsed storageUri. It never has credentials, so it may be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageUri {
    /// `hf://ORG/MODEL[@REVISION]`
    HuggingFace { repository: String, revision: Option<String> },
    /// `s3://BUCKET[@REGION]/PREFIX`
    S3 { bucket: String, region: Option<String>, prefix: String },
    /// `gs://BUCKET/PREFIX`
    Gcs { bucket: String, prefix: String },
    /// `az://ACCOUNT[.blob.core.windows.net]/CONTAINER/PREFIX`
    Azure { account: String, container: String, prefix: String },
    /// `http://...` and `https://...`
    Http { url: String },
    /// `oci://n/NAMESPACE/b/BUCKET/o/PREFIX`, OCI Object Storage
    OciObjects { namespace: String, bucket: String, prefix: String },
    /// `oci://REGISTRY/REPOSITORY[:TAG][@DIGEST]`, an image or artifact of a registry, as KServe writes it. REGISTRY has a dot or a port,
    /// or is localhost, so that it is never the `n` of Object Storage.
    OciImage { registry: String, repository: String, reference: Reference },
    /// `github://OWNER/REPO[@TAG]`, the assets of a release; without a tag, of the latest
    GitHub { owner: String, repository: String, tag: Option<String> },
    /// `local:///ABSOLUTE/PATH`, already on the node
    Local { path: PathBuf },
    /// `vendor://VENDOR/TYPE/PATH`, brought by somebody else
    Vendor { path: String },
    /// `pvc://[NAMESPACE:]NAME/PATH`, which pods mount by themselves
    Pvc { namespace: Option<String>, name: String, path: String },
}

/// Which image of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    Tag(String),
    Digest(String),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(text) | Self::Digest(text) => f.write_str(text),
        }
    }
}

impl StorageUri {
    pub fn parse(uri: &str) -> Result<Self, Error> {
        let invalid = |reason, remedy| Error::InvalidUri { uri: shortened(uri), reason, remedy };
        if uri.len() > MAX_URI_BYTES {
            return Err(invalid("has more than 2048 bytes", "write a shorter one"));
        }
        if uri.chars().any(|c| c.is_control() || c == ' ') {
            return Err(invalid("has a space or a control character", "write it percent-encoded in a URL, and leave it out elsewhere"));
        }
        let Some((scheme, rest)) = uri.split_once("://") else {
            return Err(invalid("has no scheme", SCHEMES));
        };
        match scheme {
            "hf" => hugging_face(rest)
                .ok_or_else(|| invalid("isn't a Hugging Face repository", "write hf://ORG/MODEL, or hf://ORG/MODEL@REVISION")),
            "s3" => s3(rest).ok_or_else(|| invalid("isn't a place in S3", "write s3://BUCKET/PREFIX, or s3://BUCKET@REGION/PREFIX")),
            "gs" => gcs(rest).ok_or_else(|| invalid("isn't a place in Google Cloud Storage", "write gs://BUCKET/PREFIX")),
            "az" => azure(rest).ok_or_else(|| {
                invalid(
                    "isn't a place in Azure Blob Storage",
                    "write az://ACCOUNT/CONTAINER/PREFIX, or az://ACCOUNT.blob.core.windows.net/CONTAINER/PREFIX",
                )
            }),
            "http" | "https" => http(uri).map_err(|(reason, remedy)| invalid(reason, remedy)),
            "oci" => oci(rest).ok_or_else(|| {
                invalid(
                    "is neither a place in OCI Object Storage nor an image",
                    "write oci://n/NAMESPACE/b/BUCKET/o/PREFIX for Object Storage, or oci://REGISTRY/REPOSITORY:TAG for an image, where \
                     REGISTRY has a dot or a port",
                )
            }),
            "github" => github(rest).ok_or_else(|| {
                invalid("isn't a repository on GitHub", "write github://OWNER/REPO for its latest release, or github://OWNER/REPO@TAG")
            }),
            "local" => local(rest).ok_or_else(|| invalid("isn't an absolute path without . and ..", "write local:///ABSOLUTE/PATH")),
            "vendor" => vendor(rest).ok_or_else(|| invalid("has no vendor", "write vendor://VENDOR/TYPE/PATH")),
            "pvc" => pvc(rest)
                .ok_or_else(|| invalid("isn't a place on a PersistentVolumeClaim", "write pvc://NAME/PATH, or pvc://NAMESPACE:NAME/PATH")),
            _ => Err(invalid("has an unknown scheme", SCHEMES)),
        }
    }

    /// Whether there is something for this crate to download.
    pub fn is_remote(&self) -> bool {
        !matches!(self, Self::Local { .. } | Self::Vendor { .. } | Self::Pvc { .. })
    }
}

const SCHEMES: &str = "begin with hf://, s3://, gs://, az://, http://, https://, oci://, github://, local://, vendor:// or pvc://";

impl FromStr for StorageUri {
    type Err = Error;

    fn from_str(uri: &str) -> Result<Self, Error> {
        Self::parse(uri)
    }
}

impl fmt::Display for StorageUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = |mark: &str, text: &Option<String>| text.as_ref().map(|text| format!("{mark}{text}")).unwrap_or_default();
        match self {
            Self::HuggingFace { repository, revision } => write!(f, "hf://{repository}{}", optional("@", revision)),
            Self::S3 { bucket, region, prefix } => write!(f, "s3://{bucket}{}/{prefix}", optional("@", region)),
            Self::Gcs { bucket, prefix } => write!(f, "gs://{bucket}/{prefix}"),
            Self::Azure { account, container, prefix } => write!(f, "az://{account}/{container}/{prefix}"),
            Self::Http { url } => f.write_str(url),
            Self::OciObjects { namespace, bucket, prefix } => write!(f, "oci://n/{namespace}/b/{bucket}/o/{prefix}"),
            Self::OciImage { registry, repository, reference } => {
                let mark = if matches!(reference, Reference::Tag(_)) { ':' } else { '@' };
                write!(f, "oci://{registry}/{repository}{mark}{reference}")
            }
            Self::GitHub { owner, repository, tag } => write!(f, "github://{owner}/{repository}{}", optional("@", tag)),
            Self::Local { path } => write!(f, "local://{}", path.display()),
            Self::Vendor { path } => write!(f, "vendor://{path}"),
            Self::Pvc { namespace, name, path } => {
                let namespace = namespace.as_ref().map(|namespace| format!("{namespace}:")).unwrap_or_default();
                write!(f, "pvc://{namespace}{name}/{path}")
            }
        }
    }
}

/// What is safe in the path of a request and in a message.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text != "."
        && text != ".."
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// A prefix of keys: anything, but no part that a file system reads as a direction.
fn prefix(text: &str) -> Option<String> {
    let text = text.trim_end_matches('/');
    (text.is_empty() || text.split('/').all(|part| !part.is_empty() && part != "." && part != "..")).then(|| text.to_owned())
}

fn split_at_sign(text: &str) -> Option<(&str, Option<String>)> {
    match text.split_once('@') {
        None => Some((text, None)),
        Some((before, after)) if !after.is_empty() && !after.contains('@') => Some((before, Some(after.to_owned()))),
        Some(_) => None,
    }
}

fn hugging_face(rest: &str) -> Option<StorageUri> {
    let (repository, revision) = split_at_sign(rest)?;
    // A few old repositories have no organization.
    let parts: Vec<_> = repository.split('/').collect();
    if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
        return None;
    }
    // A branch may have slashes.
    if let Some(revision) = &revision
        && !revision.split('/').all(is_name)
    {
        return None;
    }
    Some(StorageUri::HuggingFace { repository: repository.to_owned(), revision })
}

fn s3(rest: &str) -> Option<StorageUri> {
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (bucket, region) = split_at_sign(place)?;
    let fits = is_name(bucket) && region.as_deref().is_none_or(is_name);
    Some(StorageUri::S3 { bucket: bucket.to_owned(), region, prefix: prefix(path)? }).filter(|_| fits)
}

fn gcs(rest: &str) -> Option<StorageUri> {
    let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
    Some(StorageUri::Gcs { bucket: bucket.to_owned(), prefix: prefix(path)? }).filter(|_| is_name(bucket))
}

fn azure(rest: &str) -> Option<StorageUri> {
    let (account, path) = rest.split_once('/')?;
    let account = account.strip_suffix(".blob.core.windows.net").unwrap_or(account);
    let (container, path) = path.split_once('/').unwrap_or((path, ""));
    // Azure's own rule for accounts, so that no other host can be meant.
    let fits = (3..=24).contains(&account.len()) && account.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let container_fits = is_name(container.strip_prefix('$').unwrap_or(container));
    Some(StorageUri::Azure { account: account.to_owned(), container: container.to_owned(), prefix: prefix(path)? })
        .filter(|_| fits && container_fits)
}

fn http(uri: &str) -> Result<StorageUri, (&'static str, &'static str)> {
    let url = url::Url::parse(uri).map_err(|_| ("isn't a URL", "write https://HOST/PATH"))?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err(("has no host", "write https://HOST/PATH"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(("has credentials", "put them into the Secret, as `username` and `password` or as `token`"));
    }
    if url.fragment().is_some() {
        return Err(("has a fragment", "leave out what follows #"));
    }
    Ok(StorageUri::Http { url: url.into() })
}

fn oci(rest: &str) -> Option<StorageUri> {
    let (first, path) = rest.split_once('/')?;
    if first == "n" {
        let mut parts = path.splitn(5, '/');
        let (namespace, b, bucket, o) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let fits = is_name(namespace) && b == "b" && is_name(bucket) && o == "o";
        let prefix = prefix(parts.next().unwrap_or(""))?;
        return Some(StorageUri::OciObjects { namespace: namespace.to_owned(), bucket: bucket.to_owned(), prefix }).filter(|_| fits);
    }
    let (host, port) = first.rsplit_once(':').map_or((first, None), |(host, port)| (host, Some(port)));
    let is_registry = is_name(host) && (host.contains('.') || host == "localhost" || port.is_some());
    if !is_registry || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return None;
    }
    let (path, digest) = split_at_sign(path)?;
    let (repository, tag) = path.rsplit_once(':').map_or((path, None), |(repository, tag)| (repository, Some(tag)));
    let lower = |part: &str| is_name(part) && !part.bytes().any(|byte| byte.is_ascii_uppercase());
    if !repository.split('/').all(lower) || tag.is_some_and(|tag| !is_name(tag) || tag.len() > 128) {
        return None;
    }
    let reference = match digest {
        Some(digest) => {
            digest.strip_prefix("sha256:").filter(|hex| crate::text::is_hex(hex, 64))?;
            Reference::Digest(digest)
        }
        None => Reference::Tag(tag.unwrap_or("latest").to_owned()),
    };
    Some(StorageUri::OciImage { registry: first.to_owned(), repository: repository.to_owned(), reference })
}

fn github(rest: &str) -> Option<StorageUri> {
    let (place, tag) = split_at_sign(rest)?;
    let (owner, repository) = place.split_once('/')?;
    let fits = is_name(owner) && is_name(repository) && tag.as_deref().is_none_or(|tag| tag.split('/').all(is_name));
    Some(StorageUri::GitHub { owner: owner.to_owned(), repository: repository.to_owned(), tag }).filter(|_| fits)
}

fn local(rest: &str) -> Option<StorageUri> {
    let inside = prefix(rest.strip_prefix('/')?)?;
    Some(StorageUri::Local { path: PathBuf::from(format!("/{inside}")) })
}

fn vendor(rest: &str) -> Option<StorageUri> {
    Some(StorageUri::Vendor { path: rest.to_owned() }).filter(|_| !rest.is_empty() && !rest.starts_with('/'))
}

fn pvc(rest: &str) -> Option<StorageUri> {
    let (claim, path) = rest.split_once('/')?;
    let (namespace, name) = claim.split_once(':').map_or((None, claim), |(namespace, name)| (Some(namespace), name));
    let fits = is_name(name) && namespace.is_none_or(is_name);
    let namespace = namespace.map(str::to_owned);
    Some(StorageUri::Pvc { namespace, name: name.to_owned(), path: prefix(path)? }).filter(|_| fits)
}

/// A text for a message: of one line and not long. What stands before an `@` in a host may be a password.
fn shortened(uri: &str) -> String {
    let mut text: String = uri.chars().map(|c| if c.is_control() { '?' } else { c }).take(200).collect();
    if let Some((scheme, rest)) = text.split_once("://")
        && scheme.starts_with("http")
        && let Some((host, path)) = rest.split_once('@')
        && !host.contains('/')
    {
        text = format!("{scheme}://***@{path}");
    }
    text
}

#[cfg(test)]
mod tests;
