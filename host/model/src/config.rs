//! A config.json, and the fields whose names differ between families.

use crate::limits::{MAX_CONFIG_BYTES, MAX_CONFIG_VALUES, MAX_DIMENSION, MAX_TEXT_BYTES};
use serde_json::{Map, Value};

/// Parses a JSON file that must be an object. The message states the position and the remedy, without the file's name.
pub(crate) fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(format!("has more than {MAX_CONFIG_BYTES} bytes: check whether it is the file that it should be"));
    }
    // Each value except the first begins after one of these characters. Those within strings only make the check stricter.
    let values = bytes.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    if values > MAX_CONFIG_VALUES {
        return Err(format!("has more than {MAX_CONFIG_VALUES} values: check whether it is the file that it should be"));
    }
    // Editors on Windows write a byte order mark first.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.is_empty() {
        return Err("is empty: download it again".to_owned());
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return Err("is a pointer of Git LFS, not the file: run `git lfs pull`".to_owned());
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("is JSON, but not an object: download it again".to_owned()),
        Err(error) => Err(format!("is not valid JSON: {error}: download it again, or fix it")),
    }
}

/// A config, or a part of one such as `text_config`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config<'a>(&'a Map<String, Value>);

/// Why a number can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable(pub String);

impl<'a> Config<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>) -> Self {
        Self(map)
    }

    /// A value by its path, such as `attn_config.kv_n_heads`. Null is treated as absent.
    pub(crate) fn find(self, path: &str) -> Option<&'a Value> {
        let mut at = self.0;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            let value = at.get(part)?;
            if parts.peek().is_none() {
                return (!value.is_null()).then_some(value);
            }
            at = value.as_object()?;
        }
        None
    }

    /// The part at a path.
    pub(crate) fn part(self, path: &str) -> Option<Self> {
        self.find(path)?.as_object().map(Self)
    }

    /// The first of these parts that exists.
    pub(crate) fn first_part(self, names: &[&str]) -> Option<Self> {
        names.iter().find_map(|name| self.part(name))
    }

    pub(crate) fn flag(self, path: &str) -> Option<bool> {
        self.find(path)?.as_bool()
    }

    /// A text that is short enough to be part of a model's facts.
    pub(crate) fn text(self, path: &str) -> Option<&'a str> {
        self.find(path)?.as_str().filter(|text| is_usable(text))
    }

    /// A count: an integer, also in the form 4.0.
    pub(crate) fn number(self, path: &str) -> Result<Option<u64>, Unusable> {
        let Some(value) = self.find(path) else { return Ok(None) };
        // The first of several, as in `image_size: [448, 448]`.
        let value = value.as_array().and_then(|array| array.first()).unwrap_or(value);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let number = match value {
            Value::Number(number) => number.as_u64().or_else(|| {
                number
                    .as_f64()
                    .filter(|float| float.fract() == 0.0 && (0.0..=MAX_DIMENSION as f64).contains(float))
                    .map(|float| float as u64)
            }),
            _ => None,
        };
        match number {
            Some(number) if number <= MAX_DIMENSION => Ok(Some(number)),
            _ => Err(Unusable(format!("`{path}` is not a whole number from 0 to {MAX_DIMENSION}"))),
        }
    }

    /// The first of these numbers that exists.
    pub(crate) fn first_number(self, paths: &[&str]) -> Result<Option<u64>, Unusable> {
        for path in paths {
            if let Some(number) = self.number(path)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// `model_type`.
    pub(crate) fn model_type(self) -> Option<&'a str> {
        self.text("model_type").filter(|text| !text.is_empty())
    }

    /// The first entry of `architectures`.
    pub(crate) fn architecture(self) -> Option<&'a str> {
        self.find("architectures")?.as_array()?.first()?.as_str().filter(|text| !text.is_empty() && is_usable(text))
    }
}

/// Whether a text may be used in a model's facts: it is short and has no characters that terminals interpret.
pub(crate) fn is_usable(text: &str) -> bool {
    text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control)
}

/// The parts of a config that describe the language model of a multimodal model.
pub(crate) const TEXT_PARTS: [&str; 5] = ["text_config", "llm_config", "language_config", "thinker_config.text_config", "llm"];

/// The parts that describe the vision tower.
pub(crate) const VISION_PARTS: [&str; 3] = ["vision_config", "vision_tower_config", "thinker_config.vision_config"];

/// The parts that describe the audio tower.
pub(crate) const AUDIO_PARTS: [&str; 4] = ["audio_config", "thinker_config.audio_config", "sound_config", "audio_encoder_config"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_whole_and_bounded() {
        let value = json!({"a": 4.0, "b": 4.5, "c": -1, "d": null, "e": [448, 448], "f": 1e300, "g": "7", "h": {"i": 3}});
        let config = Config::new(value.as_object().unwrap());
        assert_eq!(config.number("a"), Ok(Some(4)));
        assert_eq!(config.number("d"), Ok(None));
        assert_eq!(config.number("e"), Ok(Some(448)));
        assert_eq!(config.number("h.i"), Ok(Some(3)));
        for wrong in ["b", "c", "f", "g", "h"] {
            assert!(config.number(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_broken_file_is_reported_with_its_position() {
        assert_eq!(
            parse_object(b"{\"a\": 1,\n}").unwrap_err(),
            "is not valid JSON: trailing comma at line 2 column 1: download it again, or fix it"
        );
        assert_eq!(parse_object(b"").unwrap_err(), "is empty: download it again");
        assert_eq!(parse_object(b"[]").unwrap_err(), "is JSON, but not an object: download it again");
        assert!(parse_object(b"version https://git-lfs.github.com/spec/v1\n").unwrap_err().contains("git lfs pull"));
        assert!(parse_object(b"\xef\xbb\xbf{}").is_ok());
        assert!(parse_object(&vec![b'['; 300_000]).unwrap_err().contains("200000 values"));
    }
}
