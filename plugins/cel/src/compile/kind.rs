//! The types of values before evaluation. Most are `dyn`: everything that comes from an object.

use crate::library::P;
use std::fmt;
use std::rc::Rc;

/// A type, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExprType {
    Dyn,
    /// Any type: that of an empty list's elements.
    Free,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Type(Rc<ExprType>),
    List(Rc<ExprType>),
    Map(Rc<ExprType>, Rc<ExprType>),
    Optional(Rc<ExprType>),
    /// One of Kubernetes' types.
    Special(&'static str),
}

impl ExprType {
    /// A list with elements of this type.
    pub(crate) fn list(element: ExprType) -> Self {
        ExprType::List(Rc::new(element))
    }

    /// An optional value of this type.
    pub(crate) fn optional(content: ExprType) -> Self {
        ExprType::Optional(Rc::new(content))
    }

    /// The member types of a range: indices or keys, and values. None if it can't be iterated.
    pub(crate) fn members(&self) -> Option<(ExprType, ExprType)> {
        match self {
            ExprType::Dyn | ExprType::Free => Some((ExprType::Dyn, ExprType::Dyn)),
            ExprType::List(element) => Some((ExprType::Int, (**element).clone())),
            ExprType::Map(key, value) => Some(((**key).clone(), (**value).clone())),
            _ => None,
        }
    }

    /// Whether a value could have both types.
    pub(crate) fn fits(&self, other: &ExprType) -> bool {
        match (self, other) {
            (ExprType::Dyn | ExprType::Free, _) | (_, ExprType::Dyn | ExprType::Free) | (ExprType::Type(_), ExprType::Type(_)) => true,
            (ExprType::List(one), ExprType::List(other)) | (ExprType::Optional(one), ExprType::Optional(other)) => one.fits(other),
            (ExprType::Map(key, value), ExprType::Map(other_key, other_value)) => key.fits(other_key) && value.fits(other_value),
            (ExprType::Null, other) | (other, ExprType::Null) => {
                matches!(other, ExprType::Null | ExprType::Duration | ExprType::Timestamp | ExprType::Special(_) | ExprType::Optional(_))
            }
            (one, other) => one == other,
        }
    }

    /// Whether both types are declared equal, as the elements of a literal must be.
    pub(crate) fn is_same(&self, other: &ExprType) -> bool {
        match (self, other) {
            (ExprType::Free, _) | (_, ExprType::Free) => true,
            (ExprType::List(one), ExprType::List(other))
            | (ExprType::Optional(one), ExprType::Optional(other))
            | (ExprType::Type(one), ExprType::Type(other)) => one.is_same(other),
            (ExprType::Map(key, value), ExprType::Map(other_key, other_value)) => key.is_same(other_key) && value.is_same(other_value),
            (one, other) => one == other,
        }
    }

