//! `format`: inserts values into a text.

use super::args::{Answer, Args, give_text, list, text};
use super::strings::quote;
use super::{Function, P, member};
use crate::error::{fail, key_text};
use crate::value::number::shortest;
use crate::value::object::Object;
use crate::value::time::{Duration, Timestamp};
use cel::ExecutionError;
use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelList, CelNull, CelString, CelType, CelUInt};
use cel::common::value::Val;
use std::fmt::Write;

/// The default and the maximum number of digits after the point.
const PRECISION: usize = 6;
const MAX_PRECISION: usize = 1000;

pub(crate) const FUNCTIONS: &[Function] = &[member("format", &[(&[P::String, P::List(&P::Dyn)], P::String)], format)];

/// A part of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Clause { verb: char, precision: usize },
}

fn format<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let mut values = list(&args, 1)?.iter();
    let mut formatted = String::new();
    let mut used = 0;
    for piece in pieces(text(&args, 0)?) {
        match piece.map_err(fail)? {
            Piece::Text(text) => formatted.push_str(text),
            Piece::Clause { verb, precision } => {
                let value = values.next().ok_or_else(|| fail(format!("index {used} out of range")))?;
                used += 1;
                formatted.push_str(&clause(verb, precision, value.as_ref())?);
            }
        }
    }
    give_text(formatted)
}

/// The verbs of a format, in the order of its values.
pub(crate) fn verbs(format: &str) -> Result<Vec<char>, String> {
    let verb = |piece| match piece {
        Ok(Piece::Clause { verb, .. }) => Some(Ok(verb)),
        Ok(Piece::Text(_)) => None,
        Err(why) => Some(Err(why)),
    };
    pieces(format).filter_map(verb).collect()
}

fn pieces(format: &str) -> impl Iterator<Item = Result<Piece<'_>, String>> {
    let mut rest = format;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(clause) = rest.strip_prefix('%') else {
            let (text, behind) = rest.split_at(rest.find('%').unwrap_or(rest.len()));
            rest = behind;
            return Some(Ok(Piece::Text(text)));
        };
        if let Some(behind) = clause.strip_prefix('%') {
            rest = behind;
            return Some(Ok(Piece::Text("%")));
        }
        let piece = parse_clause(clause);
        rest = piece.as_ref().map_or("", |(_, behind)| behind);
        Some(piece.map(|(piece, _)| piece))
    })
}

fn parse_clause(clause: &str) -> Result<(Piece<'_>, &str), String> {
    let (precision, behind) = match clause.strip_prefix('.') {
        None => (PRECISION, clause),
        Some(digits) => {
            let end = digits.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, behind) = digits.split_at(end);
            let precision = digits.parse().ok().filter(|precision| *precision <= MAX_PRECISION);
            (precision.ok_or("could not parse formatting clause: error while parsing precision")?, behind)
        }
    };
    let verb = behind.chars().next().ok_or("unexpected end of string")?;
    if !"sdfebxXo".contains(verb) {
        return Err(format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\""));
    }
    Ok((Piece::Clause { verb, precision }, behind.get(verb.len_utf8()..).unwrap_or_default()))
}

