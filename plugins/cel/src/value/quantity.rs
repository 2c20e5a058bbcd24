//! Quantities, which are parsed, compared and added as in Kubernetes.

use std::cmp::Ordering;
use std::fmt;
use thiserror::Error;

/// The smallest power of ten to which a quantity is exact.
const NANO: i32 = -9;

/// The largest power of ten that fits in an i64.
const DIGITS: i32 = 18;

/// A quantity: a value times a power of ten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    value: i128,
    /// The power of ten by which the value is multiplied.
    scale: i32,
    /// Whether Kubernetes stores it in 64 bits. Only then is it an integer.
    small: bool,
}

/// Why a text isn't a quantity.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum NoQuantity {
    /// It isn't a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is invalid.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The factor of a suffix.
enum Unit {
    Decimal(i32),
    Binary(u32),
}

impl Quantity {
    /// An integer.
    pub(crate) fn of_int(value: i64) -> Self {
        Quantity { value: i128::from(value), scale: 0, small: true }
    }

    /// Parses a text such as `1.5Gi`.
    pub(crate) fn parse(text: &str) -> Result<Self, NoQuantity> {
        if text.is_empty() {
            return Err(NoQuantity::Format);
        }
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        let whole_end = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = unsigned.split_at(whole_end);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", rest),
        };
        let whole = whole.trim_start_matches('0');
        let unit = unit(suffix)?;
        // No digits mean 0.
        let (value, scale) = digits(whole, fraction)?;
        let quantity = match unit {
            Unit::Decimal(exponent) => decimal(value, scale + exponent, whole.len() + fraction.len()),
            Unit::Binary(shift) => binary(value, scale, shift, whole.len()),
        };
        Ok(if negative { Quantity { value: -quantity.value, ..quantity } } else { quantity })
    }

    /// -1, 0 or 1.
    pub(crate) fn sign(&self) -> i64 {
        i64::try_from(self.value.signum()).unwrap_or(0)
    }

    /// The value as an integer, if Kubernetes stores it as one.
    pub(crate) fn as_int(&self) -> Option<i64> {
        if !self.small || self.scale < 0 {
            return None;
        }
        scaled(self.value, self.scale).and_then(|value| i64::try_from(value).ok())
    }

    /// An approximate double.
    #[expect(clippy::cast_precision_loss, reason = "it is asked for an approximation")]
    pub(crate) fn as_double(&self) -> f64 {
        let base = self.value as f64;
        if self.scale == 0 { base } else { base * format!("1e{}", self.scale).parse::<f64>().unwrap_or(f64::INFINITY) }
    }

    /// The sum.
    pub(crate) fn plus(&self, other: &Quantity) -> Quantity {
        if self.value == 0 && self.small && other.small {
            return *other;
        }
        if other.value == 0 {
            return *self;
        }
        let scale = self.scale.min(other.scale);
        let sum = scaled(self.value, self.scale - scale)
            .zip(scaled(other.value, other.scale - scale))
            .and_then(|(one, two)| one.checked_add(two))
            .unwrap_or(if self.value > 0 { i128::MAX } else { i128::MIN });
        Quantity { value: sum, scale, small: self.small && other.small && i64::try_from(sum).is_ok() }
    }

    /// The difference.
    pub(crate) fn minus(&self, other: &Quantity) -> Quantity {
        self.plus(&Quantity { value: -other.value, ..*other })
    }

    /// Compares two quantities.
    pub(crate) fn compared(&self, other: &Quantity) -> Ordering {
        let scale = self.scale.min(other.scale);
        match scaled(self.value, self.scale - scale).zip(scaled(other.value, other.scale - scale)) {
            Some((one, two)) => one.cmp(&two),
            None => self.as_double().total_cmp(&other.as_double()),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.compared(other) == Ordering::Equal
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value == 0 {
            return out.write_str("0");
        }
        if self.scale >= 0 {
            return match scaled(self.value, self.scale) {
                Some(value) => write!(out, "{value}"),
                None => write!(out, "{}e{}", self.value, self.scale),
            };
        }
        let (mut value, mut scale) = (self.value, self.scale);
        while scale < 0 && value % 10 == 0 {
            value /= 10;
            scale += 1;
        }
        let (suffix, scale_of_suffix) = match scale {
            0 => ("", 0),
            -3..=-1 => ("m", -3),
            -6..=-4 => ("u", -6),
            _ => ("n", NANO),
        };
        write!(out, "{}{suffix}", scaled(value, scale - scale_of_suffix).unwrap_or(value))
    }
}

