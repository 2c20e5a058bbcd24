//! An edit that replaces the model in a body.

use std::ops::Range;

/// Replaces the model's name. All other bytes of the body stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEdit {
    pub(super) place: Range<usize>,
    pub(super) text: String,
    pub(super) length: usize,
}

impl ModelEdit {
    /// The range of the old body to replace.
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// The replacement.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The length of the new body.
    pub fn new_length(&self) -> usize {
        self.length - self.place.len() + self.text.len()
    }

    /// The new body, as pieces of the old one and of the replacement.
    pub fn pieces<'a>(&'a self, body: &'a [impl AsRef<[u8]>]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        let mut start = 0;
        let mut add = |piece: &'a [u8]| {
            if !piece.is_empty() {
                pieces.push(piece);
            }
        };
        for piece in body.iter().map(AsRef::as_ref) {
            let end = start + piece.len();
            add(within(piece, start, &(0..self.place.start)));
            if (start..end).contains(&self.place.start) {
                add(self.text.as_bytes());
            }
            add(within(piece, start, &(self.place.end..usize::MAX)));
            start = end;
        }
        pieces
    }
}

/// The part of a piece that is in a range of the body. The piece starts at `start`.
pub(super) fn within<'a>(piece: &'a [u8], start: usize, range: &Range<usize>) -> &'a [u8] {
    let from = range.start.saturating_sub(start).min(piece.len());
    let to = range.end.saturating_sub(start).min(piece.len());
    piece.get(from..to).unwrap_or_default()
}
