//! One stream of a proxy, for one request and its response.

use super::{Code, MAX_MESSAGE};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame, Incoming};
use pointsman_picker::protocol::{
    Exchange, Limits, Placement, Refusal, RequestHead, ResponseHead, Step,
    framing::{self, Framing, FramingError},
    messages::{HttpBody, ProcessingRequest, ProcessingResponse},
};
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::time::timeout;

/// How long a proxy may take to end the stream after the last message.
const LINGER: Duration = Duration::from_secs(10);

/// Whether requests can be placed.
pub trait Health: Send + Sync + 'static {
    /// Whether a service is ready; none if there is no such service.
    fn health(&self, service: &str) -> Option<bool>;
}

/// Places requests.
pub trait Picks: Health {
    /// The state of a placed request. It is dropped when the exchange ends, in any way.
    type Placed: Send + 'static;

    /// Places a request, now or once the pool has capacity. Dropping the future cancels it.
    fn pick(
        self: Arc<Self>,
        head: RequestHead,
        body: Vec<Bytes>,
    ) -> impl Future<Output = Result<(Placement, Self::Placed), Refusal>> + Send + 'static;

    /// The headers to set on a response.
    fn response(&self, placed: &mut Self::Placed, head: &ResponseHead) -> Vec<(String, String)>;

    /// The replacement for a chunk of the response, and whether it is the last one. If a response ends with trailers, the last chunk is an
    /// additional empty one.
    fn chunk(&self, placed: &mut Self::Placed, chunk: HttpBody) -> (Vec<Bytes>, bool);
}

/// A pick in progress.
type Pick<P> = Pin<Box<dyn Future<Output = Result<(Placement, P), Refusal>> + Send>>;

/// A stream, which is also the body of its response: it advances whenever that is polled, without a task of its own.
pub(super) struct Conversation<P: Picks> {
    picks: Arc<P>,
    incoming: Incoming,
    framing: Framing,
    exchange: Exchange,
    pick: Option<Pick<P::Placed>>,
    placed: Option<P::Placed>,
    outgoing: Vec<ProcessingResponse>,
    /// How it ends, once known.
    end: Option<(Code, String)>,
    has_ended: bool,
}

impl<P: Picks> Conversation<P> {
    pub(super) fn new(picks: Arc<P>, incoming: Incoming, limits: Limits) -> Self {
        Self {
            picks,
            incoming,
            framing: Framing::new(MAX_MESSAGE),
            exchange: Exchange::new(limits),
            pick: None,
            placed: None,
            outgoing: Vec::new(),
            end: None,
            has_ended: false,
        }
    }

    /// The next part of the response, or none after the last.
    pub(super) async fn next(&mut self) -> Option<Frame<Bytes>> {
        if self.has_ended {
            return None;
        }
        loop {
            self.read();
            if !self.outgoing.is_empty() {
                let messages = std::mem::take(&mut self.outgoing);
                return Some(Frame::data(framing::encode(&messages)));
            }
            if let Some((code, message)) = self.end.take() {
                self.has_ended = true;
                // The request's state is dropped before the proxy learns of the end.
                (self.pick, self.placed) = (None, None);
                // Messages that arrive on an ended stream are errors of the whole connection, which closes after 1,024 of them, with the
                // streams of all other requests.
                if code == Code::Ok {
                    timeout(LINGER, self.drain()).await.ok();
                }
                return Some(Frame::trailers(trailers(code, &message)));
            }
            tokio::select! {
                biased;
                picked = async { match &mut self.pick { Some(pick) => pick.await, None => std::future::pending().await } } => {
                    self.pick = None;
                    match picked {
                        Ok((placement, placed)) => {
                            self.placed = Some(placed);
                            self.outgoing = self.exchange.place(placement);
                        }
                        Err(refusal) => {
                            let step = self.exchange.refuse(&refusal);
                            self.take(step);
                        }
                    }
                }
                frame = self.incoming.frame() => self.take_frame(frame),
            }
        }
    }

    /// Reads until the proxy ends the stream.
    async fn drain(&mut self) {
        while let Some(Ok(_)) = self.incoming.frame().await {}
    }

    fn take_frame(&mut self, frame: Option<hyper::Result<Frame<Bytes>>>) {
        match frame {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.framing.push(data);
                }
            }
            // The proxy has reset the stream: the client has disconnected.
            Some(Err(_)) => self.end = Some((Code::Ok, String::new())),
            None => {
                let end = match self.framing.finish() {
                    Ok(()) => (Code::Ok, String::new()),
                    Err(error) => unreadable(error),
                };
                self.end = Some(end);
            }
        }
    }

    /// Handles the complete messages.
    fn read(&mut self) {
        while self.end.is_none() {
            match self.framing.next_message() {
                Ok(None) => return,
                Ok(Some(message)) => match framing::decode::<ProcessingRequest>(message) {
                    Ok(message) => {
                        let step = self.exchange.receive(message);
                        self.take(step);
                    }
                    Err(error) => self.end = Some((Code::InvalidArgument, format!("a message can't be read: {error}"))),
                },
                Err(error) => self.end = Some(unreadable(error)),
            }
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Wait => {}
            Step::Pick => {
                let (head, body) = (self.exchange.request().clone(), self.exchange.body().to_vec());
                self.pick = Some(Box::pin(Arc::clone(&self.picks).pick(head, body)));
            }
            Step::Response => {
                // A pick that is still in progress is no longer needed.
                self.pick = None;
                let headers = match &mut self.placed {
                    Some(placed) => self.picks.response(placed, self.exchange.response()),
                    None => Vec::new(),
                };
                let step = self.exchange.accept_response(&headers);
                self.send(step);
            }
            Step::Chunk(chunk) => {
                let (pieces, is_last) = match &mut self.placed {
                    Some(placed) => self.picks.chunk(placed, chunk),
                    None => (vec![chunk.body], chunk.end_of_stream),
                };
                let step = self.exchange.pass_on(pieces, is_last);
                self.send(step);
            }
            Step::Trailers => {
                let rest = match &mut self.placed {
                    Some(placed) => self.picks.chunk(placed, HttpBody { body: Bytes::new(), end_of_stream: true }).0,
                    None => Vec::new(),
                };
                let step = self.exchange.pass_on_trailers(rest);
                self.send(step);
            }
            Step::Send(_) | Step::End(_) => self.send(step),
        }
    }

    fn send(&mut self, step: Step) {
        match step {
            Step::Send(messages) => self.outgoing.extend(messages),
            Step::End(messages) => {
                self.outgoing.extend(messages);
                self.end = Some((Code::Ok, String::new()));
            }
            Step::Wait | Step::Pick | Step::Response | Step::Chunk(_) | Step::Trailers => {}
        }
    }
}

fn unreadable(error: FramingError) -> (Code, String) {
    match error {
        FramingError::Compressed => (Code::Unimplemented, "messages may not be compressed".to_owned()),
        FramingError::TooLong(length) => (Code::ResourceExhausted, format!("a message has {length} bytes: send {MAX_MESSAGE} at most")),
        FramingError::Truncated => (Code::InvalidArgument, "the stream ends within a message".to_owned()),
    }
}

/// The trailers that end a call.
pub(super) fn trailers(code: Code, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", (code as u16).into());
    // Without characters that would need percent-encoding; the rest is clear enough.
    let message: String = message.chars().filter(|one| one.is_ascii() && !one.is_ascii_control() && *one != '%').collect();
    if let Ok(message) = message.parse()
        && code != Code::Ok
    {
        trailers.insert("grpc-message", message);
    }
    trailers
}