    /// Whether its values can be ordered.
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(
            self,
            ExprType::Null | ExprType::Type(_) | ExprType::List(_) | ExprType::Map(..) | ExprType::Optional(_) | ExprType::Special(_)
        )
    }

    /// Whether a clause of a format accepts these values.
    pub(crate) fn can_be_formatted(&self, verb: char) -> bool {
        match (verb, self) {
            (_, ExprType::Dyn | ExprType::Free)
            | ('d' | 'o' | 'b' | 'x' | 'X', ExprType::Int | ExprType::Uint)
            | ('f' | 'e', ExprType::Double | ExprType::String)
            | ('b', ExprType::Bool)
            | ('x' | 'X', ExprType::String | ExprType::Bytes) => true,
            ('s', kind) => !matches!(kind, ExprType::Optional(_) | ExprType::Special(_)),
            _ => false,
        }
    }

    /// The type of a value that has one of two types.
    pub(crate) fn or(&self, other: &ExprType) -> ExprType {
        match (self, other) {
            (one, other) if one == other => one.clone(),
            (ExprType::Free, known) | (known, ExprType::Free) => known.clone(),
            (ExprType::List(one), ExprType::List(other)) => ExprType::list(one.or(other)),
            (ExprType::Optional(one), ExprType::Optional(other)) => ExprType::optional(one.or(other)),
            (ExprType::Map(key, value), ExprType::Map(other_key, other_value)) => {
                ExprType::Map(Rc::new(key.or(other_key)), Rc::new(value.or(other_value)))
            }
            _ => ExprType::Dyn,
        }
    }

    /// The type of a declaration, with the type that its parameter is bound to.
    pub(crate) fn instantiate(declared: &P, bound: Option<&ExprType>) -> ExprType {
        match declared {
            P::A => bound.cloned().unwrap_or(ExprType::Free),
            P::Dyn => ExprType::Dyn,
            P::Bool => ExprType::Bool,
            P::Int => ExprType::Int,
            P::Uint => ExprType::Uint,
            P::Double => ExprType::Double,
            P::String => ExprType::String,
            P::Bytes => ExprType::Bytes,
            P::Duration => ExprType::Duration,
            P::Timestamp => ExprType::Timestamp,
            P::Type => ExprType::Type(Rc::new(ExprType::Dyn)),
            P::Null => ExprType::Null,
            P::List(element) => ExprType::list(ExprType::instantiate(element, bound)),
            P::Map(key, value) => ExprType::Map(Rc::new(ExprType::instantiate(key, bound)), Rc::new(ExprType::instantiate(value, bound))),
            P::Optional(content) => ExprType::optional(ExprType::instantiate(content, bound)),
            P::Special(name) => ExprType::Special(name),
        }
    }

    /// Whether a value of this type matches a declaration. Binds the parameter.
    fn is(&self, declared: &P, bound: &mut Option<ExprType>) -> bool {
        match (declared, self) {
            (P::A, _) => match bound {
                Some(known) if known.fits(self) => {
                    *known = known.or(self);
                    true
                }
                Some(_) => false,
                None => {
                    *bound = Some(self.clone());
                    true
                }
            },
            (P::Dyn, _) | (_, ExprType::Dyn | ExprType::Free) | (P::Type, ExprType::Type(_)) => true,
            (P::List(declared), ExprType::List(element)) => element.is(declared, bound),
            (P::Map(key, value), ExprType::Map(own_key, own_value)) => own_key.is(key, bound) && own_value.is(value, bound),
            (P::Optional(declared), ExprType::Optional(content)) => content.is(declared, bound),
            (declared, ExprType::Null) => matches!(declared, P::Duration | P::Timestamp | P::Special(_) | P::Optional(_)),
            (declared, own) => ExprType::instantiate(declared, None) == *own,
        }
    }
}

/// The result type of a call among the possible overloads; none if no overload matches.
pub(crate) fn resolve<'a>(overloads: impl IntoIterator<Item = &'a (&'static [P], P)>, arguments: &[ExprType]) -> Option<ExprType> {
    let mut result: Option<ExprType> = None;
    for (takes, gives) in overloads {
        let mut bound = None;
        if takes.len() == arguments.len() && takes.iter().zip(arguments).all(|(declared, kind)| kind.is(declared, &mut bound)) {
            let gives = ExprType::instantiate(gives, bound.as_ref());
            result = Some(result.map_or_else(|| gives.clone(), |known| known.or(&gives)));
        }
    }
    result
}

impl fmt::Display for ExprType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExprType::Dyn | ExprType::Free => out.write_str("dyn"),
            ExprType::Null => out.write_str("null"),
            ExprType::Bool => out.write_str("bool"),
            ExprType::Int => out.write_str("int"),
            ExprType::Uint => out.write_str("uint"),
            ExprType::Double => out.write_str("double"),
            ExprType::String => out.write_str("string"),
            ExprType::Bytes => out.write_str("bytes"),
            ExprType::Duration => out.write_str("google.protobuf.Duration"),
            ExprType::Timestamp => out.write_str("google.protobuf.Timestamp"),
            ExprType::Type(of) => write!(out, "type({of})"),
            ExprType::List(element) => write!(out, "list({element})"),
            ExprType::Map(key, value) => write!(out, "map({key}, {value})"),
            ExprType::Optional(content) => write!(out, "optional_type({content})"),
            ExprType::Special(name) => out.write_str(name),
        }
    }
}
