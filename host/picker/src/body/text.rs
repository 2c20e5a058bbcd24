//! JSON strings: skips them, parses them and writes them.

use memchr::memchr;

/// The number of eight-byte words that are searched individually before larger blocks. Most keys are shorter.
const SHORT: usize = 2;

/// Words with, in each byte: a one, the highest bit, a quote.
const ONES: u64 = u64::MAX / 0xff;
const HIGHEST: u64 = ONES << 7;
const QUOTES: u64 = ONES * b'"' as u64;

/// Skips a string, including its closing quote. Returns the number of bytes, and whether the quote is among them. It searches only for
/// quotes, and then checks for backslashes before each: texts have many line ends, but few quotes.
pub(super) fn pass_text(bytes: &[u8], is_escaped: &mut bool) -> (usize, bool) {
    // Whether an odd number of backslashes precedes the quote. The first of them may be in the previous chunk.
    let is_odd = |before: &[u8]| {
        let run = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        (run % 2 == 1) != (run == before.len() && *is_escaped)
    };
    let mut at = 0;
    while let Some(length) = quote(&bytes[at..]) {
        let end = at + length;
        if !is_odd(&bytes[..end]) {
            *is_escaped = false;
            return (end + 1, true);
        }
        at = end + 1;
    }
    *is_escaped = is_odd(bytes);
    (bytes.len(), false)
}

/// The position of the next quote.
fn quote(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().take(SHORT).enumerate() {
        let others = u64::from_le_bytes(*word) ^ QUOTES;
        // The lowest bit that remains is in the first zero byte.
        let found = others.wrapping_sub(ONES) & !others & HIGHEST;
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let passed = words.len().min(SHORT) * 8;
    memchr(b'"', &bytes[passed..]).map(|at| passed + at)
}

/// The state of an escape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    /// The number of hexadecimal digits so far, and their value.
    Digits(u8, u32),
}

/// A string that is stored without its escapes, up to a maximum length.
#[derive(Debug, Default)]
pub(super) struct Text {
    kept: Vec<u8>,
    most: usize,
    is_longer: bool,
    escape: Escape,
    /// The first half of a character that is written as two escapes.
    surrogate: Option<u32>,
}

/// The string is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotText;

impl Text {
    /// Starts another string. At most `most` bytes are stored.
    pub(super) fn begin(&mut self, most: usize) {
        self.kept.clear();
        self.most = most;
        self.is_longer = false;
        self.escape = Escape::None;
        self.surrogate = None;
    }

    /// The stored part.
    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Whether the string is longer than the stored part.
    pub(super) fn is_longer(&self) -> bool {
        self.is_longer
    }

    /// Stores a byte unchanged.
    pub(super) fn keep(&mut self, byte: u8) {
        if self.kept.len() < self.most { self.kept.push(byte) } else { self.is_longer = true }
    }

    /// Reads a byte after the opening quote. Returns true if it is the closing one.
    pub(super) fn step(&mut self, byte: u8) -> Result<bool, NotText> {
        match (self.escape, byte) {
            (Escape::None, b'"') => return if self.surrogate.is_some() { Err(NotText) } else { Ok(true) },
            (Escape::None, b'\\') => self.escape = Escape::Begun,
            (Escape::None, 0..0x20) => return Err(NotText),
            (Escape::None, _) => self.push(&[byte])?,
            (Escape::Begun, b'u') => self.escape = Escape::Digits(0, 0),
            (Escape::Begun, _) => {
                let meant = match byte {
                    b'"' | b'\\' | b'/' => byte,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    _ => return Err(NotText),
                };
                self.escape = Escape::None;
                self.push(&[meant])?;
            }
            (Escape::Digits(count, value), _) => {
                let value = value << 4 | char::from(byte).to_digit(16).ok_or(NotText)?;
                if count < 3 {
                    self.escape = Escape::Digits(count + 1, value);
                } else {
                    self.escape = Escape::None;
                    self.push_code(value)?;
                }
            }
        }
        Ok(false)
    }

    /// Adds a character that is written as an escape, or completes one with its second half.
    fn push_code(&mut self, value: u32) -> Result<(), NotText> {
        let code = match (self.surrogate.take(), value) {
            (Some(first), 0xDC00..=0xDFFF) => 0x1_0000 + ((first - 0xD800) << 10) + (value - 0xDC00),
            (Some(_), _) | (None, 0xDC00..=0xDFFF) => return Err(NotText),
            (None, 0xD800..=0xDBFF) => {
                self.surrogate = Some(value);
                return Ok(());
            }
            (None, value) => value,
        };
        self.push(char::from_u32(code).ok_or(NotText)?.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), NotText> {
        // Half a character is invalid.
        if self.surrogate.is_some() {
            return Err(NotText);
        }
        for byte in bytes {
            self.keep(*byte);
        }
        Ok(())
    }
}

/// A text as a JSON string with its quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..'\x20' => {
                let code = u32::from(character);
                quoted.push_str("\\u00");
                quoted.extend([code >> 4, code & 15].into_iter().filter_map(|digit| char::from_digit(digit, 16)));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
