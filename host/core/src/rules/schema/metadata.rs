//! Checks the metadata of an object: its name, labels and annotations.

use super::{Step, Violation};
use pointsman_sandbox::words::{self, MAX_ANNOTATIONS_BYTES};
use serde_json::{Map, Value};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const WORD: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const OF_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const OF_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const OF_WORD: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const WORDS: &str = "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is";

/// The violations in the metadata of an object.
pub(super) fn flaws(object: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default();
    let (name, generated) = (text("name"), text("generateName"));
    if name.is_empty() && generated.is_empty() {
        found.push(Violation::blocking(&at("name"), "Required value: name or generateName is required".to_owned()));
    }
    let whole = [("name", name.to_owned()), ("generateName", unfinished(generated))];
    for ((field, tried), given) in whole.into_iter().zip([name, generated]) {
        let flaws = if given.is_empty() { Vec::new() } else { subdomain(&tried) };
        found.extend(flaws.into_iter().map(|flaw| invalid(field, given, &flaw)));
    }
    let namespace = text("namespace");
    if !namespace.is_empty() {
        found.extend(label(namespace).into_iter().map(|flaw| invalid("namespace", namespace, &flaw)));
    }
    for (key, value) in map(metadata, "labels") {
        found.extend(key_flaws(key).into_iter().map(|flaw| invalid_in("labels", key, key, &flaw)));
        let Some(value) = value.as_str() else {
            found.push(no_text("labels", key));
            continue;
        };
        if words::label_value(value).is_err() {
            found.extend(value_flaws(value).into_iter().map(|flaw| invalid_in("labels", key, value, &flaw)));
        }
    }
    let mut size = 0;
    for (key, value) in map(metadata, "annotations") {
        found.extend(key_flaws(&key.to_lowercase()).into_iter().map(|flaw| invalid_in("annotations", key, key, &flaw)));
        let Some(value) = value.as_str() else {
            found.push(no_text("annotations", key));
            continue;
        };
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS_BYTES {
        found.push(Violation::blocking(&at("annotations"), format!("Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes")));
    }
    found
}

fn at(field: &str) -> Vec<Step> {
    ["metadata", field].map(|name| Step::Field(name.to_owned())).to_vec()
}

fn invalid(field: &str, value: &str, flaw: &str) -> Violation {
    Violation::new(&at(field), format!("Invalid value: {}: {flaw}", Value::from(value)))
}

/// The path ends with the key, which has its own line; the API server's message names only the whole map.
fn invalid_in(field: &str, key: &str, value: &str, flaw: &str) -> Violation {
    invalid(field, value, flaw).within(Step::Key(key.to_owned()))
}

/// YAML parses unquoted numbers and booleans as such.
fn no_text(field: &str, key: &str) -> Violation {
    let step = Step::Key(key.to_owned());
    Violation::blocking(&at(field), format!("Invalid value: the value of {key} must be a string: put it in quotes")).within(step)
}

fn map<'m>(metadata: &'m Value, name: &str) -> impl Iterator<Item = (&'m String, &'m Value)> {
    metadata[name].as_object().map(Map::iter).into_iter().flatten()
}

/// A generateName in the form in which it is checked: as if it were completed.
fn unfinished(generated: &str) -> String {
    match generated.strip_suffix('-') {
        Some(before) if !before.is_empty() => format!("{before}a"),
        _ => generated.to_owned(),
    }
}

fn subdomain(text: &str) -> Vec<String> {
    let mut flaws = Vec::new();
    if text.len() > 253 {
        flaws.push(too_long(253));
    }
    if !text.split('.').all(words::dns_label) {
        flaws.push(format!("{OF_SUBDOMAIN} (e.g. 'example.com', regex used for validation is '{LABEL}(\\.{LABEL})*')"));
    }
    flaws
}

fn label(text: &str) -> Vec<String> {
    let mut flaws = Vec::new();
    if text.len() > 63 {
        flaws.push(too_long(63));
    }
    if !words::dns_label(text) {
        let dots = text.contains('.') && text.split('.').all(words::dns_label);
        flaws.push(if dots {
            "must not contain dots".to_owned()
        } else {
            format!("{OF_LABEL} (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')")
        });
    }
    flaws
}

fn key_flaws(key: &str) -> Vec<String> {
    if words::key(key).is_ok() {
        return Vec::new();
    }
    let mut flaws = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        ["", name] => {
            flaws.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            flaws.extend(subdomain(prefix).into_iter().map(|flaw| format!("prefix part {flaw}")));
            name
        }
        _ => {
            let ending = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {OF_WORD} {WORDS} '{WORD}') {ending}")];
        }
    };
    if name.is_empty() {
        flaws.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        flaws.push(format!("name part {}", too_long(63)));
    }
    if !is_word(name) {
        flaws.push(format!("name part {OF_WORD} {WORDS} '{WORD}')"));
    }
    flaws
}

/// Whether a text would be a valid name apart from its length.
fn is_word(text: &str) -> bool {
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    outer(text.chars().next()) && outer(text.chars().last()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn value_flaws(value: &str) -> Vec<String> {
    let mut flaws = Vec::new();
    if value.len() > 63 {
        flaws.push(too_long(63));
    }
    if !is_word(value) {
        let words = OF_WORD.trim_start_matches("must ");
        let like = "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is";
        flaws.push(format!("a valid label must be an empty string or {words} {like} '({WORD})?')"));
    }
    flaws
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}
