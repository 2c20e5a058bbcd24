//! The simulation: events in the order of their times, each of which may cause later ones.

use super::{
    contender::Contender,
    measures::{Measures, Outcome},
    seconds,
    trace::{Trace, TraceRequest},
};
use crate::endpoint_picker::{
    counts::PickerCounts,
    decide::{Decision, Inputs, decide},
    latency::Estimates,
    micros,
    pool::DEFAULT_FLOW,
    read::Incoming,
    refusal::Dropped,
    room,
    waiting::LOOK_AGAIN,
};
use pointsman_picker::{
    config::{FlowControl, PrefixSettings},
    engine_metrics::{Adapters, EngineMetrics},
    fleet::{Endpoint, EndpointSpec, Fleet, InFlight, Report},
    flow::{Enqueued, FlowQueue, Request},
    latency::Sent,
    pick,
    prefix::BlockSize,
    simulation::{BYTES_PER_TOKEN, EngineEvent, EngineRequest, EngineSettings, Micros, ModelEngine, Progress, TooLong},
};
use pointsman_sandbox::call::CallError;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::Ipv4Addr,
    sync::Arc,
};

/// The endpoints, which are all alike.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// The number of endpoints.
    pub endpoints: u16,
    /// Their engines.
    pub engine: EngineSettings,
    /// The interval at which the picker gets a report from each.
    pub report_interval: Micros,
}

/// Why a simulation has no result.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// Another policy would make most of its decisions.
    #[error("{0}: the policy has failed five times within a minute, and isn't asked any more ({1}): fix it, or leave it out")]
    Quarantined(String, String),
    /// The state no longer changes.
    #[error("{0}: {1} requests wait for room that never comes: change `flowControl`, or leave it out")]
    Stuck(String, usize),
    /// An endpoint can't hold a request.
    #[error("{0}")]
    TooLong(#[from] TooLong),
}

/// Simulates a contender's decisions about all requests of a trace.
pub fn simulate(trace: &Trace, settings: &FleetSettings, contender: &Contender, seed: u64) -> Result<Outcome, SimulationError> {
    Simulation::new(trace, settings, contender, seed).run()
}

/// A request at an endpoint.
struct Active {
    request: usize,
    in_flight: InFlight,
    sent: Sent,
    sent_at: Micros,
    first_token: Option<Micros>,
    pod: Arc<str>,
}

/// Requests that wait for capacity.
struct Held<'s> {
    settings: &'s FlowControl,
    queue: FlowQueue<usize>,
    /// When the capacity is checked, unless no request waits.
    look: Option<Micros>,
    /// When a request was last placed or completed.
    moved: Micros,
}

struct Simulation<'s> {
    trace: &'s Trace,
    settings: &'s FleetSettings,
    contender: &'s Contender,
    fleet: Fleet,
    endpoints: Arc<Vec<Endpoint>>,
    /// By the number of the endpoint.
    engines: Vec<ModelEngine>,
    /// The next event of each, and the same in order.
    next: Vec<Option<Micros>>,
    due: BTreeSet<(Micros, usize)>,
    /// The next report of each, in order.
    reports: VecDeque<(Micros, usize)>,
    active: HashMap<u64, Active>,
    held: Option<Held<'s>>,
    /// The endpoints that clients return to.
    sessions: HashMap<Arc<str>, Arc<str>>,
    estimates: Estimates,
    counts: PickerCounts,
    measures: Measures,
    /// The number of the trace's blocks per block of the picker, and the maximum number of the latter per prompt.
    blocks: (usize, usize),
    seed: u64,
    turn: usize,
    now: Micros,
}

impl<'s> Simulation<'s> {
    fn new(trace: &'s Trace, settings: &'s FleetSettings, contender: &'s Contender, seed: u64) -> Self {
        let number = usize::from(settings.endpoints);
        let fleet = Fleet::default();
        let address = |at: u16| (Ipv4Addr::from(0x0A00_0000 | u32::from(at)), 8000).into();
        let spec = |at: u16| EndpointSpec {
            uid: at.to_string().into(),
            pod: format!("endpoint-{at:05}").into(),
            address: address(at),
            labels: Arc::default(),
        };
        fleet.replace((0..settings.endpoints).map(spec).collect());
        let flow_control = contender.config.flow_control.as_ref();
        let held = flow_control.map(|settings| Held { settings, queue: FlowQueue::new(settings.settings.clone()), look: None, moved: 0 });
        let endpoints = fleet.endpoints();
        let mut simulation = Self {
            blocks: block_sizes(&contender.config.prefix, settings.engine.block_size),
            engines: (0..number).map(|_| ModelEngine::new(settings.engine.clone())).collect(),
            next: vec![None; number],
            due: BTreeSet::new(),
            reports: VecDeque::new(),
            active: HashMap::new(),
            sessions: HashMap::new(),
            estimates: Estimates::default(),
            counts: PickerCounts::default(),
            measures: Measures::default(),
            turn: 0,
            now: 0,
            trace,
            settings,
            contender,
            fleet,
            endpoints,
            held,
            seed,
        };
        simulation.begin();
        simulation
    }

