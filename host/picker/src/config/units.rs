//! Parses Go's durations and Kubernetes' quantities.

use std::time::Duration;

/// The units of a duration, with the nanoseconds of each.
const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("\u{b5}s", 1e3), ("\u{3bc}s", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10), ("h", 3.6e12)];

/// Parses a duration in Go's syntax, such as `1m30s`. None if it is invalid or negative.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if matches!(rest, "0" | "-0") {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        let (unit, next) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let (_, length) = UNITS.iter().find(|(known, _)| *known == unit)?;
        nanoseconds += number.parse::<f64>().ok()? * length;
        rest = next;
    }
    // Go's durations end after 292 years.
    if nanoseconds >= 9.2e18 {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it isn't negative, and below 2^63")]
    Some(Duration::from_nanos(nanoseconds.round() as u64))
}

/// The suffixes of quantities, with their powers of ten and of two.
const SUFFIXES: [(&str, u32, u32); 13] = [
    ("", 0, 0),
    ("k", 3, 0),
    ("M", 6, 0),
    ("G", 9, 0),
    ("T", 12, 0),
    ("P", 15, 0),
    ("E", 18, 0),
    ("Ki", 0, 10),
    ("Mi", 0, 20),
    ("Gi", 0, 30),
    ("Ti", 0, 40),
    ("Pi", 0, 50),
    ("Ei", 0, 60),
];

/// Parses a Kubernetes quantity, such as `1.5Gi`, in whole units, rounded up. None if it is invalid or negative. A larger value than `u64`
/// becomes the maximum.
pub(super) fn parse_quantity(text: &str) -> Option<u64> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let (number, suffix) = unsigned.split_at(unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = i64::try_from(fraction.len()).ok()?;
    let (tens, twos) = match (suffix, SUFFIXES.iter().find(|(known, ..)| *known == suffix)) {
        (_, Some((_, tens, twos))) => (i64::from(*tens), *twos),
        ("m", None) => (-3, 0),
        ("u", None) => (-6, 0),
        ("n", None) => (-9, 0),
        (exponent, None) => (exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|exponent| (-18..=18).contains(exponent))?, 0),
    };
    let scaled = digits.saturating_mul(1 << twos);
    let tens = tens - decimals;
    // Beyond 10^38 the power overflows, and a number divided by it is practically 0.
    let power = u32::try_from(tens.unsigned_abs()).ok().and_then(|tens| 10_u128.checked_pow(tens)).unwrap_or(u128::MAX);
    let value = if tens >= 0 { scaled.saturating_mul(power) } else { scaled.div_ceil(power) };
    Some(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanoseconds) in [
            ("50ms", 50_000_000),
            ("1m30s", 90_000_000_000),
            ("0", 0),
            ("0s", 0),
            ("+1.5s", 1_500_000_000),
            (".5us", 500),
            ("2h", 7_200_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in ["", "-1s", "10", "s", "1 m", "1d", "1..5s", "m1", ".", "9999999999h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, value) in [
            ("0", 0),
            ("5k", 5_000),
            ("1G", 1_000_000_000),
            ("1.5Gi", 1_610_612_736),
            ("1e3", 1_000),
            ("1500m", 2),
            ("1n", 1),
            ("20E", u64::MAX),
            ("0.00000000000000000000000000000000000000000001", 1),
        ] {
            assert_eq!(parse_quantity(text), Some(value), "{text}");
        }
        for text in ["", "-1", "Gi", "1 Gi", "1gi", "1.2.3", "1e99", "."] {
            assert_eq!(parse_quantity(text), None, "{text}");
        }
    }
}
