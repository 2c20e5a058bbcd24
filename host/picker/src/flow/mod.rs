//! Queues requests until there is capacity for them, and determines their order: strictly by priority, fairly between the flows of a
//! priority, and within a flow by arrival, length or deadline.
//!
//! Fairness is start-time fair queueing. A band has a virtual time, which counts work, not seconds. After a request of a flow is
//! dispatched, the flow's next one may follow once the virtual time has passed the work of the first. Even a flow with many queued requests
//! therefore advances by one of them at a time. A flow that has sent nothing recently starts after the current turn.

mod band;
mod room;
pub mod saturation;
#[cfg(test)]
mod tests;

use band::Band;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// The settings of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// The limit for the whole queue.
    pub limit: Limit,
    /// The settings for a priority of 0 or more that isn't in `bands`.
    pub default_band: BandSettings,
    /// The same for a negative priority.
    pub default_negative_band: BandSettings,
    /// The settings by priority.
    pub bands: BTreeMap<i64, BandSettings>,
}

impl FlowSettings {
    fn band(&self, priority: i64) -> &BandSettings {
        let default = if priority < 0 { &self.default_negative_band } else { &self.default_band };
        self.bands.get(&priority).unwrap_or(default)
    }
}

impl Default for FlowSettings {
    fn default() -> Self {
        let band = BandSettings::default();
        Self { limit: Limit::NONE, default_band: band.clone(), default_negative_band: band, bands: BTreeMap::new() }
    }
}

/// The settings for one priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandSettings {
    /// The limit for its requests.
    pub limit: Limit,
    /// The order of its flows.
    pub fairness: Fairness,
    /// The order of requests within a flow.
    pub order: Order,
}

impl Default for BandSettings {
    /// Upstream's defaults, but with fairness between flows.
    fn default() -> Self {
        Self { limit: Limit { requests: 5_000, bytes: 1_000_000_000 }, fairness: Fairness::Requests, order: Order::FirstCome }
    }
}

/// The limit for queued requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The maximum number of requests.
    pub requests: usize,
    /// The maximum total size of their bodies.
    pub bytes: u64,
}

impl Limit {
    /// No limit.
    pub const NONE: Self = Self { requests: usize::MAX, bytes: u64::MAX };
}

/// The order of flows in a band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fairness {
    /// Ignores flows: all requests of the band are one flow.
    None,
    /// Each flow sends one request per turn.
    #[default]
    Requests,
    /// Each flow sends the same amount of estimated work per turn.
    Work,
}

/// The order of requests within a flow. Of two equal requests, the older one is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest first.
    #[default]
    FirstCome,
    /// The one with the least estimated work first.
    Shortest,
    /// The one with the earliest deadline first. Requests without a deadline are last.
    Deadline,
}

/// A request, as the queue sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The priority. Higher ones are first.
    pub priority: i64,
    /// The flow that it belongs to.
    pub flow: Arc<str>,
    /// The size of its buffered data.
    pub bytes: u64,
    /// The amount of work, such as tokens; 0 is treated as 1.
    pub work: u64,
    /// The deadline in the queue, by the caller's clock. After it, the request isn't dispatched.
    pub deadline: Option<u64>,
}

/// The number of a queued request. Later requests have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The result of queueing a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Enqueued<T> {
    /// The request is queued. The caller must respond to the evicted requests.
    Waiting(Ticket, Vec<T>),
    /// The request isn't queued. The caller must respond to it.
    Refused(T, Refusal),
}

/// Why a request isn't queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its band is full.
    BandFull,
    /// The queue is full, and it has no less important request to evict.
    QueueFull,
}

/// The queued requests, each with a value.
#[derive(Debug)]
pub struct FlowQueue<T> {
    settings: FlowSettings,
    /// The highest priority first.
    bands: BTreeMap<Reverse<i64>, Band>,
    entries: HashMap<Ticket, Entry<T>>,
    deadlines: BTreeSet<(u64, Ticket)>,
    bytes: u64,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    request: Request,
    value: T,
}

