//! Numbers as people read them.

use std::fmt;

/// A number of bytes, in the largest unit that leaves one digit before the point.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let (mut whole, mut rest, mut unit) = (self.0, 0, 0);
        for (index, _) in UNITS.iter().enumerate() {
            (rest, whole) = (whole % 1024, whole / 1024);
            unit = index;
            if whole < 1024 {
                break;
            }
        }
        write!(f, "{whole}.{} {}", rest * 10 / 1024, UNITS[unit])
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: impl AsRef<[u8]>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Whether a text is exactly so many lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit_that_fits() {
        for (bytes, text) in [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (700 << 30, "700.0 GiB")] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(Bytes(u64::MAX).to_string(), "16383.9 PiB");
    }

    #[test]
    fn digests_are_lower_case() {
        assert_eq!(hex([0, 0xAB, 0xFF]), "00abff");
        assert!(is_hex("00abff", 6) && !is_hex("00ABFF", 6) && !is_hex("00abff", 7));
    }
}
