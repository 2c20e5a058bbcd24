//! The state of an exchange.

use super::{
    head::{RequestHead, ResponseHead},
    messages::{BodySendMode, HttpBody, ProcessingRequest, ProcessingResponse, request, response::Part},
    send::{self, Placement, Refusal},
};
use bytes::Bytes;

/// The limits of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a request's body, in bytes. The body is buffered until the request is sent on.
    pub max_body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_body: 64 << 20 }
    }
}

/// Shorter chunks are joined: each chunk takes memory in addition to its bytes, and a client may send a body byte by byte.
const MIN_PIECE: usize = 1024;

/// The next step after a message.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing to do yet.
    Wait,
    /// The request is complete. The caller calls [`Exchange::place`] or [`Exchange::refuse`], now or later.
    Pick,
    /// The response has begun, and its headers are known. The caller calls [`Exchange::accept_response`].
    Response,
    /// The caller sends this chunk of the response, or a replacement, with [`Exchange::pass_on`].
    Chunk(HttpBody),
    /// Trailers end the response. The caller sends the rest of the body with [`Exchange::pass_on_trailers`].
    Trailers,
    /// Send these messages.
    Send(Vec<ProcessingResponse>),
    /// Send these messages. The exchange is over.
    End(Vec<ProcessingResponse>),
}

/// The phase of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The headers haven't arrived.
    Headers,
    /// More of the body will arrive.
    Body,
    /// The request is complete and waits for the caller.
    Whole,
    /// The request was sent on or refused.
    Gone,
}

/// The phase of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponsePhase {
    /// Nothing has arrived.
    Headers,
    /// More of the body will arrive. A proxy may omit the headers.
    Body,
    /// The response is complete.
    Ended,
}

/// The last part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndsWith {
    Headers,
    Body,
    Trailers,
}

/// The exchange about one request.
#[derive(Debug)]
pub struct Exchange {
    limits: Limits,
    phase: Phase,
    ends_with: EndsWith,
    is_silent: bool,
    request: RequestHead,
    body: Vec<Bytes>,
    /// The short chunks after these.
    short: Vec<u8>,
    body_len: usize,
    response: ResponseHead,
    response_phase: ResponsePhase,
}

