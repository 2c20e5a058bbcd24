//! The requests of one priority.

use super::{BandSettings, Fairness, Order, Request, Ticket};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// The number of a flow in its band.
type FlowNumber = u64;

/// Those that wait with one priority.
#[derive(Debug)]
pub(super) struct Band {
    fairness: Fairness,
    order: Order,
    /// Where the work of the band is.
    virtual_time: u64,
    numbers: HashMap<Arc<str>, FlowNumber>,
    flows: HashMap<FlowNumber, Flow>,
    next: FlowNumber,
    /// Flows with requests: when the first of each starts, and since when it waits.
    ready: BTreeSet<(u64, Ticket, FlowNumber)>,
    /// Flows without requests, which are remembered until the virtual time has passed what they have sent.
    idle: BTreeSet<(u64, FlowNumber)>,
    /// Flows by the number and by the bytes of their requests.
    by_requests: BTreeSet<(usize, FlowNumber)>,
    by_bytes: BTreeSet<(u64, FlowNumber)>,
    arrivals: BTreeSet<Ticket>,
    bytes: u64,
}

#[derive(Debug)]
struct Flow {
    name: Arc<str>,
    /// When the work that it has sent is over.
    finish: u64,
    /// Its entry of `ready`.
    start: (u64, Ticket),
    /// The next one first.
    queue: BTreeSet<(u64, Ticket)>,
    /// The sizes by arrival.
    arrivals: BTreeMap<Ticket, u64>,
    bytes: u64,
}

