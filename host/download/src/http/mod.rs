//! The HTTP client of all sources: TLS by ring, redirects that lose credentials, and no way to the machine's own metadata.

mod address;

use crate::{
    access::invalid,
    error::{Error, Failure},
    limits::{Limits, MAX_ANSWER_BYTES, MAX_REQUESTED_DELAY},
};
use address::{Guard, Resolver};
use futures::stream::{self, BoxStream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde::de::DeserializeOwned;
use std::{ops::Range, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use url::Url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 5;
/// What hyper reads at once; eight parts have as many of these.
const MAX_BUFFER_BYTES: usize = 256 << 10;
const USER_AGENT: &str = concat!("pointsman/", env!("CARGO_PKG_VERSION"));

/// Bytes as they come.
pub(crate) type Body = BoxStream<'static, Result<Bytes, Failure>>;

/// A service in messages: what it is, and what to do if it refuses.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) if_unauthorized: &'static str,
    pub(crate) if_missing: &'static str,
}

#[derive(Clone)]
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    guard: Guard,
    silence: Duration,
}

/// An answer whose body isn't read yet.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Who answered in the end.
    pub(crate) url: Url,
    body: Incoming,
    silence: Duration,
}

impl Http {
    /// A client that trusts the system's CAs, and those of a PEM text.
    pub(crate) fn new(limits: &Limits, certificates: Option<&str>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        // An image may be without CAs: then a server with TLS is refused by its certificate.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for certificate in CertificateDer::pem_slice_iter(certificates.unwrap_or_default().as_bytes()) {
            let certificate = certificate.map_err(|_| invalid("ca.crt", "isn't PEM"))?;
            roots.add(certificate).map_err(|error| invalid("ca.crt", format!("isn't a CA's certificate ({error})")))?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("TLS", error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let guard = Guard { loopback: limits.loopback, metadata: false };
        let mut tcp = HttpConnector::new_with_resolver(Resolver(guard));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
            .http1_max_buf_size(MAX_BUFFER_BYTES)
            .build(connector);
        Ok(Self { client, guard, silence: limits.silence })
    }

    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    /// The same client for a source that uses the machine's own identity, which clouds publish at link-local addresses.
    pub(crate) fn with_metadata(&self) -> Self {
        Self { guard: Guard { metadata: true, ..self.guard }, ..self.clone() }
    }

    /// Checks that a service isn't the machine's own, even for a source that uses the machine's identity.
    pub(crate) fn check_service(&self, url: &Url) -> Result<(), Error> {
        let guard = Guard { metadata: false, ..self.guard };
        guard.check_host(host_of(url)).map_err(|reason| invalid("endpoint", reason))
    }

    /// Sends one request; the failure has no address in it that could hold a secret.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        self.guard.check_host(&host).map_err(|reason| Failure::Permanent(invalid("the address", reason)))?;
        match timeout(self.silence, self.client.request(request)).await {
            Err(_) => Err(Failure::transient(format!("{host} doesn't answer within {} seconds", self.silence.as_secs()))),
            Ok(Err(error)) => Err(Failure::transient(format!("{host}: {}", root_cause(&error)))),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// A GET that follows redirects. Whoever is redirected to on another server gets no credentials.
    pub(crate) async fn get(&self, url: &Url, headers: &HeaderMap) -> Result<Answer, Failure> {
        self.follow(url, headers, MAX_REDIRECTS).await
    }

    /// A GET whose redirect is the answer, if the redirect leads to another server.
    pub(crate) async fn get_once(&self, url: &Url, headers: &HeaderMap) -> Result<Answer, Failure> {
        self.follow(url, headers, 0).await
    }

    async fn follow(&self, url: &Url, headers: &HeaderMap, max_redirects: usize) -> Result<Answer, Failure> {
        let (mut url, mut headers) = (url.clone(), headers.clone());
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let mut redirects = 0;
        loop {
            let uri: Uri = url.as_str().parse().map_err(|_| protocol(host_of(&url), "a URL isn't valid"))?;
            let mut request = Request::new(Full::default());
            *request.uri_mut() = uri;
            *request.headers_mut() = headers.clone();
            let (head, body) = self.send(request).await?.into_parts();
            let answer = Answer { status: head.status, headers: head.headers, url: url.clone(), body, silence: self.silence };
            let Some(next) = answer.redirect() else { return Ok(answer) };
            let next = next?;
            let elsewhere = next.origin() != url.origin();
            if elsewhere && max_redirects == 0 {
                return Ok(answer);
            }
            redirects += 1;
            if redirects > max_redirects.max(MAX_REDIRECTS) {
                return Err(protocol(host_of(&url), format!("it redirects more than {MAX_REDIRECTS} times")));
            }
            if elsewhere {
                headers.remove(header::AUTHORIZATION);
                headers.remove(header::COOKIE);
            }
            url = next;
        }
    }

    /// An answer of JSON, with its headers.
    pub(crate) async fn json<T: DeserializeOwned>(&self, place: &Place, url: &Url, headers: &HeaderMap) -> Result<(T, HeaderMap), Failure> {
        let answer = self.get(url, headers).await?.expect(place, StatusCode::OK)?;
        let headers = answer.headers.clone();
        let bytes = answer.bytes(place, MAX_ANSWER_BYTES).await?;
        let value = serde_json::from_slice(&bytes)
            .map_err(|error| protocol(&place.name, format!("the answer isn't the JSON expected ({error})")))?;
        Ok((value, headers))
    }
}

impl Answer {
    /// Where a redirect leads: never from TLS to none.
    pub(crate) fn redirect(&self) -> Option<Result<Url, Failure>> {
        if !matches!(self.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let location = self.headers.get(header::LOCATION)?.to_str().unwrap_or_default();
        Some(match self.url.join(location) {
            Ok(next) if next.scheme() == "https" || next.scheme() == self.url.scheme() => Ok(next),
            _ => Err(protocol(host_of(&self.url), "it redirects to what isn't a URL of the same security")),
        })
    }

    /// The answer, if it has this status.
    pub(crate) fn expect(self, place: &Place, status: StatusCode) -> Result<Self, Failure> {
        if self.status == status { Ok(self) } else { Err(failure(place, self.status, &self.headers)) }
    }

    pub(crate) fn header(&self, name: impl Into<HeaderName>) -> Option<&str> {
        self.headers.get(name.into())?.to_str().ok()
    }

    pub(crate) fn content_length(&self) -> Option<u64> {
        self.header(header::CONTENT_LENGTH)?.parse().ok()
    }

    /// The whole body, if it has at most so many bytes.
    pub(crate) async fn bytes(self, place: &Place, max_bytes: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut body = self.stream();
        while let Some(chunk) = body.next().await {
            bytes.extend_from_slice(&chunk?);
            if bytes.len() > max_bytes {
                return Err(protocol(&place.name, format!("a list has more than {max_bytes} bytes")));
            }
        }
        Ok(bytes)
    }

    /// The body as it comes.
    pub(crate) fn stream(self) -> Body {
        let silence = self.silence;
        stream::try_unfold(self.body, move |mut body| async move {
            loop {
                let frame = timeout(silence, body.frame()).await;
                match frame {
                    Err(_) => return Err(Failure::transient(format!("the server is silent for {} seconds", silence.as_secs()))),
                    Ok(None) => return Ok(None),
                    Ok(Some(Err(error))) => return Err(Failure::transient(root_cause(&error))),
                    Ok(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some((data, body)));
                        }
                    }
                }
            }
        })
        .boxed()
    }
}

/// What a status means.
pub(crate) fn failure(place: &Place, status: StatusCode, headers: &HeaderMap) -> Failure {
    let code = status.as_u16();
    match code {
        401 | 403 => {
            Failure::Permanent(Error::Unauthorized { place: place.name.clone(), status: code, remedy: place.if_unauthorized.to_owned() })
        }
        404 | 410 => Failure::Permanent(Error::NotFound { place: place.name.clone(), remedy: place.if_missing.to_owned() }),
        408 | 425 | 429 | 500.. => Failure::Transient { cause: format!("status {code}"), wait: requested_delay(headers) },
        _ => protocol(&place.name, format!("status {code}")),
    }
}

/// The seconds of `Retry-After`.
pub(crate) fn requested_delay(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_REQUESTED_DELAY))
}

