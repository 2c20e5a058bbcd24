//! The data from the headers and the metadata of an exchange.

use super::{
    LOAD_BALANCER, SERVED, SUBSET, SUBSET_HINT,
    messages::{HeaderMap, HeaderValue, Metadata, value::Kind},
    trace_parent::TraceParent,
};
use crate::config::SESSION_HEADER;

/// The data about a request before its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The path with its query.
    pub path: String,
    /// The type of its body.
    pub content_type: Option<String>,
    /// The name of its InferenceObjective.
    pub objective: Option<String>,
    /// Its flow, for fairness.
    pub fairness_id: Option<String>,
    /// The model that replaces the requested one.
    pub model_rewrite: Option<String>,
    /// The requested time to the first token, in milliseconds.
    pub ttft_ms: Option<u64>,
    /// The requested time per further token, in milliseconds.
    pub tpot_ms: Option<u64>,
    /// Its session, as the picker has issued it.
    pub session: Option<String>,
    /// Its identifier in traces and logs.
    pub request_id: Option<String>,
    /// The span that it belongs to.
    pub trace_parent: Option<TraceParent>,
    /// The additional data of tracing systems for that span, if the trace is sampled.
    pub trace_state: Option<String>,
    /// Whether it should be refused instead of being served slowly.
    pub if_available: bool,
    /// The allowed endpoints, as `ADDRESS:PORT` or `ADDRESS`; if absent, all are allowed.
    pub subset: Option<Vec<String>>,
}

/// The data about a response before its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// Its status.
    pub status: Option<u16>,
    /// The type of its body.
    pub content_type: Option<String>,
    /// The endpoint that served it.
    pub served: Option<String>,
}

/// The maximum length of a name, in bytes.
pub(super) const MAX_NAME: usize = 512;

/// The maximum number of endpoints in a hint.
const MAX_SUBSET: usize = 4096;

/// The value of a header, if it is text. If a name occurs several times, the first.
pub fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.headers.iter().find(|header| header.key.eq_ignore_ascii_case(name)).and_then(text)
}

impl HeaderMap {
    /// The values of a header that are text.
    pub(super) fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h str> {
        self.headers.iter().filter(move |header| header.key.eq_ignore_ascii_case(name)).filter_map(text)
    }
}

fn text(header: &HeaderValue) -> Option<&str> {
    let value = if header.raw_value.is_empty() { Some(&*header.value) } else { std::str::from_utf8(&header.raw_value).ok() };
    value.map(str::trim)
}

/// The value of a header under its newer or its older name. A value that is too long for a name is ignored.
fn name(headers: &HeaderMap, names: [&str; 2]) -> Option<String> {
    let value = names.into_iter().find_map(|name| header(headers, name).filter(|value| !value.is_empty()));
    value.filter(|value| value.len() <= MAX_NAME).map(str::to_owned)
}

impl RequestHead {
    pub(super) fn new(headers: &HeaderMap) -> Self {
        let trace_parent = TraceParent::of(headers);
        let millis = |newer: &str, older: &str| name(headers, [newer, older])?.parse::<f64>().ok().and_then(whole);
        Self {
            path: header(headers, ":path").unwrap_or_default().to_owned(),
            content_type: header(headers, "content-type").map(str::to_owned),
            objective: name(headers, ["x-llm-d-inference-objective", "x-gateway-inference-objective"]),
            fairness_id: name(headers, ["x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"]),
            model_rewrite: name(headers, ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"]),
            ttft_ms: millis("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"),
            tpot_ms: millis("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"),
            session: name(headers, [SESSION_HEADER, SESSION_HEADER]),
            request_id: name(headers, ["x-request-id", "x-request-id"]),
            trace_parent,
            trace_state: trace_parent.and_then(|parent| parent.state(headers)),
            if_available: header(headers, "prefer").is_some_and(|value| value.split(',').any(|one| one.trim() == "if-available")),
            subset: None,
        }
    }

    /// Reads the hint, which may arrive with any message.
    pub(super) fn read_metadata(&mut self, metadata: &Metadata) {
        let hint = metadata.filter_metadata.get(SUBSET_HINT).and_then(|hint| hint.fields.get(SUBSET));
        let Some(kind) = hint.and_then(|hint| hint.kind.as_ref()) else { return };
        let texts = match kind {
            Kind::List(list) => list.values.iter().filter_map(|value| value.kind.as_ref()).collect(),
            other => vec![other],
        };
        let texts = texts.into_iter().filter_map(|kind| if let Kind::Text(text) = kind { Some(text) } else { None });
        let endpoints = texts.flat_map(|text| text.split(',')).map(str::trim).filter(|one| !one.is_empty() && one.len() <= MAX_NAME);
        // A hint without endpoints means that none is allowed.
        self.subset = Some(endpoints.take(MAX_SUBSET).map(str::to_owned).collect());
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It is checked.
fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && (0.0..1e12).contains(&value)).then_some(value as u64)
}

impl ResponseHead {
    pub(super) fn new(headers: &HeaderMap) -> Self {
        Self {
            status: header(headers, ":status").and_then(|status| status.parse().ok()),
            content_type: header(headers, "content-type").map(str::to_owned),
            served: None,
        }
    }

    /// Reads the endpoint that served the response.
    pub(super) fn read_metadata(&mut self, metadata: &Metadata) {
        let noted = |key: &str| metadata.filter_metadata.get(LOAD_BALANCER).and_then(|noted| noted.fields.get(key));
        if let Some(Kind::Text(served)) = noted(SERVED).and_then(|served| served.kind.as_ref()) {
            self.served = Some(served.clone()).filter(|served| served.len() <= MAX_NAME);
        }
    }
}
