//! YAML as a tree in which each part has its position.

use super::{ConfigError, Place};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned, UserMessageFormatter};
use std::fmt;

/// A value and its position.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// The name of a field and its position.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) place: Place,
}

/// Parses a text with one document. `max_nodes` and `max_depth` also limit expanded aliases, so that a few lines can't use an unlimited
/// amount of memory or stack.
pub(super) fn parse(text: &str) -> Result<Node, ConfigError> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_documents: 2, max_nodes: 50_000, max_events: 200_000, max_depth: 32, max_total_scalar_bytes: 1 << 20,
        },
    };
    serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options)
        .map(Node::from)
        .map_err(|error| ConfigError::Yaml { place: error.location().map(Place::from).unwrap_or_default(), message: message(&error) })
}

/// The error message without the position.
fn message(error: &serde_saphyr::Error) -> String {
    let rendered = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    rendered.split_once(" at line ").map_or(rendered.as_str(), |(message, _)| message).replace('\n', " ")
}

impl Value {
    /// Its kind, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number with a fraction",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self { line: location.line().max(1), column: location.column().max(1) }
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { value: spanned.value, place: spanned.referenced.into() }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Spanned<Value>>()? {
            fields.push((Key { name: key.value, place: key.referenced.into() }, value.into()));
        }
        Ok(Value::Map(fields))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Value, S::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Value>>()? {
            items.push(item.into());
        }
        Ok(Value::List(items))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        Value::deserialize(from)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }
}
