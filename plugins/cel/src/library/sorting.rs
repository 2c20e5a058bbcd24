//! The order of a list's elements.

use super::args::{Answer, Args, give_bool, give_elements, list};
use super::{Function, P, member};
use crate::error::{fail, no_overload};
use cel::common::types::CelList;
use cel::common::value::{CowVal, Val};
use std::cmp::Ordering;

/// The overloads for all sortable lists, with a function's result.
macro_rules! comparable {
    ($result:expr) => {
        &[
            (&[P::List(&P::Int)], $result),
            (&[P::List(&P::Uint)], $result),
            (&[P::List(&P::Double)], $result),
            (&[P::List(&P::Bool)], $result),
            (&[P::List(&P::Duration)], $result),
            (&[P::List(&P::Timestamp)], $result),
            (&[P::List(&P::String)], $result),
            (&[P::List(&P::Bytes)], $result),
        ]
    };
}

const ELEMENT: &[(&[P], P)] = &[
    (&[P::List(&P::Int)], P::Int),
    (&[P::List(&P::Uint)], P::Uint),
    (&[P::List(&P::Double)], P::Double),
    (&[P::List(&P::Bool)], P::Bool),
    (&[P::List(&P::Duration)], P::Duration),
    (&[P::List(&P::Timestamp)], P::Timestamp),
    (&[P::List(&P::String)], P::String),
    (&[P::List(&P::Bytes)], P::Bytes),
];

pub(crate) const FUNCTIONS: &[Function] = &[
    member("isSorted", comparable!(P::Bool), |args| {
        for (one, next) in list(&args, 0)?.iter().zip(list(&args, 0)?.iter().skip(1)) {
            // As in Kubernetes, values that can't be compared are in order.
            let comparer = one.as_comparer().ok_or_else(no_overload)?;
            if comparer.compare(next.as_ref()) == Ok(Ordering::Greater) {
                return give_bool(false);
            }
        }
        give_bool(true)
    }),
    member("min", ELEMENT, |args| extreme(args, "min", Ordering::Less)),
    member("max", ELEMENT, |args| extreme(args, "max", Ordering::Greater)),
    member("sort", comparable!(P::List(&P::Dyn)), |args| {
        let elements = list(&args, 0)?;
        sorted(elements, elements)
    }),
    // For `sortBy`: the elements, and the key of each.
    member("@sortedBy", &[(&[P::List(&P::A), P::List(&P::Dyn)], P::List(&P::A))], |args| sorted(list(&args, 0)?, list(&args, 1)?)),
];

fn extreme<'b, 'v>(args: Args<'b, 'v>, name: &str, wanted: Ordering) -> Answer<'b, 'v> {
    let mut best: Option<&dyn Val> = None;
    for element in list(&args, 0)?.iter() {
        let comparer = element.as_comparer().ok_or_else(no_overload)?;
        if best.is_none_or(|best| comparer.compare(best) == Ok(wanted)) {
            best = Some(element.as_ref());
        }
    }
    match best {
        Some(found) => Ok(CowVal::Owned(found.clone_as_boxed())),
        None => Err(fail(format!("{name} called on empty list"))),
    }
}

fn sorted<'b, 'v>(elements: &CelList<'v>, keys: &CelList<'v>) -> Answer<'b, 'v> {
    let mut pairs: Vec<(&(dyn Val + 'v), &(dyn Val + 'v))> =
        keys.iter().map(AsRef::as_ref).zip(elements.iter().map(AsRef::as_ref)).collect();
    if let Some((first, _)) = pairs.first() {
        if first.as_comparer().is_none() {
            return Err(fail("list elements must be comparable"));
        }
        if pairs.iter().any(|(key, _)| key.get_type() != first.get_type()) {
            return Err(fail("list elements must have the same type"));
        }
    }
    // Values that can't be compared, such as NaN, stay in place.
    pairs.sort_by(|(one, _), (other, _)| one.as_comparer().and_then(|one| one.compare(*other).ok()).unwrap_or(Ordering::Equal));
    give_elements(pairs.into_iter().map(|(_, element)| element))
}