impl Band {
    pub(super) fn new(settings: &BandSettings) -> Self {
        Self {
            fairness: settings.fairness,
            order: settings.order,
            virtual_time: 0,
            numbers: HashMap::new(),
            flows: HashMap::new(),
            next: 0,
            ready: BTreeSet::new(),
            idle: BTreeSet::new(),
            by_requests: BTreeSet::new(),
            by_bytes: BTreeSet::new(),
            arrivals: BTreeSet::new(),
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.arrivals.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = Ticket> {
        self.arrivals.iter().rev().copied()
    }

    /// The next one.
    pub(super) fn first(&self) -> Option<Ticket> {
        let (_, _, number) = self.ready.first()?;
        self.flows.get(number)?.queue.first().map(|(_, ticket)| *ticket)
    }

    pub(super) fn push(&mut self, ticket: Ticket, request: &Request) {
        let place = self.place(ticket, request);
        let number = self.number(request);
        self.unrank(number);
        // A flow that has sent nothing lately starts behind what each of the others sends next. Otherwise a client with another flow for each
        // request would always be before those that have had a turn.
        let behind = self.ready.last().map_or(self.virtual_time, |(start, ..)| *start).max(self.virtual_time);
        if let Some(flow) = self.flows.get_mut(&number) {
            if flow.queue.is_empty() {
                self.idle.remove(&(flow.finish, number));
                let start = if flow.finish > self.virtual_time { flow.finish } else { behind };
                flow.start = (start, ticket);
                self.ready.insert((flow.start.0, flow.start.1, number));
            }
            flow.queue.insert(place);
            flow.arrivals.insert(ticket, request.bytes);
            flow.bytes += request.bytes;
        }
        self.rank(number);
        self.arrivals.insert(ticket);
        self.bytes += request.bytes;
    }

    /// Takes it because it goes on: its work counts for its flow.
    pub(super) fn pop(&mut self, ticket: Ticket, request: &Request) {
        let work = match self.fairness {
            Fairness::None | Fairness::Requests => 1,
            Fairness::Work => request.work.max(1),
        };
        let Some(number) = self.numbers.get(&self.flow_name(request)).copied() else { return };
        if let Some(flow) = self.flows.get_mut(&number) {
            self.virtual_time = flow.start.0;
            flow.finish = flow.start.0.saturating_add(work);
            self.ready.remove(&(flow.start.0, flow.start.1, number));
            // Of two flows that start together, the one goes first that has sent nothing for longer.
            flow.start = (flow.finish, ticket);
            self.ready.insert((flow.start.0, flow.start.1, number));
        }
        self.remove(ticket, request);
    }

    /// Takes it for another reason.
    pub(super) fn remove(&mut self, ticket: Ticket, request: &Request) {
        let Some(number) = self.numbers.get(&self.flow_name(request)).copied() else { return };
        let place = self.place(ticket, request);
        self.unrank(number);
        if let Some(flow) = self.flows.get_mut(&number) {
            flow.queue.remove(&place);
            flow.arrivals.remove(&ticket);
            flow.bytes -= request.bytes;
            if flow.queue.is_empty() {
                self.ready.remove(&(flow.start.0, flow.start.1, number));
                self.idle.insert((flow.finish, number));
            }
        }
        self.rank(number);
        self.arrivals.remove(&ticket);
        self.bytes -= request.bytes;
        // A new flow starts at the virtual time too, so there is nothing to remember of these, even if no request of the band ever goes on.
        while let Some((_, number)) = self.idle.first().copied().filter(|(finish, _)| *finish <= self.virtual_time) {
            self.forget(number);
        }
    }

    #[cfg(test)]
    pub(super) fn remembered_flows(&self) -> usize {
        self.flows.len()
    }

    /// How many requests of this flow wait, and their bytes.
    pub(super) fn share(&self, request: &Request) -> (usize, u64) {
        let flow = self.numbers.get(&self.flow_name(request)).and_then(|number| self.flows.get(number));
        flow.map_or((0, 0), |flow| (flow.queue.len(), flow.bytes))
    }

    /// The flow with the most requests: how many, and those and their sizes, the newest first.
    pub(super) fn longest(&self) -> Option<(usize, impl Iterator<Item = (Ticket, u64)>)> {
        let (requests, number) = self.by_requests.last()?;
        Some((*requests, self.newest_of(*number)))
    }

    /// The flow with the most bytes, alike.
    pub(super) fn largest(&self) -> Option<(u64, impl Iterator<Item = (Ticket, u64)>)> {
        let (bytes, number) = self.by_bytes.last()?;
        Some((*bytes, self.newest_of(*number)))
    }

    fn newest_of(&self, number: FlowNumber) -> impl Iterator<Item = (Ticket, u64)> {
        let flow = self.flows.get(&number);
        flow.into_iter().flat_map(|flow| flow.arrivals.iter().rev().map(|(ticket, bytes)| (*ticket, *bytes)))
    }

    fn flow_name(&self, request: &Request) -> Arc<str> {
        if self.fairness == Fairness::None { Arc::from("") } else { Arc::clone(&request.flow) }
    }

    fn number(&mut self, request: &Request) -> FlowNumber {
        let name = self.flow_name(request);
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(Arc::clone(&name), number);
        let flow = Flow { name, finish: 0, start: (0, Ticket(0)), queue: BTreeSet::new(), arrivals: BTreeMap::new(), bytes: 0 };
        self.flows.insert(number, flow);
        number
    }

    fn place(&self, ticket: Ticket, request: &Request) -> (u64, Ticket) {
        let before = match self.order {
            Order::FirstCome => 0,
            Order::Shortest => request.work,
            Order::Deadline => request.deadline.unwrap_or(u64::MAX),
        };
        (before, ticket)
    }

    fn forget(&mut self, number: FlowNumber) {
        if let Some(flow) = self.flows.remove(&number) {
            self.numbers.remove(&flow.name);
            self.idle.remove(&(flow.finish, number));
        }
    }

    /// Flows without requests have no rank.
    fn rank(&mut self, number: FlowNumber) {
        if let Some(flow) = self.flows.get(&number).filter(|flow| !flow.queue.is_empty()) {
            self.by_requests.insert((flow.queue.len(), number));
            self.by_bytes.insert((flow.bytes, number));
        }
    }

    fn unrank(&mut self, number: FlowNumber) {
        if let Some(flow) = self.flows.get(&number) {
            self.by_requests.remove(&(flow.queue.len(), number));
            self.by_bytes.remove(&(flow.bytes, number));
        }
    }
}
