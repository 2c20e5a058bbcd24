//! `tests/fixtures`, whose README describes the formats.

use pointsman_harness::workspace;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{fs, path::PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = workspace().join("tests/fixtures").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn parse<T: serde::de::DeserializeOwned>(file: &PathBuf) -> Vec<T> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The objects of `examples/*.yaml`, each with its file's name.
pub fn examples() -> Vec<(String, Value)> {
    files("examples")
        .iter()
        .flat_map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            parse(file).into_iter().map(move |object| (name.clone(), object))
        })
        .collect()
}

/// The smallest valid object of a kind.
pub fn base(kind: &str) -> Value {
    let file = workspace().join("tests/fixtures/base").join(format!("{kind}.yaml"));
    parse(&file).into_iter().next().unwrap_or_else(|| panic!("{} is empty", file.display()))
}

/// A case of a rule or pattern, with an accepted and a rejected value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The CEL rule's message.
    pub rule: Option<String>,
    /// The name of the field with the pattern, if it isn't about a rule.
    pub pattern: Option<String>,
    /// The places: `Kind path`.
    pub at: Vec<String>,
    /// The previous fragment, for rules that compare with it.
    pub before: Option<Value>,
    /// An accepted fragment.
    pub accepted: Value,
    /// A rejected fragment.
    pub rejected: Value,
    /// A part of the API server's message.
    pub says: Option<String>,
}

/// The cases of `validation/*.yaml`.
pub fn cases() -> Vec<Case> {
    files("validation").iter().flat_map(parse::<Vec<Case>>).flatten().collect()
}

/// Puts `fragment` into `object` at a path such as `spec.refs[].name`: `[]` enters a list, `{}` a map.
pub fn put(object: &mut Value, path: &str, fragment: &Value) {
    let mut whole = fragment.clone();
    for segment in path.split('.').rev().filter(|segment| !segment.is_empty()) {
        let name = segment.trim_end_matches("[]").trim_end_matches("{}");
        if segment.ends_with("[]") {
            whole = Value::Array(vec![whole]);
        } else if segment.ends_with("{}") {
            whole = Map::from_iter([("key".to_owned(), whole)]).into();
        }
        whole = Map::from_iter([(name.to_owned(), whole)]).into();
    }
    merge(object, &whole);
}

/// Merges objects field by field, and the value into the first item of a list. Everything else is replaced, and null removes.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                if value.is_null() {
                    into.remove(name);
                } else {
                    merge(into.entry(name.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(into), Value::Array(from)) if into.len() == 1 && from.len() == 1 => merge(&mut into[0], &from[0]),
        (into, from) => into.clone_from(from),
    }
}
