//! The picker's metrics, with upstream's names, so that its dashboards work. Clients choose the names in requests: a limited number have
//! their own series, and others are counted together.

use super::{
    policy::ScoringPolicy,
    pool::{Pool, PoolSummary},
    refusal::Dropped,
    scaling::RoleScaling,
};
use crate::metrics::{bounded, family, single};
use pointsman_picker::body::Usage;
use pointsman_sandbox::sync::locked;
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The upper bounds of the buckets of a request's duration, in seconds.
const SECONDS: [f64; 14] = [0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// The upper bounds of the buckets of a token's duration, in seconds.
const TOKEN_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.5, 1.0];

/// The upper bounds of the buckets of a decision's duration, in seconds.
const DECISION_SECONDS: [f64; 12] = [0.000_01, 0.000_025, 0.000_05, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1];

/// The upper bounds of the buckets of sizes, in bytes or tokens.
const SIZES: [f64; 12] = [1.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// The maximum number of models, and of flows, with their own series.
const MAX_SERIES: usize = 500;

type Labels<const N: usize> = [(&'static str, String); N];

/// The labels of a request's series.
#[derive(Clone, Debug)]
pub struct RequestLabels(Labels<4>);

/// The metrics that are counted as events happen.
#[derive(Debug)]
pub struct PickerCounts {
    requests: Family<Labels<4>, Counter>,
    errors: Family<Labels<5>, Counter>,
    running: Family<Labels<4>, Gauge>,
    seconds: Family<Labels<4>, Histogram>,
    first_token: Family<Labels<4>, Histogram>,
    further_token: Family<Labels<4>, Histogram>,
    request_bytes: Family<Labels<4>, Histogram>,
    response_bytes: Family<Labels<4>, Histogram>,
    input_tokens: Family<Labels<4>, Histogram>,
    output_tokens: Family<Labels<4>, Histogram>,
    waited: Family<Labels<2>, Histogram>,
    decided: Histogram,
    policies: Family<Labels<3>, Histogram>,
    policy_failures: Family<Labels<2>, Counter>,
    /// The failures of policies by reason, for code that doesn't read the page.
    failures: Mutex<BTreeMap<&'static str, u64>>,
    prefix_share: Histogram,
    models: Mutex<BTreeSet<String>>,
    flows: Mutex<BTreeSet<String>>,
}

impl Default for PickerCounts {
    fn default() -> Self {
        let seconds = || Histogram::new(SECONDS);
        let sizes = || Histogram::new(SIZES);
        Self {
            requests: Family::default(),
            errors: Family::default(),
            running: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            first_token: Family::new_with_constructor(seconds),
            further_token: Family::new_with_constructor(|| Histogram::new(TOKEN_SECONDS)),
            request_bytes: Family::new_with_constructor(sizes),
            response_bytes: Family::new_with_constructor(sizes),
            input_tokens: Family::new_with_constructor(sizes),
            output_tokens: Family::new_with_constructor(sizes),
            waited: Family::new_with_constructor(seconds),
            decided: Histogram::new(DECISION_SECONDS),
            policies: Family::new_with_constructor(|| Histogram::new(DECISION_SECONDS)),
            policy_failures: Family::default(),
            failures: Mutex::default(),
            prefix_share: Histogram::new([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
            models: Mutex::default(),
            flows: Mutex::default(),
        }
    }
}

/// The result of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answered {
    /// The status, if the response has begun.
    pub status: Option<u16>,
    /// The time from the request's arrival to the end of the response.
    pub seconds: f64,
    /// The time to the first part.
    pub first_token: Option<f64>,
    /// The mean time per further token.
    pub further_token: Option<f64>,
    /// The size of the request's body, in bytes.
    pub request_bytes: usize,
    /// The size of the response's body, in bytes.
    pub response_bytes: usize,
    /// The token counts.
    pub usage: Option<Usage>,
}

#[allow(clippy::cast_precision_loss)] // Sizes are far below 2^52.
fn number(count: u64) -> f64 {
    count as f64
}

impl PickerCounts {
    /// The labels of a request.
    pub fn labels(&self, model: &str, target: &str, flow: &str, priority: i64) -> RequestLabels {
        RequestLabels([
            ("model_name", bounded(&self.models, model, MAX_SERIES)),
            ("target_model_name", bounded(&self.models, target, MAX_SERIES)),
            ("fairness_id", bounded(&self.flows, flow, MAX_SERIES)),
            ("priority", priority.to_string()),
        ])
    }

    /// Counts a request that is refused.
    pub fn dropped(&self, labels: &RequestLabels, code: &str) {
        self.requests.get_or_create(&labels.0).inc();
        self.failed(labels, code);
    }

    fn failed(&self, labels: &RequestLabels, code: &str) {
        let [model, target, flow, priority] = labels.0.clone();
        self.errors.get_or_create(&[model, target, flow, priority, ("error_code", code.to_owned())]).inc();
    }

    /// Counts a request that is sent to an endpoint.
    pub fn sent(&self, labels: &RequestLabels, prefix_share: f64, decided: Duration) {
        self.requests.get_or_create(&labels.0).inc();
        self.running.get_or_create(&labels.0).inc();
        self.decided.observe(decided.as_secs_f64());
        if !prefix_share.is_nan() {
            self.prefix_share.observe(prefix_share);
        }
    }

    /// Counts the time that a request has waited in flow control.
    pub fn waited(&self, pool: &str, outcome: Result<(), Dropped>, waited: Duration) {
        let outcome = outcome.map_or_else(Dropped::reason, |()| "dispatched");
        self.waited.get_or_create(&[("inference_pool", pool.to_owned()), ("outcome", outcome.to_owned())]).observe(waited.as_secs_f64());
    }

    /// Counts a call of a policy.
    pub fn asked(&self, policy: &ScoringPolicy, took: Duration, failure: Option<&'static str>) {
        let name = || policy.name().to_owned();
        let labels = [("extension_point", "Score".to_owned()), ("plugin_type", "policy".to_owned()), ("plugin_name", name())];
        self.policies.get_or_create(&labels).observe(took.as_secs_f64());
        if let Some(reason) = failure {
            self.policy_failures.get_or_create(&[("policy", name()), ("reason", reason.to_owned())]).inc();
            *locked(&self.failures).entry(reason).or_default() += 1;
        }
    }

    /// The number of failed calls, by reason.
    pub(super) fn policy_failures(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.failures).clone()
    }

    /// Counts the end of a response.
    pub fn answered(&self, RequestLabels(labels): &RequestLabels, answered: &Answered) {
        self.running.get_or_create(labels).dec();
        match answered.status {
            Some(status) if status < 400 => {}
            Some(status) => self.failed(&RequestLabels(labels.clone()), &status.to_string()),
            None => self.failed(&RequestLabels(labels.clone()), "no-answer"),
        }
        self.seconds.get_or_create(labels).observe(answered.seconds);
        if let Some(seconds) = answered.first_token {
            self.first_token.get_or_create(labels).observe(seconds);
        }
        if let Some(seconds) = answered.further_token {
            self.further_token.get_or_create(labels).observe(seconds);
        }
        self.request_bytes.get_or_create(labels).observe(number(answered.request_bytes as u64));
        self.response_bytes.get_or_create(labels).observe(number(answered.response_bytes as u64));
        if let Some(usage) = answered.usage {
            self.input_tokens.get_or_create(labels).observe(number(usage.prompt));
            self.output_tokens.get_or_create(labels).observe(number(usage.completion));
        }
    }

    /// Adds these metrics to the page. The format adds `_total` to counters.
    pub fn register(&self, registry: &mut Registry) {
        let name = |name: &str| format!("llm_d_epp_{name}");
        registry.register(name("request"), "Requests", self.requests.clone());
        registry.register(name("request_error"), "Requests that went nowhere or failed, by why or by the status", self.errors.clone());
        registry.register(name("request_running"), "Requests whose answers haven't ended", self.running.clone());
        registry.register(name("request_duration_seconds"), "From a request's arrival to the end of its answer", self.seconds.clone());
        registry.register(
            name("request_ttft_seconds"),
            "From a request's arrival to the first part of its answer",
            self.first_token.clone(),
        );
        let help = "The time of each token after the first, in streams";
        registry.register(name("request_streaming_tpot_seconds"), help, self.further_token.clone());
        registry.register(name("request_size_bytes"), "Sizes of requests' bodies", self.request_bytes.clone());
        registry.register(name("response_size_bytes"), "Sizes of answers' bodies", self.response_bytes.clone());
        registry.register(name("request_input_tokens"), "Tokens of prompts, as answers report them", self.input_tokens.clone());
        registry.register(name("request_output_tokens"), "Tokens of answers, as they report them", self.output_tokens.clone());
        let help = "How long requests have waited for room, and how that ended";
        registry.register(name("flow_control_request_queue_duration_seconds"), help, self.waited.clone());
        registry.register(name("scheduler_e2e_duration_seconds"), "How long choosing an endpoint took", self.decided.clone());
        registry.register(name("plugin_duration_seconds"), "How long policies took", self.policies.clone());
        let help = "Questions that policies haven't answered, by why";
        registry.register("pointsman_picker_policy_failures", help, self.policy_failures.clone());
        let help = "The share of prompts that the chosen endpoint had seen";
        registry.register(name("prefix_indexer_hit_ratio"), help, self.prefix_share.clone());
    }
}

/// A value of a pool.
type Read = fn(&PoolSummary) -> f64;

/// A value of the endpoints of a role.
type ReadRole = fn(&RoleScaling) -> f64;

/// The state that is read while the page is written.
#[derive(Debug)]
pub struct PoolStates(pub Vec<Arc<Pool>>);

impl Collector for PoolStates {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let states: Vec<_> = self.0.iter().map(|pool| (pool.name(), pool.state())).collect();
        let gauges: [(&str, &str, &str, Read); 5] = [
            ("llm_d_epp_average_kv_cache_utilization", "The mean share of KV caches that is in use", "name", |state| state.kv_usage),
            ("llm_d_epp_average_queue_size", "The mean number of requests that wait at an endpoint", "name", |state| state.queue),
            ("llm_d_epp_ready_endpoints", "Endpoints that are ready", "name", |state| number(state.endpoints as u64)),
            ("llm_d_epp_flow_control_pool_saturation", "How full the pool is: 1 is full", "inference_pool", |state| state.saturation),
            ("llm_d_epp_flow_control_queue_size", "Requests that wait for room", "inference_pool", |state| number(state.waiting as u64)),
        ];
        for (name, help, label, read) in gauges {
            family(&mut page, name, help, states.iter().map(|(pool, state)| ([(label, *pool)], ConstGauge::new(read(state)))))?;
        }
        let scaling: Vec<_> = self.0.iter().map(|pool| (pool.name(), pool.scaling().roles)).collect();
        let by_role: [(&str, &str, ReadRole); 2] = [
            ("pointsman_pool_demand", "How many endpoints of the role would be just full by what the pool has", |role| role.demand),
            ("pointsman_pool_saturation", "How full the endpoints of the role are in the mean: 1 is full", |role| role.saturation),
        ];
        for (name, help, read) in by_role {
            let roles = scaling.iter().flat_map(|(pool, roles)| roles.iter().map(move |(role, numbers)| (*pool, role.as_str(), numbers)));
            let series = roles.map(|(pool, role, numbers)| ([("inference_pool", pool), ("role", role)], ConstGauge::new(read(numbers))));
            family(&mut page, name, help, series)?;
        }
        let blocks: u64 = states.iter().map(|(_, state)| state.prefix_blocks as u64).sum();
        single(&mut page, "llm_d_epp_prefix_indexer_size", "Blocks of prompts that are remembered", blocks)
    }
}
