//! The messages of Envoy's external processing (envoy.service.ext_proc.v3), as far as they matter: what isn't here is skipped when it is read.

#![allow(clippy::derive_partial_eq_without_eq)] // Generated comparisons.

use bytes::Bytes;
use std::collections::BTreeMap;

/// What the proxy sends.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingRequest {
    /// What it is about.
    #[prost(oneof = "request::Part", tags = "2, 3, 4, 5, 6, 7")]
    pub part: Option<request::Part>,
    /// What other filters have noted of the request.
    #[prost(message, optional, tag = "8")]
    pub metadata_context: Option<Metadata>,
    /// Whether the proxy takes no answers.
    #[prost(bool, tag = "10")]
    pub observability_mode: bool,
    /// How bodies are sent. Only the first message has it, of newer proxies.
    #[prost(message, optional, tag = "11")]
    pub protocol_config: Option<ProtocolConfiguration>,
}

/// The parts of what the proxy sends.
pub mod request {
    use super::{HttpBody, HttpHeaders, HttpTrailers};

    /// What a message is about.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Part {
        /// The headers of the request.
        #[prost(message, tag = "2")]
        RequestHeaders(HttpHeaders),
        /// Those of the response.
        #[prost(message, tag = "3")]
        ResponseHeaders(HttpHeaders),
        /// A chunk of the request's body.
        #[prost(message, tag = "4")]
        RequestBody(HttpBody),
        /// One of the response's.
        #[prost(message, tag = "5")]
        ResponseBody(HttpBody),
        /// The trailers of the request.
        #[prost(message, tag = "6")]
        RequestTrailers(HttpTrailers),
        /// Those of the response.
        #[prost(message, tag = "7")]
        ResponseTrailers(HttpTrailers),
    }
}

/// How the proxy sends bodies.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ProtocolConfiguration {
    /// That of the request.
    #[prost(enumeration = "BodySendMode", tag = "1")]
    pub request_body_mode: i32,
    /// That of the response.
    #[prost(enumeration = "BodySendMode", tag = "2")]
    pub response_body_mode: i32,
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum BodySendMode {
    /// Not at all.
    None = 0,
    /// A chunk after the answer to the one before.
    Streamed = 1,
    /// As a whole.
    Buffered = 2,
    /// As a whole, or what fits into the proxy's buffer of it.
    BufferedPartial = 3,
    /// In chunks, whatever is answered when.
    FullDuplexStreamed = 4,
    /// As gRPC messages.
    Grpc = 5,
}

/// Headers with their place in the message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpHeaders {
    /// The headers.
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
    /// Whether neither a body nor trailers follow.
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

/// A chunk of a body.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct HttpBody {
    /// Its bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    /// Whether nothing follows.
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

/// Trailers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpTrailers {
    /// The trailers.
    #[prost(message, optional, tag = "1")]
    pub trailers: Option<HeaderMap>,
}

/// Headers in their order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMap {
    /// The headers.
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// A header. Its value is in one of two fields.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct HeaderValue {
    /// The name, in lower case.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value, of older proxies.
    #[prost(string, tag = "2")]
    pub value: String,
    /// The value, of newer ones.
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

/// What filters have noted, by their names.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    /// The notes.
    #[prost(btree_map = "string, message", tag = "1")]
    pub filter_metadata: BTreeMap<String, Struct>,
}

/// An object of JSON.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    /// Its fields.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// A value of JSON.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// The value; none is null.
    #[prost(oneof = "value::Kind", tags = "2, 3, 4, 5, 6")]
    pub kind: Option<value::Kind>,
}

/// The kinds of value.
pub mod value {
    use super::{ListValue, Struct};

    /// A value.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// A number.
        #[prost(double, tag = "2")]
        Number(f64),
        /// A text.
        #[prost(string, tag = "3")]
        Text(String),
        /// Whether something is so.
        #[prost(bool, tag = "4")]
        Bool(bool),
        /// An object.
        #[prost(message, tag = "5")]
        Struct(Struct),
        /// A list.
        #[prost(message, tag = "6")]
        List(ListValue),
    }
}

/// A list of JSON.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    /// Its items.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// What the proxy is answered.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingResponse {
    /// What it is about.
    #[prost(oneof = "response::Part", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub part: Option<response::Part>,
    /// What other filters and the load balancer are to know.
    #[prost(message, optional, tag = "8")]
    pub dynamic_metadata: Option<Struct>,
}

/// The parts of what the proxy is answered.
pub mod response {
    use super::{Answer, ImmediateResponse, TrailersResponse};

    /// What a message is about.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Part {
        /// The headers of the request.
        #[prost(message, tag = "1")]
        RequestHeaders(Answer),
        /// Those of the response.
        #[prost(message, tag = "2")]
        ResponseHeaders(Answer),
        /// A chunk of the request's body.
        #[prost(message, tag = "3")]
        RequestBody(Answer),
        /// One of the response's.
        #[prost(message, tag = "4")]
        ResponseBody(Answer),
        /// The trailers of the request.
        #[prost(message, tag = "5")]
        RequestTrailers(TrailersResponse),
        /// Those of the response.
        #[prost(message, tag = "6")]
        ResponseTrailers(TrailersResponse),
        /// An answer to the client.
        #[prost(message, tag = "7")]
        Immediate(ImmediateResponse),
    }
}

/// The answer to headers or to a chunk.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    /// What is changed.
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

/// What is changed of headers or of a body.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommonResponse {
    /// Of headers.
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
    /// Of a body.
    #[prost(message, optional, tag = "3")]
    pub body_mutation: Option<BodyMutation>,
    /// Whether the route is looked up again.
    #[prost(bool, tag = "5")]
    pub clear_route_cache: bool,
}

/// What is changed of headers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMutation {
    /// Those that are set.
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
    /// Those that are removed.
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

/// A header that is set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValueOption {
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// What becomes of one that is there.
    #[prost(enumeration = "AppendAction", tag = "3")]
    pub append_action: i32,
}

/// What becomes of a header that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AppendAction {
    /// Both are there.
    AppendIfExistsOrAdd = 0,
    /// It stays.
    AddIfAbsent = 1,
    /// It is replaced.
    OverwriteIfExistsOrAdd = 2,
}

/// What is changed of a body.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BodyMutation {
    /// The change. The other forms are for bodies that are sent otherwise.
    #[prost(message, optional, tag = "3")]
    pub streamed_response: Option<HttpBody>,
}

/// The answer to trailers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrailersResponse {
    /// What is changed.
    #[prost(message, optional, tag = "1")]
    pub header_mutation: Option<HeaderMutation>,
}

/// An answer to the client, by which the exchange ends.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ImmediateResponse {
    /// Its status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// Its headers.
    #[prost(message, optional, tag = "2")]
    pub headers: Option<HeaderMutation>,
    /// Its body.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
    /// What the proxy logs.
    #[prost(string, tag = "5")]
    pub details: String,
}

/// A status of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct HttpStatus {
    /// Its code.
    #[prost(int32, tag = "1")]
    pub code: i32,
}
