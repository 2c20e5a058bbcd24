//! Traces of requests to the endpoint picker, as a collector receives them.

use crate::picker::{Scene, chat, reason, subset};
use axum::{Router, routing::post};
use hyper::body::Bytes;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use opentelemetry_sdk::trace::SdkTracer;
use pointsman::{
    endpoint_picker::grpc::Picks,
    traces::{Endpoint, Origin, Traces},
};
use pointsman_picker::protocol::{RequestHead, ResponseHead, TRACE_PARENT, TraceParent, messages::HttpBody};
use prost::Message;
use serde_json::json;
use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::watch, task::yield_now, time::timeout};

/// Far longer than a batch takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// The batches that a collector received.
struct Collected(watch::Receiver<Vec<Bytes>>);

/// A received span.
#[derive(Clone, Debug)]
struct Sent {
    span: Span,
    attributes: BTreeMap<String, String>,
}

impl Sent {
    fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    fn has_failed(&self) -> bool {
        self.span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32)
    }
}

fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, String> {
    let value = |attribute: KeyValue| match attribute.value.and_then(|value| value.value) {
        Some(Any::StringValue(text)) => (attribute.key, text),
        Some(Any::IntValue(number)) => (attribute.key, number.to_string()),
        other => panic!("{} is {other:?}", attribute.key),
    };
    let number = list.len();
    let attributes: BTreeMap<_, _> = list.into_iter().map(value).collect();
    assert_eq!(attributes.len(), number, "each attribute is there once: {attributes:?}");
    attributes
}

/// The spans of batches, ordered by their end.
fn spans(batches: &[Bytes]) -> Vec<Sent> {
    let mut spans = Vec::new();
    for batch in batches {
        for of_resource in ExportTraceServiceRequest::decode(&**batch).unwrap().resource_spans {
            let resource = attributes(of_resource.resource.unwrap().attributes);
            assert_eq!((&*resource["service.name"], &*resource["service.instance.id"]), ("pointsman-endpoint-picker", "picker-0"));
            for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                spans.push(Sent { attributes: attributes(span.attributes.clone()), span });
            }
        }
    }
    spans
}

impl Collected {
    /// Waits for the root span of a request with this identifier, and returns all spans.
    async fn until(&mut self, request: &str) -> Vec<Sent> {
        let is_there = |batches: &Vec<Bytes>| spans(batches).iter().any(|sent| sent.get("pointsman.request_id") == Some(request));
        let batches = timeout(PATIENCE, self.0.wait_for(is_there)).await.unwrap().unwrap();
        spans(&batches)
    }

    /// All received data as text.
    fn text(&self) -> String {
        self.0.borrow().iter().map(|batch| String::from_utf8_lossy(batch).into_owned()).collect()
    }
}

/// Traces that are sent to a collector.
async fn tracing(sample: f64) -> (Traces, SdkTracer, Collected) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let endpoint: Endpoint = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, taken) = watch::channel(Vec::new());
    let sender = Arc::new(sender);
    let take = move |batch: Bytes| {
        let sender = Arc::clone(&sender);
        async move {
            sender.send_modify(|batches: &mut Vec<Bytes>| batches.push(batch));
            Vec::<u8>::new()
        }
    };
    let routes = Router::new().route("/v1/traces", post(take));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let origin = Origin { service: "pointsman-endpoint-picker", identity: "picker-0", namespace: "prod" };
    let (traces, tracer) = Traces::start(&endpoint, sample, origin).unwrap();
    (traces, tracer, Collected(taken))
}

/// A request whose parent is a span of this trace.
fn within(trace_id: u128, is_sampled: bool, head: RequestHead) -> RequestHead {
    RequestHead { trace_parent: Some(TraceParent { trace_id, span_id: 7, is_sampled }), ..head }
}

fn called(id: &str) -> RequestHead {
    RequestHead { request_id: Some(id.to_owned()), ..RequestHead::default() }
}

