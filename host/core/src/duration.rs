//! Go's durations, as Kubernetes writes them: `90s`, `1h30m`, `-1.5s`.

/// The units, with the seconds of each.
const UNITS: [(&str, f64); 8] =
    [("ns", 1e-9), ("us", 1e-6), ("\u{b5}s", 1e-6), ("\u{3bc}s", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// A duration in seconds.
pub fn parse(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0.0);
    }
    if rest.is_empty() {
        return None;
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        let (unit, next) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let (_, length) = UNITS.iter().find(|(known, _)| *known == unit)?;
        seconds += number.parse::<f64>().ok()? * length;
        rest = next;
    }
    Some(sign * seconds)
}

/// The duration in whole seconds; none if it is negative.
pub fn seconds(text: &str) -> Option<u64> {
    let seconds = parse(text).filter(|seconds| *seconds >= 0.0)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it isn't negative, and a float's cast saturates")]
    Some(seconds.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in
            [("10m", 600.0), ("1h30m", 5400.0), ("-1.5s", -1.5), ("0", 0.0), ("+0", 0.0), ("250ms", 0.25), (".5h", 1800.0)]
        {
            assert!(parse(text).is_some_and(|seconds| (seconds - expected).abs() < 1e-9), "{text}: {:?}", parse(text));
        }
        for text in ["", "-", "10", "s", "1 m", "1d", "1..5s", "m1", "."] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!((seconds("1m30s"), seconds("-1s"), seconds("0.6s")), (Some(90), None, Some(1)));
    }
}
