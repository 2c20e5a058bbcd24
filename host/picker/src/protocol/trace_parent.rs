//! The span of a request, as in W3C's Trace Context.

use super::{head::MAX_NAME, messages::HeaderMap};
use std::fmt;

/// The header with the span.
pub const TRACE_PARENT: &str = "traceparent";

/// The header with additional data of tracing systems.
const TRACE_STATE: &str = "tracestate";

/// The length of the fields that every version has.
const FIELDS: usize = 55;

/// A span, as in `traceparent`. It needs no heap memory, so it costs nothing without tracing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; not 0.
    pub trace_id: u128,
    /// The span; not 0.
    pub span_id: u64,
    /// Whether the trace is sampled.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Parses a header; none if it is malformed. Ignores additional fields of newer versions, and all flags except that of sampling.
    fn parse(text: &str) -> Option<Self> {
        let (fields, rest) = text.split_at_checked(FIELDS)?;
        let mut fields = fields.split('-');
        // Rust's own parser also accepts signs and capitals.
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let mut next = |length: usize| fields.next().filter(|field| field.len() == length && field.bytes().all(is_digit));
        let (version, trace_id, span_id, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let is_whole = match version {
            "00" => rest.is_empty(),
            "ff" => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let parent = Self {
            trace_id: u128::from_str_radix(trace_id, 16).ok()?,
            span_id: u64::from_str_radix(span_id, 16).ok()?,
            is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        };
        (is_whole && parent.trace_id != 0 && parent.span_id != 0).then_some(parent)
    }

    /// The span in the headers. None if there are two.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.values(TRACE_PARENT);
        let value = values.next()?;
        if values.next().is_some() { None } else { Self::parse(value) }
    }

    /// The additional data of tracing systems, if the trace is sampled. A list may be split into several headers.
    pub(super) fn state(self, headers: &HeaderMap) -> Option<String> {
        if !self.is_sampled {
            return None;
        }
        let mut state = String::new();
        for value in headers.values(TRACE_STATE) {
            if state.len() + value.len() >= MAX_NAME {
                return None;
            }
            if !state.is_empty() {
                state.push(',');
            }
            state.push_str(value);
        }
        (!state.is_empty()).then_some(state)
    }
}

/// Writes the value of the header.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        Exchange, Limits, Placement, RequestHead, Step,
        messages::{AppendAction, HeaderValue, HttpHeaders, ProcessingRequest, request, response::Part},
    };
    use bytes::Bytes;

    const VALUE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const PARENT: TraceParent =
        TraceParent { trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, span_id: 0x00f0_67aa_0ba9_02b7, is_sampled: true };

    /// An exchange whose request is complete and has these headers.
    fn exchange(headers: &[(&str, &str)]) -> Exchange {
        let raw = |(key, value): &(&str, &str)| HeaderValue {
            key: (*key).to_owned(),
            value: String::new(),
            raw_value: Bytes::copy_from_slice(value.as_bytes()),
        };
        let headers = HeaderMap { headers: headers.iter().map(raw).collect() };
        let part = request::Part::RequestHeaders(HttpHeaders { headers: Some(headers), end_of_stream: true });
        let mut exchange = Exchange::new(Limits::default());
        assert_eq!(exchange.receive(ProcessingRequest { part: Some(part), ..ProcessingRequest::default() }), Step::Pick);
        exchange
    }

    fn head(headers: &[(&str, &str)]) -> RequestHead {
        exchange(headers).request().clone()
    }

    #[test]
    fn a_header_is_read_as_it_is_written() {
        assert_eq!((TraceParent::parse(VALUE), PARENT.to_string().as_str()), (Some(PARENT), VALUE));
        let quiet = TraceParent { trace_id: 1, span_id: 2, is_sampled: false };
        assert_eq!(quiet.to_string(), "00-00000000000000000000000000000001-0000000000000002-00");
        assert_eq!(TraceParent::parse(&quiet.to_string()), Some(quiet));
    }

    #[test]
    fn flags_and_versions_that_are_newer_are_no_error() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        for (text, is_sampled) in [("00-", "03", true), ("00-", "02", false), ("01-", "ff", true), ("cc-", "01-more-of-it", true)]
            .map(|(version, flags, is_sampled)| (format!("{version}{ids}-{flags}"), is_sampled))
        {
            assert_eq!(TraceParent::parse(&text), Some(TraceParent { is_sampled, ..PARENT }), "{text}");
        }
    }

    #[test]
    fn what_is_malformed_names_no_span() {
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-012",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-012",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0A-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0é",
        ] {
            assert_eq!(TraceParent::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_state_belongs_to_a_span_that_is_sampled_and_is_bounded() {
        let unsampled = TraceParent { is_sampled: false, ..PARENT }.to_string();
        let long = format!("a={}", "x".repeat(MAX_NAME));
        let state = |headers: &[(&str, &str)]| {
            let head = head(headers);
            (head.trace_parent.is_some(), head.trace_state)
        };
        assert_eq!(state(&[("Traceparent", VALUE), ("tracestate", "a=1"), ("tracestate", " b=2")]), (true, Some("a=1,b=2".to_owned())));
        assert_eq!(state(&[("traceparent", VALUE)]), (true, None));
        assert_eq!(state(&[("traceparent", VALUE), ("tracestate", long.as_str())]), (true, None));
        assert_eq!(state(&[("traceparent", unsampled.as_str()), ("tracestate", "a=1")]), (true, None));
        assert_eq!(state(&[("traceparent", VALUE), ("traceparent", VALUE), ("tracestate", "a=1")]), (false, None));
        assert_eq!(state(&[("tracestate", "a=1")]), (false, None));
    }

    #[test]
    fn the_request_goes_on_with_one_span_in_place_of_the_one_that_came() {
        let headers = vec![(TRACE_PARENT.to_owned(), VALUE.to_owned())];
        let placement = Placement { endpoints: vec!["10.0.0.1:8000".to_owned()], headers, body: None };
        let messages = exchange(&[(TRACE_PARENT, VALUE)]).place(placement);
        let Some(Part::RequestHeaders(answer)) = &messages[0].part else { panic!("{messages:?}") };
        let set = &answer.response.as_ref().unwrap().header_mutation.as_ref().unwrap().set_headers;
        let found = set.iter().find(|set| set.header.as_ref().is_some_and(|header| header.key == TRACE_PARENT)).unwrap();
        assert_eq!(found.append_action, AppendAction::OverwriteIfExistsOrAdd as i32);
    }
}