/// A value times a power of ten, unless it overflows.
fn scaled(value: i128, power: i32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    u32::try_from(power).ok().and_then(|power| 10_i128.checked_pow(power)).and_then(|factor| value.checked_mul(factor))
}

/// All digits as one number, and the number of digits after the point. Digits after the thirtieth are rounded up.
fn digits(whole: &str, fraction: &str) -> Result<(i128, i32), NoQuantity> {
    const MAX_DIGITS: usize = 30;
    if whole.len() > MAX_DIGITS {
        return Err(NoQuantity::Number);
    }
    let kept = fraction.get(..(MAX_DIGITS - whole.len()).min(fraction.len())).unwrap_or(fraction);
    let dropped = fraction.get(kept.len()..).unwrap_or_default();
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(kept.bytes()) {
        value = value * 10 + i128::from(digit - b'0');
    }
    if dropped.bytes().any(|digit| digit != b'0') {
        value += 1;
    }
    Ok((value, -i32::try_from(kept.len()).unwrap_or(0)))
}

fn decimal(value: i128, scale: i32, digits: usize) -> Quantity {
    if digits <= 18 && scale >= NANO {
        return Quantity { value, scale, small: true };
    }
    let (value, scale) = rounded(value, scale);
    Quantity { value, scale, small: false }
}

fn binary(value: i128, scale: i32, shift: u32, whole: usize) -> Quantity {
    let product = value.checked_mul(1_i128 << shift).unwrap_or(i128::MAX);
    let room = 15 - i32::try_from(whole).unwrap_or(DIGITS) - i32::try_from(shift).unwrap_or(0) * 3 / 10 - 1;
    if scale == 0 && room >= 0 && i64::try_from(product).is_ok() {
        return Quantity { value: product, scale: 0, small: true };
    }
    let (value, scale) = rounded(product, scale);
    let most = Quantity { value: i128::from(i64::MAX), scale: 0, small: false };
    let quantity = Quantity { value, scale, small: false };
    if quantity.compared(&most) == Ordering::Greater { most } else { quantity }
}

/// Parts below a billionth are rounded up, so that a positive request never becomes 0.
fn rounded(value: i128, scale: i32) -> (i128, i32) {
    if scale >= NANO {
        return scaled(value, scale - NANO).map_or((value, scale), |value| (value, NANO));
    }
    match u32::try_from(NANO - scale).ok().and_then(|power| 10_i128.checked_pow(power)) {
        Some(divisor) => (value / divisor + i128::from(value % divisor != 0), NANO),
        None => (i128::from(value != 0), NANO),
    }
}

fn unit(suffix: &str) -> Result<Unit, NoQuantity> {
    Ok(match suffix {
        "" => Unit::Decimal(0),
        "n" => Unit::Decimal(-9),
        "u" => Unit::Decimal(-6),
        "m" => Unit::Decimal(-3),
        "k" => Unit::Decimal(3),
        "M" => Unit::Decimal(6),
        "G" => Unit::Decimal(9),
        "T" => Unit::Decimal(12),
        "P" => Unit::Decimal(15),
        "E" => Unit::Decimal(18),
        "Ki" => Unit::Binary(10),
        "Mi" => Unit::Binary(20),
        "Gi" => Unit::Binary(30),
        "Ti" => Unit::Binary(40),
        "Pi" => Unit::Binary(50),
        "Ei" => Unit::Binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or_else(|| wrong(suffix))?;
            let exponent: i32 = exponent.parse().map_err(|_| NoQuantity::Suffix)?;
            if !(-1000..=1000).contains(&exponent) {
                return Err(NoQuantity::Suffix);
            }
            Unit::Decimal(exponent)
        }
    })
}

/// The error for a suffix: unknown, or with characters that no suffix contains.
fn wrong(suffix: &str) -> NoQuantity {
    if suffix.bytes().all(|byte| b"eEinumkKMGTP".contains(&byte) || byte.is_ascii_digit() || byte == b'+' || byte == b'-') {
        NoQuantity::Suffix
    } else {
        NoQuantity::Format
    }
}
