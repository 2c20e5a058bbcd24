//! The image in JSON of what `../../wit` defines: that of the host, of `pointsman explain` and of golden cases.
//!
//! A record is an object with names in camelCase, an enum its name, a variant an object with one field (or its name alone), an absent
//! option is left out, the type `json` is the value itself, and NaN among numbers is null.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::Value;

/// A list that may be null: that is how Go writes an empty one.
pub(crate) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A text that holds JSON: in the image it is the value itself.
pub(crate) mod json {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Value, ser};

    pub(crate) fn serialize<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        value(text).map_err(ser::Error::custom)?.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Value::deserialize(from).map(|value| value.to_string())
    }

    /// No text at all is no value: a policy without a configuration has no schema.
    pub(super) fn value(text: &str) -> serde_json::Result<Value> {
        if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(text) }
    }
}

/// The same where it may be absent. Null is a value like any other.
pub(crate) mod optional_json {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Value, json, ser};

    #[allow(clippy::ref_option, reason = "serde calls it so")]
    pub(crate) fn serialize<S: Serializer>(text: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        match text {
            None => to.serialize_none(),
            Some(text) => json::value(text).map_err(ser::Error::custom)?.serialize(to),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        Value::deserialize(from).map(|value| Some(value.to_string()))
    }
}

/// A configuration's schema: absent, null or empty where there is nothing to configure.
pub(crate) mod schema {
    use super::{Deserialize, Deserializer, Value};

    pub(crate) use super::json::serialize;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        let value = Value::deserialize(from)?;
        Ok(if value.is_null() || value == "" { String::new() } else { value.to_string() })
    }
}

/// Numbers among which NaN is null.
pub(crate) mod numbers {
    use super::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(numbers: &[f64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(numbers.iter().map(|number| (!number.is_nan()).then_some(*number)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let numbers = Option::<Vec<Option<f64>>>::deserialize(from)?.unwrap_or_default();
        Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
    }
}
