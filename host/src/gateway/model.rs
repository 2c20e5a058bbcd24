//! The gateway's state of a model: whether requests may go to it, those in flight, and those that wait, by priority.

use super::{error::GatewayError, target::Target};
use pointsman_core::allocation::{ObjectName, records::ModelActivity};
use pointsman_sandbox::sync::locked;
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::{Notify, oneshot};

/// The number of seconds over which the request rate is measured.
const RATE_SECONDS: u64 = 60;

/// Whether requests may go to a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// They go to this target.
    Open(Arc<Target>),
    /// They are held until it opens.
    Closed {
        /// [`Reservation::since`](pointsman_core::allocation::records::Reservation::since) of the draining, if it is one.
        drain: Option<u64>,
        /// The response to held requests that time out.
        answer: GatewayError,
    },
    /// They get this response at once.
    Refused {
        /// As above.
        drain: Option<u64>,
        /// The response.
        answer: GatewayError,
    },
}

impl Gate {
    fn drain(&self) -> Option<u64> {
        match self {
            Self::Open(_) => None,
            Self::Closed { drain, .. } | Self::Refused { drain, .. } => *drain,
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The state that models share: their limits and their notifications.
#[derive(Debug)]
pub struct Shared {
    /// The maximum number of requests in flight to one model; 0 means no limit.
    concurrency: u64,
    /// The maximum number of held requests, of all models.
    max_held: usize,
    held: AtomicUsize,
    changed: AtomicBool,
    /// Notified about events that hosts wait for.
    urgent: Notify,
}

impl Shared {
    /// Creates the state with these limits.
    pub fn new(concurrency: u64, max_held: usize) -> Self {
        Self { concurrency, max_held, held: AtomicUsize::new(0), changed: AtomicBool::new(true), urgent: Notify::new() }
    }

    /// Requests that are held, of all models.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Resolves when there is an event that hosts wait for: a request for a sleeping model, or the end of a draining.
    pub async fn urgent(&self) {
        self.urgent.notified().await;
    }

    /// Returns whether anything has changed since the last call.
    pub fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    fn change(&self, urgent: bool) {
        self.changed.store(true, Ordering::Relaxed);
        if urgent {
            self.urgent.notify_one();
        }
    }
}

/// The position of a request in a queue: by priority, then by age.
type Place = (Reverse<i32>, u64);

#[derive(Debug)]
struct Waiter {
    since: u64,
    grant: oneshot::Sender<Result<InFlight, GatewayError>>,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    in_flight: u64,
    queue: BTreeMap<Place, Waiter>,
    next: u64,
    last_request: Option<u64>,
    /// The number of requests in each of the last seconds, by second.
    arrivals: BTreeMap<u64, u32>,
}

/// A model.
#[derive(Debug)]
pub struct Model {
    key: ObjectName,
    state: Mutex<State>,
    shared: Arc<Shared>,
}

/// The decision on a request.
#[derive(Debug)]
pub enum Admission {
    /// It may go to the backend.
    Granted(InFlight),
    /// It waits.
    Queued(Waiting),
    /// It gets an error response.
    Refused(GatewayError),
}

impl Model {
    /// Creates the state of a model without requests.
    pub fn new(key: ObjectName, shared: Arc<Shared>, gate: Gate) -> Self {
        let state = State { gate, in_flight: 0, queue: BTreeMap::new(), next: 0, last_request: None, arrivals: BTreeMap::new() };
        Self { key, state: Mutex::new(state), shared }
    }

    /// Its namespace and name.
    pub fn key(&self) -> &ObjectName {
        &self.key
    }

    /// Opens or closes the gate. Waiting requests are admitted or get a response.
    pub fn set_gate(self: &Arc<Self>, gate: Gate) {
        let answered: Vec<(Waiter, GatewayError)> = {
            let mut state = locked(&self.state);
            if state.gate == gate {
                return;
            }
            let is_drained = gate.drain().is_some() && state.in_flight == 0;
            let is_wanted = matches!(gate, Gate::Closed { .. }) && !state.queue.is_empty();
            self.shared.change(is_drained || is_wanted);
            state.gate = gate;
            match &state.gate {
                Gate::Refused { answer, .. } => {
                    let answer = answer.clone();
                    std::mem::take(&mut state.queue).into_values().map(|waiter| (waiter, answer.clone())).collect()
                }
                _ => Vec::new(),
            }
        };
        for (waiter, error) in answered {
            waiter.grant.send(Err(error)).ok();
        }
        self.grant();
    }

    /// Admits, queues or refuses a request.
    pub fn admit(self: &Arc<Self>, priority: i32) -> Admission {
        let mut state = locked(&self.state);
        let second = now();
        state.last_request = Some(second);
        *state.arrivals.entry(second).or_default() += 1;
        while state.arrivals.first_key_value().is_some_and(|(first, _)| first + RATE_SECONDS <= second) {
            state.arrivals.pop_first();
        }
        let closed = match &state.gate {
            Gate::Refused { answer, .. } => return Admission::Refused(answer.clone()),
            Gate::Open(target) if state.queue.is_empty() && self.has_room(state.in_flight) => {
                let target = Arc::clone(target);
                state.in_flight += 1;
                self.shared.change(false);
                return Admission::Granted(InFlight { model: Arc::clone(self), target });
            }
            Gate::Open(_) => false,
            Gate::Closed { .. } => true,
        };
        if self.shared.held.fetch_add(1, Ordering::Relaxed) >= self.shared.max_held {
            self.shared.held.fetch_sub(1, Ordering::Relaxed);
            let message = format!("The gateway already holds {} requests: try again later.", self.shared.max_held);
            return Admission::Refused(GatewayError::overloaded(message));
        }
        let (grant, granted) = oneshot::channel();
        let place = (Reverse(priority), state.next);
        state.next += 1;
        let first = state.queue.is_empty();
        state.queue.insert(place, Waiter { since: second, grant });
        self.shared.change(closed && first);
        drop(state);
        Admission::Queued(Waiting { model: Arc::clone(self), place, granted })
    }

    fn has_room(&self, in_flight: u64) -> bool {
        self.shared.concurrency == 0 || in_flight < self.shared.concurrency
    }

    /// Admits waiting requests up to the limit.
    fn grant(self: &Arc<Self>) {
        loop {
            let (waiter, target) = {
                let mut state = locked(&self.state);
                let Gate::Open(target) = &state.gate else { return };
                let target = Arc::clone(target);
                if !self.has_room(state.in_flight) {
                    return;
                }
                let Some((_, waiter)) = state.queue.pop_first() else { return };
                state.in_flight += 1;
                self.shared.change(false);
                (waiter, target)
            };
            // Outside of the lock, because a client that is gone returns its slot, which takes the lock.
            waiter.grant.send(Ok(InFlight { model: Arc::clone(self), target })).ok();
        }
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u64 {
        locked(&self.state).in_flight
    }

    /// The number of waiting requests.
    pub fn queued(&self) -> usize {
        locked(&self.state).queue.len()
    }

    /// Whether no request is in flight or waits.
    pub fn is_idle(&self) -> bool {
        let state = locked(&self.state);
        state.in_flight == 0 && state.queue.is_empty()
    }

    /// Whether requests go to the backend.
    pub fn is_open(&self) -> bool {
        matches!(locked(&self.state).gate, Gate::Open(_))
    }

    /// The response to a request that has waited too long.
    fn late(&self) -> GatewayError {
        match &locked(&self.state).gate {
            Gate::Closed { answer, .. } | Gate::Refused { answer, .. } => answer.clone(),
            Gate::Open(_) => {
                let message = format!("The model {} answers as many requests as the gateway sends to it: try again later.", self.key);
                GatewayError::overloaded(message)
            }
        }
    }

    /// The model's activity for hosts; none if there is nothing to report.
    pub fn activity(&self) -> Option<ModelActivity> {
        let state = locked(&self.state);
        let drained = state.gate.drain().filter(|_| state.in_flight == 0);
        if state.last_request.is_none() && drained.is_none() {
            return None;
        }
        // Requests that wait for a slot wait for nothing that hosts could do.
        let waits = matches!(state.gate, Gate::Closed { .. });
        let oldest = state.queue.values().map(|waiter| waiter.since).min();
        let from = now().saturating_sub(RATE_SECONDS);
        let arrived: u32 = state.arrivals.range(from + 1..).map(|(_, count)| *count).sum();
        #[allow(clippy::cast_precision_loss)] // Far below 2^52.
        let rate = f64::from(arrived) / RATE_SECONDS as f64;
        Some(ModelActivity {
            in_flight: state.in_flight,
            waiting: if waits { state.queue.len() as u64 } else { 0 },
            waiting_since: oldest.filter(|_| waits),
            last_request: state.last_request,
            requests_per_second: state.last_request.map(|_| rate),
            drained,
        })
    }
}

/// A request in flight, until this is dropped.
#[derive(Debug)]
pub struct InFlight {
    model: Arc<Model>,
    target: Arc<Target>,
}

impl InFlight {
    /// The target of the request.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        {
            let mut state = locked(&self.model.state);
            state.in_flight = state.in_flight.saturating_sub(1);
            // A long response keeps a model busy until its end.
            state.last_request = Some(now());
            let drained = state.in_flight == 0 && state.gate.drain().is_some();
            self.model.shared.change(drained);
        }
        self.model.grant();
    }
}

/// A request in the queue. Dropping it removes it.
#[derive(Debug)]
pub struct Waiting {
    model: Arc<Model>,
    place: Place,
    granted: oneshot::Receiver<Result<InFlight, GatewayError>>,
}

impl Waiting {
    /// Waits until the request is admitted or refused.
    pub async fn granted(&mut self) -> Result<InFlight, GatewayError> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<InFlight, GatewayError>> {
        Pin::new(&mut self.granted).poll(context).map(|granted| granted.unwrap_or_else(|_| Err(self.model.late())))
    }

    /// The response if it has waited too long.
    pub fn late(&self) -> GatewayError {
        self.model.late()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.model.shared.held.fetch_sub(1, Ordering::Relaxed);
        let left = locked(&self.model.state).queue.remove(&self.place);
        if left.is_some() {
            self.model.shared.change(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Arc<Target> {
        Arc::new(Target::parse("http://vllm:8000", "ml", "cluster.local").unwrap())
    }

    fn closed(drain: Option<u64>) -> Gate {
        Gate::Closed { drain, answer: GatewayError::model_not_ready("It sleeps.", Some(5)) }
    }

    fn model(concurrency: u64, max_held: usize, gate: Gate) -> Arc<Model> {
        Arc::new(Model::new(ObjectName("ml/a".to_owned()), Arc::new(Shared::new(concurrency, max_held)), gate))
    }

    fn queued(model: &Arc<Model>, priority: i32) -> Waiting {
        match model.admit(priority) {
            Admission::Queued(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    fn is_granted(waiting: &mut Waiting) -> Option<InFlight> {
        waiting.granted.try_recv().ok().map(Result::unwrap)
    }

    #[test]
    fn those_that_wait_go_by_priority_and_then_by_age_and_who_leaves_is_passed_over() {
        let model = model(1, 10, closed(None));
        let [mut first, gone, mut important, mut last] = [0, 5, 5, 0].map(|priority| queued(&model, priority));
        assert_eq!(model.activity().unwrap().waiting, 4);
        drop(gone);
        assert_eq!((model.activity().unwrap().waiting, model.shared.held()), (3, 3));
        model.set_gate(Gate::Open(target()));
        for next in [&mut important, &mut first, &mut last] {
            assert_eq!(model.in_flight(), 1);
            drop(is_granted(next).unwrap());
        }
        assert!(model.is_idle());
        assert_eq!(model.activity().unwrap().waiting_since, None);
    }

    #[test]
    fn who_has_gone_between_the_grant_and_its_use_gives_the_place_to_the_next() {
        let model = model(1, 10, closed(None));
        let (gone, mut next) = (queued(&model, 0), queued(&model, 0));
        model.set_gate(Gate::Open(target()));
        assert!(is_granted(&mut next).is_none());
        drop(gone);
        assert!(is_granted(&mut next).is_some());
        drop(next);
        assert!(model.is_idle() && model.shared.held() == 0);
    }

    #[test]
    fn a_draining_is_confirmed_once_nothing_is_in_flight_and_by_who_never_saw_a_request() {
        let model = model(0, 10, Gate::Open(target()));
        let Admission::Granted(in_flight) = model.admit(0) else { panic!("it is open") };
        model.set_gate(closed(Some(7)));
        assert_eq!(model.activity().unwrap().drained, None);
        let waiting = queued(&model, 0);
        drop(in_flight);
        let activity = model.activity().unwrap();
        assert_eq!((activity.drained, activity.waiting, activity.in_flight), (Some(7), 1, 0));
        model.set_gate(closed(Some(8)));
        assert_eq!(model.activity().unwrap().drained, Some(8), "another draining");
        drop(waiting);
        let other = self::model(0, 10, closed(Some(9)));
        assert_eq!(other.activity().unwrap().drained, Some(9));
        other.set_gate(closed(None));
        assert_eq!(other.activity(), None);
    }

    #[tokio::test]
    async fn those_that_wait_for_a_model_that_is_deleted_are_answered() {
        let model = model(0, 1, closed(None));
        let mut waiting = queued(&model, 0);
        assert!(matches!(model.admit(0), Admission::Refused(error) if error.code == "overloaded"));
        model.set_gate(Gate::Refused { drain: None, answer: GatewayError::model_not_found("a") });
        assert_eq!(waiting.granted().await.unwrap_err().code, "model_not_found");
        assert!(model.is_idle());
    }
}
