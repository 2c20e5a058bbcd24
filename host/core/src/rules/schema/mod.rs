//! The violations that the API server reports for an object of one of our kinds, by the kind's CRD and with the API server's messages, so
//! that offline checks report the same as admission.
//!
//! `values` checks values against a schema, `formats` checks formats of strings, `lists` finds duplicates in lists, `metadata` checks the
//! fields that every object has, `expressions` evaluates the CEL rules of a CRD.

mod expressions;
mod formats;
mod lists;
mod metadata;
#[cfg(test)]
mod tests;
mod values;

pub use expressions::{Evaluated, rules};

use pointsman_sandbox::digest::sorted;
use serde_json::Value;
use std::fmt;

/// A step into an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A field.
    Field(String),
    /// A key of a map, written in brackets.
    Key(String),
    /// An index of a list.
    Item(usize),
}

/// A violation in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its path. If something is missing, the last steps don't exist in the object.
    pub path: Vec<Step>,
    /// The API server's message after the field.
    pub message: String,
    /// Whether the CRD's rules can't be evaluated because of it.
    pub blocks: bool,
    /// The field, in the API server's form.
    pub field: String,
}

impl Violation {
    fn new(path: &[Step], message: String) -> Self {
        Self { path: path.to_vec(), message, blocks: false, field: written(path) }
    }

    fn blocking(path: &[Step], message: String) -> Self {
        Self { blocks: true, ..Self::new(path, message) }
    }

    /// Extends the path to a more precise place than the field.
    fn within(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The violations of a CRD's `openAPIV3Schema`, as JSON, in an object: all except those of the CRD's rules, which `rules` evaluates.
pub fn validate(object: &Value, schema: &Value) -> Vec<Violation> {
    let object = &settled(object, schema);
    let mut found = metadata::flaws(object);
    found.extend(values::flaws(object, schema));
    found.extend(lists::flaws(object, schema));
    found
}

/// An object without meaningless nulls: if a field isn't nullable, the API server treats null as absent.
fn settled(value: &Value, schema: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let inner = below(schema, name);
                let stays = !value.is_null() || inner.is_none_or(|inner| inner["nullable"] == true);
                stays.then(|| (name.clone(), settled(value, inner.unwrap_or(&Value::Null))))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(|item| settled(item, &schema["items"])).collect(),
        other => other.clone(),
    }
}

/// The schema of a field, or of a map's value.
fn below<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    schema["properties"].get(name).or_else(|| schema.get("additionalProperties").filter(|others| others.is_object()))
}

/// The step to a field: a key if the schema has a map.
fn step(schema: &Value, name: &str) -> Step {
    let is_field = schema["properties"].get(name).is_some();
    if is_field { Step::Field(name.to_owned()) } else { Step::Key(name.to_owned()) }
}

fn written(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
            Step::Key(key) => {
                text.push('[');
                text.push_str(key);
                text.push(']');
            }
            Step::Item(number) => {
                text.push('[');
                text.push_str(&number.to_string());
                text.push(']');
            }
        }
    }
    text
}

/// A value in the API server's form: JSON with sorted keys, integers without a fraction.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => values::whole(value).map_or_else(|| number.to_string(), |whole| whole.to_string()),
        Value::Object(_) | Value::Array(_) => sorted(value).to_string(),
        other => other.to_string(),
    }
}
