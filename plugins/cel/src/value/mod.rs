//! Values that `cel` lacks or implements differently: sorted maps, times without a clock, and Kubernetes' own types.

pub(crate) mod cidr;
pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod object;
pub(crate) mod quantity;
pub(crate) mod semver;
pub(crate) mod special;
pub(crate) mod time;
pub(crate) mod url;

use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelList, CelNull, CelOptional, CelString, CelType, CelUInt, Kind};
use cel::common::value::{StaticVal, Val};

/// A value that borrows nothing.
pub(crate) type Owned = Box<dyn Val>;

/// An owned copy of the value.
///
/// According to its type, a value from the evaluator may borrow. A map stores its values in an `Arc`, whose content may not.
pub(crate) fn owned(value: &dyn Val) -> Owned {
    let kind = value.get_type().kind();
    match kind {
        Kind::String => {
            if let Some(text) = value.downcast_ref::<CelString<'_>>() {
                return Box::new(CelString::from(text.inner().to_owned()));
            }
        }
        Kind::Bytes => {
            if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
                return Box::new(CelBytes::from(bytes.inner().to_vec()));
            }
        }
        Kind::List => {
            if let Some(list) = value.downcast_ref::<CelList<'_>>() {
                return list_of(list.iter().map(|element| owned(element.as_ref())));
            }
        }
        Kind::Opaque => {
            if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
                return Box::new(optional.option().map_or_else(CelOptional::none, |inner| CelOptional::of(owned(inner))));
            }
        }
        _ => {}
    }
    copied::<CelBool>(value)
        .or_else(|| copied::<CelInt>(value))
        .or_else(|| copied::<CelUInt>(value))
        .or_else(|| copied::<CelDouble>(value))
        .or_else(|| copied::<object::Object>(value))
        .or_else(|| copied::<time::Timestamp>(value))
        .or_else(|| copied::<time::Duration>(value))
        .or_else(|| copied::<CelType>(value))
        .or_else(|| special::copied(value))
        .unwrap_or_else(|| Box::new(CelNull))
}

/// A copy of the value, if it has that type.
fn copied<T: StaticVal + Clone>(value: &dyn Val) -> Option<Owned> {
    value.downcast_ref::<T>().map(|found| Box::new(found.clone()) as Owned)
}

/// A list.
pub(crate) fn list_of(elements: impl IntoIterator<Item = Owned>) -> Owned {
    Box::new(CelList::from(elements.into_iter().collect::<Vec<Owned>>()))
}

/// A text.
pub(crate) fn text(content: impl Into<String>) -> Owned {
    Box::new(CelString::from(content.into()))
}

/// Whether a value is the zero value of its type: an empty text, zero, an empty map.
pub(crate) fn is_zero(value: &dyn Val) -> bool {
    value.as_zeroer().is_some_and(cel::common::traits::Zeroer::is_zero_value)
}
