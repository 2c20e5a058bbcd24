//! A JSON value that records the source of each part.

use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// The source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct By<'a> {
    /// A higher rank has precedence.
    pub(crate) rank: usize,
    /// The layer, or `plugin`.
    pub(crate) layer: &'a str,
}

impl By<'static> {
    /// This policy, or the parts of the host's frame that must be rewritten.
    pub(crate) const PLUGIN: Self = Self { rank: usize::MAX, layer: "plugin" };
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node<'a> {
    /// The source; for an object or a list, the first one.
    pub(crate) by: By<'a>,
    /// The value.
    pub(crate) form: Form<'a>,
}

/// The value. The fields of an object are sorted, so that equal content gives equal bytes, regardless of how it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form<'a> {
    /// A text, a number or a boolean.
    Scalar(Value),
    /// A list.
    List(Vec<Node<'a>>),
    /// An object.
    Object(BTreeMap<String, Node<'a>>),
}

impl<'a> Node<'a> {
    /// Null is treated as absent, even in lists and objects.
    pub(crate) fn from_value(value: Value, by: By<'a>) -> Option<Self> {
        let form = match value {
            Value::Null => return None,
            Value::Array(items) => Form::List(items.into_iter().filter_map(|item| Self::from_value(item, by)).collect()),
            Value::Object(fields) => {
                Form::Object(fields.into_iter().filter_map(|(name, value)| Some((name, Self::from_value(value, by)?))).collect())
            }
            scalar => Form::Scalar(scalar),
        };
        Some(Self { by, form })
    }

    pub(crate) fn text(text: impl Into<String>, by: By<'a>) -> Self {
        Self { by, form: Form::Scalar(Value::String(text.into())) }
    }

    pub(crate) fn object<const N: usize>(fields: [(&str, Self); N], by: By<'a>) -> Self {
        Self { by, form: Form::Object(fields.into_iter().map(|(name, node)| (name.to_owned(), node)).collect()) }
    }

    pub(crate) fn list(items: Vec<Self>, by: By<'a>) -> Self {
        Self { by, form: Form::List(items) }
    }

    /// An empty value of the same kind.
    pub(crate) fn emptied(&self) -> Self {
        let form = match &self.form {
            Form::Scalar(value) => Form::Scalar(value.clone()),
            Form::List(_) => Form::List(Vec::new()),
            Form::Object(_) => Form::Object(BTreeMap::new()),
        };
        Self { by: self.by, form }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.form {
            Form::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn scalar(&self) -> Option<&Value> {
        match &self.form {
            Form::Scalar(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn fields(&self) -> Option<&BTreeMap<String, Self>> {
        match &self.form {
            Form::Object(fields) => Some(fields),
            _ => None,
        }
    }

    pub(crate) fn fields_mut(&mut self) -> Option<&mut BTreeMap<String, Self>> {
        match &mut self.form {
            Form::Object(fields) => Some(fields),
            _ => None,
        }
    }

    pub(crate) fn get(&self, field: &str) -> Option<&Self> {
        self.fields()?.get(field)
    }

    /// The text in that field, unless it is empty.
    pub(crate) fn text_at(&self, field: &str) -> Option<&str> {
        self.get(field)?.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn take(&mut self, field: &str) -> Option<Self> {
        self.fields_mut()?.remove(field)
    }

    pub(crate) fn set(&mut self, field: &str, node: Self) {
        if let Some(fields) = self.fields_mut() {
            fields.insert(field.to_owned(), node);
        }
    }

    pub(crate) fn items(&self) -> &[Self] {
        match &self.form {
            Form::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn items_mut(&mut self) -> Option<&mut Vec<Self>> {
        match &mut self.form {
            Form::List(items) => Some(items),
            _ => None,
        }
    }

    /// The items of the list in that field.
    pub(crate) fn items_at(&self, field: &str) -> &[Self] {
        self.get(field).map_or(&[], Self::items)
    }

    /// The list in that field, which is created if it is missing.
    pub(crate) fn list_at(&mut self, field: &str, by: By<'a>) -> Option<&mut Vec<Self>> {
        self.fields_mut()?.entry(field.to_owned()).or_insert_with(|| Self::list(Vec::new(), by)).items_mut()
    }

    /// The object in that field, which is created if it is missing.
    pub(crate) fn object_at(&mut self, field: &str, by: By<'a>) -> Option<&mut Self> {
        Some(self.fields_mut()?.entry(field.to_owned()).or_insert_with(|| Self::object([], by)))
    }

    /// The source of all parts, if there is only one.
    pub(crate) fn sole(&self) -> Option<By<'a>> {
        fn all<'n, 'a: 'n>(mut nodes: impl Iterator<Item = &'n Node<'a>>, otherwise: By<'a>) -> Option<By<'a>> {
            let Some(first) = nodes.next() else { return Some(otherwise) };
            let by = first.sole()?;
            nodes.all(|node| node.sole() == Some(by)).then_some(by)
        }
        match &self.form {
            Form::Scalar(_) => Some(self.by),
            Form::List(items) => all(items.iter(), self.by),
            Form::Object(fields) => all(fields.values(), self.by),
        }
    }

    /// The source with the highest precedence of all parts.
    pub(crate) fn strongest(&self) -> By<'a> {
        let inner = match &self.form {
            Form::Scalar(_) => None,
            Form::List(items) => items.iter().map(Self::strongest).max_by_key(|by| by.rank),
            Form::Object(fields) => fields.values().map(Self::strongest).max_by_key(|by| by.rank),
        };
        inner.unwrap_or(self.by)
    }

    /// Whether the value is equal to this one. Null is treated as absent there too.
    pub(crate) fn is(&self, value: &Value) -> bool {
        match (&self.form, value) {
            (Form::List(items), Value::Array(values)) => {
                let mut values = values.iter().filter(|value| !value.is_null());
                items.iter().all(|item| values.next().is_some_and(|value| item.is(value))) && values.next().is_none()
            }
            (Form::Object(fields), Value::Object(values)) => {
                values.values().filter(|value| !value.is_null()).count() == fields.len()
                    && fields.iter().all(|(name, node)| values.get(name).is_some_and(|value| node.is(value)))
            }
            (Form::Scalar(own), value) => own == value,
            _ => false,
        }
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.form {
            Form::Scalar(value) => value.serialize(to),
            Form::List(items) => to.collect_seq(items),
            Form::Object(fields) => to.collect_map(fields),
        }
    }
}
