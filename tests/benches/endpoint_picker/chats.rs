//! The requests: chats of 2 KiB.

use crate::servers::CHAT;
use axum::body::Bytes;
use pointsman_picker::protocol::{
    framing,
    messages::{
        BodySendMode, HeaderMap, HeaderValue, HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration,
        request::Part::{self, RequestBody, RequestHeaders, ResponseBody, ResponseHeaders},
    },
};
use pointsman_tests::load::completion;
use serde_json::{Value, json};

/// The length of a body.
const BYTES: usize = 2 << 10;

/// The placeholder for a request's number. It occurs nowhere else.
const MARK: &str = "@@@@@@@@@@";

/// A number with as many digits as the placeholder.
pub(crate) fn digits(number: u64) -> String {
    format!("{number:010}")
}

/// A chat. All begin with the same system prompt of about two blocks; the rest depends on the number.
pub(crate) fn chat(number: &str) -> Value {
    let system = "You answer questions about trains. ".repeat(16);
    let body = |text: &str| {
        let messages = json!([{"role": "system", "content": system}, {"role": "user", "content": text}]);
        json!({"model": "llama", "messages": messages, "max_tokens": 256})
    };
    let room = BYTES - body("").to_string().len();
    body(&format!("{number}: when does the train leave? ").chars().cycle().take(room).collect::<String>())
}

/// Envoy's messages of an exchange.
pub(crate) struct Exchanges {
    /// The headers and the body of a request.
    request: Vec<u8>,
    /// The positions of its number.
    marks: Vec<usize>,
    /// The headers and the body of the response.
    response: Bytes,
}

impl Exchanges {
    pub(crate) fn new() -> Self {
        let body = chat(MARK).to_string();
        let length = body.len().to_string();
        let headers = [
            (":authority", "models.example.com"),
            (":path", CHAT),
            (":method", "POST"),
            (":scheme", "http"),
            ("content-type", "application/json"),
            ("content-length", &*length),
            ("user-agent", "bench"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-request-id", MARK),
        ];
        let mode = i32::from(BodySendMode::FullDuplexStreamed);
        let mut first = message(RequestHeaders(head(&headers)));
        first.protocol_config = Some(ProtocolConfiguration { request_body_mode: mode, response_body_mode: mode });
        let request = framing::encode(&[first, message(RequestBody(whole(body)))]).to_vec();
        let windows = request.windows(MARK.len()).enumerate();
        let marks = windows.filter(|(_, window)| *window == MARK.as_bytes()).map(|(place, _)| place).collect();
        let answered = head(&[(":status", "200"), ("content-type", "application/json"), ("x-envoy-upstream-service-time", "0")]);
        let response = framing::encode(&[message(ResponseHeaders(answered)), message(ResponseBody(whole(completion())))]);
        Self { request, marks, response }
    }

    /// The request with this number.
    pub(crate) fn request(&self, number: u64) -> Bytes {
        let (mut request, digits) = (self.request.clone(), digits(number));
        for mark in &self.marks {
            request[*mark..*mark + MARK.len()].copy_from_slice(digits.as_bytes());
        }
        request.into()
    }

    pub(crate) fn response(&self) -> Bytes {
        self.response.clone()
    }
}

fn message(part: Part) -> ProcessingRequest {
    ProcessingRequest { part: Some(part), ..ProcessingRequest::default() }
}

fn head(headers: &[(&str, &str)]) -> HttpHeaders {
    let header = |(name, value): &(&str, &str)| HeaderValue {
        key: (*name).to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    HttpHeaders { headers: Some(HeaderMap { headers: headers.iter().map(header).collect() }), end_of_stream: false }
}

/// A complete body in one message.
fn whole(body: String) -> HttpBody {
    HttpBody { body: body.into(), end_of_stream: true }
}
