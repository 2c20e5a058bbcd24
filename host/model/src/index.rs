//! The index of a model's shards: the files that contain its tensors.

use crate::{
    config::is_usable,
    limits::{MAX_FILES, MAX_TENSORS},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use std::{collections::BTreeSet, fmt};

/// The content of an index. The names of the tensors aren't stored, because the files' headers also contain them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub files: BTreeSet<String>,
    pub tensors: usize,
    /// `metadata.total_size`: the bytes of all tensors.
    pub total_size: Option<u64>,
    /// `metadata.total_parameters`, which newer libraries write.
    pub total_parameters: Option<u64>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, deserialize_with = "whole")]
    total_size: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    total_parameters: Option<u64>,
}

/// An integer, also in the form 4.0. Anything else is treated as absent.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok(value.as_u64().or_else(|| value.as_f64().filter(|float| (1.0..1e18).contains(float)).map(|float| float as u64)))
}

#[derive(Default)]
struct Files {
    files: BTreeSet<String>,
    tensors: usize,
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Files;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map from tensors to files")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Files, A::Error> {
                let mut found = Files::default();
                while map.next_key::<IgnoredAny>()?.is_some() {
                    let file: String = map.next_value()?;
                    found.tensors += 1;
                    if found.tensors > MAX_TENSORS {
                        return Err(A::Error::custom(format!("more than {MAX_TENSORS} tensors")));
                    }
                    if found.files.contains(&file) {
                        continue;
                    }
                    // An index names files in its own folder, and no others.
                    if !is_usable(&file) || file.is_empty() || file.contains(['/', '\\']) || file == ".." {
                        return Err(A::Error::custom("a file that isn't one beside the index"));
                    }
                    if found.files.len() == MAX_FILES {
                        return Err(A::Error::custom(format!("more than {MAX_FILES} files")));
                    }
                    found.files.insert(file);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(default)]
    weight_map: Files,
}

/// Parses an index. The message is the end of a sentence that begins with the file's name.
pub(crate) fn parse(bytes: &[u8]) -> Result<Index, String> {
    // The derived type would also accept an array.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err("is no index of shards: not a JSON object: download it again".to_owned());
    }
    let document: Document =
        serde_json::from_slice(bytes).map_err(|error| format!("is no index of shards: {error}: download it again, or fix it"))?;
    let metadata = document.metadata.unwrap_or_default();
    let Files { files, tensors } = document.weight_map;
    Ok(Index { files, tensors, total_size: metadata.total_size, total_parameters: metadata.total_parameters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_counted_once_and_metadata_may_lack() {
        let index = parse(br#"{"weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}}"#).unwrap();
        assert_eq!((index.files.len(), index.tensors, index.total_size), (2, 3, None));
        let index =
            parse(br#"{"metadata": {"total_size": 16060522496.0, "total_parameters": 8030261248, "x": []}, "weight_map": {}}"#).unwrap();
        assert_eq!((index.total_size, index.total_parameters), (Some(16_060_522_496), Some(8_030_261_248)));
        assert_eq!(parse(br#"{"metadata": {"total_size": "large"}}"#).unwrap(), Index::default());
    }

    #[test]
    fn a_file_elsewhere_is_refused() {
        for file in ["../secret", "/etc/passwd", "", "a/b.safetensors", ".."] {
            let text = format!(r#"{{"weight_map": {{"a": "{file}"}}}}"#);
            assert!(parse(text.as_bytes()).unwrap_err().contains("isn't one beside the index"), "{file}");
        }
        assert!(parse(b"[]").is_err());
        assert!(parse(br#"{"weight_map": {"a": 1}}"#).is_err());
    }
}
