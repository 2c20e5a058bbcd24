//! Parses the lines of server-sent events in arbitrary chunks.

use memchr::memchr2;

const DATA: &[u8] = b"data:";

/// The relevant parts of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A data line begins.
    DataBegins,
    /// Bytes of the line, and their position.
    Data(&'a [u8], usize),
    /// The line ends at this position.
    DataEnds(usize),
    /// The event ends.
    EventEnds,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    /// At its beginning: the number of bytes that match `DATA`.
    Begins(usize),
    Data,
    Other,
}

/// The state of a scan.
#[derive(Debug)]
pub(super) struct Lines {
    line: Line,
    /// Whether the previous line ended with a carriage return, which a line feed may follow.
    is_half: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { line: Line::Begins(0), is_half: false }
    }
}

impl Lines {
    /// Processes a chunk that starts at position `from`.
    pub(super) fn read<'a>(&mut self, chunk: &'a [u8], from: usize, mut found: impl FnMut(Piece<'a>)) {
        let mut at = 0;
        while let Some(byte) = chunk.get(at) {
            let is_half = std::mem::take(&mut self.is_half);
            if is_half && *byte == b'\n' {
                at += 1;
                continue;
            }
            if let (Line::Begins(matched), b'\n' | b'\r') = (self.line, byte)
                && matched == 0
            {
                found(Piece::EventEnds);
            }
            if matches!(byte, b'\n' | b'\r') {
                if matches!(self.line, Line::Data) {
                    found(Piece::DataEnds(from + at));
                }
                self.is_half = *byte == b'\r';
                self.line = Line::Begins(0);
                at += 1;
                continue;
            }
            if let Line::Begins(matched) = self.line {
                self.line = match DATA.get(matched) == Some(byte) {
                    true if matched + 1 == DATA.len() => {
                        found(Piece::DataBegins);
                        Line::Data
                    }
                    true => Line::Begins(matched + 1),
                    false => Line::Other,
                };
                at += 1;
                continue;
            }
            let rest = &chunk[at..];
            let length = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            if matches!(self.line, Line::Data) {
                found(Piece::Data(&rest[..length], from + at));
            }
            at += length;
        }
    }
}
