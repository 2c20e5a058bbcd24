//! The spans of a request. They are created directly rather than with `tracing`, because a request's span moves from the code that places
//! it to the code that sees its response end, and a request that isn't sampled has no span at all. Of a prompt, they contain only the
//! number of tokens.

use super::{counts::Answered, decide::Decision, decisions::record::RefusalRecord, read::Incoming, refusal::Dropped};
use opentelemetry::{
    Context, KeyValue,
    trace::{Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceState, Tracer as _},
};
use opentelemetry_sdk::trace::{SdkTracer, Span};
use pointsman_picker::protocol::{Placement, RequestHead, TRACE_PARENT, TraceParent};
use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

/// The maximum number of characters of a client's text.
const MAX_TEXT: usize = 256;

/// The span of a sampled request. It ends with the response or, if its client disconnects before it is placed, when this is dropped.
#[derive(Debug)]
pub(super) struct RequestSpan {
    tracer: SdkTracer,
    span: Span,
    /// Its start, by the clock of spans and by the monotonic clock.
    began: (SystemTime, Instant),
}

impl RequestSpan {
    /// Starts it, if tracing is on and the request is sampled: by its parent span, or by chance.
    pub(super) fn start(tracer: Option<&SdkTracer>, pool: &Arc<str>, head: &RequestHead) -> Option<Box<Self>> {
        let tracer = tracer?;
        let around = match head.trace_parent {
            None => Context::new(),
            // The sampler would decide the same, but needs a context first.
            Some(parent) if !parent.is_sampled => return None,
            Some(parent) => Context::new().with_remote_span_context(remote(parent, head.trace_state.as_deref())),
        };
        let began = (SystemTime::now(), Instant::now());
        // The gateway waits for its end, and a backend counts it as a request to this service.
        let builder = SpanBuilder::from_name("pick").with_kind(SpanKind::Server).with_start_time(began.0);
        let mut span = tracer.build_with_context(builder, &around);
        if !span.is_recording() {
            return None;
        }
        span.set_attribute(KeyValue::new("pointsman.pool", Arc::clone(pool)));
        if let Some(id) = &head.request_id {
            span.set_attribute(text("pointsman.request_id", id));
        }
        Some(Box::new(Self { tracer: tracer.clone(), span, began }))
    }

    /// Records the priority and the flow.
    pub(super) fn asked(&mut self, priority: i64, flow: &str) {
        self.span.set_attributes([KeyValue::new("pointsman.priority", priority), text("pointsman.flow", flow)]);
    }

    /// Records the parsed request.
    pub(super) fn read(&mut self, request: &Incoming) {
        if !request.model().is_empty() {
            self.span.set_attribute(text("gen_ai.request.model", request.model()));
        }
        if request.target() != request.model() {
            self.span.set_attribute(text("pointsman.target_model", request.target()));
        }
        if let Some(most) = request.max_tokens {
            self.span.set_attribute(KeyValue::new("gen_ai.request.max_tokens", number(most)));
        }
        self.span.set_attribute(KeyValue::new("pointsman.estimated_input_tokens", number(request.tokens)));
    }

    /// Records the time in flow control, and why the request was refused there.
    pub(super) fn waited(&self, since: Instant, refused: Option<Dropped>) {
        self.child("wait", since, Vec::new(), refused);
    }

    /// Records the choice.
    pub(super) fn decided(&mut self, since: Instant, decision: Result<&Decision, Dropped>) {
        let mut attributes = Vec::new();
        if let Ok(decision) = decision {
            if let Some(scored) = &decision.scored_by {
                let names: Vec<&str> = scored.policies.iter().map(|policy| policy.name.as_str()).collect();
                if !names.is_empty() {
                    attributes.push(KeyValue::new("pointsman.policy", names.join(",")));
                }
                attributes.extend(scored.policy_set.clone().map(|digest| KeyValue::new("pointsman.policy_set", digest)));
            }
            if let Some(prefill) = &decision.prefill {
                self.span.set_attribute(KeyValue::new("pointsman.prefill_endpoint", prefill.text.to_string()));
            }
        }
        self.child("decide", since, attributes, decision.err());
    }

