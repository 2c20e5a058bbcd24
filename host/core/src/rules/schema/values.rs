//! Checks values against a schema: types, limits, patterns, required fields.

use super::{Step, Violation, formats, shown, written};
use regex::Regex;
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, RwLock},
};

/// The limit up to which floats represent all integers exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Compiled patterns; none for an invalid regular expression.
type Patterns = HashMap<String, Option<Arc<Regex>>>;

/// The violations in a value.
pub(super) fn flaws(value: &Value, schema: &Value) -> Vec<Violation> {
    let mut walk = Walk { path: Vec::new(), found: Vec::new() };
    walk.visit(value, schema);
    walk.found
}

/// A number as an integer, if it has no fraction.
pub(super) fn whole(value: &Value) -> Option<i128> {
    let Value::Number(number) = value else { return None };
    if let Some(number) = number.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = number.as_u64() {
        return Some(number.into());
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within what a float has exactly")]
    let whole = |number: f64| (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i128);
    number.as_f64().and_then(whole)
}

/// The JSON type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if whole(value).is_some() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The types that a schema accepts; empty means any.
fn types(schema: &Value) -> Vec<&str> {
    if schema["x-kubernetes-int-or-string"] == true { vec!["integer", "string"] } else { schema["type"].as_str().into_iter().collect() }
}

/// The schema's format, if the API server knows it.
fn format(schema: &Value) -> Option<&str> {
    let format = schema["format"].as_str()?;
    let known = match schema["type"].as_str() {
        Some("integer") => ["int32", "int64"].contains(&format),
        Some("number") => ["float", "double"].contains(&format),
        Some("string") | None => formats::known(format),
        Some(_) => false,
    };
    known.then_some(format)
}

fn bound(schema: &Value, name: &str) -> Option<usize> {
    schema[name].as_u64().map(|bound| usize::try_from(bound).unwrap_or(usize::MAX))
}

fn list<'s>(schema: &'s Value, name: &str) -> impl Iterator<Item = &'s Value> {
    schema[name].as_array().into_iter().flatten()
}

struct Walk {
    path: Vec<Step>,
    found: Vec<Violation>,
}

impl Walk {
    fn visit(&mut self, value: &Value, schema: &Value) {
        self.typed(value, schema);
        if !value.is_null() {
            self.combined(value, schema);
        }
        match value {
            Value::String(text) => self.text(text, schema),
            Value::Number(_) => self.number(value, schema),
            Value::Array(items) => self.items(items, schema),
            _ => {}
        }
        self.listed(value, schema);
        if let Value::Object(fields) = value {
            self.fields(fields, schema);
        }
    }

    fn below(&mut self, step: Step, value: &Value, schema: &Value) {
        self.path.push(step);
        self.visit(value, schema);
        self.path.pop();
    }

    /// The place in the form of the API server's messages.
    fn place(&self) -> String {
        written(&self.path)
    }

    fn invalid(&mut self, value: &str, what: &str) {
        let message = format!("Invalid value: {value}: {} in body {what}", self.place());
        self.found.push(Violation::new(&self.path, message));
    }

    fn typed(&mut self, value: &Value, schema: &Value) {
        let types = types(schema);
        let kind = kind(value);
        let fits = types.is_empty() || types.contains(&kind) || kind == "integer" && types.contains(&"number");
        let null = value.is_null() && (schema["nullable"] == true || types.is_empty());
        if fits || null {
            return;
        }
        let place = self.place();
        let message = match format(schema) {
            // For these, the API server names the format instead of the type, and leaves the value empty.
            Some(format) if matches!(value, Value::Bool(_) | Value::Object(_)) => {
                format!("Invalid value: \"\": {place} in body must be of type {format}: \"\"")
            }
            Some(format) if kind == "number" => {
                format!("Invalid value: \"float64\": {place} in body must be of type {format}: \"float64\"")
            }
            _ => format!("Invalid value: \"{kind}\": {place} in body must be of type {}: \"{kind}\"", types.join(",")),
        };
        self.found.push(Violation::blocking(&self.path, message));
    }

