//! The admission webhook: the active rules judge users' writes before they are stored, and objects get the defaults that a cluster's own
//! CRDs lack. Every host serves it, regardless of the leader.
//!
//! `review` computes the response (`verdict`) for the `kinds` that this project serves. `tls` listens with the `certificates`, and `bundle`
//! makes the API server trust them. `counts` is for /metrics.

pub mod bundle;
pub mod certificates;
mod connections;
pub mod counts;
pub mod kinds;
pub mod review;
pub mod tls;
pub mod verdict;

use crate::{leader::Leadership, watch::Shared};
use axum::{
    Router,
    body::Bytes,
    extract::{self, DefaultBodyLimit, FromRequest, State},
    http::{
        StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use certificates::{CertificateSink, Certificates, ServedApi};
use counts::AdmissionCounts;
use kube::Client;
use pointsman_core::{
    claims::Claims,
    decide::Policies,
    world::{Labels, Surroundings},
};
use pointsman_sandbox::{evaluator::Evaluator, isolate::isolated};
use review::{Request, ReviewContext, ReviewError};
use std::{io, sync::Arc, time::Instant};
use tls::{CurrentCertificate, TlsListener};
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Duration, timeout},
};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use verdict::{AdmissionVerdict, Denial};

/// The maximum size of a request. The API server accepts objects of 3 MiB, and an update has two: the new and the old one.
const MAX_REQUEST_BYTES: usize = 8 << 20;

/// The maximum number of concurrent requests. More would only wait for each other, and for longer than the API server waits.
const AT_ONCE: usize = 64;

/// The maximum size of all concurrent requests, in KiB: processing a request takes twenty times as much memory.
const KIB_AT_ONCE: u32 = 16 << 10;

/// How long a request waits for others.
const ROOM_WITHIN: Duration = Duration::from_secs(2);

/// The timeout of reading a request.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Why the webhook can't be served.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// It can't listen on the address.
    #[error("the admission webhook can't listen: {0}")]
    Listen(io::Error),
    /// The folder of its certificates can't be watched.
    #[error("the folder of the webhook's certificates can't be watched: {0}")]
    Directory(io::Error),
}

/// The state that the webhook's handlers need.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The active policies, whose rules apply.
    pub policies: Arc<Policies>,
    /// Compiles new rules.
    pub evaluator: Option<Arc<Evaluator>>,
    /// The world, for the labels of namespaces.
    pub shared: Shared,
    /// The services that this controller serves: no rule applies to others.
    pub claims: Claims,
    /// The reasons why the recorded rules aren't active, or namespaces aren't known, or none. Until both are none, requests get an error,
    /// and the failurePolicy applies.
    pub obstacles: [watch::Receiver<Option<String>>; 2],
    /// The counts of responses.
    pub counts: Arc<AdmissionCounts>,
}

/// The settings of the webhook's server.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct AdmissionServer {
    /// The listener.
    pub listener: TcpListener,
    /// The source of its certificates.
    pub certificates: Certificates,
    /// The certificate that is presented now.
    pub shown: Arc<CurrentCertificate>,
    /// Verifies clients; if there is none, any client may send requests.
    pub clients: Option<Arc<dyn ClientCertVerifier>>,
    /// The name of the webhook configurations.
    pub configuration: String,
    /// The host's namespace.
    pub namespace: String,
    /// The client for the Secret and the configurations.
    pub client: Client,
    /// Whether this host writes them.
    pub leadership: Leadership,
}

/// A path of the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReviewPath {
    Validate,
    Default,
}

impl ReviewPath {
    const fn path(self) -> &'static str {
        match self {
            Self::Validate => "/validate",
            Self::Default => "/default",
        }
    }
}

/// The limits of concurrent requests, of both paths.
#[derive(Clone, Debug)]
struct Room {
    places: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

impl Default for Room {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), kib: Arc::new(Semaphore::new(KIB_AT_ONCE as usize)) }
    }
}

impl Room {
    /// Waits for memory for a request's body. Without a length, the maximum is assumed.
    async fn for_body(&self, length: Option<usize>) -> Option<OwnedSemaphorePermit> {
        let bytes = length.unwrap_or(MAX_REQUEST_BYTES).min(MAX_REQUEST_BYTES);
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(KIB_AT_ONCE);
        timeout(ROOM_WITHIN, Arc::clone(&self.kib).acquire_many_owned(kib)).await.ok()?.ok()
    }

