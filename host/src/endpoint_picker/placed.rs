//! A placed request: its counts until its response has ended, and the changes of its response.

use super::{
    counts::{Answered, RequestLabels},
    latency::Taken,
    micros,
    pool::Pool,
    spans::RequestSpan,
};
use hyper::body::Bytes;
use pointsman_picker::{
    body::{Framing, ResponseModel, UsageReader},
    fleet::{Endpoint, InFlight},
    latency::Sent,
    protocol::{ResponseHead, messages::HttpBody},
};
use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long requests avoid an endpoint, if they can, after a proxy couldn't reach it.
const UNREACHABLE_FOR: Duration = Duration::from_secs(2);

/// The status codes of proxies if an endpoint can't be reached.
const UNREACHABLE: [u16; 2] = [503, 504];

/// A placed request. It ends when this is dropped.
#[derive(Debug)]
pub struct Placed {
    pub(super) pool: Arc<Pool>,
    pub(super) labels: RequestLabels,
    /// The endpoints it may have been sent to, first choice first.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) in_flight: InFlight,
    /// The endpoint that prefills its prompt, until the response begins.
    pub(super) prefill: Option<InFlight>,
    pub(super) hashes: Arc<[u64]>,
    pub(super) sent: Sent,
    /// The model's name in the client's request, if another model serves it.
    pub(super) client_model: Option<String>,
    /// The header that returns the client to the same endpoint, and its value.
    pub(super) session: Option<(String, String)>,
    pub(super) streams: bool,
    pub(super) request_bytes: usize,
    pub(super) arrived: Instant,
    pub(super) sent_at: Instant,
    pub(super) answer: Answer,
    /// Its span, if it is traced.
    pub(super) span: Option<Box<RequestSpan>>,
}

/// The received part of a response.
#[derive(Debug, Default)]
pub(super) struct Answer {
    status: Option<u16>,
    first_part: Option<Instant>,
    bytes: usize,
    usage: Option<UsageReader>,
    rename: Option<ResponseModel>,
}

impl Placed {
    /// Handles the head of the response, and returns the headers to set on it.
    pub(super) fn response(&mut self, head: &ResponseHead) -> Vec<(String, String)> {
        self.prefill = None;
        self.answer.status = head.status;
        self.note_who_served(head);
        let framing = Framing::of_content_type(head.content_type.as_deref());
        self.answer.usage = Some(UsageReader::new(framing));
        self.answer.rename = self.client_model.as_deref().map(|model| ResponseModel::new(framing, model));
        self.session.take().into_iter().collect()
    }

    fn note_who_served(&mut self, head: &ResponseHead) {
        let served = head.served.as_deref();
        if let (Some(span), Some(served)) = (&mut self.span, served) {
            span.served(served);
        }
        let now = self.pool.micros();
        let other = self.endpoints.iter().skip(1).find(|endpoint| served == Some(&*endpoint.text));
        if let Some(other) = other {
            // The proxy has moved on to another endpoint of the list.
            self.endpoints[0].state.note_unreachable(now + micros(UNREACHABLE_FOR));
            self.in_flight.move_to(&other.state, now);
            self.pool.fleet().prefixes.record(other.state.id(), &self.hashes);
        } else if served.is_none() && head.status.is_some_and(|status| UNREACHABLE.contains(&status)) {
            self.endpoints[0].state.note_unreachable(now + micros(UNREACHABLE_FOR));
        }
    }

    /// Handles a chunk of the response, and returns its replacement.
    pub(super) fn chunk(&mut self, HttpBody { body, end_of_stream }: HttpBody) -> (Vec<Bytes>, bool) {
        let answer = &mut self.answer;
        if !body.is_empty() {
            answer.first_part.get_or_insert_with(Instant::now);
        }
        answer.bytes += body.len();
        if let Some(usage) = &mut answer.usage {
            usage.read(&body);
        }
        let Some(rename) = &mut answer.rename else { return (vec![body], end_of_stream) };
        let renamed = match rename.read(&body) {
            Cow::Borrowed(_) => None,
            Cow::Owned(renamed) => Some(Bytes::from(renamed)),
        };
        let mut pieces = vec![renamed.unwrap_or(body)];
        if end_of_stream && let Some(rename) = answer.rename.take() {
            pieces.push(Bytes::from(rename.finish()));
        }
        (pieces, end_of_stream)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let Answer { status, first_part, bytes, usage, .. } = &self.answer;
        let is_whole = status.is_some_and(|status| status < 400);
        let until = |at: &Option<Instant>, since: Instant| at.map(|at| at.duration_since(since).as_secs_f64());
        let used = usage.as_ref().and_then(UsageReader::usage);
        let events = usage.as_ref().map_or(0, UsageReader::events);
        let tokens = used.map_or(events, |usage| usage.completion);
        let further_token = first_part.filter(|_| self.streams && tokens > 1).map(|first| {
            #[allow(clippy::cast_precision_loss)] // Far below 2^52.
            let further = (tokens - 1) as f64;
            first.elapsed().as_secs_f64() / further
        });
        if is_whole {
            // The first part is the first token only in a stream.
            let first_token = until(first_part, self.sent_at).filter(|_| self.streams);
            self.pool.learn(Taken { sent: self.sent, first_token, further_token });
        }
        let answered = Answered {
            status: *status,
            seconds: self.arrived.elapsed().as_secs_f64(),
            first_token: until(first_part, self.arrived),
            further_token,
            request_bytes: self.request_bytes,
            response_bytes: *bytes,
            usage: used,
        };
        self.pool.counts().answered(&self.labels, &answered);
        if let Some(span) = self.span.take() {
            span.answered(&answered, *first_part);
        }
        self.pool.look();
    }
}
