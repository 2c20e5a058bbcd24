//! JSON forms that serde's derives can't express.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer, de,
    ser::{self, SerializeMap as _, SerializeSeq as _},
};
use serde_json::Value;
use std::{cell::RefCell, fmt};

/// Reads null as an empty list, because Go writes an empty slice as null.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// Whether a field is omitted because its list is empty. Accepts both forms of a question's fields, lists and slices.
pub fn is_empty<T>(list: &impl AsRef<[T]>) -> bool {
    list.as_ref().is_empty()
}

/// A text that contains JSON. Its JSON form is the value itself.
pub mod json {
    use super::{Deserialize, Deserializer, Passed, Serialize, Serializer, Value, ser};
    use std::cell::RefCell;

    pub fn serialize<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        // An empty text is null: a plugin without a configuration has no schema.
        if text.is_empty() {
            return to.serialize_unit();
        }
        let mut from = serde_json::Deserializer::from_str(text);
        let done = Passed(RefCell::new(Some(&mut from))).serialize(to)?;
        from.end().map_err(ser::Error::custom)?;
        Ok(done)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Value::deserialize(from).map(|value| value.to_string())
    }
}

/// Forwards a deserializer's values directly to a serializer. Digests of layers and templates are computed often, and a `Value` in between
/// would be dropped at once.
struct Passed<D>(RefCell<Option<D>>);

impl<'de, D: Deserializer<'de>> Serialize for Passed<D> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.take() {
            Some(from) => from.deserialize_any(Passing(to)).map_err(ser::Error::custom),
            None => Err(ser::Error::custom("a value can be passed on once")),
        }
    }
}

/// The other half: a visitor that serializes what it visits.
struct Passing<S>(S);

impl<'de, S: Serializer> de::Visitor<'de> for Passing<S> {
    type Value = S::Ok;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<S::Ok, E> {
        self.0.serialize_unit().map_err(E::custom)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<S::Ok, E> {
        self.0.serialize_bool(value).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<S::Ok, E> {
        self.0.serialize_i64(value).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<S::Ok, E> {
        self.0.serialize_u64(value).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<S::Ok, E> {
        self.0.serialize_f64(value).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<S::Ok, E> {
        self.0.serialize_str(value).map_err(E::custom)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<S::Ok, A::Error> {
        let mut list = self.0.serialize_seq(items.size_hint()).map_err(de::Error::custom)?;
        while items.next_element_seed(Item(&mut list))?.is_some() {}
        list.end().map_err(de::Error::custom)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut fields: A) -> Result<S::Ok, A::Error> {
        let mut map = self.0.serialize_map(fields.size_hint()).map_err(de::Error::custom)?;
        while fields.next_key_seed(Key(&mut map))?.is_some() {
            fields.next_value_seed(Field(&mut map))?;
        }
        map.end().map_err(de::Error::custom)
    }
}

struct Item<'a, L>(&'a mut L);

impl<'de, L: ser::SerializeSeq> de::DeserializeSeed<'de> for Item<'_, L> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.serialize_element(&Passed(RefCell::new(Some(from)))).map_err(de::Error::custom)
    }
}

struct Key<'a, M>(&'a mut M);

impl<'de, M: ser::SerializeMap> de::DeserializeSeed<'de> for Key<'_, M> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.serialize_key(&Passed(RefCell::new(Some(from)))).map_err(de::Error::custom)
    }
}

struct Field<'a, M>(&'a mut M);

impl<'de, M: ser::SerializeMap> de::DeserializeSeed<'de> for Field<'_, M> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.serialize_value(&Passed(RefCell::new(Some(from)))).map_err(de::Error::custom)
    }
}

/// The same for an optional value. Null is a value, not an absent one.
pub mod optional_json {
    use super::{Deserialize, Deserializer, Serializer, Value, json};

    #[allow(clippy::ref_option)] // serde requires this signature.
    pub fn serialize<S: Serializer>(text: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        match text {
            None => to.serialize_none(),
            Some(text) => json::serialize(text, to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        Value::deserialize(from).map(|value| Some(value.to_string()))
    }
}

/// A configuration's schema: absent, null or empty if the plugin has no configuration.
pub mod schema {
    use super::{Deserialize, Deserializer, Value};

    pub use super::json::serialize;

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        let value = Value::deserialize(from)?;
        Ok(if value.is_null() || value == "" { String::new() } else { value.to_string() })
    }
}

/// A list of numbers in which NaN is null.
pub mod numbers {
    use super::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(numbers: &[f64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(numbers.iter().map(|number| (!number.is_nan()).then_some(*number)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let numbers = Option::<Vec<Option<f64>>>::deserialize(from)?.unwrap_or_default();
        Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
    }
}

/// A command's answer: `{"ok": ...}`, or `{"err": ...}` with the failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<T, E> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Text(#[serde(serialize_with = "json::serialize")] &'static str);

    #[test]
    fn a_text_is_passed_on_as_the_value_that_it_holds() {
        for text in
            ["null", "7", "-7", "1.5", "18446744073709551615", r#""a\u00e9\n""#, "[]", "{}", r#"{"":"","a":true,"b":[1,{"a":null}]}"#]
        {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&Text(text)).unwrap(), value.to_string());
            assert_eq!(serde_json::to_value(Text(text)).unwrap(), value);
        }
        assert_eq!(serde_json::to_value(Text("")).unwrap(), Value::Null);
        for wrong in ["{", "1 2", "nul"] {
            assert!(serde_json::to_string(&Text(wrong)).is_err(), "{wrong}");
        }
    }
}
