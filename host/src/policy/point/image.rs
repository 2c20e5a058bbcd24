//! What serde needs to be told of the image in JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::Value;

/// A list that may be null: that is how Go writes an empty one.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A text that holds JSON: in the image it is the value itself.
pub(super) mod json {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Value, ser};

    pub(in super::super) fn serialize<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        value(text).map_err(ser::Error::custom)?.serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Value::deserialize(from).map(|value| value.to_string())
    }

    /// No text at all is no value: a plugin without a configuration has no schema.
    pub(super) fn value(text: &str) -> serde_json::Result<Value> {
        if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str(text) }
    }
}

/// The same where it may be absent. Null is a value like any other.
pub(super) mod optional_json {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Value, json, ser};

    #[allow(clippy::ref_option)] // As serde calls it.
    pub(in super::super) fn serialize<S: Serializer>(text: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        match text {
            None => to.serialize_none(),
            Some(text) => json::value(text).map_err(ser::Error::custom)?.serialize(to),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        Value::deserialize(from).map(|value| Some(value.to_string()))
    }
}

/// A configuration's schema: absent, null or empty where there is nothing to configure.
pub(super) mod schema {
    use super::{Deserialize, Deserializer, Value};

    pub(in super::super) use super::json::serialize;

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        let value = Value::deserialize(from)?;
        Ok(if value.is_null() || value == "" { String::new() } else { value.to_string() })
    }
}

/// Numbers among which NaN is null.
pub(super) mod numbers {
    use super::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(numbers: &[f64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(numbers.iter().map(|number| (!number.is_nan()).then_some(*number)))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let numbers = Option::<Vec<Option<f64>>>::deserialize(from)?.unwrap_or_default();
        Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
    }
}

/// What a command answers: `{"ok": ...}`, or `{"err": ...}` with why not.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Answer<T, E> {
    Ok(T),
    Err(E),
}

impl<'de, T: Deserialize<'de>, E: Deserialize<'de>> Deserialize<'de> for Answer<T, E> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T, E>(std::marker::PhantomData<(T, E)>);

        impl<'de, T: Deserialize<'de>, E: Deserialize<'de>> de::Visitor<'de> for Visitor<T, E> {
            type Value = Answer<T, E>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object with the one field `ok` or the one field `err`")
            }

            fn visit_map<M: de::MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let answer = match map.next_key::<String>()?.as_deref() {
                    Some("ok") => Answer::Ok(map.next_value()?),
                    Some("err") => Answer::Err(map.next_value()?),
                    Some(other) => return Err(de::Error::unknown_field(other, &["ok", "err"])),
                    None => return Err(de::Error::custom("an empty object; it needs the field `ok` or `err`")),
                };
                match map.next_key::<String>()? {
                    None => Ok(answer),
                    Some(_) => Err(de::Error::custom("more than one field; it is either `ok` or `err`")),
                }
            }
        }

        from.deserialize_map(Visitor(std::marker::PhantomData))
    }
}
