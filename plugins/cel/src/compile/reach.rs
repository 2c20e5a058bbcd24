//! Determines which values an expression reads. It follows them from roots through fields, indices, macros and variables, and stops if a
//! value could also be something else.

use crate::types::Step;
use std::rc::Rc;

/// The path to a value, from a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) root: Rc<str>,
    pub(crate) steps: Vec<Step>,
}

/// The known origin of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It is unknown.
    #[default]
    Unknown,
    /// It is the value at this path. For an optional value, it is its content.
    At(Way),
    /// It is a member in a macro with one variable over the value at this path: an element of a list, or a key of a map.
    MemberOf(Way),
    /// It is a list whose elements have this origin.
    ListOf(Box<Reach>),
}

impl Way {
    /// The path to the root itself.
    pub(crate) fn root(name: &str) -> Self {
        Way { root: name.into(), steps: Vec::new() }
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Way { root: self.root.clone(), steps }
    }

    /// Labels and annotations are maps in every object.
    fn is_map(&self) -> bool {
        match self.steps.as_slice() {
            [.., Step::Field(parent), Step::Field(name)] => parent == "metadata" && (name == "labels" || name == "annotations"),
            _ => false,
        }
    }

    /// Whether it passes through another path, or is equal to it.
    pub(crate) fn goes_through(&self, other: &Way) -> bool {
        self.root == other.root && self.steps.starts_with(&other.steps)
    }
}

impl Reach {
    /// A field of the value. A value with fields is an element, because keys have none.
    pub(crate) fn field(&self, name: &str) -> Reach {
        match self {
            Reach::At(way) => Reach::At(way.with(Step::Field(name.to_owned()))),
            Reach::MemberOf(way) if !way.is_map() => Reach::At(way.with(Step::Element).with(Step::Field(name.to_owned()))),
            _ => Reach::Unknown,
        }
    }

    /// Any element or value of it.
    pub(crate) fn element(&self) -> Reach {
        match self {
            Reach::At(way) => Reach::At(way.with(Step::Element)),
            Reach::MemberOf(way) if !way.is_map() => Reach::At(way.with(Step::Element).with(Step::Element)),
            Reach::ListOf(element) => (**element).clone(),
            _ => Reach::Unknown,
        }
    }

    /// A member in a macro with one variable.
    pub(crate) fn member(&self) -> Reach {
        match self {
            Reach::At(way) if way.is_map() => Reach::At(way.with(Step::Key)),
            Reach::At(way) => Reach::MemberOf(way.clone()),
            Reach::MemberOf(way) if !way.is_map() => Reach::MemberOf(way.with(Step::Element)),
            Reach::ListOf(element) => (**element).clone(),
            _ => Reach::Unknown,
        }
    }

    /// The first variable of a macro with two: a key, if that is certain.
    pub(crate) fn key(&self) -> Reach {
        match self {
            Reach::At(way) if way.is_map() => Reach::At(way.with(Step::Key)),
            _ => Reach::Unknown,
        }
    }

    /// A list of such values.
    pub(crate) fn listed(self) -> Reach {
        if self == Reach::Unknown { Reach::Unknown } else { Reach::ListOf(Box::new(self)) }
    }

    /// The path that is certainly read if the value itself is used.
    pub(crate) fn read(&self) -> Option<&Way> {
        match self {
            Reach::At(way) | Reach::MemberOf(way) => Some(way),
            Reach::ListOf(element) => element.read(),
            Reach::Unknown => None,
        }
    }
}

/// Only the longest paths: their prefixes are read anyway.
pub(crate) fn longest(reads: Vec<(u64, Way)>) -> Vec<(u64, Way)> {
    let mut kept: Vec<(u64, Way)> = Vec::new();
    for (id, way) in reads {
        if kept.iter().any(|(_, other)| other.goes_through(&way)) {
            continue;
        }
        kept.retain(|(_, other)| !way.goes_through(other));
        kept.push((id, way));
    }
    kept
}
