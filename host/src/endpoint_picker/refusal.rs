//! The responses to refused requests, with upstream's status codes and reasons.

use super::decisions::record::RefusalRecord;
use hyper::body::Bytes;
use pointsman_picker::{body::BodyError, protocol::Refusal};
use serde_json::json;

/// The header with the reason.
const REASON: &str = "x-llm-d-request-dropped-reason";

/// The number of seconds after which a client may retry.
const RETRY_AFTER: &str = "1";

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The pool is saturated, and the request may not wait.
    Saturated,
    /// The queue is full.
    QueueFull,
    /// A more important request has evicted it.
    Evicted,
    /// It has waited for the maximum time.
    TtlExpired,
    /// The pool has no endpoints, or none that the proxy allows.
    NoEndpoints,
    /// No endpoint passes the filters of the profile.
    Filtered,
    /// Its client wants it only if its prefix is cached.
    NoPrefix,
    /// The picker is shutting down.
    ShuttingDown,
}

impl Dropped {
    /// The reason in upstream's terms.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Saturated | Self::QueueFull => "rejected-saturated",
            Self::Evicted => "evicted-queue-pressure",
            Self::TtlExpired => "rejected-ttl-expired",
            Self::NoEndpoints | Self::Filtered => "rejected-no-endpoints",
            Self::NoPrefix => "rejected-no-prefix",
            Self::ShuttingDown => "rejected-shutting-down",
        }
    }

    fn status(self) -> u16 {
        match self {
            Self::Saturated | Self::QueueFull | Self::Evicted | Self::TtlExpired | Self::Filtered => 429,
            Self::NoEndpoints | Self::ShuttingDown => 503,
            Self::NoPrefix => 412,
        }
    }

    /// A sentence for people.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Saturated => "All endpoints of the pool are saturated, and requests of a negative priority don't wait: try again later.",
            Self::QueueFull => "The pool is saturated, and no more requests may wait: try again later.",
            Self::Evicted => "The pool is saturated, and a more important request displaced this one: try again later.",
            Self::TtlExpired => "The pool was saturated for as long as this request may wait: try again later.",
            Self::NoEndpoints => "The pool has no endpoint that is ready and that the gateway allows.",
            Self::Filtered => "No endpoint of the pool passes the filters of the endpoint picker's configuration.",
            Self::NoPrefix => "No endpoint has the beginning of this prompt cached, and the request has `Prefer: if-available`.",
            Self::ShuttingDown => "The endpoint picker is ending: try again.",
        }
    }

    /// The response.
    pub fn refusal(self) -> Refusal {
        let status = self.status();
        let kind = match status {
            429 => "rate_limit_error",
            412 => "invalid_request_error",
            _ => "service_unavailable",
        };
        let mut headers = vec![(REASON.to_owned(), self.reason().to_owned())];
        if status == 429 || status == 503 {
            headers.push(("retry-after".to_owned(), RETRY_AFTER.to_owned()));
        }
        answer(status, headers, kind, self.reason(), self.message())
    }
}

/// Why a request is not placed.
#[derive(Debug)]
pub(super) enum NotPlaced {
    /// It can't be parsed; this is the response.
    Unread(Refusal),
    /// It is refused.
    Dropped(Dropped),
}

impl NotPlaced {
    /// Its record: nothing that could come from a body or a path.
    pub(super) fn record(&self) -> RefusalRecord {
        let (status, reason, message) = match self {
            Self::Unread(refusal) => (refusal.status, &*refusal.details, "The request's body or its path can't be read."),
            Self::Dropped(why) => (why.status(), why.reason(), why.message()),
        };
        RefusalRecord { status, reason: reason.to_owned(), message: message.into() }
    }

    /// The response.
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Self::Unread(refusal) => refusal,
            Self::Dropped(why) => why.refusal(),
        }
    }
}

/// The response to a body that can't be parsed.
pub(super) fn unreadable(error: &BodyError) -> Refusal {
    let sentence = format!("The request's body can't be read: {error}");
    answer(400, Vec::new(), "invalid_request_error", "invalid_body", &sentence)
}

/// A response in the format of OpenAI's clients.
fn answer(status: u16, mut headers: Vec<(String, String)>, kind: &str, code: &str, message: &str) -> Refusal {
    headers.push(("content-type".to_owned(), "application/json".to_owned()));
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    Refusal { status, headers, body: Bytes::from(body.to_string()), details: code.to_owned() }
}

/// The response to a path for which no parser is configured.
pub(super) fn unclaimed(path: &str) -> Refusal {
    let path: String = path.chars().take(200).collect();
    let sentence =
        format!("No parser of the endpoint picker's configuration reads the path {path}: use another path, or add passthrough-parser.");
    answer(400, Vec::new(), "invalid_request_error", "path_unclaimed", &sentence)
}
