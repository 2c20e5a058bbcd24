//! Reads the fields of an object: checks types and limits, and rejects unknown fields.

use super::{
    ConfigError, Place,
    units::{parse_duration, parse_quantity},
    yaml::{Key, Node, Value},
};
use std::{fmt, time::Duration};

/// A value and its path from the root of the document.
#[derive(Clone, Debug)]
pub(super) struct Part<'n> {
    pub(super) node: &'n Node,
    pub(super) path: String,
}

/// An object, and the fields that have been read.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    pub(super) path: String,
    pub(super) place: Place,
    entries: &'n [(Key, Node)],
    known: Vec<&'static str>,
    /// Whether unknown fields are accepted, because a remark reports that all fields are ignored.
    ignored: bool,
}

/// A name for messages: short, and without control characters.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_SHOWN: usize = 80;
        let end = self.0.char_indices().nth(MAX_SHOWN).map_or(self.0.len(), |(end, _)| end);
        let dots = if end < self.0.len() { "..." } else { "" };
        write!(f, "{}{dots}", self.0.get(..end).unwrap_or_default().escape_debug())
    }
}

impl<'n> Part<'n> {
    /// An error about this part. The message continues the path.
    pub(super) fn error(&self, message: impl fmt::Display) -> ConfigError {
        ConfigError::Invalid { place: self.node.place, message: format!("`{}` {message}", self.path) }
    }

    fn mismatch(&self, wanted: &str) -> ConfigError {
        self.error(format_args!("is {}: write {wanted}", self.node.value.kind()))
    }

    pub(super) fn text(&self) -> Result<&'n str, ConfigError> {
        if let Value::Text(text) = &self.node.value { Ok(text) } else { Err(self.mismatch("a string, in quotes if it looks otherwise")) }
    }

    pub(super) fn boolean(&self) -> Result<bool, ConfigError> {
        if let Value::Bool(value) = self.node.value { Ok(value) } else { Err(self.mismatch("true or false")) }
    }

    pub(super) fn integer(&self) -> Result<i64, ConfigError> {
        let too_large = || self.error("is too large: write a smaller integer");
        match self.node.value {
            Value::Integer(value) => i64::try_from(value).map_err(|_| too_large()),
            // Kubernetes' YAML has only one number type, so 5.0 is an integer.
            #[allow(clippy::cast_possible_truncation, reason = "it has no fraction, and is in the range")]
            Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => Ok(value as i64),
            _ => Err(self.mismatch("an integer")),
        }
    }

    pub(super) fn number(&self) -> Result<f64, ConfigError> {
        match self.node.value {
            #[allow(clippy::cast_precision_loss, reason = "no setting needs more digits")]
            Value::Integer(value) => Ok(value as f64),
            Value::Float(value) if value.is_finite() => Ok(value),
            Value::Float(value) => Err(self.error(format_args!("is {value}: write a number"))),
            _ => Err(self.mismatch("a number")),
        }
    }

    pub(super) fn number_within(&self, least: f64, most: f64) -> Result<f64, ConfigError> {
        let value = self.number()?;
        if (least..=most).contains(&value) {
            Ok(value)
        } else if most.is_finite() {
            Err(self.error(format_args!("is {value}: set a number from {least} to {most}")))
        } else {
            Err(self.error(format_args!("is {value}: set a number that is at least {least}")))
        }
    }

    pub(super) fn duration(&self) -> Result<Duration, ConfigError> {
        parse_duration(self.text()?).ok_or_else(|| {
            let text = self.text().unwrap_or_default();
            self.error(format_args!("is `{}`: set a duration that isn't negative, such as `500ms` or `1m30s`", Shown(text)))
        })
    }

    /// A Kubernetes quantity, in whole units.
    pub(super) fn quantity(&self) -> Result<u64, ConfigError> {
        let (parsed, text) = match &self.node.value {
            Value::Integer(value) => (u64::try_from(*value).ok(), value.to_string()),
            Value::Float(value) => (parse_quantity(&value.to_string()), value.to_string()),
            Value::Text(text) => (parse_quantity(text), text.clone()),
            _ => return Err(self.mismatch("a quantity, such as `1Gi` or `500`")),
        };
        parsed.ok_or_else(|| self.error(format_args!("is `{}`: set a quantity that isn't negative, such as `1Gi` or `500`", Shown(&text))))
    }

    pub(super) fn list(&self, limit: usize) -> Result<Vec<Part<'n>>, ConfigError> {
        let Value::List(items) = &self.node.value else { return Err(self.mismatch("a list")) };
        if items.len() > limit {
            return Err(self.error(format_args!("has {} entries; the limit is {limit}: remove some", items.len())));
        }
        Ok(items.iter().enumerate().map(|(number, node)| Part { node, path: format!("{}[{number}]", self.path) }).collect())
    }

    pub(super) fn fields(self) -> Result<Fields<'n>, ConfigError> {
        match &self.node.value {
            Value::Map(entries) => Ok(Fields { place: self.node.place, path: self.path, entries, known: Vec::new(), ignored: false }),
            _ => Err(self.mismatch("an object")),
        }
    }
}

