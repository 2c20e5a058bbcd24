//! A part of the index under one lock: the blocks whose keys share a byte, and their holders.

use super::{
    holders::{Holders, Sets, Taken},
    table::Table,
};

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) table: Table,
    pub(super) sets: Sets,
}

impl Shard {
    /// Adds an endpoint as a holder of a block, or marks it if it is already one. Returns whether it is new.
    pub(super) fn add(&mut self, key: u64, endpoint: u16) -> bool {
        self.table.entry(key).add(endpoint, &mut self.sets)
    }

    /// Evicts a block from an endpoint, unless it is marked and may be spared. Returns whether it is spared.
    pub(super) fn take(&mut self, key: u64, endpoint: u16, may_spare: bool) -> bool {
        let Some(position) = self.table.position(key) else { return false };
        let taken = self.table.at(position).take(endpoint, may_spare, &mut self.sets);
        if taken == Taken::Last {
            self.table.remove(position);
        }
        taken == Taken::Spared
    }

    /// The holders of a block, if it has any, and the sets to look them up in.
    pub(super) fn holders(&self, key: u64) -> Option<(Holders, &Sets)> {
        self.table.get(key).map(|holders| (holders, &self.sets))
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.sets.bytes()
    }
}
