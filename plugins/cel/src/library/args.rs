//! The arguments and results of functions.

use crate::error::{fail, no_overload};
use crate::value::special::{Content, Special};
use crate::value::time::{Duration, Timestamp};
use crate::value::{Owned, list_of};
use cel::ExecutionError;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelOptional, CelString, CelUInt};
use cel::common::value::{CowVal, FromVal, Val};

/// The arguments of a call. For a member, the first is the value that it is called on.
pub(crate) type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;

/// The result of a function.
pub(crate) type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// An argument with the expected type.
pub(crate) fn get<'x, 'v, T: FromVal<'x, 'v>>(args: &'x [CowVal<'_, 'v>], at: usize) -> Result<&'x T, ExecutionError> {
    args.get(at).and_then(|arg| (**arg).downcast_ref::<T>()).ok_or_else(no_overload)
}

/// An argument of any type.
pub(crate) fn any<'x, 'v>(args: &'x [CowVal<'_, 'v>], at: usize) -> Result<&'x (dyn Val + 'v), ExecutionError> {
    args.get(at).map(|arg| &**arg).ok_or_else(no_overload)
}

/// An argument that the function returns.
pub(crate) fn taken<'b, 'v>(args: &mut Args<'b, 'v>, at: usize) -> Answer<'b, 'v> {
    if at < args.len() { Ok(args.swap_remove(at)) } else { Err(no_overload()) }
}

/// A text argument.
pub(crate) fn text<'x>(args: &'x [CowVal<'_, '_>], at: usize) -> Result<&'x str, ExecutionError> {
    get::<CelString<'_>>(args, at).map(CelString::inner)
}

/// An int argument.
pub(crate) fn int(args: &[CowVal<'_, '_>], at: usize) -> Result<i64, ExecutionError> {
    get::<CelInt>(args, at).map(|int| *int.inner())
}

/// A position in something of that length, including its end. On platforms with a short `usize`, a large position can't be converted and is
/// also after the end.
pub(crate) fn place(at: i64, length: usize) -> Option<usize> {
    usize::try_from(at).ok().filter(|at| *at <= length)
}

/// A bool argument.
pub(crate) fn truth(args: &[CowVal<'_, '_>], at: usize) -> Result<bool, ExecutionError> {
    get::<CelBool>(args, at).map(|bool| *bool.inner())
}

/// A list argument.
pub(crate) fn list<'x, 'v>(args: &'x [CowVal<'_, 'v>], at: usize) -> Result<&'x CelList<'v>, ExecutionError> {
    args.get(at).and_then(|arg| (**arg).downcast_ref::<CelList<'v>>()).ok_or_else(no_overload)
}

/// A timestamp argument.
pub(crate) fn point(args: &[CowVal<'_, '_>], at: usize) -> Result<Timestamp, ExecutionError> {
    get::<Timestamp>(args, at).copied()
}

/// A duration argument.
pub(crate) fn span(args: &[CowVal<'_, '_>], at: usize) -> Result<Duration, ExecutionError> {
    get::<Duration>(args, at).copied()
}

/// An argument of one of Kubernetes' types.
pub(crate) fn special<'x, T: Content>(args: &'x [CowVal<'_, '_>], at: usize) -> Result<&'x T, ExecutionError> {
    get::<Special<T>>(args, at).map(|special| &special.0)
}

/// Returns any value.
pub(crate) fn give<'b, 'v>(value: impl Val + 'v) -> Answer<'b, 'v> {
    Ok(CowVal::owned(value))
}

/// Returns a value of one of Kubernetes' types.
pub(crate) fn give_special<'b, 'v>(content: impl Content) -> Answer<'b, 'v> {
    give(Special(content))
}

/// Returns a bool without an allocation.
pub(crate) fn give_bool<'b, 'v>(value: bool) -> Answer<'b, 'v> {
    Ok(CowVal::Borrowed(if value { &CelBool::TRUE } else { &CelBool::FALSE }))
}

/// Returns an int.
pub(crate) fn give_int<'b, 'v>(value: i64) -> Answer<'b, 'v> {
    give(CelInt::from(value))
}

/// Returns a count.
pub(crate) fn give_count<'b, 'v>(count: usize) -> Answer<'b, 'v> {
    give_int(i64::try_from(count).map_err(|_| fail("integer overflow"))?)
}

/// Returns an unsigned int.
pub(crate) fn give_uint<'b, 'v>(value: u64) -> Answer<'b, 'v> {
    give(CelUInt::from(value))
}

/// Returns a double.
pub(crate) fn give_double<'b, 'v>(value: f64) -> Answer<'b, 'v> {
    give(CelDouble::from(value))
}

/// Returns a text.
pub(crate) fn give_text<'b, 'v>(value: impl Into<String>) -> Answer<'b, 'v> {
    give(CelString::from(value.into()))
}

/// Returns a list.
pub(crate) fn give_list<'b, 'v>(elements: impl IntoIterator<Item = Owned>) -> Answer<'b, 'v> {
    Ok(CowVal::Owned(list_of(elements)))
}

/// Returns a list of texts.
pub(crate) fn give_texts<'b, 'v, T: Into<String>>(elements: impl IntoIterator<Item = T>) -> Answer<'b, 'v> {
    give_list(elements.into_iter().map(|element| crate::value::text(element)))
}

/// Returns some of a list's elements, in any order.
pub(crate) fn give_elements<'b, 'v: 'x, 'x>(elements: impl IntoIterator<Item = &'x (dyn Val + 'v)>) -> Answer<'b, 'v> {
    give(CelList::from(elements.into_iter().map(Val::clone_as_boxed).collect::<Vec<Box<dyn Val + 'v>>>()))
}

/// Returns an optional value.
pub(crate) fn give_optional<'b, 'v>(value: Option<Box<dyn Val + 'v>>) -> Answer<'b, 'v> {
    give(CelOptional::from(value))
}
