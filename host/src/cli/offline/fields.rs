//! Finds the invalid field of an object, and its line. Only runs after an error.

use super::files::SourceLocation;
use crate::cli::yaml::as_written;
use pointsman_core::structural::Step;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::Spanned;
use std::fmt;

/// Why an object is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {}{message}", before(.field))]
pub(in crate::cli) struct InvalidObject {
    pub(in crate::cli) place: SourceLocation,
    /// The field in its usual notation; empty for the whole object.
    pub(in crate::cli) field: String,
    pub(in crate::cli) message: String,
}

fn before(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("{field}: ") }
}

impl InvalidObject {
    /// An error about the whole object.
    pub(in crate::cli) fn new(place: &SourceLocation, message: String) -> Self {
        Self { place: place.clone(), field: String::new(), message }
    }
}

/// The error for an object that `read` refuses: its place, the field, and the message.
pub(in crate::cli) fn wrong(
    place: &SourceLocation,
    object: &Value,
    read: fn(Value) -> serde_json::Result<Value>,
    error: &serde_json::Error,
) -> InvalidObject {
    let (place, field) = locate(place, &culprit(object, read));
    InvalidObject { place, field, message: error.to_string() }
}

/// A part of the object at a place, in the usual notation, with its own place.
pub(in crate::cli) fn locate(place: &SourceLocation, path: &[Step]) -> (SourceLocation, String) {
    let line = line(place, path).unwrap_or(place.line);
    let mut field = String::new();
    for step in path {
        match step {
            Step::Field(name) if field.is_empty() => field.push_str(name),
            Step::Field(name) => field = format!("{field}.{name}"),
            Step::Item(number) => field = format!("{field}[{number}]"),
        }
    }
    (SourceLocation { line, ..place.clone() }, field)
}

/// The innermost part without which the object would be valid, or the error would be another one.
fn culprit(object: &Value, read: fn(Value) -> serde_json::Result<Value>) -> Vec<Step> {
    let error = |object: Value| read(object).err().map(|error| error.to_string());
    let first = error(object.clone());
    let helps = |path: &[Step]| {
        let mut without = object.clone();
        remove(&mut without, path);
        let error = error(without);
        // The absence of a required field isn't such an error.
        error != first && error.is_none_or(|error| !error.starts_with("missing field"))
    };
    innermost(object, &mut Vec::new(), &helps).unwrap_or_default()
}

fn innermost(part: &Value, path: &mut Vec<Step>, helps: &impl Fn(&[Step]) -> bool) -> Option<Vec<Step>> {
    for step in steps(part) {
        let inner = at(part, &step)?;
        path.push(step);
        let found = innermost(inner, path, helps).or_else(|| helps(path).then(|| path.clone()));
        if found.is_some() {
            return found;
        }
        path.pop();
    }
    None
}

fn steps(part: &Value) -> Vec<Step> {
    match part {
        Value::Object(fields) => fields.keys().cloned().map(Step::Field).collect(),
        Value::Array(items) => (0..items.len()).map(Step::Item).collect(),
        _ => Vec::new(),
    }
}

fn at<'a>(part: &'a Value, step: &Step) -> Option<&'a Value> {
    match step {
        Step::Field(name) => part.get(name),
        Step::Item(number) => part.get(number),
    }
}

fn remove(object: &mut Value, path: &[Step]) {
    let Some((last, path)) = path.split_last() else { return };
    let part = path.iter().try_fold(object, |part, step| match step {
        Step::Field(name) => part.get_mut(name),
        Step::Item(number) => part.get_mut(number),
    });
    match (part, last) {
        (Some(Value::Object(fields)), Step::Field(name)) => {
            fields.shift_remove(name);
        }
        (Some(Value::Array(items)), Step::Item(number)) => {
            items.remove(*number);
        }
        _ => {}
    }
}

/// The line of a part of the object at a place, or of its parent.
fn line(place: &SourceLocation, path: &[Step]) -> Option<u64> {
    let outline = || serde_saphyr::from_multiple_with_options(&place.file.text, as_written!()).unwrap_or_default();
    let documents: &Vec<Spanned<Node>> = place.file.outline.get_or_init(outline);
    let mut node = documents.iter().find_map(|document| standing_at(document, place.line))?;
    for step in path {
        let inner = match (&node.value, step) {
            (Node::Map(fields), Step::Field(name)) => fields.iter().find(|(field, _)| field == name).map(|(_, value)| value),
            (Node::List(items), Step::Item(number)) => items.get(*number),
            _ => None,
        };
        let Some(inner) = inner else { break };
        node = inner;
    }
    Some(node.referenced.line())
}

/// The object that starts at a line: a document, or an entry of a list.
fn standing_at(document: &Spanned<Node>, line: u64) -> Option<&Spanned<Node>> {
    let items = match &document.value {
        Node::List(items) => Some(items),
        Node::Map(fields) => fields.iter().find_map(|(field, value)| match &value.value {
            Node::List(items) if field == "items" => Some(items),
            _ => None,
        }),
        Node::Leaf => None,
    };
    let item = items.into_iter().flatten().find(|item| item.referenced.line() == line);
    item.or_else(|| (document.referenced.line() == line).then_some(document))
}

/// A part of a document, of which only the place matters.
#[derive(Debug)]
pub(super) enum Node {
    Map(Vec<(String, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Leaf,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Node, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Node::Map(fields))
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Node, S::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_str<E>(self, _: &str) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
        }
        from.deserialize_any(Any)
    }
}
