//! Our HTTP client as that of `object_store`, and what it publishes in headers that `object_store` doesn't read.

use crate::{
    checksum::Checksum,
    error::Failure,
    http::{Http, requested_delay},
};
use async_trait::async_trait;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use object_store::{
    ClientOptions,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService},
};
use std::{error::Error, fmt, time::Duration};

/// What a response publishes of its object.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    pub(super) checksum: Option<Checksum>,
    /// Its ETag isn't the MD5 then, whatever it looks like.
    pub(super) is_encrypted: bool,
}

#[derive(Clone)]
pub(super) struct Connector(pub(super) Http);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let response = self.0.send(Request::from_parts(head, Full::new(body))).await.map_err(wrapped)?;
        let (mut head, body) = response.into_parts();
        let status = head.status;
        if status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT) {
            let wait = requested_delay(&head.headers);
            return Err(wrapped(Failure::Transient { cause: format!("status {}", status.as_u16()), wait }));
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) {
            return Err(HttpError::new(HttpErrorKind::Unknown, Wrapped::Status(status.as_u16())));
        }
        head.extensions.insert(published(status, &head.headers));
        let body = body.map_err(|error| wrapped(Failure::transient(crate::http::root_cause(&error))));
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

fn published(status: StatusCode, headers: &HeaderMap) -> Published {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let md5 = |text: &str| Checksum::from_base64(text, Checksum::Md5, 16);
    let google = || {
        let hashes: Vec<_> =
            headers.get_all("x-goog-hash").iter().filter_map(|value| value.to_str().ok()).flat_map(|all| all.split(',')).collect();
        let find = |name: &str| hashes.iter().find_map(|hash| hash.trim().strip_prefix(name));
        find("md5=").and_then(md5).or_else(|| Checksum::from_base64(find("crc32c=")?, Checksum::Crc32c, 4))
    };
    // `Content-MD5` is of what is sent, so of the whole only if all is sent.
    let whole = || text("content-md5").filter(|_| status == StatusCode::OK);
    let checksum = google().or_else(|| text("x-ms-blob-content-md5").or_else(whole).and_then(md5));
    let is_encrypted = text("x-amz-server-side-encryption").is_some_and(|kind| kind.starts_with("aws:kms"))
        || text("x-amz-server-side-encryption-customer-algorithm").is_some();
    Published { checksum, is_encrypted }
}

/// A failure on its way through `object_store`.
#[derive(Debug)]
enum Wrapped {
    Transient {
        cause: String,
        wait: Option<Duration>,
    },
    Refused {
        name: String,
        reason: String,
    },
    /// 401, 403 or 404, which `object_store` tells apart for some requests only.
    Status(u16),
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transient { cause, .. } => f.write_str(cause),
            Self::Refused { name, reason } => write!(f, "{name} {reason}"),
            Self::Status(status) => write!(f, "status {status}"),
        }
    }
}

impl Error for Wrapped {}

fn wrapped(failure: Failure) -> HttpError {
    let wrapped = match failure {
        Failure::Transient { cause, wait } => Wrapped::Transient { cause, wait },
        Failure::Permanent(crate::Error::Setting { name, reason }) => Wrapped::Refused { name, reason },
        Failure::Permanent(error) => Wrapped::Transient { cause: error.to_string(), wait: None },
        Failure::Changed { file } => Wrapped::Transient { cause: file, wait: None },
    };
    HttpError::new(HttpErrorKind::Interrupted, wrapped)
}

/// What our client found, somewhere in an error of `object_store`.
pub(super) enum Found {
    Failure(Failure),
    Status(u16),
}

pub(super) fn find(error: &(dyn Error + 'static)) -> Option<Found> {
    let mut next = Some(error);
    while let Some(error) = next {
        let Some(wrapped) = error.downcast_ref::<Wrapped>() else {
            next = error.source();
            continue;
        };
        return Some(match wrapped {
            Wrapped::Transient { cause, wait } => Found::Failure(Failure::Transient { cause: cause.clone(), wait: *wait }),
            Wrapped::Refused { name, reason } => Found::Failure(Failure::Permanent(crate::access::invalid(name, reason.clone()))),
            Wrapped::Status(status) => Found::Status(*status),
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, headers: &[(&'static str, &'static str)]) -> Published {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        published(StatusCode::from_u16(status).unwrap(), &map)
    }

    #[test]
    fn each_store_publishes_its_checksum_in_its_own_header() {
        let md5 = Some(Checksum::Md5("25f9e794323b453885f5181f1b624d0b".into()));
        assert_eq!(of(206, &[("x-goog-hash", "crc32c=4waSgw=="), ("x-goog-hash", "md5=JfnnlDI7RTiF9RgfG2JNCw==")]).checksum, md5);
        assert_eq!(of(206, &[("x-goog-hash", "crc32c=4waSgw==")]).checksum, Some(Checksum::Crc32c("e3069283".into())));
        assert_eq!(of(206, &[("x-ms-blob-content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")]).checksum, md5);
        assert_eq!(of(200, &[("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")]).checksum, md5);
        assert_eq!(of(206, &[("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")]).checksum, None);
        assert!(of(206, &[("x-amz-server-side-encryption", "aws:kms:dsse")]).is_encrypted);
        assert!(!of(206, &[("x-amz-server-side-encryption", "AES256")]).is_encrypted);
    }
}
