//! Kubernetes' rules for keys of labels and annotations, and for values of labels.

use std::{borrow::Cow, fmt::Write as _};

/// The maximum length of a label's value, and of the name in a key, in bytes.
const MAX_LABEL_VALUE: usize = 63;

/// The length of the suffix of a changed value: `-` and eight digits.
const SUFFIX: usize = 9;

/// The value, or a replacement that Kubernetes accepts.
///
/// A value is changed if it has more than 63 bytes, or characters other than ASCII letters, ASCII digits, `-`, `_` and `.`, or if it
/// doesn't start and end with a letter or digit:
///
/// 1. Each character that isn't allowed becomes a `-`.
/// 2. Characters that aren't letters or digits are trimmed at both ends.
/// 3. The value is cut to 54 bytes, and its end is trimmed again.
/// 4. `-` and eight lower-case hexadecimal digits are appended: the 64-bit FNV-1a hash of the raw value's UTF-8, its upper half xor its
///    lower half. If the third step leaves nothing, these digits are the value.
///
/// Equal values therefore stay equal, and different ones differ in their hash. An empty value stays unchanged.
///
/// ```
/// use pointsman_metadata_propagation::valid_label_value;
/// assert_eq!(valid_label_value("meta"), "meta");
/// assert_eq!(valid_label_value("Meta Platforms, Inc."), "Meta-Platforms--Inc-647e345c");
/// ```
pub fn valid_label_value(raw: &str) -> Cow<'_, str> {
    if raw.is_empty() || is_word(raw) {
        return Cow::Borrowed(raw);
    }
    let allowed = |c: char| if is_inner(c) { c } else { '-' };
    let outer = |c: char| c.is_ascii_alphanumeric();
    // From here on, each character is one byte.
    let replaced: String = raw.chars().map(allowed).collect();
    let trimmed = replaced.trim_matches(|c| !outer(c));
    let cut = trimmed.get(..MAX_LABEL_VALUE - SUFFIX).unwrap_or(trimmed).trim_end_matches(|c| !outer(c));

    let mut valid = String::with_capacity(MAX_LABEL_VALUE);
    valid.push_str(cut);
    if !cut.is_empty() {
        valid.push('-');
    }
    let hash = fnv_1a(raw.as_bytes());
    // Writing to a string never fails.
    let _ = write!(valid, "{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff));
    Cow::Owned(valid)
}

/// The FNV-1a hash. It is short, and will never change.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whether Kubernetes accepts the text as a key.
pub fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_word(name),
        None => is_word(key),
    }
}

fn is_domain(domain: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let part = |part: &str| !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-');
    domain.len() <= 253 && domain.split('.').all(part)
}

fn is_word(text: &str) -> bool {
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_LABEL_VALUE && outer(text.chars().next()) && outer(text.chars().next_back()) && text.chars().all(is_inner)
}

fn is_inner(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_that_everybody_knows() {
        // From the authors' test vectors.
        assert_eq!(fnv_1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn keys_are_those_that_the_api_server_takes() {
        let long = "a".repeat(64);
        for good in ["a", "A_b.c-d", "example.com/a", "a-b.c/X", &long[1..]] {
            assert!(is_key(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "-a", "a-", "Example.com/a", "a..b/c", "ä", "a b", &long, "a_b/c", "-a/b"] {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
