//! The state of an exchange.

use super::{
    head::{RequestHead, ResponseHead},
    messages::{BodySendMode, HttpBody, ProcessingRequest, ProcessingResponse, request, response::Part},
    send::{self, Placement, Refusal},
};
use bytes::Bytes;

/// What an exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many bytes the body of a request may have: it is held until the request goes on.
    pub max_body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_body: 64 << 20 }
    }
}

/// Shorter chunks are copied together: each that is kept takes memory beside its bytes, and clients may send a body byte by byte.
const MIN_PIECE: usize = 1024;

/// What follows from a message.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing yet.
    Wait,
    /// The request is here: the caller calls [`Exchange::place`] or [`Exchange::refuse`], now or later.
    Pick,
    /// The response has begun: its head is known. The caller calls [`Exchange::accept_response`].
    Response,
    /// The caller passes on this chunk of the response, or what is to be sent in its place, by [`Exchange::pass_on`].
    Chunk(HttpBody),
    /// The response ends by trailers. The caller passes on what it has held back of the body by [`Exchange::pass_on_trailers`].
    Trailers,
    /// These messages are sent.
    Send(Vec<ProcessingResponse>),
    /// These messages are sent, and the exchange is over.
    End(Vec<ProcessingResponse>),
}

/// Where the request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its headers haven't come.
    Headers,
    /// More of it comes.
    Body,
    /// It is whole, and waits for the caller.
    Whole,
    /// It went on, or was answered.
    Gone,
}

/// Where the response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponsePhase {
    /// Nothing of it has come.
    Headers,
    /// More of it comes. A proxy may leave out the headers.
    Body,
    /// It is whole.
    Ended,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndsWith {
    Headers,
    Body,
    Trailers,
}

/// One exchange.
#[derive(Debug)]
pub struct Exchange {
    limits: Limits,
    phase: Phase,
    ends_with: EndsWith,
    is_silent: bool,
    request: RequestHead,
    body: Vec<Bytes>,
    /// The short chunks behind these.
    short: Vec<u8>,
    body_len: usize,
    response: ResponseHead,
    response_phase: ResponsePhase,
}

impl Exchange {
    /// One that has received nothing.
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

    /// What the headers of the request say.
    pub fn request(&self) -> &RequestHead {
        &self.request
    }

    /// The body of the request in pieces, once it is whole. Once the request has gone on, it is empty.
    pub fn body(&self) -> &[Bytes] {
        &self.body
    }

    /// Its length.
    pub fn body_len(&self) -> usize {
        self.body_len
    }

    /// What the headers of the response say.
    pub fn response(&self) -> &ResponseHead {
        &self.response
    }

    /// Whether the proxy takes no answers: it only lets others watch.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Takes a message.
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
            // What comes at another time is nothing that the protocol has: the proxy may be newer than this.
            _ => Step::Wait,
        };
        if self.phase != Phase::Gone
            && let Some(metadata) = metadata
        {
            self.request.read_metadata(metadata);
        }
        step
    }

    /// Notes that a part of the response has come. If that was before the request had ended, nothing of the request is sent any more.
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

    /// Makes a piece of the short chunks.
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

    /// Lets the request go on.
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

    /// Answers the request. Nothing follows.
    pub fn refuse(&mut self, refusal: &Refusal) -> Step {
        self.leave();
        self.end(vec![send::immediate(refusal)])
    }

    /// Passes the headers of the response on, with these set.
    pub fn accept_response(&mut self, headers: &[(String, String)]) -> Step {
        let messages = vec![send::response_headers(headers)];
        if self.response_phase == ResponsePhase::Ended { self.end(messages) } else { Step::Send(self.unless_silent(messages)) }
    }

    /// Passes a chunk of the response on, in pieces. `is_last` says whether it is the last.
    pub fn pass_on(&mut self, pieces: Vec<Bytes>, is_last: bool) -> Step {
        let messages = send::body(pieces, is_last, Part::ResponseBody);
        if is_last { self.end(messages) } else { Step::Send(self.unless_silent(messages)) }
    }

    /// Passes the trailers of the response on, and before them the rest of the body.
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

/// As the proxy's configuration names it.
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
