//! A pool, and the steps of placing a request on one of its endpoints: read, admit, decide, send.

use super::{
    cluster::PoolView,
    counts::{PickerCounts, RequestLabels},
    decide::{Decision, Policies, Recorded, decide},
    decisions::{Decisions, record::Record},
    grpc::{Health, Picks},
    latency::{Latency, Taken},
    micros,
    placed::{Answer, Placed},
    read::{Incoming, read},
    refusal::{Dropped, NotPlaced},
    room,
    scaling::PoolScaling,
    session,
    spans::RequestSpan,
    waiting::{Arrival, Released, Waiting},
};
use arc_swap::ArcSwap;
use hyper::body::Bytes;
use opentelemetry_sdk::trace::SdkTracer;
use pointsman_picker::{
    config::PickerConfig,
    fleet::{Endpoint, Fleet},
    pick,
    prefix::BlockSize,
    protocol::{Placement, Refusal, RequestHead, ResponseHead, messages::HttpBody},
};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

/// The header with the endpoint that prefills a prompt.
const PREFILLER: &str = "x-prefiller-host-port";

/// The flow of requests without one.
pub(super) const DEFAULT_FLOW: &str = "default-flow";

/// The service names in the health checks of upstream's probes and gateways: liveness and readiness.
pub(super) const LIVENESS: &str = "liveness";
pub(super) const PROCESS_SERVICES: [&str; 3] = ["", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"];

/// A pool that requests are placed on.
#[derive(Debug)]
pub struct Pool {
    name: Arc<str>,
    view: Arc<PoolView>,
    config: PickerConfig,
    policies: ArcSwap<Policies>,
    waiting: Option<Waiting>,
    latency: Latency,
    counts: Arc<PickerCounts>,
    decisions: Arc<Decisions>,
    tracer: Option<SdkTracer>,
    clock: tokio::time::Instant,
    /// The length of blocks, fixed once a prompt was hashed with it.
    block: OnceLock<BlockSize>,
    seeds: AtomicU64,
    /// It is no longer ready.
    drains: AtomicBool,
    /// It refuses new requests.
    ends: AtomicBool,
}

/// The state of a pool, for its metrics.
#[derive(Clone, Copy, Debug)]
pub struct PoolSummary {
    /// The number of ready endpoints.
    pub endpoints: usize,
    /// The mean usage of their KV caches.
    pub kv_usage: f64,
    /// The mean length of their queues.
    pub queue: f64,
    /// The saturation of the pool.
    pub saturation: f64,
    /// The number of requests that wait.
    pub waiting: usize,
    /// The number of remembered blocks of prompts.
    pub prefix_blocks: usize,
}

impl Pool {
    /// Creates a pool without requests, recording and tracing.
    pub fn new(
        name: String,
        view: Arc<PoolView>,
        config: PickerConfig,
        policies: Policies,
        latency: Latency,
        counts: Arc<PickerCounts>,
        clock: tokio::time::Instant,
    ) -> Self {
        let waiting = config.flow_control.clone().map(|settings| Waiting::new(settings, clock));
        Self {
            name: name.into(),
            view,
            config,
            policies: ArcSwap::from_pointee(policies),
            waiting,
            latency,
            counts,
            decisions: Arc::new(Decisions::new(0)),
            tracer: None,
            clock,
            block: OnceLock::new(),
            seeds: AtomicU64::new(u64::from(std::process::id()) << 32),
            drains: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        }
    }

    /// Records the last decisions there.
    #[must_use]
    pub fn recording(self, decisions: Arc<Decisions>) -> Self {
        Self { decisions, ..self }
    }

    /// Traces requests with this tracer.
    #[must_use]
    pub fn tracing(self, tracer: Option<SdkTracer>) -> Self {
        Self { tracer, ..self }
    }

    /// The last decisions.
    pub fn decisions(&self) -> &Arc<Decisions> {
        &self.decisions
    }

    /// NAMESPACE/NAME.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it isn't ready, and the remedy.
    pub fn obstacle(&self) -> Option<String> {
        self.view.obstacle()
    }

    /// Its endpoints.
    pub fn fleet(&self) -> &Fleet {
        &self.view.fleet
    }

    pub(super) fn view(&self) -> &PoolView {
        &self.view
    }

    pub(super) fn counts(&self) -> &PickerCounts {
        &self.counts
    }

    /// The time, by the pool's clock.
    pub(super) fn micros(&self) -> u64 {
        micros(self.clock.elapsed())
    }

    pub(super) fn learn(&self, taken: Taken) {
        self.latency.learn(taken);
    }

    /// Notifies the queue that there may be capacity.
    pub(super) fn look(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.look();
        }
    }

    /// The active policies.
    pub fn policies(&self) -> Arc<Policies> {
        self.policies.load_full()
    }

    /// Changes the policies for new requests. Several callers may change parts of them concurrently.
    pub fn update_policies(&self, change: impl Fn(&mut Policies)) {
        self.policies.rcu(|policies| {
            let mut policies = Policies::clone(policies);
            change(&mut policies);
            policies
        });
    }

    /// Releases waiting requests whenever there is capacity. It never ends by itself.
    pub async fn keep(&self) {
        let Some(waiting) = &self.waiting else { return std::future::pending().await };
        waiting.keep(|released| self.has_room_for_waiting(waiting.ceiling(), released)).await;
    }

    /// Whether it can place requests, and isn't shutting down.
    pub fn is_ready(&self) -> bool {
        !self.drains() && self.view.obstacle().is_none()
    }

    /// Whether it is no longer ready.
    pub(super) fn drains(&self) -> bool {
        self.drains.load(Ordering::Acquire)
    }

    /// Sets the pool to not ready, so that proxies go elsewhere. New requests are still served.
    pub fn drain(&self) {
        self.drains.store(true, Ordering::Release);
    }

    /// Drops waiting requests and all new ones.
    pub fn end(&self) {
        self.drain();
        self.ends.store(true, Ordering::Release);
        if let Some(waiting) = &self.waiting {
            waiting.end();
        }
    }

    fn saturation(&self, endpoints: &[Endpoint]) -> f64 {
        room::saturation(&self.config, endpoints, self.micros(), Endpoint::load)
    }

    fn has_room_for_waiting(&self, ceiling: f64, released: usize) -> bool {
        room::has_room_for_waiting(&self.config, &self.fleet().endpoints(), self.micros(), ceiling, released)
    }

    /// The number of waiting requests.
    fn waiting(&self) -> usize {
        self.waiting.as_ref().map_or(0, Waiting::len)
    }

    /// The number of endpoints that it could use.
    pub fn scaling(&self) -> PoolScaling {
        PoolScaling::new(&self.config, &self.fleet().endpoints(), self.waiting(), self.micros())
    }

    /// The pool's state.
    pub fn state(&self) -> PoolSummary {
        let endpoints = self.fleet().endpoints();
        let mean = |read: fn(&pointsman_picker::engine_metrics::EngineMetrics) -> Option<f64>| {
            let values: Vec<f64> = endpoints.iter().filter_map(|endpoint| read(&endpoint.state.report()?.metrics)).collect();
            #[allow(clippy::cast_precision_loss)] // Far below 2^52.
            let number = values.len().max(1) as f64;
            values.iter().sum::<f64>() / number
        };
        PoolSummary {
            endpoints: endpoints.len(),
            kv_usage: mean(|metrics| metrics.kv_usage),
            queue: mean(|metrics| metrics.waiting),
            saturation: self.saturation(&endpoints),
            waiting: self.waiting(),
            prefix_blocks: self.fleet().prefixes.len(),
        }
    }

    /// The length of a prompt's blocks: the engines', if it is known at the first prompt.
    fn block(&self, endpoints: &[Endpoint]) -> BlockSize {
        *self.block.get_or_init(|| {
            let reported = || endpoints.iter().find_map(|endpoint| endpoint.state.report()?.metrics.block_size);
            let engine = if self.config.prefix.auto_tune { reported() } else { None };
            engine.map_or(BlockSize::of_engine(self.config.prefix.block_tokens), BlockSize::of_engine)
        })
    }

    /// Adjusts the remembered blocks of each endpoint to its engine's cache, or to the configuration.
    pub fn tune(&self) {
        let Some(block) = self.block.get() else { return };
        for endpoint in self.fleet().endpoints().iter() {
            if !self.config.prefix.auto_tune {
                self.fleet().prefixes.set_capacity(endpoint.state.id(), self.config.prefix.capacity);
                continue;
            }
            let report = endpoint.state.report();
            let sizes = report.as_ref().and_then(|report| report.metrics.blocks.zip(report.metrics.block_size));
            if let Some((blocks, tokens)) = sizes {
                self.fleet().prefixes.set_capacity(endpoint.state.id(), block.capacity(u64::from(blocks), tokens));
            }
        }
    }

    fn seed(&self) -> u64 {
        self.seeds.fetch_add(1, Ordering::Relaxed)
    }

    /// Places a request, records it, and traces it. If its client disconnects while it waits, it was neither placed nor refused, and isn't
    /// recorded.
    async fn place(self: Arc<Self>, head: RequestHead, body: Vec<Bytes>) -> Result<(Placement, Placed), Refusal> {
        let mut record = self.decisions.start(&self.name, &head);
        let mut span = RequestSpan::start(self.tracer.as_ref(), &self.name, &head);
        let placed = self.place_recorded(&head, &body, record.as_deref_mut(), span.as_deref_mut()).await;
        if let Some(mut record) = record {
            match &placed {
                Ok((placement, _)) => record.sent.clone_from(&placement.endpoints),
                Err(why) => record.refused = Some(why.record()),
            }
            self.decisions.push(*record);
        }
        match placed {
            Ok((mut placement, mut placed)) => {
                placed.span = span.map(|span| span.sent(&mut placement));
                Ok((placement, placed))
            }
            Err(why) => {
                if let Some(span) = span {
                    span.refused(why.record());
                }
                Err(why.refusal())
            }
        }
    }

    async fn place_recorded(
        self: &Arc<Self>,
        head: &RequestHead,
        body: &[Bytes],
        mut record: Option<&mut Record>,
        mut span: Option<&mut RequestSpan>,
    ) -> Result<(Placement, Placed), NotPlaced> {
        let arrived = Instant::now();
        let endpoints = self.fleet().endpoints();
        let priority = head.objective.as_deref().and_then(|objective| self.view.priority(objective)).unwrap_or(0);
        let flow = head.fairness_id.as_deref().unwrap_or(DEFAULT_FLOW);
        if let Some(record) = &mut record {
            record.priority = priority;
            flow.clone_into(&mut record.flow);
            record.pool_endpoints = endpoints.len();
        }
        if let Some(span) = &mut span {
            span.asked(priority, flow);
        }
        let request = read(head, body, &self.config, self.block(&endpoints), &self.view.rewrites(), self.seed());
        let request = request.map_err(|refusal| {
            self.counts.dropped(&self.counts.labels("", "", flow, priority), &refusal.details);
            NotPlaced::Unread(refusal)
        })?;
        if let Some(record) = &mut record {
            request.note(record);
        }
        if let Some(span) = &mut span {
            span.read(&request);
        }
        let labels = self.counts.labels(request.model(), request.target(), flow, priority);
        let dropped = |why: Dropped| {
            self.counts.dropped(&labels, why.reason());
            NotPlaced::Dropped(why)
        };
        let arrival = (priority, flow, &endpoints[..]);
        let released = self.let_on(head, &request, arrival, (record.as_deref_mut(), span.as_deref_mut())).await.map_err(dropped)?;
        // Endpoints may have changed while it waited.
        let endpoints = self.fleet().endpoints();
        if let Some(record) = &mut record {
            record.pool_endpoints = endpoints.len();
        }
        let recorded = record.as_deref_mut().map(|record| &mut record.profiles);
        let decision = self.decide(head, &request, &endpoints, recorded, span).map_err(dropped)?;
        let placed = self.send(head, &request, &decision, labels.clone(), arrived);
        drop(released);
        let mut headers = Vec::new();
        if let Some(prefill) = &decision.prefill {
            headers.push((PREFILLER.to_owned(), prefill.text.to_string()));
            if let Some(record) = &mut record {
                record.prefill = Some(prefill.text.to_string());
            }
        }
        let destinations = decision.endpoints.iter().map(|endpoint| endpoint.text.to_string()).collect();
        Ok((Placement { endpoints: destinations, headers, body: request.rewritten }, placed))
    }

    /// Waits until the request may proceed, by its priority, its flow, and the endpoints when it arrives.
    async fn let_on(
        &self,
        head: &RequestHead,
        request: &Incoming,
        (priority, flow, endpoints): (i64, &str, &[Endpoint]),
        (mut record, span): (Option<&mut Record>, Option<&mut RequestSpan>),
    ) -> Result<Option<Released>, Dropped> {
        if self.ends.load(Ordering::Acquire) {
            return Err(Dropped::ShuttingDown);
        }
        let Some(waiting) = &self.waiting else {
            let saturation = (priority < 0).then(|| self.saturation(endpoints));
            if let Some(record) = record {
                record.saturation = saturation;
            }
            let is_full = saturation.is_some_and(|saturation| saturation >= 1.0);
            return if is_full && !endpoints.is_empty() { Err(Dropped::Saturated) } else { Ok(None) };
        };
        let saturation = self.saturation(endpoints);
        let has_room = saturation < waiting.ceiling();
        if let Some(record) = &mut record {
            record.saturation = Some(saturation);
        }
        let started = Instant::now();
        let arrival = Arrival {
            priority,
            flow: flow.into(),
            bytes: request.bytes as u64,
            tokens: request.tokens,
            first_token_within: head.ttft_ms.map(std::time::Duration::from_millis),
        };
        let outcome = waiting.go_on(arrival, !endpoints.is_empty(), has_room).await;
        if let Some(record) = record {
            record.waited_seconds = Some(started.elapsed().as_secs_f64());
        }
        self.counts.waited(&self.name, outcome.as_ref().map(|_| ()).map_err(|why| *why), started.elapsed());
        let is_empty = || self.fleet().endpoints().is_empty();
        let outcome = outcome.map_err(|why| if why == Dropped::TtlExpired && is_empty() { Dropped::NoEndpoints } else { why });
        let was_queued = match &outcome {
            Ok(released) => released.has_waited(),
            Err(_) => true,
        };
        if let Some(span) = span.filter(|_| was_queued) {
            span.waited(started, outcome.as_ref().err().copied());
        }
        outcome.map(Some)
    }

    fn decide(
        &self,
        head: &RequestHead,
        request: &Incoming,
        endpoints: &[Endpoint],
        recorded: Recorded<'_>,
        span: Option<&mut RequestSpan>,
    ) -> Result<Decision, Dropped> {
        let traced = span.map(|span| (span, Instant::now()));
        let policies = self.policies.load();
        let session = session::pod(head, &self.view);
        let estimates = self.latency.estimates();
        let inputs = super::decide::Inputs {
            endpoints,
            namespace: self.view.namespace(),
            subset: head.subset.as_deref(),
            request,
            session: session.as_deref(),
            estimates: &estimates,
            config: &self.config,
            prefixes: &self.fleet().prefixes,
            now: self.micros(),
            seed: self.seed(),
            if_available: head.if_available,
            is_traced: traced.is_some(),
        };
        let decision = decide(&inputs, &policies, &self.counts, recorded);
        if let Some((span, since)) = traced {
            span.decided(since, decision.as_ref().map_err(|why| *why));
        }
        decision
    }

    /// Counts the request at its endpoint.
    fn send(
        self: &Arc<Self>,
        head: &RequestHead,
        request: &Incoming,
        decision: &Decision,
        labels: RequestLabels,
        arrived: Instant,
    ) -> Placed {
        let now = self.micros();
        let first = &decision.endpoints[0];
        let in_flight = first.state.send(room::expected_tokens(&self.config, request), now);
        let prefill = decision.prefill.as_ref().map(|prefill| prefill.state.send(request.tokens, now));
        for endpoint in std::iter::once(first).chain(&decision.prefill) {
            self.fleet().prefixes.record(endpoint.state.id(), &request.hashes);
            if decision.is_cold {
                endpoint.state.note_cold_request(now);
            }
        }
        let share = if request.hashes.is_empty() { f64::NAN } else { decision.features.prefix_match };
        self.counts.sent(&labels, share, decision.took);
        Placed {
            pool: Arc::clone(self),
            labels,
            endpoints: decision.endpoints.clone(),
            in_flight,
            prefill,
            hashes: Arc::clone(&request.hashes),
            sent: pick::sent(&decision.features),
            client_model: request.rewritten.is_some().then(|| request.model().to_owned()),
            session: session::header(head, &self.config, &self.view, &first.spec.pod),
            streams: request.streams,
            request_bytes: request.bytes,
            arrived,
            sent_at: Instant::now(),
            answer: Answer::default(),
            span: None,
        }
    }
}

impl Picks for Pool {
    type Placed = Placed;

    fn pick(
        self: Arc<Self>,
        head: RequestHead,
        body: Vec<Bytes>,
    ) -> impl Future<Output = Result<(Placement, Placed), Refusal>> + Send + 'static {
        self.place(head, body)
    }

    fn response(&self, placed: &mut Placed, head: &ResponseHead) -> Vec<(String, String)> {
        placed.response(head)
    }

    fn chunk(&self, placed: &mut Placed, chunk: HttpBody) -> (Vec<Bytes>, bool) {
        placed.chunk(chunk)
    }
}

impl Health for Pool {
    fn health(&self, service: &str) -> Option<bool> {
        match service {
            LIVENESS => Some(true),
            _ if PROCESS_SERVICES.contains(&service) || service == self.name() => Some(self.is_ready()),
            _ => None,
        }
    }
}
