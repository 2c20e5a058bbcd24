//! An inner object or array, which is passed over: only its brackets and strings are followed, and the commas of numbers counted.

use super::{MAX_DEPTH, Problem, text::pass_text};

/// How many bytes of numbers are looked at together: a compiler makes vector instructions of it.
const BLOCK: usize = 32;

/// A value that is passed over.
#[derive(Debug, Default)]
pub(super) struct Nest {
    /// How many objects and arrays are open, and which of them are objects: a bit each, the innermost last.
    depth: u32,
    objects: u128,
    most: u32,
    is_in_text: bool,
    is_escaped: bool,
    /// The last byte that isn't a space, outside of strings.
    last: u8,
    commas: u64,
    empties: u64,
    has_others: bool,
}

impl Nest {
    /// Begins a value below so many objects.
    pub(super) fn begin(&mut self, above: u32) {
        *self = Self { most: MAX_DEPTH.saturating_sub(above), ..Self::default() };
    }

    /// Whether a string is open.
    pub(super) fn is_in_text(&self) -> bool {
        self.is_in_text
    }

    /// How many numbers there are, if there is nothing but arrays of them: as many as commas, and one more but for each empty array, since an
    /// array has a comma less than elements.
    pub(super) fn numbers(&self) -> Option<u64> {
        (!self.has_others).then(|| (self.commas + 1).saturating_sub(self.empties))
    }

    /// Reads on, up to the value's end: how many bytes were read, and whether the end is among them. Of an error, where it is.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(usize, bool), (usize, Problem)> {
        let mut at = 0;
        if self.is_in_text {
            at = self.pass_text(bytes);
        }
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => {
                    self.has_others = true;
                    self.is_in_text = true;
                    self.last = b'"';
                    at += 1;
                    at += self.pass_text(&bytes[at..]);
                    continue;
                }
                b'{' | b'[' => {
                    if self.depth >= self.most {
                        return Err((at, Problem::TooDeep));
                    }
                    self.depth += 1;
                    self.objects = self.objects << 1 | u128::from(*byte == b'{');
                    self.has_others |= *byte == b'{';
                    self.last = *byte;
                }
                b'}' | b']' => {
                    if (self.objects & 1 == 1) != (*byte == b'}') {
                        return Err((at, Problem::Syntax));
                    }
                    self.depth -= 1;
                    self.objects >>= 1;
                    self.empties += u64::from(self.last == b'[');
                    self.last = *byte;
                    if self.depth == 0 {
                        return Ok((at + 1, true));
                    }
                }
                b',' => {
                    self.commas += 1;
                    self.last = b',';
                    if !self.has_others {
                        at += 1;
                        at += self.pass_numbers(&bytes[at..]);
                        continue;
                    }
                }
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => self.last = *byte,
            }
            at += 1;
        }
        Ok((at, false))
    }

    /// Passes over a string up to behind its closing quote.
    fn pass_text(&mut self, bytes: &[u8]) -> usize {
        let (at, is_over) = pass_text(bytes, &mut self.is_escaped);
        self.is_in_text = !is_over;
        at
    }

    /// Passes over whole blocks of numbers and commas.
    fn pass_numbers(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            let mut high = 0;
            let mut quotes = 0;
            let mut commas = 0;
            for byte in block {
                // Letters and brackets are from 64 on.
                high |= byte & 0xc0;
                quotes |= u8::from(*byte == b'"');
                commas += u8::from(*byte == b',');
            }
            if high | quotes != 0 {
                break;
            }
            self.commas += u64::from(commas);
            at += BLOCK;
        }
        at
    }
}
