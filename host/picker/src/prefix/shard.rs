//! A part of the index under one lock: the blocks whose keys share a byte, and who holds them.

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
    /// Makes an endpoint a holder of a block, or marks one that is. True: it is new.
    pub(super) fn add(&mut self, key: u64, endpoint: u16) -> bool {
        self.table.entry(key).add(endpoint, &mut self.sets)
    }

    /// Takes a block from an endpoint, unless it is marked and may be spared. True: it is spared.
    pub(super) fn take(&mut self, key: u64, endpoint: u16, may_spare: bool) -> bool {
        let Some(position) = self.table.position(key) else { return false };
        let taken = self.table.at(position).take(endpoint, may_spare, &mut self.sets);
        if taken == Taken::Last {
            self.table.remove(position);
        }
        taken == Taken::Spared
    }

    /// The holders of a block, if any, and the sets that tell who they are.
    pub(super) fn holders(&self, key: u64) -> Option<(Holders, &Sets)> {
        self.table.get(key).map(|holders| (holders, &self.sets))
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.sets.bytes()
    }
}
