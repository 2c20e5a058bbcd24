//! The messages of Envoy's external processing (envoy.service.ext_proc.v3). Only the fields that we use are declared; others are skipped.

#![allow(clippy::derive_partial_eq_without_eq)] // Generated comparisons.

use bytes::Bytes;
use std::collections::BTreeMap;

/// A message from the proxy.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingRequest {
    /// The content.
    #[prost(oneof = "request::Part", tags = "2, 3, 4, 5, 6, 7")]
    pub part: Option<request::Part>,
    /// Notes of other filters about the request.
    #[prost(message, optional, tag = "8")]
    pub metadata_context: Option<Metadata>,
    /// Whether the proxy accepts no responses.
    #[prost(bool, tag = "10")]
    pub observability_mode: bool,
    /// The modes of the bodies. Only newer proxies send it, and only in the first message.
    #[prost(message, optional, tag = "11")]
    pub protocol_config: Option<ProtocolConfiguration>,
}

/// The contents of a message from the proxy.
pub mod request {
    use super::{HttpBody, HttpHeaders, HttpTrailers};

    /// The content of a message.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Part {
        /// The headers of the request.
        #[prost(message, tag = "2")]
        RequestHeaders(HttpHeaders),
        /// The headers of the response.
        #[prost(message, tag = "3")]
        ResponseHeaders(HttpHeaders),
        /// A chunk of the request's body.
        #[prost(message, tag = "4")]
        RequestBody(HttpBody),
        /// A chunk of the response's body.
        #[prost(message, tag = "5")]
        ResponseBody(HttpBody),
        /// The trailers of the request.
        #[prost(message, tag = "6")]
        RequestTrailers(HttpTrailers),
        /// The trailers of the response.
        #[prost(message, tag = "7")]
        ResponseTrailers(HttpTrailers),
    }
}

/// The modes in which the proxy sends bodies.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ProtocolConfiguration {
    /// The mode of the request's body.
    #[prost(enumeration = "BodySendMode", tag = "1")]
    pub request_body_mode: i32,
    /// The mode of the response's body.
    #[prost(enumeration = "BodySendMode", tag = "2")]
    pub response_body_mode: i32,
}

/// The mode in which a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum BodySendMode {
    /// Not at all.
    None = 0,
    /// In chunks, each after the response to the previous one.
    Streamed = 1,
    /// As a whole.
    Buffered = 2,
    /// As a whole, or the part that fits into the proxy's buffer.
    BufferedPartial = 3,
    /// In chunks, independent of responses.
    FullDuplexStreamed = 4,
    /// As gRPC messages.
    Grpc = 5,
}

/// Headers.
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

/// An ordered list of headers.
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
    /// The value from older proxies.
    #[prost(string, tag = "2")]
    pub value: String,
    /// The value from newer proxies.
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

/// Notes of filters, by filter name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    /// The notes.
    #[prost(btree_map = "string, message", tag = "1")]
    pub filter_metadata: BTreeMap<String, Struct>,
}

/// A JSON object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    /// Its fields.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// A JSON value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// The value; absent for null.
    #[prost(oneof = "value::Kind", tags = "2, 3, 4, 5, 6")]
    pub kind: Option<value::Kind>,
}

/// The kinds of values.
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
        /// A boolean.
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

/// A JSON list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    /// Its items.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// A message to the proxy.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingResponse {
    /// The content.
    #[prost(oneof = "response::Part", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub part: Option<response::Part>,
    /// Metadata for other filters and the load balancer.
    #[prost(message, optional, tag = "8")]
    pub dynamic_metadata: Option<Struct>,
}

/// The contents of a message to the proxy.
pub mod response {
    use super::{Answer, ImmediateResponse, TrailersResponse};

    /// The content of a message.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Part {
        /// The headers of the request.
        #[prost(message, tag = "1")]
        RequestHeaders(Answer),
        /// The headers of the response.
        #[prost(message, tag = "2")]
        ResponseHeaders(Answer),
        /// A chunk of the request's body.
        #[prost(message, tag = "3")]
        RequestBody(Answer),
        /// A chunk of the response's body.
        #[prost(message, tag = "4")]
        ResponseBody(Answer),
        /// The trailers of the request.
        #[prost(message, tag = "5")]
        RequestTrailers(TrailersResponse),
        /// The trailers of the response.
        #[prost(message, tag = "6")]
        ResponseTrailers(TrailersResponse),
        /// A response to the client.
        #[prost(message, tag = "7")]
        Immediate(ImmediateResponse),
    }
}

/// The response to headers or to a chunk.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    /// The changes.
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

/// The changes of headers or of a body.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommonResponse {
    /// The changes of headers.
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
    /// The changes of a body.
    #[prost(message, optional, tag = "3")]
    pub body_mutation: Option<BodyMutation>,
    /// Whether the proxy recomputes the route.
    #[prost(bool, tag = "5")]
    pub clear_route_cache: bool,
}

/// The changes of headers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMutation {
    /// The headers to set.
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
    /// The headers to remove.
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

/// A header to set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValueOption {
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// How to treat an existing header.
    #[prost(enumeration = "AppendAction", tag = "3")]
    pub append_action: i32,
}

/// How to treat an existing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AppendAction {
    /// Keep it and add the new one.
    AppendIfExistsOrAdd = 0,
    /// Keep it.
    AddIfAbsent = 1,
    /// Replace it.
    OverwriteIfExistsOrAdd = 2,
}

/// The change of a body.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BodyMutation {
    /// The change. Other forms are for bodies that are sent in other modes.
    #[prost(message, optional, tag = "3")]
    pub streamed_response: Option<HttpBody>,
}

/// The response to trailers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrailersResponse {
    /// The changes.
    #[prost(message, optional, tag = "1")]
    pub header_mutation: Option<HeaderMutation>,
}

/// A response to the client. It ends the exchange.
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

/// An HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct HttpStatus {
    /// Its code.
    #[prost(int32, tag = "1")]
    pub code: i32,
}
