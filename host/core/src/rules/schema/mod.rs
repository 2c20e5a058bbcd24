//! What the API server finds wrong with an object of a kind of ours, by the kind's CRD and in the API server's words: offline the same
//! is told as at admission.
//!
//! `values` holds values against a schema, `formats` are texts of a form, `lists` looks for what stands twice in a list, `metadata` at what every
//! object has, `expressions` evaluates the CEL rules of a CRD.

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
    /// A key of a map, which is written in brackets.
    Key(String),
    /// The place in a list.
    Item(usize),
}

/// Something that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where it is; the last steps needn't be there, where something is missing.
    pub path: Vec<Step>,
    /// What is wrong, as the API server says it after the field.
    pub message: String,
    /// Whether the CRD's rules aren't evaluated because of it.
    pub blocks: bool,
    /// The field, as the API server writes it.
    pub field: String,
}

impl Violation {
    fn new(path: &[Step], message: String) -> Self {
        Self { path: path.to_vec(), message, blocks: false, field: written(path) }
    }

    fn blocking(path: &[Step], message: String) -> Self {
        Self { blocks: true, ..Self::new(path, message) }
    }

    /// One whose place is told more closely by the path than by the field.
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

/// What is wrong with an object by a CRD's `openAPIV3Schema`, as JSON: all but what the CRD's rules say, which `rules` evaluates.
pub fn validate(object: &Value, schema: &Value) -> Vec<Violation> {
    let object = &settled(object, schema);
    let mut found = metadata::flaws(object);
    found.extend(values::flaws(object, schema));
    found.extend(lists::flaws(object, schema));
    found
}

/// An object without the nulls that count for nothing: where a field can't be null, the API server takes null for its absence.
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

/// The step to a field: a key where the schema has a map.
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

/// A value as the API server shows it: JSON with sorted keys, whole numbers without a fraction.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => values::whole(value).map_or_else(|| number.to_string(), |whole| whole.to_string()),
        Value::Object(_) | Value::Array(_) => sorted(value).to_string(),
        other => other.to_string(),
    }
}