fn clause(verb: char, precision: usize, value: &dyn Val) -> Result<String, ExecutionError> {
    let int = value.downcast_ref::<CelInt>().map(|int| *int.inner());
    let uint = value.downcast_ref::<CelUInt>().map(|uint| *uint.inner());
    let number = |in_base: fn(u64) -> String| match (int, uint) {
        (Some(int), _) => Some(if int < 0 { format!("-{}", in_base(int.unsigned_abs())) } else { in_base(int.unsigned_abs()) }),
        (None, Some(uint)) => Some(in_base(uint)),
        _ => None,
    };
    let formatted = match verb {
        's' => return plain(value),
        'd' => number(|number| number.to_string()).ok_or("decimal clause can only be used on integers"),
        'o' => number(|number| format!("{number:o}")).ok_or("octal clause can only be used on integers"),
        'b' => number(|number| format!("{number:b}"))
            .or_else(|| value.downcast_ref::<CelBool>().map(|bool| u8::from(*bool.inner()).to_string()))
            .ok_or("only integers and bools can be formatted as binary"),
        'f' => double(value).map(|double| fixed(double, precision)).ok_or("fixed-point clause can only be used on doubles"),
        'e' => double(value).map(|double| scientific(double, precision)).ok_or("scientific clause can only be used on doubles"),
        _ => number(|number| format!("{number:x}"))
            .or_else(|| value.downcast_ref::<CelString<'_>>().map(|text| hex(text.inner().as_bytes())))
            .or_else(|| value.downcast_ref::<CelBytes<'_>>().map(|bytes| hex(bytes.inner())))
            .map(|digits| if verb == 'X' { digits.to_ascii_uppercase() } else { digits })
            .ok_or("only integers, byte buffers, and strings can be formatted as hex"),
    };
    formatted.map_err(|why| fail(format!("error during formatting: {why}, was given {}", value.get_type().name())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// A double, or the name of a special one.
fn double(value: &dyn Val) -> Option<f64> {
    match value.downcast_ref::<CelString<'_>>().map(CelString::inner) {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.downcast_ref::<CelDouble>().map(|double| *double.inner()),
    }
}

fn unusual(double: f64) -> Option<String> {
    if double.is_finite() {
        None
    } else if double.is_nan() {
        Some("NaN".to_owned())
    } else {
        Some(if double > 0.0 { "∞" } else { "-∞" }.to_owned())
    }
}

/// In English notation: with commas between thousands.
fn fixed(double: f64, precision: usize) -> String {
    if let Some(unusual) = unusual(double) {
        return unusual;
    }
    let digits = format!("{:.precision$}", double.abs());
    let (whole, fraction) = digits.split_once('.').map_or((digits.as_str(), None), |(whole, fraction)| (whole, Some(fraction)));
    let mut formatted = String::new();
    if double < 0.0 {
        formatted.push('-');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            formatted.push(',');
        }
        formatted.push(digit);
    }
    if let Some(fraction) = fraction {
        formatted.push('.');
        formatted.push_str(fraction);
    }
    formatted
}

/// In English notation: a number times a power of ten, with two digits in the exponent. As in Kubernetes, the precision is the minimum
/// width.
fn scientific(double: f64, width: usize) -> String {
    if let Some(unusual) = unusual(double) {
        return unusual;
    }
    let digits = format!("{double:.PRECISION$e}");
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised: String = format!("{exponent:0>2}").chars().map(superscript).collect();
    let written = format!("{mantissa}×10{sign}{raised}");
    format!("{written:>width$}")
}

fn superscript(digit: char) -> char {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).and_then(|digit| RAISED.get(digit).copied()).unwrap_or(digit)
}

/// A value for `%s`.
fn plain(value: &dyn Val) -> Result<String, ExecutionError> {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return Ok(text.inner().to_owned());
    }
    if let Some(double) = value.downcast_ref::<CelDouble>() {
        return Ok(shortest(*double.inner()));
    }
    if let Some(point) = value.downcast_ref::<Timestamp>() {
        return Ok(point.to_string());
    }
    if let Some(span) = value.downcast_ref::<Duration>() {
        return Ok(span.to_string());
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return String::from_utf8(bytes.inner().to_vec()).map_err(|_| fail("invalid UTF-8 in bytes, cannot convert to string"));
    }
    literal(value)
}

/// A value inside of a list or map, as a literal.
fn literal(value: &dyn Val) -> Result<String, ExecutionError> {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        Ok(quote(text.inner()))
    } else if let Some(int) = value.downcast_ref::<CelInt>() {
        Ok(int.inner().to_string())
    } else if let Some(uint) = value.downcast_ref::<CelUInt>() {
        Ok(uint.inner().to_string())
    } else if let Some(bool) = value.downcast_ref::<CelBool>() {
        Ok(bool.inner().to_string())
    } else if let Some(double) = value.downcast_ref::<CelDouble>() {
        let double = *double.inner();
        Ok(if double.is_finite() { format!("{double:.PRECISION$}") } else { quote(&shortest(double)) })
    } else if value.downcast_ref::<CelNull>().is_some() {
        Ok("null".to_owned())
    } else if let Some(declared) = value.downcast_ref::<CelType>() {
        Ok(declared.name().to_owned())
    } else if let Some(point) = value.downcast_ref::<Timestamp>() {
        Ok(format!("timestamp({})", quote(&point.to_string())))
    } else if let Some(span) = value.downcast_ref::<Duration>() {
        Ok(format!("duration({})", quote(&span.to_string())))
    } else if value.downcast_ref::<CelBytes<'_>>().is_some() {
        plain(value).map(|text| format!("b{}", quote(&text)))
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        let elements: Result<Vec<String>, ExecutionError> = list.iter().map(|element| literal(element.as_ref())).collect();
        Ok(format!("[{}]", elements?.join(", ")))
    } else if let Some(object) = value.downcast_ref::<Object>() {
        let mut entries = Vec::with_capacity(object.entries().len());
        for (key, value) in object.entries() {
            let name = key_text(key.inner());
            let is_text = key.inner().downcast_ref::<CelString<'_>>().is_some();
            entries.push((if is_text { quote(&name) } else { name }, literal(value.as_ref())?));
        }
        entries.sort();
        Ok(format!("{{{}}}", entries.iter().map(|(key, value)| format!("{key}:{value}")).collect::<Vec<String>>().join(", ")))
    } else {
        Err(fail(format!(
            "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
             and timestamps, was given {}",
            value.get_type().name()
        )))
    }
}
