//! The functions, one file per family. Each declares the types of its arguments and its result, for the checks when a rule is compiled. At
//! evaluation, it handles any argument on its own.
#![allow(clippy::needless_pass_by_value, clippy::unnecessary_wraps, reason = "`cel` says what a function takes and gives")]

pub(crate) mod args;
pub(crate) mod conversion;
pub(crate) mod dates;
pub(crate) mod format;
pub(crate) mod interpolation;
pub(crate) mod lists;
pub(crate) mod maps;
pub(crate) mod network;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sorting;
pub(crate) mod strings;
pub(crate) mod url;

use crate::value::special::Content;
use cel::common::functions::Function as Op;
use cel::common::types::{self, Kind, Type};
use cel::{DeclarationError, Env};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A type in a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum P {
    /// Any type: the same at all positions of a declaration.
    A,
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Type,
    Null,
    List(&'static P),
    Map(&'static P, &'static P),
    Optional(&'static P),
    /// One of Kubernetes' types, by name.
    Special(&'static str),
}

/// A function. Global ones are called as `f(x)`, members as `x.f()`.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) member: bool,
    /// The types of its arguments and of its result. For a member, the first argument is the value that it is called on.
    pub(crate) overloads: &'static [(&'static [P], P)],
    op: Op,
}

/// Declares `f(x)`.
pub(crate) const fn global(name: &'static str, overloads: &'static [(&'static [P], P)], op: Op) -> Function {
    Function { name, member: false, overloads, op }
}

/// Declares `x.f()`.
pub(crate) const fn member(name: &'static str, overloads: &'static [(&'static [P], P)], op: Op) -> Function {
    Function { name, member: true, overloads, op }
}

/// The families.
static FAMILIES: [&[Function]; 15] = [
    conversion::FUNCTIONS,
    dates::FUNCTIONS,
    format::FUNCTIONS,
    interpolation::FUNCTIONS,
    lists::FUNCTIONS,
    maps::FUNCTIONS,
    network::FUNCTIONS,
    optional::FUNCTIONS,
    quantity::FUNCTIONS,
    regex::FUNCTIONS,
    semver::FUNCTIONS,
    sorting::FUNCTIONS,
    strings::FUNCTIONS,
    strings::COMPARISONS,
    url::FUNCTIONS,
];

/// The functions with a name: global ones, and members.
type Named = [Vec<&'static Function>; 2];

/// All functions with a name.
pub(crate) fn overloads(name: &str, member: bool) -> &'static [&'static Function] {
    index().get(name).and_then(|functions| functions.get(usize::from(member))).map_or(&[], Vec::as_slice)
}

/// The names of all global functions, or of all members.
pub(crate) fn names(member: bool) -> impl Iterator<Item = &'static str> {
    index().keys().copied().filter(move |name| !name.starts_with('@') && !overloads(name, member).is_empty())
}

fn index() -> &'static BTreeMap<&'static str, Named> {
    static INDEX: OnceLock<BTreeMap<&'static str, Named>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut index: BTreeMap<&'static str, Named> = BTreeMap::new();
        for function in FAMILIES.iter().flat_map(|family| family.iter()) {
            let [global, member] = index.entry(function.name).or_default();
            if function.member { member.push(function) } else { global.push(function) }
        }
        index
    })
}

/// The name of the function that a compiled call uses. Members are called as functions, so that the name alone identifies the function.
pub(crate) fn key(name: &str, member: bool, arguments: usize) -> String {
    if member { format!("value.{name}/{arguments}") } else { format!("{name}/{arguments}") }
}

/// The types that expressions can name.
pub(crate) const TYPES: [(&str, P); 20] = [
    ("bool", P::Bool),
    ("bytes", P::Bytes),
    ("double", P::Double),
    ("dyn", P::Dyn),
    ("google.protobuf.Duration", P::Duration),
    ("google.protobuf.Timestamp", P::Timestamp),
    ("int", P::Int),
    ("kubernetes.NamedFormat", P::Special(<format::NamedFormat as Content>::NAME)),
    ("kubernetes.Quantity", P::Special(<crate::value::quantity::Quantity as Content>::NAME)),
    ("kubernetes.Semver", P::Special(<crate::value::semver::Semver as Content>::NAME)),
    ("kubernetes.URL", P::Special(<crate::value::url::Url as Content>::NAME)),
    ("list", P::List(&P::Dyn)),
    ("map", P::Map(&P::Dyn, &P::Dyn)),
    ("net.CIDR", P::Special(<crate::value::cidr::Cidr as Content>::NAME)),
    ("net.IP", P::Special(<crate::value::cidr::Ip as Content>::NAME)),
    ("null_type", P::Null),
    ("optional_type", P::Optional(&P::Dyn)),
    ("string", P::String),
    ("type", P::Type),
    ("uint", P::Uint),
];

/// The environment in which rules are evaluated.
pub(crate) fn environment() -> Result<Env, DeclarationError> {
    let mut env = Env::default();
    for (name, _) in TYPES {
        env.add_type(Type::simple_type(Kind::Opaque, name))?;
    }
    for (name, is_member) in index().keys().flat_map(|name| [(*name, false), (*name, true)]) {
        let functions = overloads(name, is_member).iter();
        let overloads = functions.flat_map(|function| function.overloads.iter().map(|(takes, _)| (*takes, function.op)));
        // At evaluation, all lists have the same type, regardless of their elements.
        let mut known: Vec<Vec<Type>> = Vec::new();
        for (takes, op) in overloads {
            let types: Vec<Type> = takes.iter().map(declared).collect();
            if !known.contains(&types) {
                let key = key(name, is_member, takes.len());
                env.add_overload(&key, &format!("{key}#{}", known.len()), types.iter().map(ToOwned::to_owned).collect(), op)?;
                known.push(types);
            }
        }
    }
    Ok(env)
}

/// The type in `cel`.
fn declared(parameter: &P) -> Type {
    match parameter {
        P::A | P::Dyn => types::DYN_TYPE,
        P::Bool => types::BOOL_TYPE,
        P::Int => types::INT_TYPE,
        P::Uint => types::UINT_TYPE,
        P::Double => types::DOUBLE_TYPE,
        P::String => types::STRING_TYPE,
        P::Bytes => types::BYTES_TYPE,
        P::Duration => crate::value::time::DURATION.to_owned(),
        P::Timestamp => crate::value::time::TIMESTAMP.to_owned(),
        P::Type => types::TYPE_TYPE,
        P::Null => types::NULL_TYPE,
        P::List(_) => types::LIST_TYPE,
        P::Map(..) => types::MAP_TYPE,
        P::Optional(_) => types::OPTIONAL_TYPE,
        P::Special(name) => Type::simple_type(Kind::Opaque, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_functions_are_declared_alike() {
        environment().unwrap();
    }

    #[test]
    fn every_function_is_found_by_its_name() {
        for function in FAMILIES.iter().flat_map(|family| family.iter()) {
            assert!(overloads(function.name, function.member).iter().any(|found| std::ptr::eq(*found, function)), "{}", function.name);
        }
    }
}
