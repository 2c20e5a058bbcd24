//! The fields of dates and times.

use super::args::{Args, any, give_int, point, span, text};
use super::{Function, P, member};
use crate::value::time::{Shown, Timestamp};
use cel::ExecutionError;

const POINTS: &[(&[P], P)] = &[(&[P::Timestamp], P::Int), (&[P::Timestamp, P::String], P::Int)];
const BOTH: &[(&[P], P)] = &[(&[P::Timestamp], P::Int), (&[P::Timestamp, P::String], P::Int), (&[P::Duration], P::Int)];

pub(crate) const FUNCTIONS: &[Function] = &[
    member("getFullYear", POINTS, |args| give_int(shown(&args)?.year)),
    member("getMonth", POINTS, |args| give_int(shown(&args)?.month - 1)),
    member("getDayOfYear", POINTS, |args| give_int(shown(&args)?.day_of_year)),
    member("getDayOfMonth", POINTS, |args| give_int(shown(&args)?.day - 1)),
    member("getDate", POINTS, |args| give_int(shown(&args)?.day)),
    member("getDayOfWeek", POINTS, |args| give_int(shown(&args)?.day_of_week)),
    member("getHours", BOTH, |args| give_int(if is_point(&args) { shown(&args)?.hour } else { whole(&args, 3_600_000_000_000)? })),
    member("getMinutes", BOTH, |args| give_int(if is_point(&args) { shown(&args)?.minute } else { whole(&args, 60_000_000_000)? })),
    member("getSeconds", BOTH, |args| give_int(if is_point(&args) { shown(&args)?.second } else { whole(&args, 1_000_000_000)? })),
    member("getMilliseconds", BOTH, |args| give_int(if is_point(&args) { shown(&args)?.millisecond } else { whole(&args, 1_000_000)? })),
];

fn is_point(args: &Args<'_, '_>) -> bool {
    any(args, 0).is_ok_and(|value| value.downcast_ref::<Timestamp>().is_some())
}

fn shown(args: &Args<'_, '_>) -> Result<Shown, ExecutionError> {
    point(args, 0)?.shown(if args.len() > 1 { text(args, 1)? } else { "" })
}

fn whole(args: &Args<'_, '_>, unit: i64) -> Result<i64, ExecutionError> {
    if args.len() > 1 { Err(crate::error::no_overload()) } else { Ok(span(args, 0)?.0 / unit) }
}