/// The root span of a request, and its child spans by name.
fn trace<'s>(spans: &'s [Sent], request: &str) -> (&'s Sent, BTreeMap<&'s str, &'s Sent>) {
    let root = spans.iter().find(|sent| sent.get("pointsman.request_id") == Some(request)).unwrap();
    assert_eq!((&*root.span.name, root.span.kind), ("pick", SpanKind::Server as i32));
    let below: Vec<&Sent> = spans.iter().filter(|sent| sent.span.parent_span_id == root.span.span_id).collect();
    for sent in &below {
        assert_eq!(sent.span.trace_id, root.span.trace_id);
        assert!(root.span.start_time_unix_nano <= sent.span.start_time_unix_nano, "{spans:?}");
        assert!(sent.span.start_time_unix_nano <= sent.span.end_time_unix_nano, "{spans:?}");
        assert!(sent.span.end_time_unix_nano <= root.span.end_time_unix_nano, "{spans:?}");
    }
    (root, below.into_iter().map(|sent| (&*sent.span.name, sent)).collect())
}

/// The names of the child spans of a request's root, each with whether it failed.
fn below<'s>(spans: &'s [Sent], request: &str) -> Vec<(&'s str, bool)> {
    trace(spans, request).1.into_iter().map(|(name, sent)| (name, sent.has_failed())).collect()
}

#[tokio::test]
async fn a_trace_goes_on_from_the_gateway_to_the_model_server_and_has_nothing_of_the_prompt() {
    let (_traces, tracer, mut collected) = tracing(1.0).await;
    let scene = Scene::traced("", None, &["", ""], Some(tracer));
    scene.report(0, 0.0, 0.1);
    scene.report(1, 4.0, 0.9);
    let body = json!({"model": "llama", "max_tokens": 64, "messages": [{"role": "user", "content": "xyzzy ".repeat(100)}]});
    let unsampled = scene.ask(within(1, false, called("unsampled")), &body).await.unwrap();
    assert!(unsampled.0.headers.is_empty(), "the header stays as it is");
    drop(unsampled);
    let unread = scene.ask(called("unread"), &json!({"messages": [{"content": "xyzzy"}]})).await;
    assert_eq!(reason(unread).0, 400);
    let nowhere = RequestHead { request_id: Some("refused".to_owned()), ..subset(&[]) };
    assert_eq!(reason(scene.ask(within(2, true, nowhere), &chat("xyzzy")).await).0, 503);
    let head = RequestHead { trace_state: Some("vendor=1".to_owned()), fairness_id: Some("team-a".to_owned()), ..called("placed") };
    let (placement, mut placed) = scene.ask(within(3, true, head), &body).await.unwrap();
    let answer =
        ResponseHead { status: Some(200), content_type: Some("application/json".to_owned()), served: Some("10.0.0.0:8000".to_owned()) };
    scene.pool.response(&mut placed, &answer);
    let usage = json!({"prompt_tokens": 200, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}});
    let answer = json!({"choices": [{"message": {"content": "plugh"}}], "usage": usage});
    scene.pool.chunk(&mut placed, HttpBody { body: Bytes::from(answer.to_string()), end_of_stream: true });
    drop(placed);

    let spans = collected.until("placed").await;
    let names: Vec<&str> = spans.iter().map(|sent| &*sent.span.name).collect();
    assert_eq!(names, ["pick", "decide", "pick", "decide", "pick"], "unread, refused, placed: {spans:?}");
    let text = collected.text();
    assert!(!text.contains("xyzzy") && !text.contains("plugh"), "{text}");

    let (root, below) = trace(&spans, "placed");
    assert_eq!((&*root.span.trace_id, &*root.span.parent_span_id), (&3_u128.to_be_bytes()[..], &7_u64.to_be_bytes()[..]));
    assert_eq!((&*root.span.trace_state, root.has_failed()), ("vendor=1", false));
    for (key, value) in [
        ("pointsman.pool", "prod/llama"),
        ("pointsman.priority", "0"),
        ("pointsman.flow", "team-a"),
        ("pointsman.endpoints", "10.0.0.0:8000"),
        ("pointsman.served_by", "10.0.0.0:8000"),
        ("gen_ai.request.model", "llama"),
        ("gen_ai.request.max_tokens", "64"),
        ("gen_ai.usage.input_tokens", "200"),
        ("gen_ai.usage.output_tokens", "9"),
        ("gen_ai.usage.cache_read.input_tokens", "5"),
        ("http.response.status_code", "200"),
    ] {
        assert_eq!(root.get(key), Some(value), "{key} of {root:?}");
    }
    assert_eq!((root.get("error.type"), root.get("pointsman.target_model")), (None, None));
    assert_eq!(root.span.events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["pointsman.first_part"]);
    assert_eq!(below["decide"].get("pointsman.policy"), Some("scheduling-scoring"));
    let span_id = u64::from_be_bytes(root.span.span_id.as_slice().try_into().unwrap());
    let parent = TraceParent { trace_id: 3, span_id, is_sampled: true };
    assert_eq!(placement.headers, [(TRACE_PARENT.to_owned(), parent.to_string())]);

    let (root, below) = trace(&spans, "refused");
    let of = |sent: &Sent| (sent.has_failed(), sent.get("error.type").map(str::to_owned));
    let failed = |kind: &str| (true, Some(kind.to_owned()));
    assert_eq!((of(root), root.get("http.response.status_code")), (failed("rejected-no-endpoints"), Some("503")));
    assert_eq!(of(below["decide"]), failed("rejected-no-endpoints"));
    let (root, below) = trace(&spans, "unread");
    assert_eq!((of(root), below.len(), root.span.parent_span_id.len()), (failed("invalid_body"), 0, 0));
}

