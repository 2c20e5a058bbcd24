//! Maps: the functions behind literals and macros. Rules can't call them by name.

use super::args::{Answer, Args, any, give, give_bool, give_list, give_optional, list};
use super::{Function, P, global};
use crate::error::{fail, key_text, no_overload};
use crate::value::number::as_int;
use crate::value::object::{Key, Object, key_of};
use crate::value::{Owned, owned};
use cel::ExecutionError;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelOptional, CelUInt};
use cel::common::value::Val;

pub(crate) const FUNCTIONS: &[Function] = &[
    // A map literal: for each entry the key, the value, and whether an empty optional value omits the entry.
    global("@map", &[(&[P::List(&P::Dyn)], P::Map(&P::Dyn, &P::Dyn))], map),
    // For `transformMapEntry`: merges maps.
    global("@merged", &[(&[P::List(&P::Dyn)], P::Map(&P::Dyn, &P::Dyn))], |args| {
        let mut entries = Vec::new();
        for map in list(&args, 0)?.iter() {
            let map = map.downcast_ref::<Object>().ok_or_else(no_overload)?;
            entries.extend(map.entries().iter().cloned());
        }
        without_repetition(entries)
    }),
    // `has`: false for values that aren't maps.
    global("@has", &[(&[P::Dyn, P::String], P::Bool)], |args| {
        let value = any(&args, 0)?;
        let value = match value.downcast_ref::<CelOptional<'_>>() {
            Some(optional) => match optional.option() {
                Some(content) => content,
                None => return give_bool(false),
            },
            None => value,
        };
        give_bool(found(value, any(&args, 1)?)?.is_some())
    }),
    // `a.?b` and `a[?b]`.
    global("@optional", &[(&[P::Dyn, P::Dyn], P::Optional(&P::Dyn))], |args| {
        let value = any(&args, 0)?;
        let value = match value.downcast_ref::<CelOptional<'_>>() {
            Some(optional) => match optional.option() {
                Some(content) => content,
                None => return give_optional(None),
            },
            None => value,
        };
        give_optional(found(value, any(&args, 1)?)?.map(Val::clone_as_boxed))
    }),
    // Equality with a value of a Kubernetes type on the left. It is an error if the other value has another type.
    global("@same", &[(&[P::Dyn, P::Dyn], P::Bool)], |args| {
        let (one, other) = (any(&args, 0)?, any(&args, 1)?);
        if crate::value::special::to_text(one).is_some() && one.get_type() != other.get_type() {
            return Err(no_overload());
        }
        give_bool(one.equals(other))
    }),
    // The indices of a list, or the keys of a map.
    global("@keys", &[(&[P::Dyn], P::List(&P::Dyn))], |args| {
        let range = any(&args, 0)?;
        if let Some(list) = range.downcast_ref::<CelList<'_>>() {
            return give_list((0..list.len()).map(|at| Box::new(CelInt::from(i64::try_from(at).unwrap_or(i64::MAX))) as Owned));
        }
        let map = range.downcast_ref::<Object>().ok_or_else(no_overload)?;
        give_list(map.entries().iter().map(|(key, _)| owned(key.inner())))
    }),
];

/// The element at a key or an index, if the value has keys or indices.
fn found<'x, 'v>(value: &'x (dyn Val + 'v), key: &dyn Val) -> Result<Option<&'x (dyn Val + 'v)>, ExecutionError> {
    if let Some(object) = value.downcast_ref::<Object>() {
        return object.value(key).map(|found| found.map(|found| found as &(dyn Val + 'v)));
    }
    let Some(list) = value.downcast_ref::<CelList<'v>>() else {
        return Ok(None);
    };
    let at = if let Some(int) = key.downcast_ref::<CelInt>() {
        Some(*int.inner())
    } else if let Some(uint) = key.downcast_ref::<CelUInt>() {
        i64::try_from(*uint.inner()).ok()
    } else {
        let double = key.downcast_ref::<CelDouble>().and_then(|double| as_int(*double.inner()));
        Some(double.ok_or_else(|| fail(format!("unsupported index type '{}' in list", key.get_type().name())))?)
    };
    Ok(at.and_then(|at| usize::try_from(at).ok()).and_then(|at| list.get(at)).map(AsRef::as_ref))
}

fn map<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    entries(list(&args, 0)?).map(Object::new).and_then(give)
}

fn entries(parts: &CelList<'_>) -> Result<Vec<(Key, Owned)>, ExecutionError> {
    let mut entries = Vec::with_capacity(parts.len() / 3);
    for part in parts.chunks(3) {
        let [key, value, optional] = part else {
            return Err(no_overload());
        };
        let key = key_of(key.as_ref()).ok_or_else(|| fail("unsupported key type"))?;
        let value: &dyn Val = value.as_ref();
        if optional.downcast_ref::<CelBool>() == Some(&CelBool::TRUE) {
            let content = value.downcast_ref::<CelOptional<'_>>().ok_or_else(no_overload)?;
            if let Some(content) = content.option() {
                entries.push((key, owned(content)));
            }
        } else {
            entries.push((key, owned(value)));
        }
    }
    Ok(entries)
}

fn without_repetition<'b, 'v>(entries: Vec<(Key, Owned)>) -> Answer<'b, 'v> {
    for (at, (key, _)) in entries.iter().enumerate() {
        // Equal numbers of different types are the same key.
        if entries.iter().take(at).any(|(earlier, _)| earlier.inner().equals(key.inner())) {
            return Err(fail(format!("insert failed: key {} already exists", key_text(key.inner()))));
        }
    }
    give(Object::new(entries))
}
