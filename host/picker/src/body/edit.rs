//! A body with another model: what goes in, and where.

use std::ops::Range;

/// Another name in place of the model's. All other bytes of the body stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEdit {
    pub(super) place: Range<usize>,
    pub(super) text: String,
    pub(super) length: usize,
}

impl ModelEdit {
    /// The bytes of the old body that go.
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// What comes in their place.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The length of the new body.
    pub fn new_length(&self) -> usize {
        self.length - self.place.len() + self.text.len()
    }

    /// The new body, in pieces of the old one and of this.
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

/// The bytes of a piece that are in a range of the body, in which the piece begins at `start`.
pub(super) fn within<'a>(piece: &'a [u8], start: usize, range: &Range<usize>) -> &'a [u8] {
    let from = range.start.saturating_sub(start).min(piece.len());
    let to = range.end.saturating_sub(start).min(piece.len());
    piece.get(from..to).unwrap_or_default()
}
