//! The last decisions of a pool, from which somebody can find out why a request went where it did.

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

/// How many decisions may be recorded. Each holds 15 KiB at most.
pub const MAX_DECISIONS: u32 = 100_000;

/// How many endpoints are recorded of one decision.
pub const MAX_ROWS: usize = 64;

/// The last decisions. Every request is recorded, however many there are: the one that somebody asks about would be missing otherwise, and to
/// copy the rows of 64 endpoints takes a small part of what a policy's answer does.
///
/// Each slot is replaced as a whole and without a lock, so that requests wait neither for each other nor for somebody who reads. A request that
/// is overtaken by a whole round of others between its number and its slot replaces a newer one there, which nobody misses.
#[derive(Debug)]
pub struct Decisions {
    slots: Box<[ArcSwapOption<Record>]>,
    next: AtomicU64,
}

impl Decisions {
    /// Room for so many decisions, or for as many as may be. With 0 nothing is recorded.
    pub fn new(capacity: u32) -> Self {
        let slots = std::iter::repeat_with(ArcSwapOption::empty).take(capacity.min(MAX_DECISIONS) as usize).collect();
        Self { slots, next: AtomicU64::new(0) }
    }

    /// Whether anything is recorded.
    pub fn is_recording(&self) -> bool {
        !self.slots.is_empty()
    }

    /// The record of a request that has just come, unless nothing is recorded.
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

    /// Takes a record whose request has its answer. The oldest one gives way.
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

    /// Those that are there, the newest first.
    pub fn newest(&self) -> Vec<Arc<Record>> {
        let mut records: Vec<Arc<Record>> = self.slots.iter().filter_map(ArcSwapOption::load_full).collect();
        records.sort_unstable_by_key(|record| std::cmp::Reverse(record.number));
        records
    }
}
