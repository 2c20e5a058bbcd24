//! The HTTP client of the exporter: kube's, which speaks TLS as with an API server.

use crate::problem::sentence;
use async_trait::async_trait;
use http::{Request, Response, Uri, uri::Scheme};
use http_body_util::{BodyExt, Limited};
use kube::{Client, Config, client::Body};
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use pointsman_sandbox::sync::locked;
use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::timeout;

/// How long one request may take, and all attempts with a batch.
pub(super) const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of an answer is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Why the last request failed. The error of the exporter doesn't have that.
pub(super) type LastFailure = Arc<Mutex<Option<String>>>;

/// A collector.
#[derive(Clone)]
pub(super) struct Collector {
    client: Client,
    failure: LastFailure,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl Collector {
    /// A client of the server of a URL, which the system's CAs verify.
    pub(super) fn new(url: &Uri) -> kube::Result<Self> {
        let mut server = url.clone().into_parts();
        // The requests have the path.
        server.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let mut config = Config::new(Uri::from_parts(server).map_err(|error| kube::Error::HttpError(error.into()))?);
        // The exporter retries by itself.
        config.default_retry = false;
        if url.scheme() == Some(&Scheme::HTTP) {
            // An image may be without CAs.
            config.root_cert = Some(Vec::new());
        }
        Ok(Self { client: Client::try_from(config)?, failure: LastFailure::default() })
    }

    /// Why the last request failed.
    pub(super) fn failure(&self) -> LastFailure {
        Arc::clone(&self.failure)
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = async {
            let (head, body) = self.client.send(request.map(Body::from)).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?;
            Ok::<_, HttpError>(Response::from_parts(head, body.to_bytes()))
        };
        let answer = timeout(EXPORT_TIMEOUT, answer).await.unwrap_or_else(|_| {
            let late = format!("the collector takes longer than {} s", EXPORT_TIMEOUT.as_secs());
            Err(late.into())
        });
        *locked(&self.failure) = answer.as_ref().err().map(|error| sentence(&**error));
        answer
    }
}
