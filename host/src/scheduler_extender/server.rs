//! The server for schedulers: `/filter`, `/prioritize` and `/preempt`, over TLS, or without it on loopback.

use super::{Extender, calls::Refused, counts::ExtenderCounts};
use crate::serve::admission::tls::{self, TlsListener};
use axum::{
    Router,
    body::Bytes,
    extract::{self, DefaultBodyLimit, FromRequest, State},
    http::{
        StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use pointsman_sandbox::isolate::isolated;
use std::{
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::spawn_blocking,
    time::{Duration, timeout},
};

/// The maximum size of a call. The names of 15,000 nodes and the largest pod together are smaller.
const MAX_CALL_BYTES: usize = 8 << 20;

/// The maximum number of concurrent calls. A scheduler places one pod after the other.
const AT_ONCE: usize = 8;

/// The maximum size of all concurrent calls, in KiB.
const KIB_AT_ONCE: u32 = 32 << 10;

/// How long a call waits for others. No scheduler waits longer for its response.
const ROOM_WITHIN: Duration = Duration::from_secs(5);

/// The text if too many calls are being handled.
const BUSY: &str = "too many calls are being answered";

/// The timeout of reading a call.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// How long the process waits for running calls when it ends.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Selects nodes.
    Filter,
    /// Ranks nodes.
    Prioritize,
    /// Selects nodes on which other pods may be preempted.
    Preempt,
}

impl Verb {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Filter, Self::Prioritize, Self::Preempt];

    /// Its name in a scheduler's configuration and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Preempt => "preempt",
        }
    }
}

/// The listener.
#[derive(Debug)]
pub enum Listeners {
    /// Without TLS: the scheduler is in the same pod.
    Plain(TcpListener),
    /// With TLS.
    Tls(TlsListener),
}

/// The state that the handlers need.
#[derive(Clone, Debug)]
struct Answering {
    extender: Arc<Extender>,
    places: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

/// Serves until `stop`, and completes the last responses.
pub async fn serve(extender: Arc<Extender>, listener: Listeners, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let routes = routes(extender);
    match listener {
        Listeners::Tls(listener) => tls::serve(listener, routes, stop).await,
        Listeners::Plain(listener) => {
            let (stopping, mut stopped) = watch::channel(false);
            let ending = async move {
                stop.await;
                stopping.send_replace(true);
            };
            // Without this, a part of a response would wait for the acknowledgement of the previous one.
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            let mut answering = pin!(axum::serve(listener, routes).with_graceful_shutdown(ending).into_future());
            tokio::select! {
                result = &mut answering => result,
                // A scheduler keeps its connection open.
                () = async { _ = stopped.wait_for(|stopped| *stopped).await } => timeout(LAST_ANSWERS, answering).await.unwrap_or(Ok(())),
            }
        }
    }
}

/// The routes.
pub fn routes(extender: Arc<Extender>) -> Router {
    let (places, kib) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Semaphore::new(KIB_AT_ONCE as usize)));
    let answering = Answering { extender, places, kib };
    let mut routes = Router::new();
    for verb in Verb::ALL {
        let call = post(move |State(answering): State<Answering>, request: extract::Request| answering.answer(verb, request));
        routes = routes.route(&format!("/{}", verb.name()), call);
    }
    routes.layer(DefaultBodyLimit::max(MAX_CALL_BYTES)).with_state(answering)
}

/// A call in progress. If it is dropped before it ends, the scheduler has closed the connection and continues without a response.
struct Call {
    verb: Verb,
    counts: Arc<ExtenderCounts>,
    started: Instant,
    is_abandoned: Arc<AtomicBool>,
    is_over: bool,
}

impl Call {
    fn new(verb: Verb, counts: Arc<ExtenderCounts>) -> Self {
        Self { verb, counts, started: Instant::now(), is_abandoned: Arc::default(), is_over: false }
    }

