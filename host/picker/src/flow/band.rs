//! The queued requests of one priority.

use super::{BandSettings, Fairness, Order, Request, Ticket};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// The number of a flow in its band.
type FlowNumber = u64;

/// The queued requests of one priority.
#[derive(Debug)]
pub(super) struct Band {
    fairness: Fairness,
    order: Order,
    /// The start of the last dispatched request, in units of work.
    virtual_time: u64,
    numbers: HashMap<Arc<str>, FlowNumber>,
    flows: HashMap<FlowNumber, Flow>,
    next: FlowNumber,
    /// Flows with requests, by the start of their first request and the last time that they had a turn or arrived.
    ready: BTreeSet<(u64, Ticket, FlowNumber)>,
    /// Flows without requests. They are remembered until the virtual time passes their finish.
    idle: BTreeSet<(u64, FlowNumber)>,
    /// Flows by the number and by the size of their requests.
    by_requests: BTreeSet<(usize, FlowNumber)>,
    by_bytes: BTreeSet<(u64, FlowNumber)>,
    arrivals: BTreeSet<Ticket>,
    bytes: u64,
}

#[derive(Debug)]
struct Flow {
    name: Arc<str>,
    /// The virtual time at which its dispatched work is done.
    finish: u64,
    /// Its key in `ready`.
    start: (u64, Ticket),
    /// The requests, next one first.
    queue: BTreeSet<(u64, Ticket)>,
    /// The sizes of the requests, by arrival.
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

    /// The requests, newest first.
    pub(super) fn newest(&self) -> impl Iterator<Item = Ticket> {
        self.arrivals.iter().rev().copied()
    }

    /// The next request.
    pub(super) fn first(&self) -> Option<Ticket> {
        let (_, _, number) = self.ready.first()?;
        self.flows.get(number)?.queue.first().map(|(_, ticket)| *ticket)
    }

    pub(super) fn push(&mut self, ticket: Ticket, request: &Request) {
        let place = self.place(ticket, request);
        let number = self.number(request);
        self.unrank(number);
        // A flow that has sent nothing recently starts after the next request of every other flow. Otherwise, a client with a new flow for
        // each request would always precede the flows that have had a turn.
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

    /// Removes a dispatched request and charges its work to its flow.
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
            // Of two flows with the same start, the one that has waited longer for a turn goes first.
            flow.start = (flow.finish, ticket);
            self.ready.insert((flow.start.0, flow.start.1, number));
        }
        self.remove(ticket, request);
    }

    /// Removes a request that isn't dispatched.
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
        // Such a flow would start at the virtual time anyway, so it needn't be remembered. This also holds if the band never dispatches a
        // request.
        while let Some((_, number)) = self.idle.first().copied().filter(|(finish, _)| *finish <= self.virtual_time) {
            self.forget(number);
        }
    }

    #[cfg(test)]
    pub(super) fn remembered_flows(&self) -> usize {
        self.flows.len()
    }

    /// The number of queued requests of this flow, and their bytes.
    pub(super) fn share(&self, request: &Request) -> (usize, u64) {
        let flow = self.numbers.get(&self.flow_name(request)).and_then(|number| self.flows.get(number));
        flow.map_or((0, 0), |flow| (flow.queue.len(), flow.bytes))
    }

    /// The flow with the most requests: their number, and the requests with their sizes, newest first.
    pub(super) fn longest(&self) -> Option<(usize, impl Iterator<Item = (Ticket, u64)>)> {
        let (requests, number) = self.by_requests.last()?;
        Some((*requests, self.newest_of(*number)))
    }

    /// The same for the flow with the most bytes.
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