#[tokio::test]
async fn only_a_request_that_was_in_the_queue_has_a_span_of_it() {
    const CONFIG: &str = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: concurrency-detector
  parameters: {maxConcurrency: 1}
flowControl:
  maxRequests: 1
  saturationDetector: {pluginRef: concurrency-detector}
";
    let (_traces, tracer, mut collected) = tracing(1.0).await;
    let scene = Scene::traced(CONFIG, None, &[""], Some(tracer));
    let (_, first) = scene.ask(called("first"), &chat("first")).await.unwrap();
    let head = RequestHead { path: "/v1/chat/completions".to_owned(), ..called("second") };
    let second = tokio::spawn(Arc::clone(&scene.pool).pick(head, vec![Bytes::from(chat("second").to_string())]));
    while scene.pool.state().waiting == 0 {
        yield_now().await;
    }
    assert_eq!(reason(scene.ask(called("third"), &chat("third")).await), (429, "rejected-saturated".to_owned()));
    drop(first);
    drop(second.await.unwrap().unwrap());

    let spans = collected.until("second").await;
    assert_eq!(below(&spans, "first"), [("decide", false)]);
    assert_eq!(below(&spans, "second"), [("decide", false), ("wait", false)]);
    assert_eq!(below(&spans, "third"), [("wait", true)]);
    let (first, _) = trace(&spans, "first");
    assert_eq!((first.has_failed(), first.get("error.type")), (true, Some("no-answer")));
}

#[tokio::test]
async fn who_belongs_to_a_span_that_is_sampled_is_sampled_whatever_the_part_of_all_is() {
    let (_traces, tracer, mut collected) = tracing(0.0).await;
    let scene = Scene::traced("", None, &[""], Some(tracer));
    let (placement, _) = scene.ask(called("new"), &chat("a")).await.unwrap();
    assert!(placement.headers.is_empty(), "{placement:?}");
    let (placement, _) = scene.ask(within(1, true, called("sampled")), &chat("a")).await.unwrap();
    assert_eq!(placement.headers.len(), 1);
    let spans = collected.until("sampled").await;
    assert!(spans.iter().all(|sent| sent.span.trace_id == 1_u128.to_be_bytes()), "{spans:?}");
}
