//! The external metrics API, `external.metrics.k8s.io`, with which HorizontalPodAutoscalers scale pools. Every host serves it, regardless
//! of the leader.
//!
//! It needs no watches: for each request, `pickers` finds the pool's pickers, `scaling` queries them, and `metric` parses the request and
//! writes the response. `front_proxy` accepts only the API server, which has authorized the user before it forwards a request.

pub mod front_proxy;
mod metric;
mod pickers;
mod scaling;

use super::{
    admission::{
        bundle,
        certificates::{CertificateSink, Certificates, ServedApi},
        tls::{self, CurrentCertificate, TlsListener},
    },
    health::Served,
};
use crate::leader::Leadership;
use axum::{
    Router,
    extract::{Path, RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use front_proxy::FrontProxy;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use metric::{GROUP, MetricRequest, VERSION};
use scaling::PoolReader;
use serde_json::{Value, json};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    time::timeout,
};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

/// The name of the APIService.
const API_SERVICE: &str = "v1beta1.external.metrics.k8s.io";

/// The maximum number of concurrent requests.
const AT_ONCE: usize = 64;

/// How long a request waits for others, and for its own result.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// Why the API can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ExternalMetricsError {
    /// It can't listen on the address.
    #[error("the external metrics API can't listen: {0}")]
    Listen(io::Error),
    /// The folder of its certificates can't be watched.
    #[error("the folder of --external-metrics-certs can't be watched: {0}")]
    Directory(io::Error),
}

/// The settings of the API's server.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct ExternalMetricsServer {
    /// The listener.
    pub listener: TcpListener,
    /// The source of its certificates.
    pub certificates: Certificates,
    /// The certificate that is presented now.
    pub shown: Arc<CurrentCertificate>,
    /// The accepted clients.
    pub front_proxy: Arc<FrontProxy>,
    /// The host's namespace.
    pub namespace: String,
    /// The client for pools and pods, the Secret and the APIService.
    pub client: Client,
    /// Whether this host writes the last two.
    pub leadership: Leadership,
}

/// Why a metric has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unanswered {
    code: StatusCode,
    /// The problem and the remedy.
    message: String,
}

impl Unanswered {
    fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl IntoResponse for Unanswered {
    fn into_response(self) -> Response {
        let reason = match self.code {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            _ => "InternalError",
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message, "reason": reason,
            "code": self.code.as_u16(),
        });
        (self.code, answer(&status)).into_response()
    }
}

impl ExternalMetricsServer {
    /// The parts that the host's readiness depends on.
    pub fn served(&self) -> Served {
        let (certificate, front_proxy) = (Arc::clone(&self.shown), Some(Arc::clone(&self.front_proxy)));
        Served { api: ServedApi::ExternalMetrics, certificate, front_proxy }
    }

    /// Serves the API until `stop`, and completes the last responses.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), ExternalMetricsError> {
        let Self { listener, certificates, shown, front_proxy, namespace, client, leadership } = self;
        let (bundle, told) = watch::channel(None);
        let outlet = CertificateSink { shown: Arc::clone(&shown), bundle };
        let clients: Arc<dyn ClientCertVerifier> = Arc::<FrontProxy>::clone(&front_proxy);
        let listener = TlsListener::new(listener, shown, Some(clients)).map_err(ExternalMetricsError::Listen)?;
        tokio::select! {
            result = tls::serve(listener, routes(client.clone()), stop) => result.map_err(ExternalMetricsError::Listen),
            result = certificates.keep(ServedApi::ExternalMetrics, (client.clone(), &namespace), leadership.clone(), outlet) => {
                result.map_err(ExternalMetricsError::Directory)
            }
            () = front_proxy.follow(client.clone()) => Ok(()),
            () = bundle::keep_one::<APIService>(client, API_SERVICE, leadership, told) => Ok(()),
        }
    }
}

/// The state that the handlers need.
#[derive(Clone)]
struct Answering {
    pools: Arc<PoolReader>,
    places: Arc<Semaphore>,
}

fn routes(client: Client) -> Router {
    let answering = Answering { pools: Arc::new(PoolReader::new(client)), places: Arc::new(Semaphore::new(AT_ONCE)) };
    Router::new()
        .route("/apis", get(async || answer(&metric::group_list())))
        .route(&format!("/apis/{GROUP}"), get(async || answer(&metric::group())))
        .route(&format!("/apis/{GROUP}/{VERSION}"), get(async || answer(&metric::resource_list())))
        .route(&format!("/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/{{metric}}"), get(value))
        // Also for /openapi, which the API server doesn't need.
        .fallback(async || Unanswered::new(StatusCode::NOT_FOUND, "nothing is served at this path"))
        .with_state(answering)
}

fn answer(json: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], json.to_string()).into_response()
}

async fn value(
    State(Answering { pools, places }): State<Answering>,
    Path((namespace, metric)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let request = match MetricRequest::parse(namespace, &metric, query.as_deref().unwrap_or_default()) {
        Ok(request) => request,
        Err(unanswered) => return unanswered.into_response(),
    };
    let reading = async {
        // The semaphore is never closed.
        let _place = places.acquire().await;
        pools.read(&request.namespace, &request.pool).await
    };
    let late = || Err(Unanswered::new(StatusCode::SERVICE_UNAVAILABLE, request.late()));
    let read = timeout(ANSWER_WITHIN, reading).await.unwrap_or_else(|_| late());
    match read.and_then(|scaling| request.value(&scaling)) {
        Ok(list) => answer(&list),
        Err(unanswered) => {
            tracing::debug!(namespace = request.namespace, pool = request.pool, error = unanswered.message, "a metric has no value");
            unanswered.into_response()
        }
    }
}

#[cfg(test)]
mod tests;
