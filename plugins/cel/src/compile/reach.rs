//! Which values an expression reads: followed from roots through fields, indexes, macros and variables, and given up where a value could be
//! something else as well.

use crate::types::Step;
use std::rc::Rc;

/// The way to a value, from a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) root: Rc<str>,
    pub(crate) steps: Vec<Step>,
}

/// What is known of where a value is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing.
    #[default]
    Unknown,
    /// It is the value there; or, of an optional value, its content.
    At(Way),
    /// It is what a macro with one variable goes over, of the value there: elements of a list, or keys of a map.
    MemberOf(Way),
    /// It is a list, whose elements are from there.
    ListOf(Box<Reach>),
}

impl Way {
    /// The root itself.
    pub(crate) fn root(name: &str) -> Self {
        Way { root: name.into(), steps: Vec::new() }
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Way { root: self.root.clone(), steps }
    }

    /// Labels and annotations are maps, in whatever object.
    fn is_map(&self) -> bool {
        match self.steps.as_slice() {
            [.., Step::Field(parent), Step::Field(name)] => parent == "metadata" && (name == "labels" || name == "annotations"),
            _ => false,
        }
    }

    /// Whether it leads through another one, or to the same value.
    pub(crate) fn goes_through(&self, other: &Way) -> bool {
        self.root == other.root && self.steps.starts_with(&other.steps)
    }
}

impl Reach {
    /// A field of it. What has fields is an element and no key, since keys have none.
    pub(crate) fn field(&self, name: &str) -> Reach {
        match self {
            Reach::At(way) => Reach::At(way.with(Step::Field(name.to_owned()))),
            Reach::MemberOf(way) if !way.is_map() => Reach::At(way.with(Step::Element).with(Step::Field(name.to_owned()))),
            _ => Reach::Unknown,
        }
    }

    /// Some element of it, or some value.
    pub(crate) fn element(&self) -> Reach {
        match self {
            Reach::At(way) => Reach::At(way.with(Step::Element)),
            Reach::MemberOf(way) if !way.is_map() => Reach::At(way.with(Step::Element).with(Step::Element)),
            Reach::ListOf(element) => (**element).clone(),
            _ => Reach::Unknown,
        }
    }

    /// What a macro with one variable goes over.
    pub(crate) fn member(&self) -> Reach {
        match self {
            Reach::At(way) if way.is_map() => Reach::At(way.with(Step::Key)),
            Reach::At(way) => Reach::MemberOf(way.clone()),
            Reach::MemberOf(way) if !way.is_map() => Reach::MemberOf(way.with(Step::Element)),
            Reach::ListOf(element) => (**element).clone(),
            _ => Reach::Unknown,
        }
    }

    /// The first variable of a macro with two: a key, where that is known.
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

    /// The way to what is surely read, where the value itself is used.
    pub(crate) fn read(&self) -> Option<&Way> {
        match self {
            Reach::At(way) | Reach::MemberOf(way) => Some(way),
            Reach::ListOf(element) => element.read(),
            Reach::Unknown => None,
        }
    }
}

/// Only the longest ways: what leads to them is read anyway.
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
