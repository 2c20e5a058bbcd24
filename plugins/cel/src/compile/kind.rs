//! What is known of a value's type before there is the value. Most is `dyn`: whatever comes from an object.

use crate::library::P;
use std::fmt;
use std::rc::Rc;

/// A type, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dyn,
    /// Whatever it must be: of what an empty list has none.
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
    Type(Rc<Kind>),
    List(Rc<Kind>),
    Map(Rc<Kind>, Rc<Kind>),
    Optional(Rc<Kind>),
    /// One of Kubernetes'.
    Special(&'static str),
}

impl Kind {
    /// A list of such elements.
    pub(crate) fn list(element: Kind) -> Self {
        Kind::List(Rc::new(element))
    }

    /// An optional such value.
    pub(crate) fn optional(content: Kind) -> Self {
        Kind::Optional(Rc::new(content))
    }

    /// What a macro goes over: elements or keys, and the values of both; nothing where it can't.
    pub(crate) fn members(&self) -> Option<(Kind, Kind)> {
        match self {
            Kind::Dyn | Kind::Free => Some((Kind::Dyn, Kind::Dyn)),
            Kind::List(element) => Some((Kind::Int, (**element).clone())),
            Kind::Map(key, value) => Some(((**key).clone(), (**value).clone())),
            _ => None,
        }
    }

    /// Whether a value could be of both types.
    pub(crate) fn fits(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Dyn | Kind::Free, _) | (_, Kind::Dyn | Kind::Free) | (Kind::Type(_), Kind::Type(_)) => true,
            (Kind::List(one), Kind::List(other)) | (Kind::Optional(one), Kind::Optional(other)) => one.fits(other),
            (Kind::Map(key, value), Kind::Map(other_key, other_value)) => key.fits(other_key) && value.fits(other_value),
            (Kind::Null, other) | (other, Kind::Null) => {
                matches!(other, Kind::Null | Kind::Duration | Kind::Timestamp | Kind::Special(_) | Kind::Optional(_))
            }
            (one, other) => one == other,
        }
    }

    /// Whether both are said to be the same, as the elements of a literal must be.
    pub(crate) fn is_same(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Free, _) | (_, Kind::Free) => true,
            (Kind::List(one), Kind::List(other)) | (Kind::Optional(one), Kind::Optional(other)) | (Kind::Type(one), Kind::Type(other)) => {
                one.is_same(other)
            }
            (Kind::Map(key, value), Kind::Map(other_key, other_value)) => key.is_same(other_key) && value.is_same(other_value),
            (one, other) => one == other,
        }
    }

    /// Whether its values have an order.
    pub(crate) fn is_ordered(&self) -> bool {
        !matches!(self, Kind::Null | Kind::Type(_) | Kind::List(_) | Kind::Map(..) | Kind::Optional(_) | Kind::Special(_))
    }

    /// Whether a clause of a format takes such values.
    pub(crate) fn can_be_formatted(&self, verb: char) -> bool {
        match (verb, self) {
            (_, Kind::Dyn | Kind::Free)
            | ('d' | 'o' | 'b' | 'x' | 'X', Kind::Int | Kind::Uint)
            | ('f' | 'e', Kind::Double | Kind::String)
            | ('b', Kind::Bool)
            | ('x' | 'X', Kind::String | Kind::Bytes) => true,
            ('s', kind) => !matches!(kind, Kind::Optional(_) | Kind::Special(_)),
            _ => false,
        }
    }

    /// What is known of a value that is one or the other.
    pub(crate) fn or(&self, other: &Kind) -> Kind {
        match (self, other) {
            (one, other) if one == other => one.clone(),
            (Kind::Free, known) | (known, Kind::Free) => known.clone(),
            (Kind::List(one), Kind::List(other)) => Kind::list(one.or(other)),
            (Kind::Optional(one), Kind::Optional(other)) => Kind::optional(one.or(other)),
            (Kind::Map(key, value), Kind::Map(other_key, other_value)) => {
                Kind::Map(Rc::new(key.or(other_key)), Rc::new(value.or(other_value)))
            }
            _ => Kind::Dyn,
        }
    }

    /// What a declaration says, with what its parameter has become.
    pub(crate) fn of(declared: &P, bound: Option<&Kind>) -> Kind {
        match declared {
            P::A => bound.cloned().unwrap_or(Kind::Free),
            P::Dyn => Kind::Dyn,
            P::Bool => Kind::Bool,
            P::Int => Kind::Int,
            P::Uint => Kind::Uint,
            P::Double => Kind::Double,
            P::String => Kind::String,
            P::Bytes => Kind::Bytes,
            P::Duration => Kind::Duration,
            P::Timestamp => Kind::Timestamp,
            P::Type => Kind::Type(Rc::new(Kind::Dyn)),
            P::Null => Kind::Null,
            P::List(element) => Kind::list(Kind::of(element, bound)),
            P::Map(key, value) => Kind::Map(Rc::new(Kind::of(key, bound)), Rc::new(Kind::of(value, bound))),
            P::Optional(content) => Kind::optional(Kind::of(content, bound)),
            P::Special(name) => Kind::Special(name),
        }
    }

    /// Whether a value of this type may stand where a declaration says so; what its parameter becomes is noted.
    fn is(&self, declared: &P, bound: &mut Option<Kind>) -> bool {
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
            (P::Dyn, _) | (_, Kind::Dyn | Kind::Free) | (P::Type, Kind::Type(_)) => true,
            (P::List(declared), Kind::List(element)) => element.is(declared, bound),
            (P::Map(key, value), Kind::Map(own_key, own_value)) => own_key.is(key, bound) && own_value.is(value, bound),
            (P::Optional(declared), Kind::Optional(content)) => content.is(declared, bound),
            (declared, Kind::Null) => matches!(declared, P::Duration | P::Timestamp | P::Special(_) | P::Optional(_)),
            (declared, own) => Kind::of(declared, None) == *own,
        }
    }
}

/// What a call gives, of what could be meant by it; nothing where nothing fits.
pub(crate) fn resolve<'a>(overloads: impl IntoIterator<Item = &'a (&'static [P], P)>, arguments: &[Kind]) -> Option<Kind> {
    let mut result: Option<Kind> = None;
    for (takes, gives) in overloads {
        let mut bound = None;
        if takes.len() == arguments.len() && takes.iter().zip(arguments).all(|(declared, kind)| kind.is(declared, &mut bound)) {
            let gives = Kind::of(gives, bound.as_ref());
            result = Some(result.map_or_else(|| gives.clone(), |known| known.or(&gives)));
        }
    }
    result
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Dyn | Kind::Free => out.write_str("dyn"),
            Kind::Null => out.write_str("null"),
            Kind::Bool => out.write_str("bool"),
            Kind::Int => out.write_str("int"),
            Kind::Uint => out.write_str("uint"),
            Kind::Double => out.write_str("double"),
            Kind::String => out.write_str("string"),
            Kind::Bytes => out.write_str("bytes"),
            Kind::Duration => out.write_str("google.protobuf.Duration"),
            Kind::Timestamp => out.write_str("google.protobuf.Timestamp"),
            Kind::Type(of) => write!(out, "type({of})"),
            Kind::List(element) => write!(out, "list({element})"),
            Kind::Map(key, value) => write!(out, "map({key}, {value})"),
            Kind::Optional(content) => write!(out, "optional_type({content})"),
            Kind::Special(name) => out.write_str(name),
        }
    }
}