    /// The picker starts with a report of each endpoint; the next ones come at different times.
    fn begin(&mut self) {
        let number = self.engines.len();
        let prefix = &self.contender.config.prefix;
        let capacity = if prefix.auto_tune { self.settings.engine.blocks / self.blocks.0 } else { prefix.capacity };
        for at in 0..number {
            self.report(at);
            self.reports.push_back((self.settings.report_interval * (at as Micros + 1) / number as Micros, at));
            self.fleet.prefixes.set_capacity(self.endpoints[at].state.id(), capacity);
        }
    }

    fn run(mut self) -> Result<Outcome, SimulationError> {
        let trace = self.trace;
        let mut arrivals = trace.requests.iter().enumerate().peekable();
        loop {
            let arrival = arrivals.peek().map(|(_, request)| request.at);
            let engine = self.due.first().map(|(at, _)| *at);
            let look = self.held.as_ref().and_then(|held| held.look);
            if engine.is_none() && look.is_none() {
                let Some(arrival) = arrival else { break };
                self.skip_to(arrival);
            }
            let report = self.reports.front().map(|(at, _)| *at);
            self.now = [engine, report, look, arrival].into_iter().flatten().min().unwrap_or(self.now);
            let is_now = |at: Option<Micros>| at == Some(self.now);
            // Of simultaneous events, endpoints come first, then reports to the picker, then its decisions.
            if is_now(engine) {
                self.advance();
            } else if is_now(report) {
                self.next_report();
            } else if is_now(look) {
                self.look(arrival.is_none())?;
            } else if let Some((number, request)) = arrivals.next() {
                self.arrive(number, request)?;
            }
        }
        Ok(self.measures.outcome(&self.contender.name, self.counts.policy_failures()))
    }

    /// Skips reports that nothing reads, up to the last round before this time.
    fn skip_to(&mut self, time: Micros) {
        let interval = self.settings.report_interval;
        let rounds = self.reports.front().map_or(0, |(at, _)| (time.saturating_sub(*at) / interval).saturating_sub(1));
        for (at, _) in &mut self.reports {
            *at += rounds * interval;
        }
    }

    fn next_report(&mut self) {
        let Some((at, number)) = self.reports.pop_front() else { return };
        self.report(number);
        self.reports.push_back((at + self.settings.report_interval, number));
    }

    #[allow(clippy::cast_precision_loss)] // Counts are far below 2^52.
    fn report(&self, number: usize) {
        let engine = &self.engines[number];
        let (counts, settings) = (engine.counts(), &self.settings.engine);
        let named =
            |models: BTreeMap<usize, usize>| models.into_keys().filter(|at| *at > 0).map(|at| self.trace.models[at].clone()).collect();
        let adapters = self.trace.models.len() - 1;
        let loras = (adapters > 0).then(|| Adapters {
            running: named(engine.running_models()),
            waiting: named(engine.waiting_models()),
            max: u32::try_from(adapters).unwrap_or(u32::MAX),
        });
        let metrics = EngineMetrics {
            waiting: Some(counts.waiting as f64),
            running: Some(counts.running as f64),
            kv_usage: Some(counts.cache_usage),
            block_size: u32::try_from(settings.block_size).ok(),
            blocks: u32::try_from(settings.blocks).ok(),
            loras,
            prefix_queries: Some(counts.prefix_queries as f64),
            prefix_hits: Some(counts.prefix_hits as f64),
        };
        self.endpoints[number].state.set_report(Report { at: self.now, metrics });
    }

