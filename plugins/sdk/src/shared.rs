//! Short ways to make and read what all policy points share.

use crate::bindings::pointsman::policy::types::{Entry, Failure, Reason};

/// A label or annotation.
pub fn entry(key: impl Into<String>, value: impl Into<String>) -> Entry {
    Entry { key: key.into(), value: value.into() }
}

/// A reason: one CamelCase word, and a sentence.
pub fn reason(code: impl Into<String>, message: impl Into<String>) -> Reason {
    Reason { code: code.into(), message: message.into() }
}

/// The value of a label or annotation.
pub fn lookup<'a>(entries: &'a [Entry], key: &str) -> Option<&'a str> {
    entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

impl<K: Into<String>, V: Into<String>> From<(K, V)> for Entry {
    fn from((key, value): (K, V)) -> Self {
        entry(key, value)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message }
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self { message: message.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_label_by_its_key() {
        let labels = [entry("a", "1"), ("b", "2").into()];
        assert_eq!(lookup(&labels, "b"), Some("2"));
        assert_eq!(lookup(&labels, "c"), None);
    }
}
