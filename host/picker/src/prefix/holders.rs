//! The endpoints that have seen one block: 8 bytes for a few endpoints, as for most blocks, and a set of bits for many.

/// The number of holders that fit in place.
const FEW: usize = 3;

/// Marks a holder that has been sent the block again since its last possible eviction.
const AGAIN: u16 = 1 << 15;

/// No endpoint. The numbers of endpoints are far below this.
const NOBODY: u16 = AGAIN - 1;

/// The holders of a block: in place with their marks, or the number of a set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holders {
    Few([u16; FEW]),
    Many(u32),
}

/// The result of evicting a block from an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The endpoint keeps the block, but loses its mark.
    Spared,
    /// The endpoint no longer holds the block; another does.
    Gone,
    /// No endpoint holds the block any more.
    Last,
}

impl Holders {
    pub(super) const NONE: Self = Self::Few([NOBODY; FEW]);

    /// Whether there are no holders. A set always has some.
    pub(super) fn is_none(self) -> bool {
        matches!(self, Self::Few([NOBODY, NOBODY, NOBODY]))
    }

    /// Adds an endpoint, or marks it if it is already a holder. Returns whether it is new.
    pub(super) fn add(&mut self, endpoint: u16, sets: &mut Sets) -> bool {
        match self {
            Self::Few(few) => {
                if let Some(holder) = few.iter_mut().find(|holder| **holder & !AGAIN == endpoint) {
                    *holder |= AGAIN;
                    return false;
                }
                if let Some(free) = few.iter_mut().find(|holder| **holder == NOBODY) {
                    *free = endpoint;
                    return true;
                }
                let number = sets.make();
                for holder in *few {
                    let id = holder & !AGAIN;
                    sets.add(number, id);
                    if holder != id {
                        sets.add(number, id);
                    }
                }
                sets.add(number, endpoint);
                *self = Self::Many(number);
                true
            }
            Self::Many(number) => sets.add(*number, endpoint),
        }
    }

    /// Evicts the block from an endpoint, unless it is marked and may be spared.
    pub(super) fn take(&mut self, endpoint: u16, may_spare: bool, sets: &mut Sets) -> Taken {
        match self {
            Self::Few(few) => {
                if let Some(holder) = few.iter_mut().find(|holder| **holder & !AGAIN == endpoint) {
                    if may_spare && *holder != endpoint {
                        *holder = endpoint;
                        return Taken::Spared;
                    }
                    *holder = NOBODY;
                }
            }
            Self::Many(number) => {
                if !sets.take(*number, endpoint, may_spare) {
                    return Taken::Spared;
                }
                // As soon as the holders fit in place: a set is only economical if at least four share it.
                if let Some(few) = sets.few(*number) {
                    sets.discard(*number);
                    *self = Self::Few(few);
                }
            }
        }
        if self.is_none() { Taken::Last } else { Taken::Gone }
    }

    /// The holders from number `word` x 64 on, as bits.
    pub(super) fn word(self, word: usize, sets: &Sets) -> u64 {
        match self {
            Self::Few(few) => few
                .iter()
                .map(|holder| holder & !AGAIN)
                .filter(|holder| usize::from(holder / 64) == word && *holder != NOBODY)
                .fold(0, |bits, holder| bits | bit(holder)),
            Self::Many(number) => sets.words(number).get(word).map_or(0, |word| word.has),
        }
    }

    /// The number of words for all holders.
    pub(super) fn words(self, sets: &Sets) -> usize {
        match self {
            Self::Few(few) => few
                .iter()
                .map(|holder| holder & !AGAIN)
                .filter(|holder| *holder != NOBODY)
                .map(|holder| usize::from(holder / 64) + 1)
                .max()
                .unwrap_or(0),
            Self::Many(number) => sets.words(number).len(),
        }
    }
}

/// Sixty-four endpoints of a set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
    has: u64,
    again: u64,
}

/// The sets of a shard, by number.
#[derive(Debug, Default)]
pub(super) struct Sets {
    by_number: Vec<Box<[Word]>>,
    count: u32,
    free: Vec<u32>,
    words: usize,
}

impl Sets {
    pub(super) fn bytes(&self) -> usize {
        self.by_number.capacity() * size_of::<Box<[Word]>>() + self.free.capacity() * size_of::<u32>() + self.words * size_of::<Word>()
    }

    fn words(&self, number: u32) -> &[Word] {
        &self.by_number[number as usize]
    }

    fn make(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.by_number.push(Box::default());
            self.count += 1;
            self.count - 1
        })
    }

    fn discard(&mut self, number: u32) {
        self.words -= std::mem::take(&mut self.by_number[number as usize]).len();
        self.free.push(number);
        if self.free.len() == self.by_number.len() {
            *self = Self::default();
        }
    }

    /// Adds an endpoint, or marks it. Returns whether it is new.
    fn add(&mut self, number: u32, endpoint: u16) -> bool {
        let set = &mut self.by_number[number as usize];
        let word = usize::from(endpoint / 64);
        if word >= set.len() {
            self.words += word + 1 - set.len();
            let mut longer = vec![Word::default(); word + 1];
            longer[..set.len()].copy_from_slice(set);
            *set = longer.into_boxed_slice();
        }
        let word = &mut set[word];
        let new = word.has & bit(endpoint) == 0;
        word.has |= bit(endpoint);
        if !new {
            word.again |= bit(endpoint);
        }
        new
    }

    /// Removes an endpoint, unless it is marked and may be spared. Returns false if it is spared.
    fn take(&mut self, number: u32, endpoint: u16, may_spare: bool) -> bool {
        let Some(word) = self.by_number[number as usize].get_mut(usize::from(endpoint / 64)) else { return true };
        let spared = may_spare && word.again & bit(endpoint) != 0;
        word.again &= !bit(endpoint);
        if !spared {
            word.has &= !bit(endpoint);
        }
        !spared
    }

    /// The set as holders in place, with their marks, if they fit.
    fn few(&self, number: u32) -> Option<[u16; FEW]> {
        let mut few = [NOBODY; FEW];
        let mut places = few.iter_mut();
        for (base, word) in (0u16..).step_by(64).zip(self.words(number)) {
            let mut rest = word.has;
            while rest != 0 {
                let endpoint = base + u16::try_from(rest.trailing_zeros()).unwrap_or_default();
                rest &= rest - 1;
                *places.next()? = if word.again & bit(endpoint) == 0 { endpoint } else { endpoint | AGAIN };
            }
        }
        Some(few)
    }
}

/// The bit of an endpoint in its word.
fn bit(endpoint: u16) -> u64 {
    1 << (endpoint % 64)
}