    /// Handles the next event of an endpoint.
    fn advance(&mut self) {
        let Some((_, number)) = self.due.first().copied() else { return };
        for EngineEvent { at, id, progress } in self.engines[number].advance(self.now) {
            match progress {
                Progress::Started { prompt_tokens, cached_tokens } => self.measures.started(prompt_tokens, cached_tokens),
                Progress::Token { number, is_last } => {
                    if number == 0 {
                        self.begin_answer(at, id);
                    }
                    if is_last {
                        self.end_answer(at, id);
                    }
                }
            }
        }
        self.schedule(number);
    }

    fn schedule(&mut self, number: usize) {
        let next = self.engines[number].next_event();
        let before = std::mem::replace(&mut self.next[number], next);
        if let Some(before) = before {
            self.due.remove(&(before, number));
        }
        self.due.extend(next.map(|at| (at, number)));
    }

    fn begin_answer(&mut self, at: Micros, id: u64) {
        let Some(active) = self.active.get_mut(&id) else { return };
        active.first_token = Some(at);
        if self.contender.has_sessions()
            && let Some(session) = &self.trace.requests[active.request].session
        {
            self.sessions.insert(Arc::clone(session), Arc::clone(&active.pod));
        }
    }

    fn end_answer(&mut self, at: Micros, id: u64) {
        let Some(active) = self.active.remove(&id) else { return };
        let request = &self.trace.requests[active.request];
        let first = active.first_token.unwrap_or(at);
        let further_token = (request.output > 1).then(|| {
            #[allow(clippy::cast_precision_loss)] // Far below 2^52.
            let further = (request.output - 1) as f64;
            seconds(at - first) / further
        });
        self.estimates.first_token.learn(&active.sent, seconds(first - active.sent_at));
        if let Some(seconds) = further_token {
            self.estimates.further_tokens.learn(&active.sent, seconds);
        }
        drop(active.in_flight);
        self.measures.answered(at, first - request.at, further_token, request.output);
        if let Some(held) = &mut self.held {
            held.moved = self.now;
            if !held.queue.is_empty() {
                held.look = Some(self.now);
            }
        }
    }

    fn arrive(&mut self, number: usize, request: &TraceRequest) -> Result<(), SimulationError> {
        let fullness = || room::saturation(&self.contender.config, &self.endpoints, self.now, Endpoint::load);
        let Some(held) = &mut self.held else {
            if request.priority < 0 && fullness() >= 1.0 {
                self.measures.refused(Dropped::Saturated);
                return Ok(());
            }
            return self.place(number);
        };
        if held.queue.is_empty() && fullness() < held.settings.ceiling {
            return self.place(number);
        }
        let waits = Request {
            priority: request.priority,
            flow: request.flow.clone().unwrap_or_else(|| DEFAULT_FLOW.into()),
            bytes: (request.prompt.tokens * BYTES_PER_TOKEN) as u64,
            work: request.prompt.tokens as u64,
            deadline: held.settings.request_ttl.map(|ttl| self.now.saturating_add(micros(ttl))),
        };
        match held.queue.push(waits, number) {
            Enqueued::Waiting(_, evicted) => evicted.iter().for_each(|_| self.measures.refused(Dropped::Evicted)),
            Enqueued::Refused(..) => self.measures.refused(Dropped::QueueFull),
        }
        self.measures.waiting(held.queue.len());
        held.look = Some(self.now);
        Ok(())
    }

    /// Releases waiting requests while there is capacity.
    fn look(&mut self, is_last: bool) -> Result<(), SimulationError> {
        let config = &self.contender.config;
        while let Some(held) = &mut self.held {
            held.queue.expire(self.now).iter().for_each(|_| self.measures.refused(Dropped::TtlExpired));
            let has_room = room::has_room_for_waiting(config, &self.endpoints, self.now, held.settings.ceiling, 0);
            let next = if has_room { held.queue.pop(|_| true) } else { None };
            let Some((_, number)) = next else {
                held.look = (!held.queue.is_empty()).then(|| self.now + micros(LOOK_AGAIN));
                // Reports of idle endpoints no longer change.
                let idle_since = self.now.saturating_sub(2 * self.settings.report_interval);
                let is_stuck = is_last && self.active.is_empty() && held.queue.next_deadline().is_none() && held.moved < idle_since;
                let waiting = held.queue.len();
                return if is_stuck && waiting > 0 { Err(SimulationError::Stuck(self.contender.name.clone(), waiting)) } else { Ok(()) };
            };
            self.place(number)?;
        }
        Ok(())
    }

