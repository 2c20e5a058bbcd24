//! Semantic versions.

use super::args::{Args, give_bool, give_int, give_special, special, text, truth};
use super::{Function, P, global, member};
use crate::error::fail;
use crate::value::semver::Semver;
use cel::ExecutionError;
use std::cmp::Ordering;

const S: P = P::Special("kubernetes.Semver");

pub(crate) const FUNCTIONS: &[Function] = &[
    global("semver", &[(&[P::String], S), (&[P::String, P::Bool], S)], |args| give_special(parse(&args)?.map_err(fail)?)),
    global("isSemver", &[(&[P::String], P::Bool), (&[P::String, P::Bool], P::Bool)], |args| give_bool(parse(&args)?.is_ok())),
    member("isGreaterThan", &[(&[S, S], P::Bool)], |args| give_bool(compared(&args)? == Ordering::Greater)),
    member("isLessThan", &[(&[S, S], P::Bool)], |args| give_bool(compared(&args)? == Ordering::Less)),
    member("compareTo", &[(&[S, S], P::Int)], |args| give_int(compared(&args)? as i64)),
    // As in Kubernetes, a number that overflows an int becomes negative.
    member("major", &[(&[S], P::Int)], |args| give_int(special::<Semver>(&args, 0)?.major.cast_signed())),
    member("minor", &[(&[S], P::Int)], |args| give_int(special::<Semver>(&args, 0)?.minor.cast_signed())),
    member("patch", &[(&[S], P::Int)], |args| give_int(special::<Semver>(&args, 0)?.patch.cast_signed())),
];

fn compared(args: &Args<'_, '_>) -> Result<Ordering, ExecutionError> {
    Ok(special::<Semver>(args, 0)?.compared(special::<Semver>(args, 1)?))
}

fn parse(args: &Args<'_, '_>) -> Result<Result<Semver, String>, ExecutionError> {
    let tolerantly = args.len() > 1 && truth(args, 1)?;
    let version = text(args, 0)?;
    Ok(if tolerantly { Semver::parse_tolerantly(version) } else { Semver::parse(version) })
}