    fn text(&mut self, text: &str, schema: &Value) {
        let length = text.chars().count();
        let value = Value::from(text).to_string();
        if let Some(most) = bound(schema, "maxLength").filter(|most| length > *most) {
            let bytes = if most == 1 { "byte" } else { "bytes" };
            self.found.push(Violation::blocking(&self.path, format!("Too long: may not be more than {most} {bytes}")));
        } else if let Some(least) = bound(schema, "minLength").filter(|least| length < *least) {
            self.invalid(&value, &format!("should be at least {least} chars long"));
        } else if let Some(pattern) = schema["pattern"].as_str().filter(|pattern| !matches(pattern, text)) {
            self.invalid(&value, &format!("should match '{pattern}'"));
        }
        if let Some(format) = format(schema).filter(|format| formats::known(format) && !formats::is(format, text)) {
            let message = format!("Invalid value: {value}: {} in body must be of type {format}: {value}", self.place());
            self.found.push(Violation::blocking(&self.path, message));
        }
    }

    fn number(&mut self, value: &Value, schema: &Value) {
        let whole = whole(value);
        let range = match format(schema) {
            Some("int32") => whole.is_some_and(|whole| i32::try_from(whole).is_err()),
            _ => schema["type"] == "integer" && whole.is_some_and(|whole| i64::try_from(whole).is_err()),
        };
        if range {
            let form = format(schema).map_or_else(|| "(default format)".to_owned(), |format| format!("with format {format}"));
            let message = format!("Invalid value: \"\": Checked value must be of type integer {form} in {}", self.place());
            self.found.push(Violation::new(&self.path, message));
        }
        let Some(number) = value.as_f64() else { return };
        let said = shown(value);
        if let Some(factor) = schema["multipleOf"].as_f64().filter(|factor| *factor > 0.0) {
            let times = if factor < 1.0 { number * (1.0 / factor) } else { number / factor };
            if (times - times.round()).abs() > 1e-9 {
                self.invalid(&said, &format!("should be a multiple of {}", shown(&schema["multipleOf"])));
            }
        }
        if let Some(least) = schema["minimum"].as_f64() {
            let exclusive = schema["exclusiveMinimum"] == true;
            if number < least || exclusive && number <= least {
                let words = if exclusive { "greater than" } else { "greater than or equal to" };
                self.invalid(&said, &format!("should be {words} {}", shown(&schema["minimum"])));
            }
        }
        if let Some(most) = schema["maximum"].as_f64() {
            let exclusive = schema["exclusiveMaximum"] == true;
            if number > most || exclusive && number >= most {
                let words = if exclusive { "less than" } else { "less than or equal to" };
                self.invalid(&said, &format!("should be {words} {}", shown(&schema["maximum"])));
            }
        }
    }

    fn items(&mut self, items: &[Value], schema: &Value) {
        for (number, item) in items.iter().enumerate() {
            self.below(Step::Item(number), item, &schema["items"]);
        }
        self.counted(items.len(), schema, "Items", "items");
    }

