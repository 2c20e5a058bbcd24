//! Conversions, sizes and types.

use super::args::{Answer, Args, any, get, give, give_bool, give_count, give_double, give_int, give_text, give_uint, taken, text};
use super::{Function, P, global, member};
use crate::error::{fail, no_overload};
use crate::value::cidr::{Cidr, Ip};
use crate::value::number::{parse_double, shortest};
use crate::value::special::Special;
use crate::value::time::{Duration, Timestamp};
use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelString, CelType, CelUInt, Kind};

const SIZES: &[(&[P], P)] =
    &[(&[P::String], P::Int), (&[P::Bytes], P::Int), (&[P::List(&P::A)], P::Int), (&[P::Map(&P::A, &P::Dyn)], P::Int)];

pub(crate) const FUNCTIONS: &[Function] = &[
    global("size", SIZES, size),
    member("size", SIZES, size),
    global("type", &[(&[P::A], P::Type)], |args| give(CelType::new(any(&args, 0)?.get_type().name()))),
    global("dyn", &[(&[P::A], P::Dyn)], |mut args| taken(&mut args, 0)),
    global("bool", &[(&[P::Bool], P::Bool), (&[P::String], P::Bool)], to_bool),
    global("bytes", &[(&[P::Bytes], P::Bytes), (&[P::String], P::Bytes)], to_bytes),
    global("double", &[(&[P::Double], P::Double), (&[P::Int], P::Double), (&[P::String], P::Double), (&[P::Uint], P::Double)], to_double),
    global("duration", &[(&[P::Duration], P::Duration), (&[P::Int], P::Duration), (&[P::String], P::Duration)], to_duration),
    global(
        "int",
        &[
            (&[P::Int], P::Int),
            (&[P::Double], P::Int),
            (&[P::Duration], P::Int),
            (&[P::String], P::Int),
            (&[P::Timestamp], P::Int),
            (&[P::Uint], P::Int),
        ],
        to_int,
    ),
    global(
        "string",
        &[
            (&[P::String], P::String),
            (&[P::Bool], P::String),
            (&[P::Bytes], P::String),
            (&[P::Double], P::String),
            (&[P::Duration], P::String),
            (&[P::Int], P::String),
            (&[P::Timestamp], P::String),
            (&[P::Uint], P::String),
            (&[P::Special("net.IP")], P::String),
            (&[P::Special("net.CIDR")], P::String),
        ],
        to_string,
    ),
    global("timestamp", &[(&[P::Timestamp], P::Timestamp), (&[P::Int], P::Timestamp), (&[P::String], P::Timestamp)], to_timestamp),
    global("uint", &[(&[P::Uint], P::Uint), (&[P::Double], P::Uint), (&[P::Int], P::Uint), (&[P::String], P::Uint)], to_uint),
];

fn size<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let of = any(&args, 0)?;
    if let Some(text) = of.downcast_ref::<CelString<'_>>() {
        give_count(text.inner().chars().count())
    } else if let Some(bytes) = of.downcast_ref::<CelBytes<'_>>() {
        give_count(bytes.inner().len())
    } else {
        give(of.as_sizer().ok_or_else(no_overload)?.size())
    }
}

fn kind(args: &Args<'_, '_>) -> Result<Kind, cel::ExecutionError> {
    any(args, 0).map(|value| value.get_type().kind())
}

fn to_bool<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    if kind(&args)? == Kind::Boolean {
        return taken(&mut args, 0);
    }
    match text(&args, 0)? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => give_bool(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => give_bool(false),
        other => Err(wrong("string", "bool", other)),
    }
}

fn to_bytes<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    if kind(&args)? == Kind::Bytes { taken(&mut args, 0) } else { give(CelBytes::from(text(&args, 0)?.as_bytes().to_vec())) }
}

#[expect(clippy::cast_precision_loss, reason = "as CEL has it")]
fn to_double<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    match kind(&args)? {
        Kind::Double => taken(&mut args, 0),
        Kind::Int => give_double(*get::<CelInt>(&args, 0)?.inner() as f64),
        Kind::UInt => give_double(*get::<CelUInt>(&args, 0)?.inner() as f64),
        _ => {
            let number = text(&args, 0)?;
            give_double(parse_double(number).ok_or_else(|| wrong("string", "double", number))?)
        }
    }
}

