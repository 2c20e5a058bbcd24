//! The number of a model's parameters, and whether it is within a runtime's range.

use pointsman_plugin::{Reason, reason};

/// A size as written, and its number of parameters if it is readable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size<'a> {
    text: &'a str,
    parameters: Option<f64>,
}

/// The result for a model within a runtime's range.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The sum of the distances between the model and both ends of the range. A tight range is better.
    pub distance: f64,
    /// The parts of the distance, if there are a range and a size.
    pub reason: Option<Reason>,
}

impl<'a> Size<'a> {
    /// Parses a size.
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

/// The number of parameters, from a number with or without the suffix T, B or M. The number may have any form that upstream's
/// floating-point parser accepts, except those that can't be sizes: negative and hexadecimal numbers, and infinity.
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
    // Parsed as one number: 7.1 times a billion isn't always the same float as 7100 times a million.
    format!("{digits}e{}", i32::from(exponent) + scale).parse().ok().filter(|parameters: &f64| parameters.is_finite())
}

/// Whether the model is within the range, including its ends. It is if the model's size or the range is unspecified.
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
