//! The body of a response to a client: the gateway's own, or a backend's, which keeps the request in flight until it has ended.

use super::{
    backend::{Backends, Connection},
    error::GatewayError,
    limits::Limits,
    model::InFlight,
    record::{Outcome, Record},
    usage::UsageScan,
};
use futures::{future::BoxFuture, task::AtomicWaker};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use pointsman_sandbox::sync::locked;
use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Interval};

/// A waiting client gets this comment from time to time, which clients of server-sent events ignore.
const COMMENT: &[u8] = b": waiting for the model\n\n";

/// Why a response has ended early.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// The backend's response isn't complete.
    #[error("the backend's answer has ended too early: {0}")]
    Backend(#[from] hyper::Error),
    /// It takes too long.
    #[error("the answer has taken too long")]
    TimedOut,
}

/// Holds a value until the response has ended.
pub type Guard = Box<dyn Send + Sync>;

/// The body of a response.
pub struct ResponseBody {
    kind: Kind,
    guard: Option<Guard>,
}

enum Kind {
    Own(Option<Bytes>, Option<Box<Record>>),
    Proxied(Arc<Flight>),
    Held(Box<Held>),
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

impl ResponseBody {
    /// The gateway's own response.
    pub fn own(bytes: Bytes, record: Option<Record>) -> Self {
        Self { kind: Kind::Own(Some(bytes), record.map(Box::new)), guard: None }
    }

    /// A backend's response.
    pub fn proxied(flight: Arc<Flight>) -> Self {
        Self { kind: Kind::Proxied(flight), guard: None }
    }

    /// A response that isn't there yet: comments until it is. Then it is a stream of events, or an error as JSON.
    pub fn held(answer: BoxFuture<'static, Result<ResponseBody, String>>, comments: Interval) -> Self {
        Self { kind: Kind::Held(Box::new(Held { answer: Some(answer), comments, body: None })), guard: None }
    }

