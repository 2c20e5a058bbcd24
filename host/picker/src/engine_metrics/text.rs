//! Parses lines of the Prometheus text format and of OpenMetrics: names, labels and values. Ignores comments, timestamps and exemplars.
//! Also ignores `# EOF`: a page that continues after it is read to its end.

use memchr::{memchr, memchr2, memchr3};
use std::{borrow::Cow, iter, str};

/// The maximum length of a line. Longer ones are skipped.
pub(super) const MAX_LINE: usize = 256 << 10;

/// The lines of a page, without line ends.
pub(super) fn lines(page: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = page;
    iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let line = match memchr(b'\n', rest) {
            Some(end) => {
                let line = &rest[..end];
                rest = &rest[end + 1..];
                line
            }
            None => std::mem::take(&mut rest),
        };
        Some(line)
    })
    .filter(|line| line.len() <= MAX_LINE)
}

/// The name of a line's family and the rest of the line, if the name begins with `prefix`. This also skips comments.
pub(super) fn family<'a>(line: &'a [u8], prefix: &str) -> Option<(&'a [u8], &'a [u8])> {
    let line = trimmed(line);
    if !line.starts_with(prefix.as_bytes()) {
        return None;
    }
    Some(line.split_at(memchr3(b'{', b' ', b'\t', line)?))
}

/// The part of a line after the name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    /// The content of the braces, and everything after it.
    labels: Option<&'a [u8]>,
    /// The value, if it is a finite number.
    pub(super) value: Option<f64>,
}

/// Parses the part after the name. None if the line is truncated or malformed.
pub(super) fn sample(rest: &[u8]) -> Option<Sample<'_>> {
    let rest = trimmed(rest);
    let labels = rest.strip_prefix(b"{");
    let rest = match labels {
        Some(inside) => trimmed(each_label(inside, |_, _| ())?),
        None => rest,
    };
    let end = rest.iter().position(|byte| is_blank(*byte)).unwrap_or(rest.len());
    (end > 0).then(|| Sample { labels, value: number(&rest[..end]) })
}

impl<'a> Sample<'a> {
    /// The value of a label. If a name occurs several times, the first is used.
    pub(super) fn label(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let mut found = None;
        each_label(self.labels?, |label, value| {
            if found.is_none() && label == name.as_bytes() {
                found = Some(value);
            }
        });
        found.map(unescaped)
    }

    /// A label's value as a number.
    pub(super) fn label_number(&self, name: &str) -> Option<f64> {
        number(self.label(name)?.trim_ascii())
    }
}

/// A finite number. `NaN`, the infinities and words such as `None` are unknown values.
fn number(text: &[u8]) -> Option<f64> {
    str::from_utf8(text).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Calls `found` for each label with its unparsed value, up to the closing brace, and returns the rest. None if the format is invalid.
fn each_label<'a>(inside: &'a [u8], mut found: impl FnMut(&'a [u8], &'a [u8])) -> Option<&'a [u8]> {
    let mut rest = trimmed(inside);
    loop {
        if let Some(after) = rest.strip_prefix(b"}") {
            return Some(after);
        }
        // Prometheus 3 quotes names that contain special characters.
        let (name, after) = match rest.strip_prefix(b"\"") {
            Some(name) => quoted(name)?,
            None => rest.split_at(rest.iter().position(|byte| *byte == b'=' || is_blank(*byte))?),
        };
        let after = trimmed(after).strip_prefix(b"=")?;
        let (value, after) = quoted(trimmed(after).strip_prefix(b"\"")?)?;
        found(name, value);
        rest = trimmed(after);
        // A comma may follow the last label.
        match rest.strip_prefix(b",") {
            Some(after) => rest = trimmed(after),
            None if rest.starts_with(b"}") => {}
            None => return None,
        }
    }
}

/// The text up to the closing quote, and the rest after the quote.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let at = from + memchr2(b'"', b'\\', text.get(from..)?)?;
        if text[at] == b'"' {
            return Some((&text[..at], &text[at + 1..]));
        }
        from = at + 2;
    }
}

/// A label's value without its escapes. Unknown escapes stay unchanged.
fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr(b'\\', raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut plain = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = bytes.next_if(|next| byte == b'\\' && matches!(next, b'n' | b'\\' | b'"'));
        plain.push(match escaped {
            Some(b'n') => b'\n',
            Some(other) => other,
            None => byte,
        });
    }
    Cow::Owned(plain)
}

/// Whether a byte separates the parts of a line. This includes the carriage return, because some servers end lines with it.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// The text without leading blanks.
fn trimmed(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_blank(*byte)).unwrap_or(text.len());
    &text[start..]
}