    /// Sends a request to an endpoint, if there is one for it.
    fn place(&mut self, number: usize) -> Result<(), SimulationError> {
        let trace = self.trace;
        let request = &trace.requests[number];
        let (size, most) = self.blocks;
        // A block's hash also covers the preceding blocks.
        let hashes = request.prompt.hashes.iter().skip(size - 1).step_by(size).take(most).copied().collect();
        let (tokens, output) = (request.prompt.tokens as u64, request.output as u64);
        let incoming = Incoming::from_blocks(&trace.models[request.model], hashes, tokens, output);
        let session = request.session.as_ref().and_then(|session| self.sessions.get(session)).cloned();
        let decision = match self.decide(&incoming, session.as_deref()) {
            Ok(decision) => decision,
            Err(why) => {
                self.measures.refused(why);
                return Ok(());
            }
        };
        self.check_health()?;
        let endpoint = &decision.endpoints[0];
        let active = Active {
            request: number,
            in_flight: endpoint.state.send(room::expected_tokens(&self.contender.config, &incoming), self.now),
            sent: pick::sent(&decision.features),
            sent_at: self.now,
            first_token: None,
            pod: Arc::clone(&endpoint.spec.pod),
        };
        self.fleet.prefixes.record(endpoint.state.id(), &incoming.hashes);
        if decision.is_cold {
            endpoint.state.note_cold_request(self.now);
        }
        let at = endpoint.state.id().0 as usize;
        let id = number as u64;
        self.active.insert(id, active);
        if let Some(held) = &mut self.held {
            held.moved = self.now;
        }
        let asked = EngineRequest { id, model: request.model, prompt: request.prompt.clone(), max_tokens: request.output };
        self.engines[at].arrive(self.now, asked)?;
        self.measures.queued(self.engines[at].counts().waiting);
        self.schedule(at);
        Ok(())
    }

    fn decide(&mut self, request: &Incoming, session: Option<&str>) -> Result<Decision, Dropped> {
        if !self.contender.rotates {
            return self.decide_within(None, request, session);
        }
        let mut outcome = Err(Dropped::NoEndpoints);
        // The next one that the profile's filters keep.
        for _ in 0..self.endpoints.len() {
            let only = [self.endpoints[self.turn % self.endpoints.len()].text.to_string()];
            self.turn += 1;
            outcome = self.decide_within(Some(&only), request, session);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn decide_within(&mut self, subset: Option<&[String]>, request: &Incoming, session: Option<&str>) -> Result<Decision, Dropped> {
        self.seed = self.seed.wrapping_add(1);
        let inputs = Inputs {
            endpoints: &self.endpoints,
            namespace: "",
            subset,
            request,
            session,
            estimates: &self.estimates,
            config: &self.contender.config,
            prefixes: &self.fleet.prefixes,
            now: self.now,
            seed: self.seed,
            if_available: false,
            is_traced: false,
        };
        decide(&inputs, &self.contender.policies, &self.counts, None)
    }

    /// A quarantined policy has no result; the end of its quarantine isn't in simulated time.
    fn check_health(&self) -> Result<(), SimulationError> {
        let failures = self.counts.policy_failures();
        if !failures.contains_key(CallError::Quarantined.reason()) {
            return Ok(());
        }
        let reasons: Vec<&str> = failures.into_keys().filter(|reason| *reason != CallError::Quarantined.reason()).collect();
        Err(SimulationError::Quarantined(self.contender.name.clone(), reasons.join(", ")))
    }
}

/// The number of the trace's blocks per block of the picker, which has its own minimum size, and the maximum number of the latter per
/// prompt.
fn block_sizes(prefix: &PrefixSettings, block_tokens: usize) -> (usize, usize) {
    let reported = u32::try_from(block_tokens).unwrap_or(u32::MAX).max(1);
    let wanted = BlockSize::of_engine(if prefix.auto_tune { reported } else { prefix.block_tokens }).tokens();
    let blocks = wanted.div_ceil(reported);
    let most = prefix.max_tokens / blocks.saturating_mul(reported);
    (blocks as usize, most as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_the_picker_are_whole_ones_of_the_trace() {
        let settings = PrefixSettings { max_tokens: 1000, ..PrefixSettings::default() };
        assert_eq!(block_sizes(&settings, 16), (4, 15));
        assert_eq!(block_sizes(&settings, 48), (2, 10));
        assert_eq!(block_sizes(&settings, 512), (1, 1));
        assert_eq!(block_sizes(&PrefixSettings { auto_tune: false, block_tokens: 256, ..settings }, 64), (4, 3));
    }
}
