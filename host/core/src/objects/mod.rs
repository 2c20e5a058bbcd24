//! Builders of objects that several kinds share.

pub mod access;
pub mod knative;
pub mod network;
pub mod ray;
pub mod scaling;
pub mod storage;
pub mod workload;

use serde_json::{Map, Value, json};
use std::{borrow::Cow, collections::BTreeMap};

/// The metadata of an object that we write.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its owner reference; none if the subject isn't in a cluster.
    pub owner: Option<Value>,
}

impl Metadata {
    /// Its JSON.
    pub fn into_value(self) -> Value {
        let mut metadata = Map::new();
        metadata.insert("labels".to_owned(), json!(self.labels));
        if !self.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(self.annotations));
        }
        if let Some(owner) = self.owner {
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
        Value::Object(metadata)
    }
}

/// A string map, such as labels, from JSON.
pub fn strings(value: &Value) -> BTreeMap<String, String> {
    let map = value.as_object().into_iter().flatten();
    map.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// The maximum length of a label's value.
const LABEL: usize = 63;

/// A text as a label's value: unchanged if it is valid, otherwise truncated, with `-` for invalid characters and with a hash of the whole
/// text as the suffix, so that different texts have different values. The default policy at metadata-propagation does the same.
pub fn label_value(raw: &str) -> Cow<'_, str> {
    if pointsman_sandbox::words::label_value(raw).is_ok() {
        return raw.into();
    }
    // FNV-1a is short, and the hash only needs to distinguish names.
    let hash = raw.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let outside = |c: char| !c.is_ascii_alphanumeric();
    let text: String = raw.chars().map(allowed).collect();
    let text: String = text.trim_matches(outside).chars().take(LABEL - 9).collect();
    let text = text.trim_end_matches(outside);
    let separator = if text.is_empty() { "" } else { "-" };
    format!("{text}{separator}{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_a_value_that_kubernetes_takes() {
        for raw in ["", "a", "Meta Platforms, Inc.", &"x".repeat(64), "...", "é", "-a-"] {
            let value = label_value(raw);
            assert_eq!(pointsman_sandbox::words::label_value(&value), Ok(()), "{raw} {value}");
        }
        let policy = pointsman_metadata_propagation::valid_label_value;
        for raw in ["llama-7b", "Meta Platforms, Inc.", "meta/llama", "\u{e9}", &"a".repeat(64), &format!("-{}", "b".repeat(70))] {
            assert_eq!(label_value(raw), policy(raw), "{raw}");
        }
        assert_ne!(label_value(&"x".repeat(64)), label_value(&"x".repeat(65)));
    }
}