impl<T> FlowQueue<T> {
    /// An empty queue.
    pub fn new(settings: FlowSettings) -> Self {
        Self { settings, bands: BTreeMap::new(), entries: HashMap::new(), deadlines: BTreeSet::new(), bytes: 0, next: 0 }
    }

    /// Changes the settings. Queued requests stay, even beyond a new limit. The fairness between flows starts from scratch.
    pub fn set_settings(&mut self, settings: FlowSettings) {
        if settings == self.settings {
            return;
        }
        self.settings = settings;
        self.bands.clear();
        let mut tickets: Vec<Ticket> = self.entries.keys().copied().collect();
        tickets.sort_unstable();
        for ticket in tickets {
            if let Some(Entry { request, .. }) = self.entries.get(&ticket) {
                band(&mut self.bands, &self.settings, request.priority).push(ticket, request);
            }
        }
    }

    /// Queues a request, if there is room.
    pub fn push(&mut self, request: Request, value: T) -> Enqueued<T> {
        let victims = match self.room_for(&request) {
            Ok(victims) => victims,
            Err(refusal) => return Enqueued::Refused(value, refusal),
        };
        let evicted = victims.into_iter().filter_map(|ticket| self.cancel(ticket)).collect();
        let ticket = Ticket(self.next);
        self.next += 1;
        band(&mut self.bands, &self.settings, request.priority).push(ticket, &request);
        self.bytes += request.bytes;
        self.deadlines.extend(request.deadline.map(|deadline| (deadline, ticket)));
        self.entries.insert(ticket, Entry { request, value });
        Enqueued::Waiting(ticket, evicted)
    }

    /// Dispatches the next request, if `may_go_on` accepts the highest priority in the queue. Lower priorities don't overtake it.
    pub fn pop(&mut self, may_go_on: impl FnOnce(i64) -> bool) -> Option<(Request, T)> {
        let (Reverse(priority), band) = self.bands.first_key_value()?;
        let ticket = band.first().filter(|_| may_go_on(*priority))?;
        self.take(ticket, Band::pop)
    }

    /// Removes a request whose client has disconnected.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        self.take(ticket, Band::remove).map(|(_, value)| value)
    }

    /// Removes the requests whose deadline has passed.
    pub fn expire(&mut self, now: u64) -> Vec<T> {
        let mut expired = Vec::new();
        while let Some((_, ticket)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            expired.extend(self.cancel(ticket));
        }
        expired
    }

    /// The next deadline.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Removes all requests, in their order.
    pub fn drain(&mut self) -> Vec<(Request, T)> {
        std::iter::from_fn(|| self.pop(|_| true)).collect()
    }

    /// The number of queued requests.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of the queued requests.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The priorities of the queued requests, highest first, with the number and the bytes of each.
    pub fn bands(&self) -> impl Iterator<Item = (i64, usize, u64)> {
        self.bands.iter().map(|(Reverse(priority), band)| (*priority, band.len(), band.bytes()))
    }

    fn take(&mut self, ticket: Ticket, from: impl FnOnce(&mut Band, Ticket, &Request)) -> Option<(Request, T)> {
        let Entry { request, value } = self.entries.remove(&ticket)?;
        let key = Reverse(request.priority);
        if let Some(band) = self.bands.get_mut(&key) {
            from(band, ticket, &request);
            if band.len() == 0 {
                // No request is left to which a flow's history could be unfair.
                self.bands.remove(&key);
            }
        }
        self.bytes -= request.bytes;
        if let Some(deadline) = request.deadline {
            self.deadlines.remove(&(deadline, ticket));
        }
        Some((request, value))
    }
}

fn band<'b>(bands: &'b mut BTreeMap<Reverse<i64>, Band>, settings: &FlowSettings, priority: i64) -> &'b mut Band {
    bands.entry(Reverse(priority)).or_insert_with(|| Band::new(settings.band(priority)))
}