impl<'n> Fields<'n> {
    /// An object without fields.
    pub(super) fn none(place: Place, path: String) -> Self {
        Self { path, place, entries: &[], known: Vec::new(), ignored: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names of all fields, known or unknown.
    pub(super) fn names(&self) -> impl Iterator<Item = &'n str> {
        self.entries.iter().map(|(key, _)| key.name.as_str())
    }

    /// All fields. They all become known.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'n str, Part<'n>)> {
        let part = |key: &Key, node| Part { node, path: self.join(&key.name) };
        self.entries.iter().map(|(key, node)| (key.name.as_str(), part(key, node))).collect::<Vec<_>>().into_iter()
    }

    /// A field; null is treated as absent.
    pub(super) fn get(&mut self, name: &'static str) -> Option<Part<'n>> {
        self.known.push(name);
        let (_, node) = self.entries.iter().find(|(key, _)| key.name == name)?;
        (!matches!(node.value, Value::Null)).then(|| Part { node, path: self.join(name) })
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { Shown(name).to_string() } else { format!("{}.{}", self.path, Shown(name)) }
    }

    /// A required field that isn't empty.
    pub(super) fn required_text(&mut self, name: &'static str) -> Result<(Part<'n>, &'n str), ConfigError> {
        let part = self.get(name).ok_or_else(|| self.missing(name))?;
        let text = part.text()?;
        if text.is_empty() { Err(part.error("is empty: set it")) } else { Ok((part, text)) }
    }

    pub(super) fn missing(&self, name: &str) -> ConfigError {
        ConfigError::Invalid { place: self.place, message: format!("`{}` is missing: set it", self.join(name)) }
    }

    /// A text; an empty one is treated as absent, as in Go.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<&'n str>, ConfigError> {
        Ok(self.get(name).map(|part| part.text()).transpose()?.filter(|text| !text.is_empty()))
    }

    pub(super) fn boolean(&mut self, name: &'static str) -> Result<Option<bool>, ConfigError> {
        self.get(name).map(|part| part.boolean()).transpose()
    }

    pub(super) fn integer(&mut self, name: &'static str) -> Result<Option<i64>, ConfigError> {
        self.get(name).map(|part| part.integer()).transpose()
    }

    /// An integer above 0; other values are treated as absent, as in upstream's plugins.
    pub(super) fn positive(&mut self, name: &'static str) -> Result<Option<u64>, ConfigError> {
        Ok(self.integer(name)?.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0))
    }

    /// An integer of at least `least`.
    pub(super) fn at_least(&mut self, name: &'static str, least: u32) -> Result<Option<u64>, ConfigError> {
        let Some(part) = self.get(name) else { return Ok(None) };
        let value = part.integer()?;
        let fits = u64::try_from(value).ok().filter(|value| *value >= u64::from(least));
        fits.map(Some).ok_or_else(|| part.error(format_args!("is {value}: set an integer that is at least {least}")))
    }

    pub(super) fn number_within(&mut self, name: &'static str, least: f64, most: f64) -> Result<Option<f64>, ConfigError> {
        self.get(name).map(|part| part.number_within(least, most)).transpose()
    }

    pub(super) fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, ConfigError> {
        self.get(name).map(|part| part.duration()).transpose()
    }

    pub(super) fn quantity(&mut self, name: &'static str) -> Result<Option<u64>, ConfigError> {
        self.get(name).map(|part| part.quantity()).transpose()
    }

    pub(super) fn list(&mut self, name: &'static str, limit: usize) -> Result<Vec<Part<'n>>, ConfigError> {
        self.get(name).map_or_else(|| Ok(Vec::new()), |part| part.list(limit))
    }

    pub(super) fn fields(&mut self, name: &'static str) -> Result<Option<Fields<'n>>, ConfigError> {
        self.get(name).map(Part::fields).transpose()
    }

    /// Accepts all fields. The caller adds a remark about it.
    pub(super) fn ignore_all(&mut self) {
        self.ignored = true;
    }

    /// Rejects fields that nothing has read.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        if self.ignored {
            return Ok(());
        }
        let Some((key, _)) = self.entries.iter().find(|(key, _)| !self.known.contains(&key.name.as_str())) else { return Ok(()) };
        let similar = self.known.iter().find(|known| known.eq_ignore_ascii_case(&key.name));
        let remedy = similar.map_or_else(|| "remove it".to_owned(), |similar| format!("write `{similar}`"));
        Err(ConfigError::Invalid { place: key.place, message: format!("`{}` is an unknown field: {remedy}", self.join(&key.name)) })
    }
}
