//! The gateway's metrics. The names of models are the catalog's, and keys are the configuration's, so that no client can add series.

use super::{backend::Backends, body::Buffered, catalog::Models, model::Model, usage::Tokens};
use crate::metrics::{bounded, family, single};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex},
};

/// The upper bounds of the buckets of a request's duration, in seconds.
const SECONDS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0];

/// The label of a model that isn't in the catalog, and of a caller without a name.
pub const NONE: &str = "";

/// The maximum number of models and callers with their own series; others are counted together.
const MAX_SERIES: usize = 1000;

type Labels<const N: usize> = [(&'static str, String); N];

/// The metrics that are counted as events happen.
#[derive(Debug)]
pub struct GatewayCounts {
    requests: Family<Labels<2>, Counter>,
    seconds: Family<Labels<1>, Histogram>,
    first_byte: Family<Labels<1>, Histogram>,
    held: Family<Labels<1>, Histogram>,
    tokens: Family<Labels<3>, Counter>,
    unreported: Family<Labels<1>, Counter>,
    models: Mutex<BTreeSet<String>>,
    callers: Mutex<BTreeSet<String>>,
}

impl Default for GatewayCounts {
    fn default() -> Self {
        let histogram = || Histogram::new(SECONDS);
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            first_byte: Family::new_with_constructor(histogram),
            held: Family::new_with_constructor(histogram),
            tokens: Family::default(),
            unreported: Family::default(),
            models: Mutex::default(),
            callers: Mutex::default(),
        }
    }
}

impl GatewayCounts {
    /// Counts a request with a response. The model is one of the catalog's, or none.
    pub fn answered(&self, model: Option<&str>, status: u16, seconds: f64, first_byte: Option<f64>, held: Option<f64>) {
        let model = bounded(&self.models, model.unwrap_or(NONE), MAX_SERIES);
        self.requests.get_or_create(&[("model", model.clone()), ("code", status.to_string())]).inc();
        self.seconds.get_or_create(&[("model", model.clone())]).observe(seconds);
        if let Some(first_byte) = first_byte {
            self.first_byte.get_or_create(&[("model", model.clone())]).observe(first_byte);
        }
        if let Some(held) = held {
            self.held.get_or_create(&[("model", model)]).observe(held);
        }
    }

    /// Counts the tokens of a response, and whether it has reported them.
    pub fn used(&self, model: &str, caller: &str, tokens: Option<Tokens>, reported: bool) {
        let (model, caller) = (bounded(&self.models, model, MAX_SERIES), bounded(&self.callers, caller, MAX_SERIES));
        if !reported {
            self.unreported.get_or_create(&[("model", model.clone())]).inc();
        }
        let Some(tokens) = tokens else { return };
        for (kind, count) in [("input", tokens.input), ("output", tokens.output)] {
            self.tokens.get_or_create(&[("model", model.clone()), ("caller", caller.clone()), ("kind", kind.to_owned())]).inc_by(count);
        }
    }

    /// Adds these metrics to the page.
    pub fn register(&self, registry: &mut Registry) {
        let Self { requests, seconds, first_byte, held, tokens, unreported, .. } = self;
        registry.register("pointsman_gateway_requests", "Requests, by model and status of the answer", requests.clone());
        registry.register("pointsman_gateway_request_seconds", "Duration of a request until the end of its answer", seconds.clone());
        let help = "Duration of a request until its answer begins";
        registry.register("pointsman_gateway_first_byte_seconds", help, first_byte.clone());
        registry.register("pointsman_gateway_held_seconds", "How long a request was held", held.clone());
        registry.register("pointsman_gateway_tokens", "Tokens, by model, caller and kind (input or output)", tokens.clone());
        let help = "Successful answers without `usage`; of streams each event counts as a token";
        registry.register("pointsman_gateway_answers_without_usage", help, unreported.clone());
    }
}

/// The state that is read while the page is written.
#[derive(Debug)]
pub struct GatewayState {
    /// The models.
    pub models: Arc<Models>,
    /// The backends.
    pub backends: Arc<Backends>,
    /// The buffered bytes.
    pub buffered: Buffered,
}

impl Collector for GatewayState {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let catalog = self.models.catalog();
        let entries: Vec<_> = catalog.entries().take(MAX_SERIES).collect();
        let page = &mut page;
        let gauge = |value: fn(&Model) -> u64| {
            entries.iter().map(move |entry| ([("model", entry.name.as_str())], ConstGauge::new(value(&entry.model))))
        };
        family(page, "pointsman_gateway_in_flight", "Requests in flight to a model.", gauge(Model::in_flight))?;
        family(page, "pointsman_gateway_held", "Requests that are held for a model.", gauge(|model| model.queued() as u64))?;
        family(page, "pointsman_gateway_routable", "1 while requests go to a model, else 0.", gauge(|model| model.is_open().into()))?;
        single(page, "pointsman_gateway_buffered_bytes", "Bytes of requests that are buffered.", self.buffered.bytes() as u64)?;
        let help = "Backends that aren't connected to for now because they fail.";
        single(page, "pointsman_gateway_broken_backends", help, self.backends.broken() as u64)?;
        let help = "Attempts to connect to a backend beyond the first";
        let retries = ConstCounter::new(self.backends.retries());
        retries.encode(page.encode_descriptor("pointsman_gateway_connect_retries", help, None, MetricType::Counter)?)
    }
}