fn to_duration<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    match kind(&args)? {
        Kind::Duration => taken(&mut args, 0),
        Kind::Int => give(Duration(*get::<CelInt>(&args, 0)?.inner())),
        _ => {
            let span = text(&args, 0)?;
            give(Duration::parse(span).ok_or_else(|| fail(format!("time: invalid duration {span:?}")))?)
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the range is tested first")]
fn to_int<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    match kind(&args)? {
        Kind::Int => taken(&mut args, 0),
        Kind::UInt => give_int(i64::try_from(*get::<CelUInt>(&args, 0)?.inner()).map_err(|_| overflow("integer"))?),
        Kind::Double => {
            let double = *get::<CelDouble>(&args, 0)?.inner();
            if double > i64::MIN as f64 && double < i64::MAX as f64 { give_int(double as i64) } else { Err(overflow("integer")) }
        }
        Kind::Duration => give_int(get::<Duration>(&args, 0)?.0),
        Kind::Timestamp => give_int(get::<Timestamp>(&args, 0)?.seconds()),
        _ => {
            let number = text(&args, 0)?;
            give_int(number.parse().map_err(|_| wrong("string", "int", number))?)
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "the range is tested first")]
fn to_uint<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    match kind(&args)? {
        Kind::UInt => taken(&mut args, 0),
        Kind::Int => give_uint(u64::try_from(*get::<CelInt>(&args, 0)?.inner()).map_err(|_| overflow("unsigned integer"))?),
        Kind::Double => {
            let double = *get::<CelDouble>(&args, 0)?.inner();
            if double >= 0.0 && double < u64::MAX as f64 { give_uint(double as u64) } else { Err(overflow("unsigned integer")) }
        }
        _ => {
            let number = text(&args, 0)?;
            let digits = Some(number).filter(|number| !number.starts_with('+'));
            give_uint(digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| wrong("string", "uint", number))?)
        }
    }
}

fn to_timestamp<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    match kind(&args)? {
        Kind::Timestamp => taken(&mut args, 0),
        Kind::Int => give(Timestamp::of_seconds(*get::<CelInt>(&args, 0)?.inner()).ok_or_else(|| fail("timestamp overflow"))?),
        _ => {
            let point = text(&args, 0)?;
            give(Timestamp::parse(point).ok_or_else(|| fail(format!("invalid timestamp {point:?}")))?)
        }
    }
}

fn to_string<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    match kind(&args)? {
        Kind::String => taken(&mut args, 0),
        Kind::Boolean => give_text(get::<CelBool>(&args, 0)?.inner().to_string()),
        Kind::Int => give_text(get::<CelInt>(&args, 0)?.inner().to_string()),
        Kind::UInt => give_text(get::<CelUInt>(&args, 0)?.inner().to_string()),
        Kind::Double => give_text(shortest(*get::<CelDouble>(&args, 0)?.inner())),
        Kind::Duration => give_text(get::<Duration>(&args, 0)?.to_string()),
        Kind::Timestamp => give_text(get::<Timestamp>(&args, 0)?.to_string()),
        Kind::Bytes => {
            let bytes = get::<CelBytes<'_>>(&args, 0)?.inner().to_vec();
            give_text(String::from_utf8(bytes).map_err(|_| fail("invalid UTF-8 in bytes, cannot convert to string"))?)
        }
        _ => match get::<Special<Ip>>(&args, 0) {
            Ok(ip) => give_text(ip.0.to_string()),
            Err(_) => give_text(get::<Special<Cidr>>(&args, 0)?.0.to_string()),
        },
    }
}

fn wrong(from: &str, to: &str, text: &str) -> cel::ExecutionError {
    fail(format!("type conversion error from '{from}' to '{to}': invalid syntax {:?}", text.chars().take(64).collect::<String>()))
}

fn overflow(what: &str) -> cel::ExecutionError {
    fail(format!("{what} overflow"))
}