impl Exchange {
    /// An exchange without messages.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            phase: Phase::Headers,
            ends_with: EndsWith::Headers,
            is_silent: false,
            request: RequestHead::default(),
            body: Vec::new(),
            short: Vec::new(),
            body_len: 0,
            response: ResponseHead::default(),
            response_phase: ResponsePhase::Headers,
        }
    }

    /// The data from the request's headers.
    pub fn request(&self) -> &RequestHead {
        &self.request
    }

    /// The body of the request in pieces, once it is complete. It is empty after the request is sent on.
    pub fn body(&self) -> &[Bytes] {
        &self.body
    }

    /// The length of the request's body.
    pub fn body_len(&self) -> usize {
        self.body_len
    }

    /// The data from the response's headers.
    pub fn response(&self) -> &ResponseHead {
        &self.response
    }

    /// Whether the proxy accepts no responses (observability mode).
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Processes a message.
    pub fn receive(&mut self, message: ProcessingRequest) -> Step {
        self.is_silent |= message.observability_mode;
        let metadata = message.metadata_context.as_ref();
        let step = match message.part {
            Some(request::Part::RequestHeaders(headers)) if self.phase == Phase::Headers => {
                self.request = RequestHead::new(&headers.headers.unwrap_or_default());
                if let Some(metadata) = metadata {
                    self.request.read_metadata(metadata);
                }
                let mode = message.protocol_config.map_or(BodySendMode::FullDuplexStreamed, |config| config.request_body_mode());
                return self.begin(mode, headers.end_of_stream);
            }
            Some(request::Part::RequestBody(body)) if self.phase == Phase::Body => self.read_body(body),
            Some(request::Part::RequestTrailers(_)) if self.phase == Phase::Body => self.whole(EndsWith::Trailers),
            Some(request::Part::ResponseHeaders(headers)) if self.response_phase == ResponsePhase::Headers => {
                self.response = ResponseHead::new(&headers.headers.unwrap_or_default());
                self.go_on(headers.end_of_stream);
                if let Some(metadata) = metadata {
                    self.response.read_metadata(metadata);
                }
                Step::Response
            }
            Some(request::Part::ResponseBody(body)) if self.response_phase != ResponsePhase::Ended => {
                self.go_on(body.end_of_stream);
                Step::Chunk(body)
            }
            Some(request::Part::ResponseTrailers(_)) if self.response_phase != ResponsePhase::Ended => {
                self.go_on(true);
                Step::Trailers
            }
            // Not part of the protocol at this point. The proxy may be newer than this code.
            _ => Step::Wait,
        };
        if self.phase != Phase::Gone
            && let Some(metadata) = metadata
        {
            self.request.read_metadata(metadata);
        }
        step
    }

    /// Records that a part of the response has arrived. If the request is still incomplete, the rest of it isn't sent.
    fn go_on(&mut self, is_last: bool) {
        self.leave();
        self.response_phase = if is_last { ResponsePhase::Ended } else { ResponsePhase::Body };
    }

    fn begin(&mut self, mode: BodySendMode, end_of_stream: bool) -> Step {
        match mode {
            _ if end_of_stream => self.whole(EndsWith::Headers),
            BodySendMode::FullDuplexStreamed => {
                self.phase = Phase::Body;
                Step::Wait
            }
            BodySendMode::None => self.whole(EndsWith::Headers),
            other => {
                let details =
                    format!("the proxy sends bodies in the mode {}: set request_body_mode to FULL_DUPLEX_STREAMED", mode_name(other));
                self.refuse(&Refusal { status: 500, details, ..Refusal::default() })
            }
        }
    }

    fn read_body(&mut self, body: HttpBody) -> Step {
        self.body_len += body.body.len();
        if self.body_len > self.limits.max_body {
            let details = format!("the body has more than {} bytes", self.limits.max_body);
            return self.refuse(&Refusal { status: 413, body: Bytes::from(details.clone()), details, ..Refusal::default() });
        }
        if body.body.len() >= MIN_PIECE {
            self.join_short();
            self.body.push(body.body);
        } else {
            self.short.extend_from_slice(&body.body);
            if self.short.len() >= MIN_PIECE {
                self.join_short();
            }
        }
        if body.end_of_stream { self.whole(EndsWith::Body) } else { Step::Wait }
    }

    /// Joins the short chunks to one piece.
    fn join_short(&mut self) {
        if !self.short.is_empty() {
            self.body.push(std::mem::take(&mut self.short).into());
        }
    }

    fn whole(&mut self, ends_with: EndsWith) -> Step {
        self.join_short();
        self.ends_with = ends_with;
        self.phase = Phase::Whole;
        Step::Pick
    }

    /// Sends the request on.
    pub fn place(&mut self, mut placement: Placement) -> Vec<ProcessingResponse> {
        if self.phase != Phase::Whole {
            return Vec::new();
        }
        if self.ends_with == EndsWith::Headers {
            placement.body = None;
        }
        self.phase = Phase::Gone;
        let came = std::mem::take(&mut self.body);
        let mut messages = vec![send::request_headers(&placement)];
        if self.ends_with != EndsWith::Headers {
            messages.extend(send::body(placement.body.unwrap_or(came), self.ends_with == EndsWith::Body, Part::RequestBody));
        }
        if self.ends_with == EndsWith::Trailers {
            messages.push(send::trailers(Part::RequestTrailers));
        }
        self.unless_silent(messages)
    }

    /// Responds to the request and ends the exchange.
    pub fn refuse(&mut self, refusal: &Refusal) -> Step {
        self.leave();
        self.end(vec![send::immediate(refusal)])
    }

    /// Sends the headers of the response, with these headers set.
    pub fn accept_response(&mut self, headers: &[(String, String)]) -> Step {
        let messages = vec![send::response_headers(headers)];
        if self.response_phase == ResponsePhase::Ended { self.end(messages) } else { Step::Send(self.unless_silent(messages)) }
    }

    /// Sends a chunk of the response in pieces. `is_last` tells whether it is the last chunk.
    pub fn pass_on(&mut self, pieces: Vec<Bytes>, is_last: bool) -> Step {
        let messages = send::body(pieces, is_last, Part::ResponseBody);
        if is_last { self.end(messages) } else { Step::Send(self.unless_silent(messages)) }
    }

    /// Sends the rest of the response's body, and then its trailers.
    pub fn pass_on_trailers(&mut self, rest: Vec<Bytes>) -> Step {
        let mut messages = send::body(rest, false, Part::ResponseBody);
        messages.push(send::trailers(Part::ResponseTrailers));
        self.end(messages)
    }

    fn leave(&mut self) {
        self.phase = Phase::Gone;
        self.body = Vec::new();
        self.short = Vec::new();
    }

    fn end(&self, messages: Vec<ProcessingResponse>) -> Step {
        Step::End(self.unless_silent(messages))
    }

    fn unless_silent(&self, messages: Vec<ProcessingResponse>) -> Vec<ProcessingResponse> {
        if self.is_silent { Vec::new() } else { messages }
    }
}

/// The name in the proxy's configuration.
fn mode_name(mode: BodySendMode) -> &'static str {
    match mode {
        BodySendMode::None => "NONE",
        BodySendMode::Streamed => "STREAMED",
        BodySendMode::Buffered => "BUFFERED",
        BodySendMode::BufferedPartial => "BUFFERED_PARTIAL",
        BodySendMode::FullDuplexStreamed => "FULL_DUPLEX_STREAMED",
        BodySendMode::Grpc => "GRPC",
    }
}
