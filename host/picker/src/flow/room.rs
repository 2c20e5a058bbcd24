//! Chooses the requests that are evicted for a new one if a limit is reached.

use super::{Band, FlowQueue, Limit, Refusal, Request, Ticket};
use std::{cmp::Reverse, collections::BTreeSet};

/// The missing room for a request.
#[derive(Clone, Copy, Debug)]
struct Lacking {
    requests: usize,
    bytes: u64,
}

impl Lacking {
    /// At most the size of the request itself. If a limit has been lowered below the current length, each new request evicts one.
    fn new(limit: Limit, requests: usize, bytes: u64, request: &Request) -> Self {
        Self {
            requests: usize::from(requests >= limit.requests),
            bytes: bytes.saturating_add(request.bytes).saturating_sub(limit.bytes).min(request.bytes),
        }
    }

    fn is_none(self) -> bool {
        self.requests == 0 && self.bytes == 0
    }

    fn give(&mut self, bytes: u64) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl<T> FlowQueue<T> {
    /// The requests to evict for this one.
    ///
    /// Within the band, a flow with more queued requests than the request's own flow loses its newest. A flow that floods the band
    /// therefore only has its own requests refused and evicted. In the whole queue, the band with the lowest priority loses its newest
    /// requests first.
    pub(super) fn room_for(&self, request: &Request) -> Result<BTreeSet<Ticket>, Refusal> {
        let mut victims = BTreeSet::new();
        let own = self.bands.get(&Reverse(request.priority));
        let limit = self.settings.band(request.priority).limit;
        if limit.requests == 0 || request.bytes > limit.bytes {
            return Err(Refusal::BandFull);
        }
        let total = self.settings.limit;
        if total.requests == 0 || request.bytes > total.bytes {
            return Err(Refusal::QueueFull);
        }
        if let Some(band) = own {
            let mut lacking = Lacking::new(limit, band.len(), band.bytes(), request);
            take_from_flows(band, request, &mut lacking, &mut victims);
            if !lacking.is_none() {
                return Err(Refusal::BandFull);
            }
        }
        let mut lacking = Lacking::new(total, self.len(), self.bytes, request);
        for ticket in &victims {
            lacking.give(self.entries.get(ticket).map_or(0, |entry| entry.request.bytes));
        }
        let less_important = self.bands.iter().rev().take_while(|(Reverse(priority), _)| *priority < request.priority);
        for ticket in less_important.flat_map(|(_, band)| band.newest()) {
            if lacking.is_none() {
                break;
            }
            lacking.give(self.entries.get(&ticket).map_or(0, |entry| entry.request.bytes));
            victims.insert(ticket);
        }
        if let Some(band) = own {
            take_from_flows(band, request, &mut lacking, &mut victims);
        }
        if lacking.is_none() { Ok(victims) } else { Err(Refusal::QueueFull) }
    }
}

/// Evicts the newest requests of the largest flow, while it still has more than the request's own flow would have.
fn take_from_flows(band: &Band, request: &Request, lacking: &mut Lacking, victims: &mut BTreeSet<Ticket>) {
    let (own_requests, own_bytes) = band.share(request);
    if lacking.requests > 0
        && let Some((requests, mut newest)) = band.longest()
        && requests > own_requests + 1
        && let Some((ticket, bytes)) = newest.find(|(ticket, _)| !victims.contains(ticket))
    {
        lacking.give(bytes);
        victims.insert(ticket);
    }
    let Some((mut most, newest)) = band.largest() else { return };
    for (ticket, bytes) in newest {
        if lacking.bytes == 0 || most.saturating_sub(bytes) < own_bytes.saturating_add(request.bytes) {
            return;
        }
        if !victims.contains(&ticket) {
            lacking.give(bytes);
            victims.insert(ticket);
        }
        most -= bytes;
    }
}
