//! Kubernetes' own types as CEL values.

use super::cidr::{Cidr, Ip};
use super::quantity::Quantity;
use super::semver::Semver;
use super::url::Url;
use super::{Owned, copied as copied_as};
use crate::library::format::NamedFormat;
use crate::library::regex::Pattern;
use cel::common::types::{Kind, Type};
use cel::common::value::{StaticVal, Val};
use std::any::Any;
use std::fmt::Debug;

/// A type whose values are opaque, except to functions.
pub(crate) trait Content: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Its name, as `type()` returns it.
    const NAME: &'static str;

    /// Its declaration for `cel`.
    fn declared() -> &'static Type;

    /// Its text in JSON.
    fn to_text(&self) -> String;
}

/// A value of such a type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Special<T>(pub(crate) T);

impl<T: Content> Val for Special<T> {
    fn get_type(&self) -> &Type {
        T::declared()
    }

    fn cel_type() -> &'static Type {
        T::declared()
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl<T: Content> StaticVal for Special<T> {}

/// Declares the type of a content.
macro_rules! content {
    ($content:ty, $name:literal, $to_text:expr) => {
        impl Content for $content {
            const NAME: &'static str = $name;

            fn declared() -> &'static Type {
                static DECLARED: Type = Type::simple_type(Kind::Opaque, $name);
                &DECLARED
            }

            fn to_text(&self) -> String {
                let to_text: fn(&$content) -> String = $to_text;
                to_text(self)
            }
        }
    };
}

content!(Quantity, "kubernetes.Quantity", Quantity::to_string);
content!(Semver, "kubernetes.Semver", Semver::to_string);
content!(Url, "kubernetes.URL", Url::to_string);
content!(Ip, "net.IP", Ip::to_string);
content!(Cidr, "net.CIDR", Cidr::to_string);
content!(Pattern, "@pattern", |pattern| pattern.as_str().to_owned());
content!(NamedFormat, "kubernetes.NamedFormat", |format| format.name().to_owned());

/// A copy of the value, if it has one of these types.
pub(crate) fn copied(value: &dyn Val) -> Option<Owned> {
    copied_as::<Special<Quantity>>(value)
        .or_else(|| copied_as::<Special<Semver>>(value))
        .or_else(|| copied_as::<Special<Url>>(value))
        .or_else(|| copied_as::<Special<Ip>>(value))
        .or_else(|| copied_as::<Special<Cidr>>(value))
        .or_else(|| copied_as::<Special<NamedFormat>>(value))
}

/// The text of the value, if it has one of these types.
pub(crate) fn to_text(value: &dyn Val) -> Option<String> {
    text_of::<Quantity>(value)
        .or_else(|| text_of::<Semver>(value))
        .or_else(|| text_of::<Url>(value))
        .or_else(|| text_of::<Ip>(value))
        .or_else(|| text_of::<Cidr>(value))
        .or_else(|| text_of::<NamedFormat>(value))
}

fn text_of<T: Content>(value: &dyn Val) -> Option<String> {
    value.downcast_ref::<Special<T>>().map(|special| special.0.to_text())
}
