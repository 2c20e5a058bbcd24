//! Requests that wait until the pool has capacity. One task releases them; a request leaves the queue when its client disconnects.

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

/// The interval of checks for capacity while requests wait and there is no other signal: reports arrive without one.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The outcome for a waiting request: it is released or dropped.
type Waits = oneshot::Sender<Result<Released, Dropped>>;

/// The waiting requests of a pool.
#[derive(Debug)]
pub(super) struct Waiting {
    queue: Mutex<FlowQueue<Waits>>,
    /// Their number, so that an empty queue needs no lock.
    length: AtomicUsize,
    /// The number of released requests that aren't sent yet.
    released: Arc<AtomicUsize>,
    changed: Notify,
    settings: FlowControl,
    clock: Instant,
}

/// A request in the queue. Dropping it removes it.
struct Place<'w> {
    waiting: &'w Waiting,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.change(|queue| queue.cancel(self.ticket));
    }
}

/// The release of a request. It counts until the request is sent and this is dropped.
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

/// A request that may have to wait.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// Its priority.
    pub(super) priority: i64,
    /// Its flow.
    pub(super) flow: Arc<str>,
    /// The size of its body, in bytes.
    pub(super) bytes: u64,
    /// The estimated number of its tokens.
    pub(super) tokens: u64,
    /// The objective for the time to its first token.
    pub(super) first_token_within: Option<Duration>,
}

impl Waiting {
    /// Creates an empty queue.
    pub(super) fn new(settings: FlowControl, clock: Instant) -> Self {
        let queue = Mutex::new(FlowQueue::new(settings.settings.clone()));
        Self { queue, length: AtomicUsize::new(0), released: Arc::default(), changed: Notify::new(), settings, clock }
    }

    /// The saturation at which requests wait.
    pub(super) fn ceiling(&self) -> f64 {
        self.settings.ceiling
    }

    /// Changes the queue. Requests that leave it are notified afterwards, not under the lock.
    fn change<T>(&self, change: impl FnOnce(&mut FlowQueue<Waits>) -> T) -> T {
        let mut queue = locked(&self.queue);
        let changed = change(&mut queue);
        self.length.store(queue.len(), Ordering::Release);
        changed
    }

    /// The number of waiting requests.
    pub(super) fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Resolves once the request is released, which is at once if no request waits and there is capacity.
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

    /// Notifies the queue that there may be capacity.
    pub(super) fn look(&self) {
        if self.len() > 0 {
            self.changed.notify_one();
        }
    }

    /// Releases requests in order while there is capacity. It never ends by itself. `has_room` gets the number of released requests that
    /// aren't sent yet.
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

    /// Releases the next request. Returns whether there was one.
    fn let_one_go(&self) -> bool {
        let Some((_, one)) = self.change(|queue| queue.pop(|_| true)) else { return false };
        // If its client has disconnected meanwhile, it no longer counts.
        one.send(Ok(Released::new(&self.released, true))).ok();
        true
    }

    /// Drops all waiting requests.
    pub(super) fn end(&self) {
        for (_, one) in self.change(FlowQueue::drain) {
            one.send(Err(Dropped::ShuttingDown)).ok();
        }
    }
}
