//! Requests that wait until there is room for them, and the order in which they go on: strictly by priority, fairly between the flows of a
//! priority, and within a flow by arrival, length or deadline.
//!
//! Fairness is start-time fair queueing. A band has a virtual time, which counts work and not seconds: when a request of a flow goes on, the
//! flow's next one may go on once the virtual time has passed the work of the first. However many requests another flow has waiting, it gets
//! on by one of them at a time. A flow that has sent nothing lately starts behind the turn that is under way.

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

/// How requests wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// How much may wait in all.
    pub limit: Limit,
    /// What applies to a priority of 0 or more that `bands` doesn't have.
    pub default_band: BandSettings,
    /// The same for a negative priority.
    pub default_negative_band: BandSettings,
    /// What applies to a priority.
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

/// How requests of one priority wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandSettings {
    /// How much of them may wait.
    pub limit: Limit,
    /// Who is next among their flows.
    pub fairness: Fairness,
    /// Who is next within a flow.
    pub order: Order,
}

impl Default for BandSettings {
    /// As upstream's, but fair between flows.
    fn default() -> Self {
        Self { limit: Limit { requests: 5_000, bytes: 1_000_000_000 }, fairness: Fairness::Requests, order: Order::FirstCome }
    }
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How many requests.
    pub requests: usize,
    /// How many bytes their bodies may have together.
    pub bytes: u64,
}

impl Limit {
    /// Any number.
    pub const NONE: Self = Self { requests: usize::MAX, bytes: u64::MAX };
}

/// Who is next among the flows of a band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fairness {
    /// Flows don't count: all requests of the band are one flow.
    None,
    /// Each flow in turn sends one request.
    #[default]
    Requests,
    /// Each flow in turn sends as much work, by the estimate of each request.
    Work,
}

/// Who is next within a flow. Of two that are equal the older one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    #[default]
    FirstCome,
    /// The one with the least work, by its estimate.
    Shortest,
    /// The one whose deadline is first; one without a deadline is last.
    Deadline,
}

/// What a request is to the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Higher ones go first.
    pub priority: i64,
    /// Whose it is.
    pub flow: Arc<str>,
    /// The size of what is held of it.
    pub bytes: u64,
    /// How much work it is, such as tokens; 0 counts as 1.
    pub work: u64,
    /// Until when it waits, by the caller's clock. It isn't given a place afterwards.
    pub deadline: Option<u64>,
}

/// A place in the queue. Later requests have greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Enqueued<T> {
    /// It waits. The others had to make room for it, and are to be answered.
    Waiting(Ticket, Vec<T>),
    /// It is to be answered.
    Refused(T, Refusal),
}

/// Why there is no room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As much waits in its band as may.
    BandFull,
    /// As much waits as may, and nothing less important.
    QueueFull,
}

/// The requests that wait, each with what belongs to it.
#[derive(Debug)]
pub struct FlowQueue<T> {
    settings: FlowSettings,
    /// The most important first.
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
    /// An empty one.
    pub fn new(settings: FlowSettings) -> Self {
        Self { settings, bands: BTreeMap::new(), entries: HashMap::new(), deadlines: BTreeSet::new(), bytes: 0, next: 0 }
    }

    /// Changes how requests wait. Those that wait already stay, even if they are more than may wait now; flows begin anew.
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

    /// Gives a request a place, if there is room.
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

    /// Takes the next request, if the most important of those that wait may go on. Less important ones don't overtake it.
    pub fn pop(&mut self, may_go_on: impl FnOnce(i64) -> bool) -> Option<(Request, T)> {
        let (Reverse(priority), band) = self.bands.first_key_value()?;
        let ticket = band.first().filter(|_| may_go_on(*priority))?;
        self.take(ticket, Band::pop)
    }

    /// Takes a request whose client has gone.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        self.take(ticket, Band::remove).map(|(_, value)| value)
    }

    /// Takes those whose deadline has come.
    pub fn expire(&mut self, now: u64) -> Vec<T> {
        let mut expired = Vec::new();
        while let Some((_, ticket)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            expired.extend(self.cancel(ticket));
        }
        expired
    }

    /// When the next deadline is.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Takes all, the next first.
    pub fn drain(&mut self) -> Vec<(Request, T)> {
        std::iter::from_fn(|| self.pop(|_| true)).collect()
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of those that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The priorities of those that wait, the highest first, with the number and the bytes of each.
    pub fn bands(&self) -> impl Iterator<Item = (i64, usize, u64)> {
        self.bands.iter().map(|(Reverse(priority), band)| (*priority, band.len(), band.bytes()))
    }

    fn take(&mut self, ticket: Ticket, from: impl FnOnce(&mut Band, Ticket, &Request)) -> Option<(Request, T)> {
        let Entry { request, value } = self.entries.remove(&ticket)?;
        let key = Reverse(request.priority);
        if let Some(band) = self.bands.get_mut(&key) {
            from(band, ticket, &request);
            if band.len() == 0 {
                // Nobody waits whom a flow's past could be unfair to.
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
