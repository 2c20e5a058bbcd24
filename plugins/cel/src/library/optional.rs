//! Optional values.

use super::args::{any, get, give, give_bool, give_elements, give_optional, list, taken};
use super::{Function, P, global, member};
use crate::error::{fail, no_overload};
use crate::value::is_zero;
use cel::common::types::CelOptional;
use cel::common::value::{CowVal, Val};

const O: P = P::Optional(&P::A);
const MANY: &[(&[P], P)] = &[(&[P::List(&O)], P::List(&P::A))];

pub(crate) const FUNCTIONS: &[Function] = &[
    global("optional.of", &[(&[P::A], O)], |mut args| {
        let value = taken(&mut args, 0)?;
        give(CelOptional::of(value.into_owned()))
    }),
    global("optional.ofNonZeroValue", &[(&[P::A], O)], |mut args| {
        let value = taken(&mut args, 0)?;
        give_optional((!is_zero(&*value)).then(|| value.into_owned()))
    }),
    global("optional.none", &[(&[], O)], |_| give(CelOptional::none())),
    global("optional.unwrap", MANY, unwrap),
    member("unwrapOpt", MANY, unwrap),
    member("hasValue", &[(&[O], P::Bool)], |args| give_bool(get::<CelOptional<'_>>(&args, 0)?.option().is_some())),
    member("value", &[(&[O], P::A)], |args| content(&args)?.map(CowVal::Owned).ok_or_else(|| fail("optional.none() dereference"))),
    member("or", &[(&[O, O], O)], |mut args| {
        let first = get::<CelOptional<'_>>(&args, 0)?.option().is_some();
        taken(&mut args, usize::from(!first))
    }),
    member("orValue", &[(&[O, P::A], P::A)], |mut args| match content(&args)? {
        Some(value) => Ok(CowVal::Owned(value)),
        None => taken(&mut args, 1),
    }),
];

fn content<'v>(args: &[CowVal<'_, 'v>]) -> Result<Option<Box<dyn Val + 'v>>, cel::ExecutionError> {
    let optional = any(args, 0)?.downcast_ref::<CelOptional<'v>>().ok_or_else(no_overload)?;
    Ok(optional.option().map(Val::clone_as_boxed))
}

fn unwrap<'b, 'v>(args: super::args::Args<'b, 'v>) -> super::args::Answer<'b, 'v> {
    let mut contents: Vec<&(dyn Val + 'v)> = Vec::new();
    for element in list(&args, 0)?.iter() {
        contents.extend(element.downcast_ref::<CelOptional<'v>>().ok_or_else(no_overload)?.option());
    }
    give_elements(contents)
}
