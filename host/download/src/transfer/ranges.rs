//! Which bytes of a file are there.

use std::{collections::BTreeMap, ops::Range};

/// Ranges that neither touch nor overlap: the end of each by its start.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&other, &other_end)) = self.0.range(..=end).next_back().filter(|(_, other_end)| **other_end >= start) {
            start = start.min(other);
            end = end.max(other_end);
            self.0.remove(&other);
        }
        self.0.insert(start, end);
    }

    /// The end of the bytes that are there from the beginning.
    pub(super) fn prefix(&self) -> u64 {
        self.0.get(&0).copied().unwrap_or(0)
    }

    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        self.0.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// What is missing, in pieces of at most so many bytes.
    pub(super) fn missing(&self, size: u64, piece: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut position = 0;
        for (&start, &end) in self.0.iter().chain([(&size, &size)]) {
            while position < start {
                let next = start.min(position.saturating_add(piece.max(1)));
                gaps.push(position..next);
                position = next;
            }
            position = position.max(end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_knows_each_byte(inserted in proptest::collection::vec((0u64..64, 0u64..16), 0..20), piece in 1u64..20) {
            let mut ranges = Ranges::default();
            let mut bytes = [false; 80];
            for (start, length) in inserted {
                ranges.insert(start..start + length);
                bytes[usize::try_from(start).unwrap()..usize::try_from(start + length).unwrap()].fill(true);
            }
            let mut missing = [false; 80];
            for gap in ranges.missing(80, piece) {
                prop_assert!(!gap.is_empty() && gap.end - gap.start <= piece);
                missing[usize::try_from(gap.start).unwrap()..usize::try_from(gap.end).unwrap()].fill(true);
            }
            prop_assert!(bytes.iter().zip(missing).all(|(there, missing)| *there != missing));
            for range in [0..piece, piece..80, 10..20] {
                let all = bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()].iter().all(|there| *there);
                prop_assert_eq!(ranges.covers(&range), all);
            }
            prop_assert_eq!(ranges.prefix(), bytes.iter().take_while(|there| **there).count() as u64);
            prop_assert_eq!(ranges.bytes(), bytes.iter().filter(|there| **there).count() as u64);
        }
    }
}
