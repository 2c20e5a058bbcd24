//! The log entry and metrics of a request, written when it ends.

use super::{counts::GatewayCounts, quota::Quotas, usage::Tokens};
use crate::gateway::callers::Caller;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The maximum length of a client's text in the log, in bytes.
const MAX_TEXT: usize = 256;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its response is complete.
    Complete,
    /// The client has disconnected.
    ClientGone,
    /// The backend's response has ended too early.
    BackendFailed,
    /// A timeout has ended it.
    TimedOut,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientGone => "client_gone",
            Self::BackendFailed => "backend_failed",
            Self::TimedOut => "timed_out",
        }
    }
}

/// The log record of a request. Dropping it writes it.
#[derive(Debug)]
pub struct Record {
    counts: Arc<GatewayCounts>,
    quotas: Arc<Quotas>,
    started: Instant,
    /// The client's address.
    pub client: String,
    /// As in the request line.
    pub method: String,
    /// Without its query, which may contain secrets.
    pub path: String,
    /// The request ID, which the backend also gets.
    pub id: String,
    /// The caller.
    pub caller: Option<Caller>,
    /// The model, if it is in the catalog.
    pub model: Option<String>,
    /// None while there is no response.
    pub status: Option<u16>,
    /// The code of the gateway's own error.
    pub error: Option<&'static str>,
    /// How long it was held.
    pub held: Option<Duration>,
    /// The time until its response began.
    pub first_byte: Option<Duration>,
    /// The number of bytes of its body.
    pub received: Arc<AtomicU64>,
    /// The number of bytes of its response.
    pub sent: u64,
    /// The tokens of the response, and whether it has reported them.
    pub used: Option<(Option<Tokens>, bool)>,
    /// The outcome.
    pub outcome: Outcome,
}

impl Record {
    /// Starts a record.
    pub fn new(counts: Arc<GatewayCounts>, quotas: Arc<Quotas>, client: String, method: &str, path: &str, id: String) -> Self {
        Self {
            counts,
            quotas,
            started: Instant::now(),
            client,
            method: short(method),
            path: short(path),
            id,
            caller: None,
            model: None,
            status: None,
            error: None,
            held: None,
            first_byte: None,
            received: Arc::default(),
            sent: 0,
            used: None,
            outcome: Outcome::ClientGone,
        }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

fn short(text: &str) -> String {
    let mut text = text.to_owned();
    pointsman_sandbox::text::cut(&mut text, MAX_TEXT);
    text
}

impl Drop for Record {
    fn drop(&mut self) {
        let elapsed = self.started.elapsed();
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        // nginx's status for a client that has disconnected before a response.
        let status = self.status.unwrap_or(499);
        self.counts.answered(self.model.as_deref(), status, elapsed.as_secs_f64(), seconds(self.first_byte), seconds(self.held));
        let caller = self.caller.as_ref().map_or("", |caller| caller.name.as_str());
        let tokens = self.used.and_then(|(tokens, _)| tokens);
        if let (Some(model), Some((tokens, reported))) = (&self.model, self.used) {
            self.counts.used(model, caller, tokens, reported);
        }
        if let (Some(caller), Some(tokens)) = (&self.caller, tokens) {
            self.quotas.use_tokens(caller, tokens.total());
        }
        tracing::info!(
            target: "pointsman::access",
            id = self.id,
            client = self.client,
            caller,
            namespace = self.caller.as_ref().and_then(|caller| caller.namespace.as_deref()),
            method = self.method,
            path = self.path,
            model = self.model.as_deref(),
            status,
            error = self.error,
            outcome = self.outcome.word(),
            milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            held_milliseconds = self.held.map(|held| u64::try_from(held.as_millis()).unwrap_or(u64::MAX)),
            received_bytes = self.received.load(Ordering::Relaxed),
            sent_bytes = self.sent,
            input_tokens = tokens.map(|tokens| tokens.input),
            output_tokens = tokens.map(|tokens| tokens.output),
            "answered"
        );
    }
}
