//! Placeholders in command lines and in the values of variables.
//!
//! The kubelet replaces `$(VAR)` with a container's own variables. Only `$(MODEL_PATH)` in a container without that variable, such as a
//! sidecar, is replaced here. Go templates over the service's metadata are replaced without escaping. OME escapes them for HTML, which
//! breaks every value with a quote or an ampersand.
//!
//! Only the forms in `Field` are placeholders. Other text in braces stays unchanged: it may be a chat template in an engine's argument,
//! which has its own braces.

use crate::{
    node::{Form, Node},
    pod::{Pod, has_variable},
};
use pointsman_plugin::{Entry, Reason, Subject, lookup, reason};
use serde_json::Value;

/// Replaces known placeholders in all containers.
pub(crate) fn fill(subject: &Subject, model_path: Option<&str>, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) {
    for field in ["initContainers", "containers"] {
        let Some(containers) = pod.spec.fields_mut().and_then(|spec| spec.get_mut(field)?.items_mut()) else { continue };
        for container in containers {
            let path = model_path.filter(|_| !has_variable(container, "MODEL_PATH"));
            let name = container.text_at("name").unwrap_or_default().to_owned();
            let mut empty = |what: &str| {
                let message = format!("The service has no {what}, so its placeholder in the container {name} is empty.");
                if !reasons.iter().any(|reason| reason.message == message) {
                    reasons.push(reason("PlaceholderEmpty", message));
                }
            };
            let Some(fields) = container.fields_mut() else { continue };
            for (field, node) in fields {
                let Some(items) = node.items_mut().filter(|_| ["args", "command", "env"].contains(&field.as_str())) else { continue };
                for item in items {
                    let text = if field == "env" { item.fields_mut().and_then(|variable| variable.get_mut("value")) } else { Some(item) };
                    if let Some(Node { form: Form::Scalar(Value::String(text)), .. }) = text
                        && let Some(filled) = filled(text, subject, path, &mut empty)
                    {
                        *text = filled;
                    }
                }
            }
        }
    }
}

/// The text with replaced placeholders; none if it has none.
fn filled(text: &str, subject: &Subject, path: Option<&str>, empty: &mut impl FnMut(&str)) -> Option<String> {
    if !text.contains("{{") && path.is_none_or(|_| !text.contains("$(")) {
        return None;
    }
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '{']) {
        filled += &rest[..at];
        rest = &rest[at..];
        // The kubelet converts `$$` to a dollar sign, so `$$(VAR)` isn't a placeholder.
        let length = if rest.starts_with("$$") {
            filled += "$$";
            2
        } else if let Some(path) = path.filter(|_| rest.starts_with(MODEL_PATH)) {
            filled += path;
            MODEL_PATH.len()
        } else if let Some((field, length)) = Field::read(rest) {
            filled += field.value(subject, empty);
            length
        } else {
            filled += &rest[..1];
            1
        };
        rest = &rest[length..];
    }
    filled += rest;
    Some(filled)
}

const MODEL_PATH: &str = "$(MODEL_PATH)";

/// The fields in a Go template, each also below `.ObjectMeta`.
#[derive(Debug, PartialEq, Eq)]
enum Field<'t> {
    /// `{{.Name}}`
    Name,
    /// `{{.Namespace}}`
    Namespace,
    /// `{{.Labels.team}}` or `{{index .Labels "example.com/team"}}`
    Label(&'t str),
    /// The same with `.Annotations`.
    Annotation(&'t str),
}

impl<'t> Field<'t> {
    /// The placeholder at the start of the text, and its length.
    fn read(text: &'t str) -> Option<(Self, usize)> {
        let inner = text.strip_prefix("{{")?;
        let end = inner.find("}}")?;
        let inside = inner[..end].trim_matches([' ', '\t']);
        Some((Self::parse(inside)?, end + 4))
    }

    fn parse(inside: &'t str) -> Option<Self> {
        if let Some(arguments) = inside.strip_prefix("index ") {
            let (map, key) = arguments.trim_start_matches(' ').split_once(' ')?;
            let key = key.trim_start_matches(' ').strip_prefix('"')?.strip_suffix('"')?;
            return if key.contains(['"', '\\']) { None } else { Self::entry(of_metadata(map), key) };
        }
        match of_metadata(inside) {
            ".Name" => Some(Self::Name),
            ".Namespace" => Some(Self::Namespace),
            path => {
                let (map, key) = path.rsplit_once('.')?;
                let plain = |c: char| c == '_' || c.is_ascii_alphanumeric();
                if !key.is_empty() && key.chars().all(plain) { Self::entry(map, key) } else { None }
            }
        }
    }

    fn entry(map: &str, key: &'t str) -> Option<Self> {
        match map {
            ".Labels" => Some(Self::Label(key)),
            ".Annotations" => Some(Self::Annotation(key)),
            _ => None,
        }
    }

    fn value<'s>(&self, subject: &'s Subject, empty: &mut impl FnMut(&str)) -> &'s str {
        let mut found = |entries: &'s [Entry], sort: &str, key: &str| {
            lookup(entries, key).unwrap_or_else(|| {
                empty(&format!("{sort} {key}"));
                ""
            })
        };
        match self {
            Self::Name => &subject.name,
            Self::Namespace => &subject.namespace,
            Self::Label(key) => found(&subject.labels, "label", key),
            Self::Annotation(key) => found(&subject.annotations, "annotation", key),
        }
    }
}

fn of_metadata(path: &str) -> &str {
    path.strip_prefix(".ObjectMeta").filter(|rest| rest.starts_with('.')).unwrap_or(path)
}
