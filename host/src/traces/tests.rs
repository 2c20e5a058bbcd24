use super::{
    collector::LastFailure,
    queue::{QueuedSpans, SpanQueue},
    *,
};
use opentelemetry::{SpanId, Value};
use opentelemetry_sdk::{
    error::{OTelSdkError, OTelSdkResult},
    trace::SpanData,
};
use pointsman_core::spans::BEGIN;
use std::{
    collections::BTreeMap,
    future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};
use tokio::time::Instant;
use tracing::{Event, Level, Span, debug_span, instrument::WithSubscriber, subscriber::with_default};
use tracing_subscriber::layer::SubscriberExt;

/// A collector that accepts spans, refuses them, or never responds.
#[derive(Clone, Debug, Default)]
struct Fake {
    taken: Arc<Mutex<Vec<Vec<SpanData>>>>,
    refuses: Arc<AtomicUsize>,
    hangs: bool,
}

impl opentelemetry_sdk::trace::SpanExporter for Fake {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        if self.hangs {
            future::pending::<()>().await;
        }
        if self.refuses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(OTelSdkError::InternalFailure("refused".to_owned()));
        }
        self.taken.lock().unwrap().push(batch);
        Ok(())
    }
}

impl Fake {
    fn spans(&self) -> BTreeMap<String, SpanData> {
        self.taken.lock().unwrap().concat().into_iter().map(|span| (span.name.to_string(), span)).collect()
    }
}

/// Counts the warnings of the log.
struct Warnings(Arc<AtomicUsize>);

impl Layer<Registry> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, Registry>) {
        self.0.fetch_add(usize::from(*event.metadata().level() == Level::WARN), Ordering::SeqCst);
    }
}

fn origin() -> Resource {
    resource(Origin { service: "pointsman", identity: "host-0", namespace: "pointsman-system" })
}

/// The layer, the queue and the counts for this sample rate.
fn pipeline(sample: f64) -> (TraceLayer, QueuedSpans, SpanCounts) {
    let counts = SpanCounts::default();
    let (queue, spans) = SpanQueue::new(counts.clone());
    (layer(tracer(queue, sample, origin())), spans, counts)
}

fn traces(spans: QueuedSpans, counts: SpanCounts, exporter: Fake) -> Traces {
    let (stop, stopped) = oneshot::channel();
    Traces { counts, stop, task: tokio::spawn(spans.send(exporter, LastFailure::default(), stopped)) }
}

fn reconciles(layer: TraceLayer, number: usize) {
    with_default(Registry::default().with(layer), || {
        (0..number).for_each(|_| drop(debug_span!(target: TARGET, RECONCILE).entered()));
    });
}

#[tokio::test]
async fn a_trace_begins_with_what_was_seen_and_has_nothing_of_the_log_nor_of_what_is_planned_elsewhere() {
    let (layer, spans, counts) = pipeline(1.0);
    with_default(Registry::default().with(layer), || {
        debug_span!(target: TARGET, "plan").in_scope(|| drop(debug_span!(target: TARGET, "elsewhere").entered()));
        let log = tracing::info_span!("reconcile", subject = "a").entered();
        let root = debug_span!(target: TARGET, RECONCILE, { BEGIN } = 5_000_000_001_i64, result = tracing::field::Empty);
        let within = root.enter();
        drop(debug_span!(target: TARGET, "queue", { BEGIN } = 5_000_000_001_i64));
        tracing::info_span!("HTTP").in_scope(|| drop(debug_span!(target: TARGET, "request", otel.name = "create Service").entered()));
        assert!(Span::current().metadata().is_some_and(|of| of.target() == TARGET));
        tracing::info!("a line");
        root.record("result", "Done");
        drop(within);
        drop((root, log));
    });
    let collector = Fake::default();
    traces(spans, counts.clone(), collector.clone()).flush().await;
    let spans = collector.spans();
    assert_eq!(spans.keys().collect::<Vec<_>>(), ["create Service", "queue", "reconcile"]);
    let root = &spans["reconcile"];
    let seen = SystemTime::UNIX_EPOCH + Duration::from_nanos(5_000_000_001);
    assert_eq!((root.start_time, root.parent_span_id, spans["queue"].start_time), (seen, SpanId::INVALID, seen));
    let attributes: Vec<(&str, &Value)> = root.attributes.iter().map(|attribute| (attribute.key.as_str(), &attribute.value)).collect();
    assert_eq!(attributes, [("result", &Value::from("Done"))], "when it begins is no attribute, nor is its place in the code");
    assert!(root.events.events.is_empty(), "a line of the log is none of the trace");
    for below in ["queue", "create Service"] {
        assert_eq!(spans[below].parent_span_id, root.span_context.span_id());
        assert_eq!(spans[below].span_context.trace_id(), root.span_context.trace_id());
        assert!(root.start_time <= spans[below].start_time && spans[below].end_time <= root.end_time);
    }
    assert_eq!((counts.get("sent"), counts.get("dropped")), (3, 0));
}

