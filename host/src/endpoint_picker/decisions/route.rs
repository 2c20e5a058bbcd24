//! `GET /decisions`: the last decisions as lines of JSON, the newest first.

use super::Decisions;
use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use std::sync::Arc;
use tokio::{sync::Semaphore, task::spawn_blocking};

/// The path.
pub const PATH: &str = "/decisions";

/// The default number of decisions in a response, and the maximum that a request may set.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// The maximum size of a response, in bytes. Older decisions are left out.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The state of the route. One response is written at a time: requests to models take precedence.
#[derive(Clone, Debug)]
struct Served {
    decisions: Arc<Decisions>,
    turn: Arc<Semaphore>,
}

/// The parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Only the decision about this request.
    pub request: Option<String>,
    /// The maximum number of decisions.
    pub limit: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { request: None, limit: DEFAULT_LIMIT }
    }
}

impl Wanted {
    fn parse(query: &str) -> Result<Self, String> {
        let mut wanted = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "request" => wanted.request = Some(value.into_owned()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    wanted.limit = limit.ok_or_else(|| format!("limit: set a number from 1 to {MAX_LIMIT}"))?;
                }
                _ => return Err("the only parameters are request and limit".to_owned()),
            }
        }
        Ok(wanted)
    }

    /// The response's lines.
    pub fn lines(&self, decisions: &Decisions) -> Vec<u8> {
        let is_wanted = |request: &str| self.request.as_deref().is_none_or(|wanted| wanted == request);
        let mut lines = Vec::new();
        for record in decisions.newest().iter().filter(|record| is_wanted(&record.request)).take(self.limit) {
            let before = lines.len();
            // Plain data always serializes, and a buffer accepts all of it.
            serde_json::to_writer(&mut lines, &**record).ok();
            lines.push(b'\n');
            if lines.len() > MAX_ANSWER_BYTES {
                lines.truncate(before);
                break;
            }
        }
        lines
    }
}

/// The route.
pub fn routes(decisions: Arc<Decisions>) -> Router {
    Router::new().route(PATH, get(answer).with_state(Served { decisions, turn: Arc::new(Semaphore::new(1)) }))
}

async fn answer(State(Served { decisions, turn }): State<Served>, RawQuery(query): RawQuery) -> Response {
    if !decisions.is_recording() {
        let sentence = "no decisions are recorded: set the picker's flag --record-decisions\n";
        return (StatusCode::NOT_FOUND, sentence).into_response();
    }
    let wanted = match Wanted::parse(query.as_deref().unwrap_or_default()) {
        Ok(wanted) => wanted,
        Err(sentence) => return (StatusCode::BAD_REQUEST, sentence + "\n").into_response(),
    };
    let _turn = turn.acquire().await;
    // Some megabytes of JSON would block a thread for requests to be placed.
    match spawn_blocking(move || wanted.lines(&decisions)).await {
        Ok(lines) => ([(CONTENT_TYPE, "application/x-ndjson")], lines).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("writing the decisions failed: {error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_may_name_a_request_and_a_bounded_number() {
        assert_eq!(Wanted::parse(""), Ok(Wanted::default()));
        assert_eq!(Wanted::parse("limit=7&request=a%20b"), Ok(Wanted { request: Some("a b".to_owned()), limit: 7 }));
        for wrong in ["limit=0", "limit=1001", "limit=", "limit=all", "id=7"] {
            assert!(Wanted::parse(wrong).is_err(), "{wrong}");
        }
    }
}
