//! Formats and parses numbers as Go does.

/// A double as an int, if it is an integer in the range.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the range is tested first")]
pub(crate) fn as_int(double: f64) -> Option<i64> {
    (double > i64::MIN as f64 && double < i64::MAX as f64 && double.fract() == 0.0).then_some(double as i64)
}

/// A double as an unsigned int, if it is an integer in the range.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "the range is tested first")]
pub(crate) fn as_uint(double: f64) -> Option<u64> {
    (double >= 0.0 && double < u64::MAX as f64 && double.fract() == 0.0).then_some(double as u64)
}

/// The shortest text that represents the number, with an exponent if that is below -4 or above 5.
pub(crate) fn shortest(double: f64) -> String {
    if double.is_nan() {
        return "NaN".to_owned();
    }
    if double.is_infinite() {
        return if double > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{double:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) { format!("{double}") } else { with_exponent(mantissa, exponent) }
}

/// A mantissa and an exponent with at least two digits.
fn with_exponent(mantissa: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// Parses a double; none if it is out of range. As in Go, underscores may separate digits, and digits may be hexadecimal.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let between = |at: usize| at.checked_sub(1).and_then(|before| bytes.get(before)).zip(bytes.get(at + 1));
    let fits = |at: usize| between(at).is_some_and(|(before, behind)| before.is_ascii_digit() && behind.is_ascii_digit());
    if bytes.iter().enumerate().any(|(at, byte)| *byte == b'_' && !fits(at)) {
        return None;
    }
    let plain = text.replace('_', "");
    let (negative, unsigned) = plain.strip_prefix('-').map_or((false, plain.strip_prefix('+').unwrap_or(&plain)), |rest| (true, rest));
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let double = hexadecimal(digits)?;
        return Some(if negative { -double } else { double });
    }
    let double: f64 = plain.parse().ok()?;
    (double.is_finite() || !plain.bytes().any(|byte| byte.is_ascii_digit())).then_some(double)
}

fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut double = 0.0_f64;
    for digit in whole.chars().chain(fraction.chars()) {
        double = double * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let shift = exponent.parse::<i32>().ok()?.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    let double = double * 2.0_f64.powi(shift);
    (whole.len() + fraction.len() > 0 && double.is_finite()).then_some(double)
}
