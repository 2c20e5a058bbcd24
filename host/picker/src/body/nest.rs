//! Skips an inner object or array: follows only its brackets and strings, and counts the commas between numbers.

use super::{MAX_DEPTH, Problem, text::pass_text};

/// The number of bytes that are checked together. The compiler uses vector instructions for them.
const BLOCK: usize = 32;

/// A value that is skipped.
#[derive(Debug, Default)]
pub(super) struct Nest {
    /// The number of open objects and arrays, and one bit for each that tells whether it is an object. The innermost is last.
    depth: u32,
    objects: u128,
    most: u32,
    is_in_text: bool,
    is_escaped: bool,
    /// The last byte outside of strings that isn't a space.
    last: u8,
    commas: u64,
    empties: u64,
    has_others: bool,
}

impl Nest {
    /// Starts a value inside this number of objects.
    pub(super) fn begin(&mut self, above: u32) {
        *self = Self { most: MAX_DEPTH.saturating_sub(above), ..Self::default() };
    }

    /// Whether a string is open.
    pub(super) fn is_in_text(&self) -> bool {
        self.is_in_text
    }

    /// The number of numbers, if the value consists only of arrays of numbers. An array has one comma less than elements, so it is the
    /// number of commas plus one, minus one per empty array.
    pub(super) fn numbers(&self) -> Option<u64> {
        (!self.has_others).then(|| (self.commas + 1).saturating_sub(self.empties))
    }

    /// Continues to the value's end. Returns the number of bytes that were read, and whether the end is among them. An error contains its
    /// position.
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

    /// Skips a string, including its closing quote.
    fn pass_text(&mut self, bytes: &[u8]) -> usize {
        let (at, is_over) = pass_text(bytes, &mut self.is_escaped);
        self.is_in_text = !is_over;
        at
    }

    /// Skips whole blocks of numbers and commas.
    fn pass_numbers(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            let mut high = 0;
            let mut quotes = 0;
            let mut commas = 0;
            for byte in block {
                // Letters and brackets are 64 or greater.
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
