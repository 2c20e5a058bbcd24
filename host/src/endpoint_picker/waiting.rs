//! Requests that wait until the pool has room. One task lets them go on; whoever waits leaves when its client goes.

use super::{micros, refusal::Dropped};
use pointsman_picker::{
    config::FlowControl,
    flow::{Enqueued, FlowQueue, Refusal, Request, Ticket},
};
use pointsman_sandbox::sync::locked;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep},
};

/// How often it is looked whether there is room, as long as somebody waits and nothing else says so: reports come in by themselves.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What becomes of a request that waits: it goes on, or it is dropped.
type Waits = oneshot::Sender<Result<Released, Dropped>>;

/// The requests of a pool that wait.
#[derive(Debug)]
pub(super) struct Waiting {
    queue: Mutex<FlowQueue<Waits>>,
    /// How many wait, so that nobody takes the lock to learn that nobody does.
    length: AtomicUsize,
    /// How many may go on and aren't on their way yet.
    released: Arc<AtomicUsize>,
    changed: Notify,
    settings: FlowControl,
    clock: Instant,
}

/// A request in the queue. It leaves when this is dropped.
struct Place<'w> {
    waiting: &'w Waiting,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.change(|queue| queue.cancel(self.ticket));
    }
}

/// That a request may go on. It is held until the request is on its way, and counts until then.
#[derive(Debug)]
pub(super) struct Released {
    counted: Arc<AtomicUsize>,
    has_waited: bool,
}

impl Released {
    fn new(counted: &Arc<AtomicUsize>, has_waited: bool) -> Self {
        counted.fetch_add(1, Ordering::AcqRel);
        Self { counted: Arc::clone(counted), has_waited }
    }

    /// Whether it was in the queue.
    pub(super) fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.counted.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What is known of a request that may have to wait.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// Its priority.
    pub(super) priority: i64,
    /// Whose it is.
    pub(super) flow: Arc<str>,
    /// The bytes of its body.
    pub(super) bytes: u64,
    /// Its tokens, by estimate.
    pub(super) tokens: u64,
    /// Within how long its first token is wanted.
    pub(super) first_token_within: Option<Duration>,
}

impl Waiting {
    /// Nobody waits.
    pub(super) fn new(settings: FlowControl, clock: Instant) -> Self {
        let queue = Mutex::new(FlowQueue::new(settings.settings.clone()));
        Self { queue, length: AtomicUsize::new(0), released: Arc::default(), changed: Notify::new(), settings, clock }
    }

    /// The saturation at which requests wait.
    pub(super) fn ceiling(&self) -> f64 {
        self.settings.ceiling
    }

    /// Changes the queue. Whoever leaves it is answered afterwards, and not under the lock.
    fn change<T>(&self, change: impl FnOnce(&mut FlowQueue<Waits>) -> T) -> T {
        let mut queue = locked(&self.queue);
        let changed = change(&mut queue);
        self.length.store(queue.len(), Ordering::Release);
        changed
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Resolves once the request may go on, which is at once if nobody waits and there is room.
    pub(super) async fn go_on(&self, arrival: Arrival, has_endpoints: bool, has_room: bool) -> Result<Released, Dropped> {
        if has_room && self.len() == 0 {
            return Ok(Released::new(&self.released, false));
        }
        let (sender, receiver) = oneshot::channel();
        let place = self.enqueue(arrival, has_endpoints, sender)?;
        self.changed.notify_one();
        let outcome = receiver.await.unwrap_or(Err(Dropped::ShuttingDown));
        drop(place);
        outcome
    }

    fn enqueue(&self, arrival: Arrival, has_endpoints: bool, sender: Waits) -> Result<Place<'_>, Dropped> {
        let ttl = if has_endpoints { self.settings.request_ttl } else { self.settings.no_endpoint_ttl };
        let wanted = arrival.first_token_within.filter(|_| self.settings.slo_deadlines);
        let within = wanted.into_iter().chain(ttl).min();
        let deadline = within.map(|within| micros(self.clock.elapsed() + within));
        let Arrival { priority, flow, bytes, tokens, .. } = arrival;
        let request = Request { priority, flow, bytes, work: tokens, deadline };
        match self.change(|queue| queue.push(request, sender)) {
            Enqueued::Waiting(ticket, evicted) => {
                for one in evicted {
                    one.send(Err(Dropped::Evicted)).ok();
                }
                Ok(Place { waiting: self, ticket })
            }
            Enqueued::Refused(_, Refusal::BandFull | Refusal::QueueFull) => Err(Dropped::QueueFull),
        }
    }

    /// Says that there may be room.
    pub(super) fn look(&self) {
        if self.len() > 0 {
            self.changed.notify_one();
        }
    }

    /// Lets requests go on, in their order, as long as there is room. It never ends by itself.
    /// Whether there is room for one more is asked with how many are on their way to it already.
    pub(super) async fn keep(&self, has_room: impl Fn(usize) -> bool) {
        loop {
            if self.len() == 0 {
                self.changed.notified().await;
            } else {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep(LOOK_AGAIN) => {}
                }
            }
            self.expire();
            while has_room(self.released.load(Ordering::Acquire)) && self.let_one_go() {}
        }
    }

    fn expire(&self) {
        for one in self.change(|queue| queue.expire(micros(self.clock.elapsed()))) {
            one.send(Err(Dropped::TtlExpired)).ok();
        }
    }

    /// Lets the next one go on; whether there was one.
    fn let_one_go(&self) -> bool {
        let Some((_, one)) = self.change(|queue| queue.pop(|_| true)) else { return false };
        // If its client has gone meanwhile, it counts no longer.
        one.send(Ok(Released::new(&self.released, true))).ok();
        true
    }

    /// Drops all that wait.
    pub(super) fn end(&self) {
        for (_, one) in self.change(FlowQueue::drain) {
            one.send(Err(Dropped::ShuttingDown)).ok();
        }
    }
}
