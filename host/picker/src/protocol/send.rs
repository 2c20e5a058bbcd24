//! The messages to the proxy.

use super::{
    DESTINATION, LOAD_BALANCER, MAX_CHUNK,
    messages::{
        Answer, AppendAction, BodyMutation, CommonResponse, HeaderMutation, HeaderValue, HeaderValueOption, HttpBody, HttpStatus,
        ImmediateResponse, ProcessingResponse, Struct, TrailersResponse, Value, response::Part, value::Kind,
    },
};
use bytes::Bytes;

/// The destination of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The endpoints as `ADDRESS:PORT`, best first.
    pub endpoints: Vec<String>,
    /// Headers to set on the request.
    pub headers: Vec<(String, String)>,
    /// The body in pieces, if it replaces the received one.
    pub body: Option<Vec<Bytes>>,
}

/// The response to a request that isn't sent on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Bytes,
    /// What the proxy logs.
    pub details: String,
}

fn message(part: Part) -> ProcessingResponse {
    ProcessingResponse { part: Some(part), dynamic_metadata: None }
}

fn set(name: &str, value: &str) -> HeaderValueOption {
    let header = HeaderValue { key: name.to_owned(), value: String::new(), raw_value: Bytes::copy_from_slice(value.as_bytes()) };
    HeaderValueOption { header: Some(header), append_action: AppendAction::OverwriteIfExistsOrAdd as i32 }
}

fn mutation(headers: &[(String, String)]) -> HeaderMutation {
    HeaderMutation { set_headers: headers.iter().map(|(name, value)| set(name, value)).collect(), remove_headers: Vec::new() }
}

/// The response to the headers of a request with this destination.
pub(super) fn request_headers(placement: &Placement) -> ProcessingResponse {
    let destination = placement.endpoints.join(",");
    let mut mutation = mutation(&placement.headers);
    mutation.set_headers.push(set(DESTINATION, &destination));
    if let Some(body) = &placement.body {
        mutation.set_headers.push(set("content-length", &body.iter().map(Bytes::len).sum::<usize>().to_string()));
    }
    let response = CommonResponse { header_mutation: Some(mutation), clear_route_cache: true, ..CommonResponse::default() };
    let field = |name: &str, kind| Struct { fields: [(name.to_owned(), Value { kind: Some(kind) })].into() };
    let metadata = field(LOAD_BALANCER, Kind::Struct(field(DESTINATION, Kind::Text(destination))));
    ProcessingResponse { part: Some(Part::RequestHeaders(Answer { response: Some(response) })), dynamic_metadata: Some(metadata) }
}

/// The response to the headers of a response.
pub(super) fn response_headers(headers: &[(String, String)]) -> ProcessingResponse {
    let mutation = (!headers.is_empty()).then(|| mutation(headers));
    let response = CommonResponse { header_mutation: mutation, ..CommonResponse::default() };
    message(Part::ResponseHeaders(Answer { response: Some(response) }))
}

/// A body in messages. The last one ends the stream if `end_of_stream` is set.
pub(super) fn body(pieces: Vec<Bytes>, end_of_stream: bool, part: fn(Answer) -> Part) -> Vec<ProcessingResponse> {
    let mut chunks: Vec<Bytes> = Vec::new();
    for mut piece in pieces {
        while piece.len() > MAX_CHUNK {
            chunks.push(piece.split_to(MAX_CHUNK));
        }
        if !piece.is_empty() {
            chunks.push(piece);
        }
    }
    if end_of_stream && chunks.is_empty() {
        chunks.push(Bytes::new());
    }
    let last = chunks.len().saturating_sub(1);
    let answer = |(at, body)| {
        let streamed_response = Some(HttpBody { body, end_of_stream: end_of_stream && at == last });
        let body_mutation = Some(BodyMutation { streamed_response });
        message(part(Answer { response: Some(CommonResponse { body_mutation, ..CommonResponse::default() }) }))
    };
    chunks.into_iter().enumerate().map(answer).collect()
}

/// The response to trailers, which stay unchanged.
pub(super) fn trailers(part: fn(TrailersResponse) -> Part) -> ProcessingResponse {
    message(part(TrailersResponse { header_mutation: None }))
}

/// The response to the client.
pub(super) fn immediate(refusal: &Refusal) -> ProcessingResponse {
    message(Part::Immediate(ImmediateResponse {
        status: Some(HttpStatus { code: refusal.status.into() }),
        headers: Some(mutation(&refusal.headers)),
        body: refusal.body.clone(),
        details: refusal.details.clone(),
    }))
}
