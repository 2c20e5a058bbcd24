//! The last decisions of a pool, which explain where requests were sent.

pub mod record;
pub mod route;
mod rows;
#[cfg(test)]
mod tests;

pub(super) use rows::{Considered, Steps};

use arc_swap::ArcSwapOption;
use k8s_openapi::jiff::Timestamp;
use pointsman_picker::protocol::RequestHead;
use record::{Record, Shared};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The maximum number of recorded decisions. Each has at most 15 KiB.
pub const MAX_DECISIONS: u32 = 100_000;

/// The maximum number of recorded endpoints per decision.
pub const MAX_ROWS: usize = 64;

/// The last decisions. Every request is recorded, because otherwise the one in question could be missing; copying the rows of 64 endpoints
/// takes a small part of the time of a policy's call.
///
/// Each slot is replaced as a whole and without a lock, so that requests wait neither for each other nor for readers. A request that is
/// overtaken by a whole round of others between taking its number and filling its slot replaces a newer record, which does no harm.
#[derive(Debug)]
pub struct Decisions {
    slots: Box<[ArcSwapOption<Record>]>,
    next: AtomicU64,
}

impl Decisions {
    /// Creates space for this number of decisions, up to the maximum. With 0, nothing is recorded.
    pub fn new(capacity: u32) -> Self {
        let slots = std::iter::repeat_with(ArcSwapOption::empty).take(capacity.min(MAX_DECISIONS) as usize).collect();
        Self { slots, next: AtomicU64::new(0) }
    }

    /// Whether anything is recorded.
    pub fn is_recording(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The record of a new request, unless recording is off.
    pub(super) fn start(&self, pool: &Arc<str>, head: &RequestHead) -> Option<Box<Record>> {
        if !self.is_recording() {
            return None;
        }
        let now = Timestamp::now();
        Some(Box::new(Record {
            request: head.request_id.clone().unwrap_or_default(),
            time: Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now).to_string(),
            pool: Shared(Arc::clone(pool)),
            objective: head.objective.clone(),
            subset: head.subset.as_ref().map(Vec::len),
            ..Record::default()
        }))
    }

    /// Stores the record of a finished request, in place of the oldest one.
    pub(super) fn push(&self, mut record: Record) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        record.number = number;
        if record.request.is_empty() {
            record.request = number.to_string();
        }
        let Some(place) = number.checked_rem(self.slots.len() as u64) else { return };
        #[allow(clippy::cast_possible_truncation)] // It is less than the number of slots.
        self.slots[place as usize].store(Some(Arc::new(record)));
    }

    /// The stored records, newest first.
    pub fn newest(&self) -> Vec<Arc<Record>> {
        let mut records: Vec<Arc<Record>> = self.slots.iter().filter_map(ArcSwapOption::load_full).collect();
        records.sort_unstable_by_key(|record| std::cmp::Reverse(record.number));
        records
    }
}