    /// Holds a value until it has ended.
    pub fn hold(&mut self, guard: Guard) {
        self.guard = Some(guard);
    }
}

struct Held {
    answer: Option<BoxFuture<'static, Result<ResponseBody, String>>>,
    comments: Interval,
    body: Option<ResponseBody>,
}

impl Held {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        if let Some(body) = &mut self.body {
            return Pin::new(body).poll_frame(context);
        }
        let Some(answer) = &mut self.answer else { return Poll::Ready(None) };
        match answer.as_mut().poll(context) {
            Poll::Ready(Ok(body)) => {
                self.answer = None;
                Pin::new(self.body.insert(body)).poll_frame(context)
            }
            Poll::Ready(Err(error)) => {
                self.answer = None;
                Poll::Ready(Some(Ok(Frame::data(Bytes::from(format!("data: {error}\n\n"))))))
            }
            Poll::Pending => {
                ready!(self.comments.poll_tick(context));
                // It is polled again at once, and then waits for the next tick.
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))))
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match &mut self.get_mut().kind {
            Kind::Own(bytes, record) => {
                if let Some(record) = record {
                    record.outcome = Outcome::Complete;
                }
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Proxied(flight) => flight.poll_frame(context),
            Kind::Held(held) => held.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Own(bytes, _) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Proxied(flight) => flight.is_end_stream(),
            Kind::Held(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Own(bytes, _) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Proxied(flight) => flight.size_hint(),
            Kind::Held(_) => SizeHint::default(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        match &mut self.kind {
            // The body of an empty response is never polled.
            Kind::Own(bytes, Some(record)) if bytes.as_ref().is_none_or(Bytes::is_empty) => record.outcome = Outcome::Complete,
            Kind::Proxied(flight) => flight.leave(),
            Kind::Own(..) | Kind::Held(_) => {}
        }
    }
}

/// The side that a response waits for.
#[derive(Clone, Copy, Debug)]
enum Waits {
    Backend(Instant),
    Client(Instant),
}

#[derive(Debug)]
struct FlightState {
    incoming: Option<Incoming>,
    connection: Option<Connection>,
    in_flight: Option<InFlight>,
    record: Option<Record>,
    usage: Option<UsageScan>,
    waits: Waits,
    started: Instant,
    timed_out: bool,
}

impl FlightState {
    fn poll_incoming(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match (&mut self.incoming, &mut self.connection) {
            (Some(incoming), Some(connection)) => connection.poll_frame(incoming, context),
            _ => Poll::Ready(None),
        }
    }
}

/// A request in flight whose response has begun.
#[derive(Debug)]
pub struct Flight {
    state: Mutex<FlightState>,
    backends: Arc<Backends>,
    waker: AtomicWaker,
}

/// The parts of a flight.
#[derive(Debug)]
pub struct Begun {
    /// The backend's response.
    pub incoming: Incoming,
    /// Its connection.
    pub connection: Connection,
    /// Kept until the response has ended.
    pub in_flight: InFlight,
    /// Logged at the end.
    pub record: Record,
    /// Counts its tokens, if they matter.
    pub usage: Option<UsageScan>,
}

impl Flight {
    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        let mut state = locked(&self.state);
        if state.timed_out {
            return Poll::Ready(Some(Err(ResponseError::TimedOut)));
        }
        match state.poll_incoming(context) {
            Poll::Pending => {
                self.waker.register(context.waker());
                if let Waits::Client(_) = state.waits {
                    state.waits = Waits::Backend(Instant::now());
                }
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.finish(&mut state, Outcome::Complete);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.finish(&mut state, Outcome::BackendFailed);
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(Some(Ok(frame))) => {
                state.waits = Waits::Client(Instant::now());
                if let Some(data) = frame.data_ref() {
                    let length = data.len() as u64;
                    if let Some(usage) = &mut state.usage {
                        usage.read(data);
                    }
                    if let Some(record) = &mut state.record {
                        record.sent += length;
                    }
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = locked(&self.state);
        !state.timed_out && state.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        locked(&self.state).incoming.as_ref().map(Body::size_hint).unwrap_or_default()
    }

    /// The client no longer reads it. A body of known length is dropped after its last byte, without a poll for the end.
    fn leave(&self) {
        let mut state = locked(&self.state);
        let is_complete = state.incoming.as_ref().is_some_and(Body::is_end_stream);
        self.finish(&mut state, if is_complete { Outcome::Complete } else { Outcome::ClientGone });
    }

    /// Releases everything. Only the first outcome is recorded.
    fn finish(&self, state: &mut FlightState, outcome: Outcome) {
        state.incoming = None;
        if let Some(connection) = state.connection.take()
            && outcome == Outcome::Complete
        {
            self.backends.give_back(connection);
        }
        if let Some(mut record) = state.record.take() {
            record.outcome = outcome;
            record.used = state.usage.take().map(|usage| (usage.tokens(), usage.is_reported()));
        }
        state.in_flight = None;
    }

    /// Ends it if it has exceeded a time limit.
    fn check(&self, limits: &Limits, now: Instant) {
        let mut state = locked(&self.state);
        let late = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
        let is_late = late(state.started, limits.request_timeout)
            || match state.waits {
                Waits::Backend(since) => late(since, limits.backend_timeout),
                Waits::Client(since) => late(since, limits.stall_timeout),
            };
        if is_late && state.incoming.is_some() {
            state.timed_out = true;
            self.finish(&mut state, Outcome::TimedOut);
            drop(state);
            self.waker.wake();
        }
    }
}

/// All responses that have begun, with their time limits. A client that reads nothing never polls for the next part of a response, so
/// another task must end it.
#[derive(Debug, Default)]
pub struct Flights(Mutex<Vec<Weak<Flight>>>);

impl Flights {
    /// Starts a flight.
    pub fn begin(&self, begun: Begun, backends: Arc<Backends>) -> Arc<Flight> {
        let now = Instant::now();
        let Begun { incoming, connection, in_flight, record, usage } = begun;
        let state = FlightState {
            incoming: Some(incoming),
            connection: Some(connection),
            in_flight: Some(in_flight),
            record: Some(record),
            usage,
            waits: Waits::Client(now),
            started: now,
            timed_out: false,
        };
        let flight = Arc::new(Flight { state: Mutex::new(state), backends, waker: AtomicWaker::new() });
        locked(&self.0).push(Arc::downgrade(&flight));
        flight
    }

    /// Ends those that have exceeded a time limit.
    pub fn sweep(&self, limits: &Limits) {
        let now = Instant::now();
        let current: Vec<Arc<Flight>> = {
            let mut all = locked(&self.0);
            all.retain(|flight| flight.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        for flight in current {
            flight.check(limits, now);
        }
    }
}

/// The error of a response that should have been a stream of events, as JSON in one line.
pub fn event_error(status: u16, body: &[u8]) -> String {
    let read: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    match read.filter(|value| value.get("error").is_some_and(|error| !error.is_null())) {
        Some(value) => value.to_string(),
        None => GatewayError::backend_unavailable(format!("The backend answered with status {status}, and not with events."), None).json(),
    }
}
