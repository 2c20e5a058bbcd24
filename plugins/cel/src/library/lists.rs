//! Lists and sets.

use super::args::{
    Answer, Args, any, give, give_bool, give_count, give_double, give_elements, give_int, give_list, give_optional, give_uint, int, list,
    place,
};
use super::{Function, P, global, member};
use crate::error::{fail, no_overload};
use crate::value::time::Duration;
use cel::ExecutionError;
use cel::common::types::{CelDouble, CelInt, CelList, CelUInt};
use cel::common::value::Val;

const LIST: P = P::List(&P::A);
/// The maximum length of `lists.range`.
const MAX_LIST_LENGTH: i64 = 1 << 20;

pub(crate) const FUNCTIONS: &[Function] = &[
    member(
        "sum",
        &[
            (&[P::List(&P::Int)], P::Int),
            (&[P::List(&P::Uint)], P::Uint),
            (&[P::List(&P::Double)], P::Double),
            (&[P::List(&P::Duration)], P::Duration),
        ],
        sum,
    ),
    member("indexOf", &[(&[LIST, P::A], P::Int)], |args| {
        let sought = any(&args, 1)?;
        position(list(&args, 0)?.iter().position(|element| element.equals(sought)))
    }),
    member("lastIndexOf", &[(&[LIST, P::A], P::Int)], |args| {
        let sought = any(&args, 1)?;
        position(list(&args, 0)?.iter().rposition(|element| element.equals(sought)))
    }),
    member("slice", &[(&[LIST, P::Int, P::Int], LIST)], slice),
    member("flatten", &[(&[P::List(&LIST)], LIST), (&[P::List(&P::Dyn), P::Int], P::List(&P::Dyn))], |args| {
        let depth = if args.len() > 1 { int(&args, 1)? } else { 1 };
        if depth < 0 {
            return Err(fail("level must be non-negative"));
        }
        let mut flat = Vec::new();
        flatten(list(&args, 0)?, depth, &mut flat);
        give_elements(flat)
    }),
    member("distinct", &[(&[LIST], LIST)], |args| {
        let mut seen: Vec<&dyn Val> = Vec::new();
        for element in list(&args, 0)?.iter() {
            if !seen.iter().any(|other| other.equals(element.as_ref())) {
                seen.push(element.as_ref());
            }
        }
        give_elements(seen)
    }),
    member("reverse", &[(&[LIST], LIST)], |args| give_elements(list(&args, 0)?.iter().rev().map(AsRef::as_ref))),
    member("first", &[(&[LIST], P::Optional(&P::A))], |args| give_optional(list(&args, 0)?.first().cloned())),
    member("last", &[(&[LIST], P::Optional(&P::A))], |args| give_optional(list(&args, 0)?.last().cloned())),
    global("lists.range", &[(&[P::Int], P::List(&P::Int))], |args| {
        let length = int(&args, 0)?;
        if length > MAX_LIST_LENGTH {
            return Err(fail(format!("lists.range: a list of {length} elements is too long")));
        }
        give_list((0..length).map(|at| Box::new(CelInt::from(at)) as Box<dyn Val>))
    }),
    global("sets.contains", &[(&[LIST, LIST], P::Bool)], |args| give_bool(contains(list(&args, 0)?, list(&args, 1)?))),
    global("sets.equivalent", &[(&[LIST, LIST], P::Bool)], |args| {
        let (one, other) = (list(&args, 0)?, list(&args, 1)?);
        give_bool(contains(one, other) && contains(other, one))
    }),
    global("sets.intersects", &[(&[LIST, LIST], P::Bool)], |args| {
        let other = list(&args, 1)?;
        give_bool(list(&args, 0)?.iter().any(|element| has(other, element.as_ref())))
    }),
    // Like `+`, but for operands of which the right one may be a map: `cel` would append its keys.
    global("@add", &[(&[P::Dyn, P::Dyn], P::Dyn)], |args| {
        let (one, other) = (any(&args, 0)?, any(&args, 1)?);
        if one.downcast_ref::<CelList<'_>>().is_some() && other.downcast_ref::<CelList<'_>>().is_none() {
            return Err(no_overload());
        }
        one.as_adder().ok_or_else(no_overload)?.add(other).map(|sum| cel::common::value::CowVal::Owned(sum.into_owned()))
    }),
];

fn position<'b, 'v>(found: Option<usize>) -> Answer<'b, 'v> {
    found.map_or_else(|| give_int(-1), give_count)
}

fn has(list: &CelList<'_>, sought: &dyn Val) -> bool {
    list.iter().any(|element| element.equals(sought))
}

fn contains(list: &CelList<'_>, others: &CelList<'_>) -> bool {
    others.iter().all(|element| has(list, element.as_ref()))
}

fn flatten<'x, 'v>(list: &'x CelList<'v>, depth: i64, flat: &mut Vec<&'x (dyn Val + 'v)>) {
    for element in list.iter() {
        match element.downcast_ref::<CelList<'v>>() {
            Some(inner) if depth > 0 => flatten(inner, depth - 1, flat),
            _ => flat.push(element.as_ref()),
        }
    }
}

fn slice<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (of, start, end) = (list(&args, 0)?, int(&args, 1)?, int(&args, 2)?);
    let said = format!("cannot slice({start}, {end})");
    if start < 0 || end < 0 {
        return Err(fail(format!("{said}, negative indexes not supported")));
    }
    if start > end {
        return Err(fail(format!("{said}, start index must be less than or equal to end index")));
    }
    let places = place(start, of.len()).zip(place(end, of.len()));
    let part = places.and_then(|(start, end)| of.get(start..end)).ok_or_else(|| fail(format!("{said}, list is length {}", of.len())))?;
    give_elements(part.iter().map(AsRef::as_ref))
}

fn sum<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let elements = list(&args, 0)?;
    let Some(first) = elements.first() else {
        return give_int(0);
    };
    if first.downcast_ref::<CelInt>().is_some() {
        let mut sum: i64 = 0;
        for element in elements.iter() {
            sum = sum.checked_add(*summand::<CelInt>(element.as_ref())?.inner()).ok_or_else(|| fail("integer overflow"))?;
        }
        give_int(sum)
    } else if first.downcast_ref::<CelUInt>().is_some() {
        let mut sum: u64 = 0;
        for element in elements.iter() {
            sum = sum.checked_add(*summand::<CelUInt>(element.as_ref())?.inner()).ok_or_else(|| fail("unsigned integer overflow"))?;
        }
        give_uint(sum)
    } else if first.downcast_ref::<CelDouble>().is_some() {
        let mut sum = 0.0;
        for element in elements.iter() {
            sum += *summand::<CelDouble>(element.as_ref())?.inner();
        }
        give_double(sum)
    } else {
        let mut sum: i64 = 0;
        for element in elements.iter() {
            sum = sum.checked_add(summand::<Duration>(element.as_ref())?.0).ok_or_else(|| fail("duration overflow"))?;
        }
        give(Duration(sum))
    }
}

fn summand<T: cel::common::value::StaticVal>(value: &dyn Val) -> Result<&T, ExecutionError> {
    value.downcast_ref::<T>().ok_or_else(no_overload)
}
