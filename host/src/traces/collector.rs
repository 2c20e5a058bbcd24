//! The HTTP client of the exporter.

use crate::{outbound, problem::sentence};
use async_trait::async_trait;
use http::{Request, Response, Uri};
use kube::Client;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use pointsman_sandbox::sync::locked;
use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::timeout;

/// The timeout of a request, and of all attempts to send a batch.
pub(super) const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a response that is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The reason why the last request failed, which the exporter's error lacks.
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
    /// A client of the server of a URL. The system's CAs verify the server.
    pub(super) fn new(url: &Uri) -> kube::Result<Self> {
        Ok(Self { client: outbound::client(url)?, failure: LastFailure::default() })
    }

    /// The reason why the last request failed.
    pub(super) fn failure(&self) -> LastFailure {
        Arc::clone(&self.failure)
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = outbound::send(&self.client, request, MAX_ANSWER_BYTES);
        let answer = timeout(EXPORT_TIMEOUT, answer).await.unwrap_or_else(|_| {
            let late = format!("the collector takes longer than {} s", EXPORT_TIMEOUT.as_secs());
            Err(late.into())
        });
        *locked(&self.failure) = answer.as_ref().err().map(|error| sentence(&**error));
        answer
    }
}
