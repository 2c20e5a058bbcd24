//! A hash table with 16 bytes per slot. The standard one doubles its size, and doubles it again under steady replacement, to avoid moving
//! entries on removal. This one grows by a quarter and closes gaps, which halves the memory of an index that consists mostly of this table.
//!
//! Keys are evenly distributed: a key's highest bits give its home, and it is in that slot or in the first free one after it.

use super::holders::Holders;

const MIN_SLOTS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) key: u64,
    pub(super) holders: Holders,
}

/// A slot is free if its block has no holder.
const FREE: Slot = Slot { key: 0, holders: Holders::NONE };

/// The holders of each block. At most four of five slots are in use, and at least two of five unless there are only a few.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) slots: Vec<Slot>,
    len: usize,
}

impl Table {
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>()
    }

    /// The holders of a block, if it has any.
    pub(super) fn get(&self, key: u64) -> Option<Holders> {
        self.position(key).map(|at| self.slots[at].holders)
    }

    /// The position of a block that has holders.
    pub(super) fn position(&self, key: u64) -> Option<usize> {
        self.find(key).ok()
    }

    pub(super) fn at(&mut self, position: usize) -> &mut Holders {
        &mut self.slots[position].holders
    }

    /// The holders of a block. If there are none, the caller adds one immediately, because the slot is now in use.
    pub(super) fn entry(&mut self, key: u64) -> &mut Holders {
        let at = match self.find(key) {
            Ok(at) => at,
            Err(mut at) => {
                if (self.len + 1) * 5 > self.slots.len() * 4 {
                    self.resize((self.slots.len() + self.slots.len() / 4).max(MIN_SLOTS));
                    at = self.free_from_home(key);
                }
                self.len += 1;
                self.slots[at].key = key;
                at
            }
        };
        &mut self.slots[at].holders
    }

    /// Frees a slot. Later entries whose home is at or before the gap move up, so that a search may stop at a free slot.
    pub(super) fn remove(&mut self, position: usize) {
        let slots = self.slots.len();
        let mut gap = position;
        let mut next = self.after(gap);
        while !self.slots[next].holders.is_none() {
            let from_home = (next + slots - self.home(self.slots[next].key)) % slots;
            let from_gap = (next + slots - gap) % slots;
            if from_home >= from_gap {
                self.slots[gap] = self.slots[next];
                gap = next;
            }
            next = self.after(next);
        }
        self.slots[gap] = FREE;
        self.len -= 1;
        if slots > MIN_SLOTS && self.len * 5 < slots * 2 {
            self.resize((self.len * 5 / 3).max(MIN_SLOTS));
        }
    }

    /// The position of a key, or otherwise the position for it.
    fn find(&self, key: u64) -> Result<usize, usize> {
        if self.slots.is_empty() {
            return Err(0);
        }
        let mut at = self.home(key);
        loop {
            let slot = &self.slots[at];
            if slot.holders.is_none() {
                return Err(at);
            }
            if slot.key == key {
                return Ok(at);
            }
            at = self.after(at);
        }
    }

    fn free_from_home(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while !self.slots[at].holders.is_none() {
            at = self.after(at);
        }
        at
    }

    /// The home of a key. The number of slots needn't be a power of two. The result is below it, so the conversion never fails.
    fn home(&self, key: u64) -> usize {
        usize::try_from((u128::from(key) * self.slots.len() as u128) >> 64).unwrap_or_default()
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![FREE; slots]);
        for slot in old.into_iter().filter(|slot| !slot.holders.is_none()) {
            let at = self.free_from_home(slot.key);
            self.slots[at] = slot;
        }
    }
}
