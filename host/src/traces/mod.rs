//! Traces of reconciles and of requests to an endpoint picker, sent to a collector by OTLP over HTTP.
//!
//! Spans go into a queue of limited size, from which one task sends them. Nothing waits for a collector: spans that don't fit into the
//! queue, or can't be sent, are dropped and counted.

mod collector;
mod queue;

use collector::Collector;
use http::Uri;
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracer, SdkTracerProvider, SpanExporter as _},
};
use pointsman_core::spans::{RECONCILE, TARGET};
pub use queue::SpanCounts;
use queue::SpanQueue;
use std::{str::FromStr, time::Duration};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use tracing::{Metadata, subscriber::Interest};
use tracing_subscriber::{
    Layer, Registry,
    filter::{DynFilterFn, LevelFilter},
    layer::Context,
};

/// How long a process waits for the collector when it ends. A host has released its lease by then.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The path for traces below the URL of a collector, by OTLP.
const PATH: &str = "/v1/traces";

/// The URL of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

/// Why a URL isn't a collector's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the URL of a collector: write one such as http://collector.monitoring:4318, without credentials or a query")]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let error = || EndpointError(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| error())?;
        let known = uri.scheme_str().is_some_and(|scheme| ["http", "https"].contains(&scheme));
        let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@')) && uri.query().is_none();
        if known && plain { Ok(Self(uri)) } else { Err(error()) }
    }
}

impl Endpoint {
    /// The URL for traces.
    fn traces(&self) -> String {
        self.0.to_string().trim_end_matches('/').to_owned() + PATH
    }
}

/// Why traces can't be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// There is no client for the collector.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// An environment variable of the exporter is invalid.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// A layer in addition to the log's, which converts spans of `tracing` into those of traces.
pub type TraceLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The process that sends traces.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The kind of process.
    pub service: &'static str,
    /// Its name among those of its kind.
    pub identity: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
}

/// The task that sends spans.
#[derive(Debug)]
pub struct Traces {
    counts: SpanCounts,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Traces {
    /// Starts to send the spans of the tracer. `sample` is the part of the traces that begin here, from 0 to 1.
    pub fn start(endpoint: &Endpoint, sample: f64, origin: Origin<'_>) -> Result<(Self, SdkTracer), TracesError> {
        let collector = Collector::new(&endpoint.0)?;
        let failure = collector.failure();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.traces())
            .with_timeout(collector::EXPORT_TIMEOUT);
        let mut exporter = exporter.build()?;
        let resource = resource(origin);
        exporter.set_resource(&resource);
        let counts = SpanCounts::default();
        let (queue, spans) = SpanQueue::new(counts.clone());
        let tracer = tracer(queue, sample, resource);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(spans.send(exporter, failure, stopped));
        Ok((Self { counts, stop, task }, tracer))
    }

    /// The numbers of sent and dropped spans.
    pub fn counts(&self) -> &SpanCounts {
        &self.counts
    }

    /// Sends the queued spans and ends. It waits a limited time for the collector.
    pub async fn flush(mut self) {
        _ = self.stop.send(());
        if timeout(FLUSH_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
            tracing::warn!("the collector takes longer than {} s: the last spans are dropped", FLUSH_TIMEOUT.as_secs());
        }
    }
}

fn resource(Origin { service, identity, namespace }: Origin<'_>) -> Resource {
    let attributes = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", identity.to_owned()),
        KeyValue::new("k8s.namespace.name", namespace.to_owned()),
    ];
    Resource::builder().with_service_name(service).with_attributes(attributes).build()
}

/// Creates the spans of traces, and puts ended ones into the queue.
fn tracer(queue: SpanQueue, sample: f64, resource: Resource) -> SdkTracer {
    // A trace is sampled as a whole.
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample)));
    let provider = SdkTracerProvider::builder().with_resource(resource).with_sampler(sampler).with_span_processor(queue).build();
    provider.tracer("pointsman")
}

/// Converts spans of `tracing` into those of traces. The log's filter doesn't affect them.
pub fn layer(tracer: SdkTracer) -> TraceLayer {
    let spans = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        // The parents are those of `tracing`, which follow a task from thread to thread.
        .with_context_activation(false)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false);
    // Plans are also made outside reconciles, for comparisons and the webhook.
    let within = |of: &Metadata<'_>, around: &Context<'_, Registry>| {
        of.target() == TARGET && (of.name() == RECONCILE || around.lookup_current().is_some())
    };
    let filter = DynFilterFn::new(within)
        .with_callsite_filter(|of| if of.target() == TARGET { Interest::sometimes() } else { Interest::never() })
        .with_max_level_hint(LevelFilter::DEBUG);
    spans.with_filter(filter).boxed()
}

#[cfg(test)]
mod tests;
