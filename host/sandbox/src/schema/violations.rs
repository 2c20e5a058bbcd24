//! Turns a validation's tree of errors into a few sentences, one per line.

use super::MAX_VIOLATIONS_REPORTED;
use crate::{text::printable_line, words};
use boon::{ErrorKind, InstanceLocation, InstanceToken, ValidationError};
use serde_json::Value;
use std::fmt::Write;

/// The maximum number of names, values or alternatives in one sentence.
const MAX_NAMES_LISTED: usize = 8;

/// The maximum length of a place in a sentence. Only its end is kept.
const PLACE: usize = 100;

/// Longer names aren't compared.
const COMPARED: usize = 64;

/// The maximum distance between an unknown name and a suggestion.
const NEAR: usize = 2;

/// Describes the errors in sentences about `root`.
pub(super) fn violations(error: &ValidationError<'_, '_>, root: &str, schema: &Value) -> String {
    let mut leaves = Vec::new();
    let count = collect(error, &mut leaves);
    let mut sentences: Vec<_> = leaves.iter().map(|leaf| sentence(leaf, root, schema)).collect();
    if count > sentences.len() {
        sentences.push(format!("and {} more", count - sentences.len()));
    }
    sentences.join("\n")
}

/// Finds a `$ref` that leads back to itself. The validation stopped there, so its result is meaningless.
pub(super) fn loops(error: &ValidationError<'_, '_>) -> Option<String> {
    match &error.kind {
        ErrorKind::RefCycle { url, .. } => {
            let place = url.split_once('#').map_or(*url, |(_, place)| place);
            Some(printable_line(&format!("its $ref at {:?} leads to itself without end", if place.is_empty() { "/" } else { place })))
        }
        _ => error.causes.iter().find_map(loops),
    }
}

/// Counts the errors to report, and collects the first ones.
fn collect<'e, 's, 'v>(error: &'e ValidationError<'s, 'v>, into: &mut Vec<&'e ValidationError<'s, 'v>>) -> usize {
    let inner = matches!(error.kind, ErrorKind::Group | ErrorKind::Schema { .. } | ErrorKind::Reference { .. } | ErrorKind::AllOf);
    if inner && !error.causes.is_empty() {
        return error.causes.iter().map(|cause| collect(cause, into)).sum();
    }
    if into.len() < MAX_VIOLATIONS_REPORTED {
        into.push(error);
    }
    1
}

fn sentence(error: &ValidationError<'_, '_>, root: &str, schema: &Value) -> String {
    let place = place(root, &error.instance_location);
    let first = |error: &ValidationError<'_, '_>| {
        let mut leaves = Vec::new();
        collect(error, &mut leaves);
        leaves.first().map(|leaf| sentence(leaf, root, schema))
    };
    let words = match &error.kind {
        ErrorKind::Type { got, want } => {
            format!("{place} must be {}, but is {got}", want.iter().map(|type_| type_.to_string()).collect::<Vec<_>>().join(" or "))
        }
        ErrorKind::Enum { want } => format!("{place} must be one of {}", list(want.iter().map(Value::to_string))),
        ErrorKind::Const { want } => format!("{place} must be {want}"),
        ErrorKind::Required { want } => format!("{place} lacks {}", list(want.iter().map(|name| format!("{name:?}")))),
        ErrorKind::FalseSchema => format!("{place} isn't allowed"),
        ErrorKind::PropertyName { prop } => {
            let why = error.causes.first().and_then(first).map(|why| format!(": {why}")).unwrap_or_default();
            format!("{place} has a property with the invalid name {prop:?}{why}")
        }
        ErrorKind::AdditionalProperties { got } => {
            let name = got.first().map(AsRef::as_ref).unwrap_or_default();
            let more = if got.len() > 1 { format!(", and {} more", got.len() - 1) } else { String::new() };
            // Shortened first, so that the hint after it isn't cut off.
            format!("{place} has an unknown property {}{}{more}", short(&format!("{name:?}")), hint(name, error.schema_url, schema))
        }
        ErrorKind::AnyOf | ErrorKind::OneOf(None) if !error.causes.is_empty() => {
            let mut each: Vec<_> = error.causes.iter().take(MAX_VIOLATIONS_REPORTED).filter_map(first).collect();
            each.dedup();
            format!("{place} matches none of its alternatives: {}", each.join(", or "))
        }
        other => format!("{place}: {other}"),
    };
    printable_line(&words)
}

fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(MAX_NAMES_LISTED);
    let mut list = items.take(MAX_NAMES_LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        // Writing to a string never fails.
        let _ = write!(list, " and {more} more");
    }
    list
}

fn short(text: &str) -> String {
    if text.chars().count() <= PLACE { text.to_owned() } else { text.chars().take(PLACE).chain(['\u{2026}']).collect() }
}

/// A place such as `config.a.b[0]`. If it is too long, only its end is kept.
fn place(root: &str, location: &InstanceLocation<'_>) -> String {
    let mut place = String::new();
    for token in &location.tokens {
        let _ = match token {
            InstanceToken::Item(index) => write!(place, "[{index}]"),
            InstanceToken::Prop(name) if is_plain(name) => write!(place, ".{name}"),
            InstanceToken::Prop(name) => write!(place, "[{name:?}]"),
        };
    }
    let length = place.chars().count();
    if length > PLACE {
        place = ['\u{2026}'].into_iter().chain(place.chars().skip(length - PLACE)).collect();
    }
    format!("{root}{place}")
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-$".contains(c))
}

/// A suggestion for an unknown property, from the schema at `at`.
fn hint(name: &str, at: &str, schema: &Value) -> String {
    let pointer = at.split_once('#').map(|(_, pointer)| pointer).unwrap_or_default();
    let known = schema.pointer(pointer).and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let Some(known) = known.filter(|known| !known.is_empty()) else { return String::new() };
    let comparable = known.keys().map(String::as_str).filter(|known| is_short(name) && is_short(known));
    match words::nearest(name, comparable, NEAR) {
        Some(nearest) => format!(": did you mean {nearest:?}?"),
        None => format!(": known are {}", list(known.keys().map(|known| format!("{known:?}")))),
    }
}

fn is_short(name: &str) -> bool {
    name.chars().nth(COMPARED).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[test]
    fn a_name_is_compared_unless_it_is_long() {
        let hint = |name: usize, known: usize| {
            let properties: Map<_, _> = [("a".repeat(known), json!({}))].into_iter().collect();
            hint(&"a".repeat(name), "schema#", &json!({"properties": properties}))
        };
        for (name, known) in [(63, 64), (64, 62), (64, 64)] {
            assert!(hint(name, known).starts_with(": did you mean "), "{name} {known}");
        }
        for (name, known) in [(65, 64), (64, 65), (64, 61)] {
            assert!(hint(name, known).starts_with(": known are "), "{name} {known}");
        }
    }
}