pub(crate) fn protocol(place: impl Into<String>, reason: impl Into<String>) -> Failure {
    Failure::Permanent(Error::Protocol { place: place.into(), reason: reason.into() })
}

/// A header with a secret, which `Debug` doesn't show.
pub(crate) fn secret_header(name: &str, value: &str) -> Result<HeaderValue, Error> {
    let mut header = HeaderValue::from_str(value).map_err(|_| invalid(name, "has characters that a header can't have"))?;
    header.set_sensitive(true);
    Ok(header)
}

pub(crate) fn range_header(range: &Range<u64>) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(&format!("bytes={}-{}", range.start, range.end.saturating_sub(1))).map_err(Failure::transient)
}

/// Checks that a partial answer is the part that was requested: its start, and the size of the whole.
pub(crate) fn check_range(answer: &Answer, range: &Range<u64>, size: u64, file: &str) -> Result<(), Failure> {
    let expected = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
    match answer.header(header::CONTENT_RANGE) {
        Some(found) if found == expected => Ok(()),
        Some(found) if !found.ends_with(&format!("/{size}")) => Err(Failure::Changed { file: file.to_owned() }),
        _ => Err(Failure::transient("the server sends another part than requested")),
    }
}

fn host_of(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

/// The innermost cause, which says what happened rather than where.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
