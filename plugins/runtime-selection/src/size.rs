//! How many parameters a model has, and whether a runtime takes that many.

use pointsman_plugin::{Reason, reason};

/// A size as it is written, and as a number of parameters if it can be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size<'a> {
    text: &'a str,
    parameters: Option<f64>,
}

/// A model within a runtime's range.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// How far the ends of the range are from the model, together: a tight range is a better one.
    pub distance: f64,
    /// What the distance is made of, where there is a range and a size.
    pub reason: Option<Reason>,
}

impl<'a> Size<'a> {
    /// Reads a size.
    pub fn parse(text: &'a str) -> Self {
        Self { text, parameters: parameters(text) }
    }

    fn read(self, whose: &str) -> Result<f64, Reason> {
        let told = || {
            let message = format!("{whose} `{}` can't be read: write a number, alone or with the suffix T, B or M, such as 8B.", self.text);
            reason("SizeUnparsable", message)
        };
        self.parameters.ok_or_else(told)
    }
}

/// The number of parameters that is written as a number, alone or with the suffix T, B or M. The number may be any that upstream's parser of
/// floating-point numbers takes, but for those that are no sizes: negative ones, hexadecimal ones, infinity.
pub fn parameters(text: &str) -> Option<f64> {
    let (number, scale) = match text.as_bytes().last()? {
        b'T' => (&text[..text.len() - 1], 12),
        b'B' => (&text[..text.len() - 1], 9),
        b'M' => (&text[..text.len() - 1], 6),
        _ => (text, 0),
    };
    let (digits, exponent) = match number.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i16>().ok()?),
        None => (number, 0),
    };
    if !digits.strip_prefix('+').unwrap_or(digits).bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    // Read as one number: 7.1 times a billion isn't always the float that 7100 times a million is.
    format!("{digits}e{}", i32::from(exponent) + scale).parse().ok().filter(|parameters: &f64| parameters.is_finite())
}

/// Whether the model is within the range, ends included; where it or the range isn't told, it is.
pub fn fit(model: Option<&Size<'_>>, smallest: Option<&str>, largest: Option<&str>) -> Result<Fit, Reason> {
    let (Some(model), true) = (model, smallest.is_some() || largest.is_some()) else {
        return Ok(Fit { distance: 0.0, reason: None });
    };
    let read = |end: Option<&str>, whose| end.map(|text| Size::parse(text).read(whose)).transpose();
    let least = read(smallest, "The runtime's smallest size")?;
    let most = read(largest, "The runtime's largest size")?;
    let size = model.read("The model's size")?;
    let range = match (smallest, largest) {
        (Some(smallest), Some(largest)) => format!("from {smallest} to {largest}"),
        (Some(smallest), None) => format!("of {smallest} and more"),
        (None, largest) => format!("up to {}", largest.unwrap_or_default()),
    };
    if least.is_some_and(|least| size < least) || most.is_some_and(|most| size > most) {
        return Err(reason("SizeOutOfRange", format!("The runtime takes models {range}, but this model has {}.", model.text)));
    }
    let distance: f64 = [least, most].into_iter().flatten().map(|end| (end - size).abs()).sum();
    let message = format!("The model's size {} fits the runtime's range {range}; distance to the ends: {}B.", model.text, distance / 1e9);
    Ok(Fit { distance, reason: Some(reason("SizeInRange", message)) })
}