#[tokio::test]
async fn a_part_of_all_traces_is_sampled() {
    for (sample, range) in [(0.0, 0..=0), (0.5, 100..=300), (1.0, 400..=400)] {
        let (layer, spans, counts) = pipeline(sample);
        reconciles(layer, 400);
        traces(spans, counts.clone(), Fake::default()).flush().await;
        assert!(range.contains(&counts.get("sent")), "{} of 400 for {sample}", counts.get("sent"));
    }
}

#[tokio::test]
async fn what_does_not_fit_into_the_queue_is_dropped_and_counted() {
    let (layer, spans, counts) = pipeline(1.0);
    reconciles(layer, 5000);
    assert_eq!(counts.get("dropped"), 5000 - 4096);
    let collector = Fake::default();
    traces(spans, counts.clone(), collector.clone()).flush().await;
    assert_eq!((counts.get("sent"), counts.get("dropped")), (4096, 5000 - 4096));
    assert!(collector.taken.lock().unwrap().iter().all(|batch| batch.len() <= 512));
}

#[tokio::test(start_paused = true)]
async fn that_a_collector_refuses_spans_is_logged_once_until_it_takes_them_again() {
    let (layer, spans, counts) = pipeline(1.0);
    reconciles(layer, 4096);
    let (collector, warnings) = (Fake::default(), Arc::<AtomicUsize>::default());
    collector.refuses.store(3, Ordering::SeqCst);
    let (_stop, stopped) = oneshot::channel();
    let log = Registry::default().with(Warnings(Arc::clone(&warnings)));
    // No more spans come, so it ends.
    spans.send(collector, LastFailure::default(), stopped).with_subscriber(log).await;
    assert_eq!((counts.get("dropped"), counts.get("sent"), warnings.load(Ordering::SeqCst)), (3 * 512, 5 * 512, 1));
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_a_bounded_time_for_a_collector_that_hangs() {
    let (layer, spans, counts) = pipeline(1.0);
    reconciles(layer, 1);
    let traces = traces(spans, counts, Fake { hangs: true, ..Fake::default() });
    let begun = Instant::now();
    traces.flush().await;
    assert_eq!(begun.elapsed(), FLUSH_TIMEOUT);
}

#[test]
fn a_collector_is_an_http_server_and_its_path_is_that_of_traces() {
    for (url, traces) in [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://example.com/otlp/", "https://example.com/otlp/v1/traces"),
        ("http://collector.monitoring", "http://collector.monitoring/v1/traces"),
    ] {
        assert_eq!(url.parse::<Endpoint>().unwrap().traces(), traces);
    }
    for wrong in ["", "collector", "collector:4318", "/v1/traces", "grpc://collector:4317", "http://a:b@collector", "http://collector?a=b"]
    {
        assert_eq!(wrong.parse::<Endpoint>().unwrap_err(), EndpointError(wrong.to_owned()));
    }
}

#[test]
fn a_trace_names_its_host() {
    let resource = origin();
    let of = |key: &'static str| resource.get(&key.into()).map(|value| value.to_string());
    assert_eq!(of("service.name").as_deref(), Some("pointsman"));
    assert_eq!(of("service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!((of("service.instance.id"), of("k8s.namespace.name")), (Some("host-0".to_owned()), Some("pointsman-system".to_owned())));
}
