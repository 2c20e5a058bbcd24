//! What is logged and counted of a request, once it has ended.

use super::{counts::GatewayCounts, quota::Quotas, usage::Tokens};
use crate::gateway::callers::Caller;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The longest text of a client's that is logged, in bytes.
const MAX_TEXT: usize = 256;

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its answer is complete.
    Complete,
    /// The client has left.
    ClientGone,
    /// The backend's answer has ended too early.
    BackendFailed,
    /// A limit of time has ended it.
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

/// A request, as it is logged. Dropping it logs it.
#[derive(Debug)]
pub struct Record {
    counts: Arc<GatewayCounts>,
    quotas: Arc<Quotas>,
    started: Instant,
    /// Whose it is.
    pub client: String,
    /// As in the request line.
    pub method: String,
    /// Without its query, which may contain secrets.
    pub path: String,
    /// The number that the backend gets as well.
    pub id: String,
    /// Who asks.
    pub caller: Option<Caller>,
    /// One of the catalog.
    pub model: Option<String>,
    /// None while there is no answer.
    pub status: Option<u16>,
    /// The code of the gateway's own error.
    pub error: Option<&'static str>,
    /// How long it was held.
    pub held: Option<Duration>,
    /// How long until its answer began.
    pub first_byte: Option<Duration>,
    /// Bytes of its body.
    pub received: Arc<AtomicU64>,
    /// Bytes of its answer.
    pub sent: u64,
    /// What the answer has used, and whether it has said so.
    pub used: Option<(Option<Tokens>, bool)>,
    /// How it has ended.
    pub outcome: Outcome,
}

impl Record {
    /// Begins one.
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

    /// How long it has taken until now.
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
        // As nginx counts those whose client has left before an answer.
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