    /// Waits for a slot to handle the request. Only after it was read, so that slow senders delay no one.
    async fn for_answer(&self) -> Option<OwnedSemaphorePermit> {
        timeout(ROOM_WITHIN, Arc::clone(&self.places).acquire_owned()).await.ok()?.ok()
    }
}

impl Admission {
    /// Serves until `stop`, and completes the last responses.
    pub async fn serve(self, serving: AdmissionServer, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), AdmissionError> {
        let AdmissionServer { listener, certificates, shown, clients, configuration, namespace, client, leadership } = serving;
        let (bundle, told) = watch::channel(None);
        let outlet = CertificateSink { shown, bundle };
        let listener = TlsListener::new(listener, Arc::clone(&outlet.shown), clients).map_err(AdmissionError::Listen)?;
        tokio::select! {
            result = tls::serve(listener, self.routes(), stop) => result.map_err(AdmissionError::Listen),
            result = certificates.keep(ServedApi::Webhook, (client.clone(), &namespace), leadership.clone(), outlet) => {
                result.map_err(AdmissionError::Directory)
            }
            () = bundle::keep(client.clone(), &configuration, leadership.clone(), told) => Ok(()),
        }
    }

    fn routes(self) -> Router {
        let room = Room::default();
        let door = |door: ReviewPath| {
            let room = room.clone();
            post(move |State(admission): State<Self>, request: extract::Request| admission.answer(door, room, request))
        };
        Router::new()
            .route(ReviewPath::Validate.path(), door(ReviewPath::Validate))
            .route(ReviewPath::Default.path(), door(ReviewPath::Default))
            .route("/readyz", get(async |State(admission): State<Self>| admission.ready()))
            .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
            .with_state(self)
    }

    /// The reason why requests can't be handled, or none.
    fn obstacle(&self) -> Option<String> {
        self.obstacles.iter().find_map(|obstacle| obstacle.borrow().clone())
    }

    fn ready(&self) -> (StatusCode, String) {
        match self.obstacle() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        }
    }

    async fn answer(self, door: ReviewPath, room: Room, request: extract::Request) -> Response {
        let started = Instant::now();
        let unable = |why: &str| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response();
        if let Some(why) = self.obstacle() {
            return unable(&why);
        }
        // Before any of it is in memory.
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let Some(kib) = room.for_body(length).await else { return unable("too many requests are being answered") };
        let body = match timeout(READ_WITHIN, Bytes::from_request(request, &())).await {
            Ok(Ok(body)) => body,
            Ok(Err(refused)) => return refused.into_response(),
            Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the request takes too long to arrive\n").into_response(),
        };
        let Some(place) = room.for_answer().await else { return unable("too many requests are being answered") };
        let counts = Arc::clone(&self.counts);
        // The evaluation blocks a thread for milliseconds.
        let answered = tokio::task::spawn_blocking(move || {
            let answered = isolated(|| self.review(door, &body));
            // The client may have disconnected, but the thread is still busy.
            drop((place, kib));
            answered
        });
        match answered.await {
            Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
            Ok(Ok(Ok((_, AdmissionVerdict { denial: Some(Denial { message, passing: true, .. }), .. })))) => unable(&message),
            Ok(Ok(Ok((request, verdict)))) => {
                counts.answered(door.path(), request.operation(), verdict.allowed(), started.elapsed().as_secs_f64());
                ([(CONTENT_TYPE, "application/json")], verdict.review(&request.uid).to_string()).into_response()
            }
            Ok(Ok(Err(error))) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the request can't be answered\n").into_response(),
        }
    }

    fn review(&self, door: ReviewPath, body: &[u8]) -> Result<(Request, AdmissionVerdict), ReviewError> {
        let request = Request::read(body)?;
        let verdict = match door {
            _ if request.is_let_through(&self.claims) => AdmissionVerdict::default(),
            ReviewPath::Default => review::default(&request),
            ReviewPath::Validate => {
                let set = self.policies.active();
                let known = ReviewContext {
                    rules: set.rules(),
                    evaluator: self.evaluator.as_deref(),
                    namespace_labels: self.labels(&request),
                    surroundings: self.surroundings(&request),
                    memo: Some(self.policies.cache()),
                };
                review::validate(&request, &known)
            }
        };
        Ok((request, verdict))
    }

    fn surroundings(&self, request: &Request) -> Surroundings {
        let known = request.key().map(|key| self.shared.lock().surroundings(key)).unwrap_or_default();
        Surroundings { created: request.created(), ..known }
    }

    fn labels(&self, request: &Request) -> Arc<Labels> {
        request.namespace().map(|name| self.shared.lock().namespace_labels(name)).unwrap_or_default()
    }
}
