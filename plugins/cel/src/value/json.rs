//! Converts JSON text directly to values, and back.

use super::object::{Key, Object};
use super::time::{Duration, Timestamp};
use super::{Owned, special, text};
use cel::common::types::{CelBool, CelBytes, CelDouble, CelInt, CelList, CelNull, CelOptional, CelString, CelType, CelUInt};
use cel::common::value::Val;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Parses JSON. As in Kubernetes, integers that fit become ints, and all other numbers become doubles.
pub(crate) fn read(json: &str) -> Result<Owned, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let value = Reader.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

struct Reader;

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Owned;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Owned, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Owned;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Owned, E> {
        Ok(Box::new(CelNull))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Owned, E> {
        Ok(Box::new(CelBool::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Owned, E> {
        Ok(Box::new(CelInt::from(value)))
    }

    #[expect(clippy::cast_precision_loss, reason = "as Kubernetes does")]
    fn visit_u64<E>(self, value: u64) -> Result<Owned, E> {
        Ok(match i64::try_from(value) {
            Ok(int) => Box::new(CelInt::from(int)),
            Err(_) => Box::new(CelDouble::from(value as f64)),
        })
    }

    fn visit_f64<E>(self, value: f64) -> Result<Owned, E> {
        Ok(Box::new(CelDouble::from(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Owned, E> {
        Ok(text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Owned, A::Error> {
        let mut elements: Vec<Owned> = Vec::new();
        while let Some(element) = from.next_element_seed(Reader)? {
            elements.push(element);
        }
        Ok(Box::new(CelList::from(elements)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Owned, A::Error> {
        let mut entries: Vec<(Key, Owned)> = Vec::new();
        while let Some(key) = from.next_key::<String>()? {
            entries.push((Key::text(key), from.next_value_seed(Reader)?));
        }
        Ok(Box::new(Object::new(entries)))
    }
}

/// Writes a value as JSON. A value without a JSON form becomes its text, and an absent one becomes null.
pub(crate) fn write(value: &dyn Val) -> String {
    let mut json = String::new();
    append(value, &mut json);
    json
}

fn append(value: &dyn Val, json: &mut String) {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        quoted(text.inner(), json);
    } else if let Some(int) = value.downcast_ref::<CelInt>() {
        json.push_str(&int.inner().to_string());
    } else if let Some(uint) = value.downcast_ref::<CelUInt>() {
        json.push_str(&uint.inner().to_string());
    } else if let Some(bool) = value.downcast_ref::<CelBool>() {
        json.push_str(if *bool.inner() { "true" } else { "false" });
    } else if let Some(double) = value.downcast_ref::<CelDouble>() {
        match serde_json::Number::from_f64(*double.inner()) {
            Some(number) => json.push_str(&number.to_string()),
            None => quoted(&super::number::shortest(*double.inner()), json),
        }
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        json.push('[');
        for (at, element) in list.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            append(element.as_ref(), json);
        }
        json.push(']');
    } else if let Some(object) = value.downcast_ref::<Object>() {
        json.push('{');
        for (at, (key, value)) in object.entries().iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            quoted(&crate::error::key_text(key.inner()), json);
            json.push(':');
            append(value.as_ref(), json);
        }
        json.push('}');
    } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        quoted(&base64(bytes.inner()), json);
    } else if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
        match optional.option() {
            Some(inner) => append(inner, json),
            None => json.push_str("null"),
        }
    } else {
        match text_of(value) {
            Some(text) => quoted(&text, json),
            None => json.push_str("null"),
        }
    }
}

fn text_of(value: &dyn Val) -> Option<String> {
    if let Some(point) = value.downcast_ref::<Timestamp>() {
        Some(point.to_string())
    } else if let Some(span) = value.downcast_ref::<Duration>() {
        Some(span.to_string())
    } else if let Some(declared) = value.downcast_ref::<CelType>() {
        Some(declared.name().to_owned())
    } else {
        special::to_text(value)
    }
}

fn quoted(text: &str, json: &mut String) {
    json.push_str(&serde_json::Value::from(text).to_string());
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * at) & 63).unwrap_or(0);
            encoded.push(if at > group.len() { '=' } else { DIGITS.get(digit).map_or('=', |digit| char::from(*digit)) });
        }
    }
    encoded
}
