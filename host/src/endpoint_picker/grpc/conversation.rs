//! One stream of a proxy: about one request and its response.

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

/// How long a proxy that has all answers may take to end the stream.
const LINGER: Duration = Duration::from_secs(10);

/// Whether requests can be placed.
pub trait Health: Send + Sync + 'static {
    /// Whether a service is ready; none if there is no such service.
    fn health(&self, service: &str) -> Option<bool>;
}

/// Where requests go.
pub trait Picks: Health {
    /// What goes along with a request that was placed. It is dropped when the exchange ends, however that is.
    type Placed: Send + 'static;

    /// Says where a request goes, now or once there is room. Nobody waits any more when this is dropped.
    fn pick(
        self: Arc<Self>,
        head: RequestHead,
        body: Vec<Bytes>,
    ) -> impl Future<Output = Result<(Placement, Self::Placed), Refusal>> + Send + 'static;

    /// The headers to set on the response of a request.
    fn response(&self, placed: &mut Self::Placed, head: &ResponseHead) -> Vec<(String, String)>;

    /// What is sent in place of a chunk of the response, and whether that is the last. Of a response that ends by trailers the last is an empty
    /// chunk that hasn't come.
    fn chunk(&self, placed: &mut Self::Placed, chunk: HttpBody) -> (Vec<Bytes>, bool);
}

/// A pick that goes on.
type Pick<P> = Pin<Box<dyn Future<Output = Result<(Placement, P), Refusal>> + Send>>;

/// A stream, which is also the body of its answer: it goes on whenever that is read, in no task of its own.
pub(super) struct Conversation<P: Picks> {
    picks: Arc<P>,
    incoming: Incoming,
    framing: Framing,
    exchange: Exchange,
    pick: Option<Pick<P::Placed>>,
    placed: Option<P::Placed>,
    outgoing: Vec<ProcessingResponse>,
    /// How it ends, once that is known.
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

    /// The next part of the answer, or none after the last.
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
                // What goes along with the request goes before the proxy learns of the end.
                (self.pick, self.placed) = (None, None);
                // What still arrives on a stream that has ended is an error of the whole connection, which ends after 1,024 of them, with the
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
            // The proxy has reset the stream: the client has gone.
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

    /// Takes the messages that are whole.
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
                // Nobody waits for the pick any more, if there is still one.
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

/// The trailers by which a call ends.
pub(super) fn trailers(code: Code, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", (code as u16).into());
    // Without what would have to be percent-encoded; what is left says enough.
    let message: String = message.chars().filter(|one| one.is_ascii() && !one.is_ascii_control() && *one != '%').collect();
    if let Ok(message) = message.parse()
        && code != Code::Ok
    {
        trailers.insert("grpc-message", message);
    }
    trailers
}
