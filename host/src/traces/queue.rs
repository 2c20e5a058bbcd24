//! The queue of ended spans, and the task that sends them. Adding a span never waits.

use super::collector::LastFailure;
use crate::metrics::Labels;
use opentelemetry::{Context, Value};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Span, SpanData, SpanExporter, SpanProcessor},
};
use pointsman_core::spans::BEGIN;
use pointsman_sandbox::sync::locked;
use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use std::time::{Duration, SystemTime};
use tokio::{
    sync::{
        mpsc::{self, Receiver, Sender},
        oneshot,
    },
    time::timeout,
};

/// The maximum number of spans in the queue: about 4 MiB.
const MAX_QUEUED_SPANS: usize = 4096;

/// The maximum number of spans in a request.
const MAX_BATCH_SPANS: usize = 512;

/// How long spans are gathered if a batch isn't full.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// The numbers of sent and dropped spans.
#[derive(Clone, Debug)]
pub struct SpanCounts(Family<Labels<1>, Counter>);

impl Default for SpanCounts {
    fn default() -> Self {
        let counts = Self(Family::default());
        // A counter that begins at 0 shows its first increase.
        counts.add("sent", 0);
        counts.add("dropped", 0);
        counts
    }
}

impl SpanCounts {
    fn add(&self, outcome: &'static str, spans: usize) {
        self.0.get_or_create(&[("outcome", outcome)]).inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
    }

    /// The number of spans with this outcome.
    #[cfg(test)]
    pub(super) fn get(&self, outcome: &'static str) -> u64 {
        self.0.get_or_create(&[("outcome", outcome)]).get()
    }

    /// Adds the metric to the page.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("pointsman_trace_spans", "Spans of traces, by whether they were sent or dropped", self.0.clone());
    }
}

/// The sender of the queue.
#[derive(Debug)]
pub(super) struct SpanQueue {
    spans: Sender<SpanData>,
    counts: SpanCounts,
}

impl SpanQueue {
    pub(super) fn new(counts: SpanCounts) -> (Self, QueuedSpans) {
        let (sender, spans) = mpsc::channel(MAX_QUEUED_SPANS);
        (Self { spans: sender, counts: counts.clone() }, QueuedSpans { spans, counts })
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        set_begin(&mut span);
        if self.spans.try_send(span).is_err() {
            self.counts.add("dropped", 1);
        }
    }

    // One of the host's tasks sends the queued spans, and also ends it.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sets a span's start to the time in its field. A span of `tracing` otherwise starts when it is created.
fn set_begin(span: &mut SpanData) {
    let Some(at) = span.attributes.iter().position(|attribute| attribute.key.as_str() == BEGIN) else { return };
    if let Value::I64(nanoseconds) = span.attributes.remove(at).value
        && let Ok(since) = u64::try_from(nanoseconds)
    {
        span.start_time = SystemTime::UNIX_EPOCH + Duration::from_nanos(since);
    }
}

/// The receiver of the queue.
#[derive(Debug)]
pub(super) struct QueuedSpans {
    spans: Receiver<SpanData>,
    counts: SpanCounts,
}

impl QueuedSpans {
    /// Sends spans until `stop`, and then the queued ones. A batch that fails is dropped; the exporter has retried by then.
    pub(super) async fn send(mut self, exporter: impl SpanExporter, failure: LastFailure, mut stop: oneshot::Receiver<()>) {
        let (mut batch, mut failing, mut stopping) = (Vec::new(), false, false);
        loop {
            if !stopping {
                stopping = tokio::select! {
                    () = self.fill(&mut batch) => false,
                    _ = &mut stop => true,
                };
            }
            while stopping
                && batch.len() < MAX_BATCH_SPANS
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            let spans = batch.len();
            match exporter.export(std::mem::take(&mut batch)).await {
                Ok(()) => {
                    self.counts.add("sent", spans);
                    if std::mem::take(&mut failing) {
                        tracing::info!("traces are being sent again");
                    }
                }
                Err(error) => {
                    self.counts.add("dropped", spans);
                    // The next batch may also fail.
                    if !std::mem::replace(&mut failing, true) {
                        let error = locked(&failure).take().unwrap_or_else(|| error.to_string());
                        tracing::warn!(error, "traces can't be sent, and are dropped until the collector accepts them");
                    }
                }
            }
        }
    }

    /// Waits until there are enough spans for a batch, or the first have waited long enough. The batch stays empty only if no more spans
    /// can come.
    async fn fill(&mut self, batch: &mut Vec<SpanData>) {
        if batch.is_empty() {
            self.spans.recv_many(batch, MAX_BATCH_SPANS).await;
        }
        let rest = async {
            while batch.len() < MAX_BATCH_SPANS {
                if self.spans.recv_many(batch, MAX_BATCH_SPANS - batch.len()).await == 0 {
                    return;
                }
            }
        };
        _ = timeout(BATCH_DELAY, rest).await;
    }
}
