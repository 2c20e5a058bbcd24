//! Where schedulers are answered: `/filter`, `/prioritize` and `/preempt`, over TLS or on loopback without.

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

/// How large a call may be. The names of 15,000 nodes and the largest pod together take less.
const MAX_CALL_BYTES: usize = 8 << 20;

/// How many calls are answered at once. A scheduler places one pod after the other.
const AT_ONCE: usize = 8;

/// How many KiB all of them may have together.
const KIB_AT_ONCE: u32 = 32 << 10;

/// How long a call waits for others to be answered. No scheduler waits longer for its answer.
const ROOM_WITHIN: Duration = Duration::from_secs(5);

/// What is said where there is no room.
const BUSY: &str = "too many calls are being answered";

/// How long a call may take to come.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// How long calls that have begun are waited for when the process ends.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What a scheduler asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Which nodes may be.
    Filter,
    /// How nodes rank.
    Prioritize,
    /// On which nodes other pods may give way.
    Preempt,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Filter, Self::Prioritize, Self::Preempt];

    /// As a scheduler's configuration and metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Preempt => "preempt",
        }
    }
}

/// Where calls come from.
#[derive(Debug)]
pub enum Listeners {
    /// Without TLS: the scheduler is in the same pod.
    Plain(TcpListener),
    /// By TLS.
    Tls(TlsListener),
}

/// What is known where calls are answered.
#[derive(Clone, Debug)]
struct Answering {
    extender: Arc<Extender>,
    places: Arc<Semaphore>,
    kib: Arc<Semaphore>,
}

/// Answers until `stop`, and gives the last answers.
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
            // A part of an answer that waits for the receipt of another is late.
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

/// A call that is being answered. If it is dropped before it ends, the scheduler has closed the connection and goes on without an answer.
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

    /// What comes of a call in a word, and the response. Whatever isn't 200 lets a scheduler go on without, if the extender is ignorable.
    async fn response(self, verb: Verb, request: extract::Request, is_abandoned: Arc<AtomicBool>) -> (&'static str, Response) {
        let refused = |code: StatusCode, why: &str| (code, format!("{why}\n")).into_response();
        if let Some(why) = self.extender.obstacle() {
            return ("unready", refused(StatusCode::SERVICE_UNAVAILABLE, &why));
        }
        // Before anything of it is in memory. A call that doesn't say how large it is may be as large as any.
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
        // Policies keep a thread busy for milliseconds.
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