    /// Records the endpoints, and becomes the parent of the model server's spans.
    pub(super) fn sent(mut self: Box<Self>, placement: &mut Placement) -> Box<Self> {
        self.span.set_attribute(KeyValue::new("pointsman.endpoints", placement.endpoints.join(",")));
        let context = self.span.span_context();
        let parent = TraceParent {
            trace_id: u128::from_be_bytes(context.trace_id().to_bytes()),
            span_id: u64::from_be_bytes(context.span_id().to_bytes()),
            is_sampled: true,
        };
        placement.headers.push((TRACE_PARENT.to_owned(), parent.to_string()));
        self
    }

    /// Ends it with the picker's own response.
    pub(super) fn refused(mut self: Box<Self>, refusal: RefusalRecord) {
        let RefusalRecord { status, reason, message } = refusal;
        self.span.set_attributes([KeyValue::new("http.response.status_code", i64::from(status)), KeyValue::new("error.type", reason)]);
        self.span.set_status(Status::error(message));
        self.end();
    }

    /// Records the endpoint that has responded, as the gateway names it.
    pub(super) fn served(&mut self, endpoint: &str) {
        self.span.set_attribute(text("pointsman.served_by", endpoint));
    }

    /// Ends it with a model server's response, or without one.
    pub(super) fn answered(mut self: Box<Self>, answered: &Answered, first_part: Option<Instant>) {
        let Answered { status, usage, .. } = answered;
        if let Some(status) = status {
            self.span.set_attribute(KeyValue::new("http.response.status_code", i64::from(*status)));
        }
        // A client's mistake is no error of the server.
        let failure = match status {
            None => Some(("no-answer".to_owned(), "The exchange has ended before a model server answered.")),
            Some(status) if *status >= 500 => Some((status.to_string(), "")),
            Some(_) => None,
        };
        if let Some((kind, message)) = failure {
            self.span.set_attribute(KeyValue::new("error.type", kind));
            self.span.set_status(Status::error(message));
        }
        if let Some(at) = first_part.map(|first| self.at(first)) {
            self.span.add_event_with_timestamp("pointsman.first_part", at, Vec::new());
        }
        if let Some(usage) = usage {
            self.span.set_attributes([
                KeyValue::new("gen_ai.usage.input_tokens", number(usage.prompt)),
                KeyValue::new("gen_ai.usage.output_tokens", number(usage.completion)),
            ]);
            if let Some(cached) = usage.cached {
                self.span.set_attribute(KeyValue::new("gen_ai.usage.cache_read.input_tokens", number(cached)));
            }
        }
        self.end();
    }

    fn end(&mut self) {
        let now = self.at(Instant::now());
        self.span.end_with_timestamp(now);
    }

    /// A child span, which has just ended.
    fn child(&self, name: &'static str, since: Instant, mut attributes: Vec<KeyValue>, refused: Option<Dropped>) {
        attributes.extend(refused.map(|why| KeyValue::new("error.type", why.reason())));
        let around = Context::new().with_remote_span_context(self.span.span_context().clone());
        let builder = SpanBuilder::from_name(name).with_start_time(self.at(since)).with_attributes(attributes);
        let mut span = self.tracer.build_with_context(builder, &around);
        if let Some(why) = refused {
            span.set_status(Status::error(why.message()));
        }
        span.end_with_timestamp(self.at(Instant::now()));
    }

    /// A moment by the clock of spans. It is never before the request's start, even if that clock was set.
    fn at(&self, moment: Instant) -> SystemTime {
        let (time, begin) = self.began;
        time + moment.saturating_duration_since(begin)
    }
}

/// A remote span.
fn remote(parent: TraceParent, state: Option<&str>) -> SpanContext {
    let TraceParent { trace_id, span_id, is_sampled } = parent;
    let flags = TraceFlags::NOT_SAMPLED.with_sampled(is_sampled);
    // An invalid state is left out; the request keeps its header.
    let state = state.and_then(|state| state.parse().ok()).unwrap_or(TraceState::NONE);
    SpanContext::new(trace_id.into(), span_id.into(), flags, true, state)
}

/// An attribute with a client's text.
fn text(name: &'static str, value: &str) -> KeyValue {
    KeyValue::new(name, value.chars().take(MAX_TEXT).collect::<String>())
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