    fn ends(&mut self, outcome: &'static str) {
        self.is_over = true;
        self.counts.called(self.verb.name(), outcome, self.started.elapsed());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_over {
            self.is_abandoned.store(true, Ordering::Relaxed);
            self.ends("abandoned");
        }
    }
}

impl Answering {
    async fn answer(self, verb: Verb, request: extract::Request) -> Response {
        let mut call = Call::new(verb, Arc::clone(self.extender.counts()));
        let (outcome, response) = self.response(verb, request, Arc::clone(&call.is_abandoned)).await;
        call.ends(outcome);
        response
    }

    /// The result of a call, as one word, and the response. With any status except 200, a scheduler continues without it if the extender is
    /// ignorable.
    async fn response(self, verb: Verb, request: extract::Request, is_abandoned: Arc<AtomicBool>) -> (&'static str, Response) {
        let refused = |code: StatusCode, why: &str| (code, format!("{why}\n")).into_response();
        if let Some(why) = self.extender.obstacle() {
            return ("unready", refused(StatusCode::SERVICE_UNAVAILABLE, &why));
        }
        // Before any of it is in memory. Without a length, the maximum is assumed.
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let kib = length.unwrap_or(MAX_CALL_BYTES).min(MAX_CALL_BYTES).div_ceil(1 << 10);
        let kib = u32::try_from(kib).unwrap_or(KIB_AT_ONCE);
        let Ok(Ok(kib)) = timeout(ROOM_WITHIN, Arc::clone(&self.kib).acquire_many_owned(kib)).await else {
            return ("busy", refused(StatusCode::SERVICE_UNAVAILABLE, BUSY));
        };
        let body = match timeout(READ_WITHIN, Bytes::from_request(request, &())).await {
            Ok(Ok(body)) => body,
            Ok(Err(rejection)) => return ("invalid", rejection.into_response()),
            Err(_) => return ("invalid", refused(StatusCode::REQUEST_TIMEOUT, "the call takes too long to arrive")),
        };
        let Ok(Ok(place)) = timeout(ROOM_WITHIN, Arc::clone(&self.places).acquire_owned()).await else {
            return ("busy", refused(StatusCode::SERVICE_UNAVAILABLE, BUSY));
        };
        let extender = Arc::clone(&self.extender);
        // Policies block a thread for milliseconds.
        let answered = spawn_blocking(move || {
            let answered = isolated(|| extender.answer(verb, &body, &is_abandoned));
            drop((place, kib));
            answered
        });
        match answered.await {
            Ok(Ok(Ok(json))) => ("answered", ([(CONTENT_TYPE, "application/json")], json).into_response()),
            Ok(Ok(Err(Refused(why)))) => {
                tracing::warn!(verb = verb.name(), "a scheduler's call can't be answered: {why}");
                ("invalid", refused(StatusCode::BAD_REQUEST, &why))
            }
            Ok(Err(error)) => ("failed", refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())),
            Err(_) => ("failed", refused(StatusCode::INTERNAL_SERVER_ERROR, "the call can't be answered")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Format;
    use prometheus_client::registry::Registry;

    #[test]
    fn a_call_that_is_dropped_before_its_end_is_abandoned() {
        let counts = Arc::<ExtenderCounts>::default();
        let mut registry = Registry::default();
        counts.register(&mut registry);
        let mut call = Call::new(Verb::Filter, Arc::clone(&counts));
        let is_abandoned = Arc::clone(&call.is_abandoned);
        call.ends("answered");
        drop(call);
        assert!(!is_abandoned.load(Ordering::Relaxed));
        let call = Call::new(Verb::Filter, counts);
        let is_abandoned = Arc::clone(&call.is_abandoned);
        drop(call);
        assert!(is_abandoned.load(Ordering::Relaxed));
        let page = Format::Prometheus.page(&registry).unwrap();
        for outcome in ["answered", "abandoned"] {
            let line = format!("pointsman_extender_calls_total{{verb=\"filter\",outcome=\"{outcome}\"}} 1");
            assert!(page.lines().any(|written| written == line), "{line} is not in\n{page}");
        }
    }
}
