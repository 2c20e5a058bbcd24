//! Kubernetes' quantities: `500m`, `1.5`, `64Gi`, `1e3`.

use serde_json::Value;

/// One unit, such as a byte.
pub const WHOLE: i128 = 1_000_000_000;

/// A thousandth of a unit, for example of a processor.
pub const MILLI: i128 = 1_000_000;

/// A quantity in whole parts of a unit, rounded up. Values that are too large saturate.
pub fn rounded_up(text: &str, unit: i128) -> Option<i64> {
    let parsed = parse_text(text)?;
    Some(i64::try_from(parsed.div_euclid(unit) + i128::from(parsed.rem_euclid(unit) > 0)).unwrap_or(i64::MAX))
}

/// A quantity in billionths, the finest unit of Kubernetes, so that equal quantities compare as equal.
pub fn parse(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => parse_text(text),
        Value::Number(number) => parse_text(&number.to_string()),
        _ => None,
    }
}

/// A quantity in text form.
pub fn parse_text(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Multiplied by a power of ten and of two.
    let (tens, twos): (i32, u32) = match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        exponent => (exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|exponent| (-18..=18).contains(exponent))?, 0),
    };
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let tens = tens - i32::try_from(fraction.len()).ok()?;
    let scaled = digits.checked_mul(WHOLE)?.checked_mul(1_i128.checked_shl(twos)?)?;
    let power = 10_i128.checked_pow(tens.unsigned_abs())?;
    // Fractions of a billionth are rounded up, as in Kubernetes.
    let value = if tens >= 0 { scaled.checked_mul(power)? } else { scaled / power + i128::from(scaled % power != 0) };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_quantities_are_equal_however_they_are_written() {
        for (a, b) in [("0.5Gi", "512Mi"), ("1000m", "1"), ("1e3", "1k"), ("1.5", "1500m"), ("+2", "2"), ("1E", "1e18"), (".5", "500m")] {
            assert_eq!(parse_text(a).unwrap(), parse_text(b).unwrap(), "{a} {b}");
        }
        assert_eq!(parse(&json!(4)), parse(&json!("4")));
        assert_ne!(parse_text("1G"), parse_text("1Gi"));
        assert_ne!(parse_text("-1"), parse_text("1"));
    }

    #[test]
    fn what_is_none_is_told_apart() {
        for bad in ["", "Gi", "1 Gi", "1gi", "1.2.3", "one", "1e", "--1", "1e99", "."] {
            assert_eq!(parse_text(bad), None, "{bad}");
        }
    }
}