    fn fields(&mut self, fields: &Map<String, Value>, schema: &Value) {
        self.counted(fields.len(), schema, "Properties", "properties");
        let properties = schema["properties"].as_object();
        let others = schema.get("additionalProperties");
        for (name, value) in fields {
            if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                self.below(Step::Field(name.clone()), value, schema);
            } else if others == Some(&Value::Bool(false)) {
                let message = format!("Invalid value: {}: {}.{name} in body is a forbidden property", Value::from(&**name), self.place());
                self.found.push(Violation::new(&self.path, message));
            } else if let Some(others) = others.filter(|others| others.is_object()) {
                self.below(Step::Field(name.clone()), value, others);
            }
        }
        for name in list(schema, "required").filter_map(Value::as_str).filter(|name| !fields.contains_key(*name)) {
            self.path.push(Step::Field(name.to_owned()));
            self.found.push(Violation::blocking(&self.path, "Required value".to_owned()));
            self.path.pop();
        }
    }

    fn counted(&mut self, count: usize, schema: &Value, bounds: &str, what: &str) {
        if let Some(most) = bound(schema, &format!("max{bounds}")).filter(|most| count > *most) {
            let items = if most == 1 { "item" } else { "items" };
            self.found.push(Violation::blocking(&self.path, format!("Too many: {count}: must have at most {most} {items}")));
        }
        if let Some(least) = bound(schema, &format!("min{bounds}")).filter(|least| count < *least) {
            self.invalid(&count.to_string(), &format!("should have at least {least} {what}"));
        }
    }

    fn listed(&mut self, value: &Value, schema: &Value) {
        let allowed: Vec<&Value> = list(schema, "enum").collect();
        let equal = |allowed: &&Value| **allowed == *value || whole(allowed).is_some_and(|number| whole(value) == Some(number));
        if allowed.is_empty() || allowed.iter().any(equal) {
            return;
        }
        let quoted = |value: &&Value| Value::from(value.as_str().map_or_else(|| shown(value), str::to_owned)).to_string();
        let supported = allowed.iter().map(quoted).collect::<Vec<_>>().join(", ");
        self.found.push(Violation::blocking(&self.path, format!("Unsupported value: {}: supported values: {supported}", shown(value))));
    }

    fn combined(&mut self, value: &Value, schema: &Value) {
        let tried = |schema: &Value| {
            let mut walk = Self { path: self.path.clone(), found: Vec::new() };
            walk.visit(value, schema);
            walk.found
        };
        let any: Vec<_> = list(schema, "anyOf").map(tried).collect();
        let one: Vec<_> = list(schema, "oneOf").map(tried).collect();
        let all: Vec<_> = list(schema, "allOf").map(tried).collect();
        let not = schema.get("not").map(tried);
        let place = self.place();
        let mut said = Vec::new();
        if !any.is_empty() && !any.iter().any(Vec::is_empty) {
            said.push(format!("{place:?} must validate at least one schema (anyOf)"));
            self.found.extend(nearest(any));
        }
        match one.iter().filter(|found| found.is_empty()).count() {
            1 => {}
            0 if one.is_empty() => {}
            0 => {
                said.push(format!("{place:?} must validate one and only one schema (oneOf). Found none valid"));
                self.found.extend(nearest(one));
            }
            several => said.push(format!("{place:?} must validate one and only one schema (oneOf). Found {several} valid alternatives")),
        }
        if all.iter().any(|found| !found.is_empty()) {
            let none = if all.iter().any(Vec::is_empty) { "" } else { ". None validated" };
            said.push(format!("{place:?} must validate all the schemas (allOf){none}"));
            self.found.extend(all.into_iter().flatten());
        }
        if not.is_some_and(|found| found.is_empty()) {
            said.push(format!("{place:?} must not validate the schema (not)"));
        }
        self.found.extend(said.into_iter().map(|what| Violation::new(&self.path, format!("Invalid value: \"\": {what}"))));
    }
}

/// The violations of the alternative that has the fewest, if none matches.
fn nearest(alternatives: Vec<Vec<Violation>>) -> Vec<Violation> {
    alternatives.into_iter().min_by_key(Vec::len).unwrap_or_default()
}

/// Whether a part of a text matches. An invalid regular expression matches nothing.
fn matches(pattern: &str, text: &str) -> bool {
    static PATTERNS: LazyLock<RwLock<Patterns>> = LazyLock::new(RwLock::default);
    let known = PATTERNS.read().ok().and_then(|patterns| patterns.get(pattern).cloned());
    let compiled = known.unwrap_or_else(|| {
        let compiled = Regex::new(pattern).ok().map(Arc::new);
        if let Ok(mut patterns) = PATTERNS.write() {
            patterns.insert(pattern.to_owned(), compiled.clone());
        }
        compiled
    });
    compiled.is_some_and(|compiled| compiled.is_match(text))
}
