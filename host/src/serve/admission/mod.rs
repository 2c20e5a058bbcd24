//! The admission webhook: what users write is judged by the active rules before it is kept, and gets the defaults that a cluster's own
//! CRDs lack. Every host answers, whoever leads.
//!
//! `review` makes the answer (`verdict`), for the `kinds` that we serve. `tls` listens, `certificates` says with what, and `bundle` lets
//! the API server trust that. `counts` is for /metrics.

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

/// How large a request may be. The API server takes objects of 3 MiB, and an update carries two: as it is to be, and as it was.
const MAX_REQUEST_BYTES: usize = 8 << 20;

/// How many requests are answered at once. More of them would only wait for each other, and for longer than the API server does.
const AT_ONCE: usize = 64;

/// How many KiB all of them may have together: what is made of a request takes twenty times as much memory.
const KIB_AT_ONCE: u32 = 16 << 10;

/// How long a request waits for others to be answered.
const ROOM_WITHIN: Duration = Duration::from_secs(2);

/// How long a request may take to come.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Why the webhook can't be served.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// It can't listen.
    #[error("the admission webhook can't listen: {0}")]
    Listen(io::Error),
    /// The folder of its certificates can't be watched.
    #[error("the folder of the webhook's certificates can't be watched: {0}")]
    Directory(io::Error),
}

/// What is known where the webhook is answered.
#[derive(Clone, Debug)]
pub struct Admission {
    /// What decides: the active set's rules are asked, and no other's.
    pub policies: Arc<Policies>,
    /// What compiles rules that are new.
    pub evaluator: Option<Arc<Evaluator>>,
    /// The world, for the labels of namespaces.
    pub shared: Shared,
    /// The services that this controller works on: about others no door has a word to say.
    pub claims: Claims,
    /// What keeps the recorded rules from being in force, and namespaces from being known, or none. Until both are none the answer is no
    /// answer, and the failurePolicy says what that means.
    pub obstacles: [watch::Receiver<Option<String>>; 2],
    /// What was answered.
    pub counts: Arc<AdmissionCounts>,
}

/// How the webhook is served.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct AdmissionServer {
    /// Where.
    pub listener: TcpListener,
    /// With which certificates.
    pub certificates: Certificates,
    /// The one that clients are shown now.
    pub shown: Arc<CurrentCertificate>,
    /// Who may ask; anybody who reaches it if there is none.
    pub clients: Option<Arc<dyn ClientCertVerifier>>,
    /// The name of the webhook configurations.
    pub configuration: String,
    /// The host's namespace.
    pub namespace: String,
    /// For the Secret and the configurations.
    pub client: Client,
    /// Whether this host writes them.
    pub leadership: Leadership,
}

/// A door of the webhook.
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

/// What there is room for at once, of both doors.
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
    /// Waits for room for what a request brings. One that doesn't say how large it is may be as large as any.
    async fn for_body(&self, length: Option<usize>) -> Option<OwnedSemaphorePermit> {
        let bytes = length.unwrap_or(MAX_REQUEST_BYTES).min(MAX_REQUEST_BYTES);
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(KIB_AT_ONCE);
        timeout(ROOM_WITHIN, Arc::clone(&self.kib).acquire_many_owned(kib)).await.ok()?.ok()
    }

    /// Waits until it can be answered. Not before it has come: whoever sends slowly keeps nobody waiting.
    async fn for_answer(&self) -> Option<OwnedSemaphorePermit> {
        timeout(ROOM_WITHIN, Arc::clone(&self.places).acquire_owned()).await.ok()?.ok()
    }
}

impl Admission {
    /// Serves it until `stop`, and gives the last answers.
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

    /// What keeps us from answering, or none.
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
        // Before anything of it is kept in memory.
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let Some(kib) = room.for_body(length).await else { return unable("too many requests are being answered") };
        let body = match timeout(READ_WITHIN, Bytes::from_request(request, &())).await {
            Ok(Ok(body)) => body,
            Ok(Err(refused)) => return refused.into_response(),
            Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the request takes too long to arrive\n").into_response(),
        };
        let Some(place) = room.for_answer().await else { return unable("too many requests are being answered") };
        let counts = Arc::clone(&self.counts);
        // Evaluating keeps a thread busy for milliseconds.
        let answered = tokio::task::spawn_blocking(move || {
            let answered = isolated(|| self.review(door, &body));
            // Whoever asked may have gone, and the thread is busy all the same.
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
