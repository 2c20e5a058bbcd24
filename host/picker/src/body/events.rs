//! The lines of server-sent events, while they pass in any chunks.

use memchr::memchr2;

const DATA: &[u8] = b"data:";

/// What of a chunk matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A line of data begins.
    DataBegins,
    /// Bytes of it, and where they are.
    Data(&'a [u8], usize),
    /// It ends here.
    DataEnds(usize),
    /// The event ends.
    EventEnds,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    /// At its beginning: so many bytes are those of `DATA`.
    Begins(usize),
    Data,
    Other,
}

/// Where in the lines a scan is.
#[derive(Debug)]
pub(super) struct Lines {
    line: Line,
    /// The line before has ended with a carriage return, to which a line feed belongs.
    is_half: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { line: Line::Begins(0), is_half: false }
    }
}

impl Lines {
    /// Reads a chunk that begins at this place.
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
