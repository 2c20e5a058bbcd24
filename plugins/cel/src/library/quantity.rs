//! Quantities.

use super::args::{Answer, Args, any, give_bool, give_double, give_int, give_special, special, text};
use super::{Function, P, global, member};
use crate::error::fail;
use crate::value::quantity::Quantity;
use cel::ExecutionError;
use cel::common::types::CelInt;
use std::cmp::Ordering;

const Q: P = P::Special("kubernetes.Quantity");

pub(crate) const FUNCTIONS: &[Function] = &[
    global("quantity", &[(&[P::String], Q)], |args| give_special(Quantity::parse(text(&args, 0)?).map_err(|why| fail(why.to_string()))?)),
    global("isQuantity", &[(&[P::String], P::Bool)], |args| give_bool(Quantity::parse(text(&args, 0)?).is_ok())),
    global("sign", &[(&[Q], P::Int)], |args| give_int(special::<Quantity>(&args, 0)?.sign())),
    member("isGreaterThan", &[(&[Q, Q], P::Bool)], |args| give_bool(compared(&args)? == Ordering::Greater)),
    member("isLessThan", &[(&[Q, Q], P::Bool)], |args| give_bool(compared(&args)? == Ordering::Less)),
    member("compareTo", &[(&[Q, Q], P::Int)], |args| give_int(compared(&args)? as i64)),
    member("asApproximateFloat", &[(&[Q], P::Double)], |args| give_double(special::<Quantity>(&args, 0)?.as_double())),
    member("asInteger", &[(&[Q], P::Int)], |args| {
        give_int(special::<Quantity>(&args, 0)?.as_int().ok_or_else(|| fail("cannot convert value to integer"))?)
    }),
    member("isInteger", &[(&[Q], P::Bool)], |args| give_bool(special::<Quantity>(&args, 0)?.as_int().is_some())),
    member("add", &[(&[Q, Q], Q), (&[Q, P::Int], Q)], |args| both(&args, Quantity::plus)),
    member("sub", &[(&[Q, Q], Q), (&[Q, P::Int], Q)], |args| both(&args, Quantity::minus)),
];

fn compared(args: &Args<'_, '_>) -> Result<Ordering, ExecutionError> {
    Ok(special::<Quantity>(args, 0)?.compared(special::<Quantity>(args, 1)?))
}

fn both<'b, 'v>(args: &Args<'b, 'v>, operation: fn(&Quantity, &Quantity) -> Quantity) -> Answer<'b, 'v> {
    let one = special::<Quantity>(args, 0)?;
    let other = match any(args, 1)?.downcast_ref::<CelInt>() {
        Some(int) => Quantity::of_int(*int.inner()),
        None => *special::<Quantity>(args, 1)?,
    };
    give_special(operation(one, &other))
}
