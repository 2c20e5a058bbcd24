//! The patch operations of pod-templating: the subset of RFC 6902 that plugins need, with errors that name the place.

use pointsman_sandbox::point::templating::{Action, Operation};
use serde_json::Value;

/// The maximum depth of a path. A parsed value has at most 127 levels, and unlimited nesting would overflow the stack of recursive
/// functions.
const MAX_DEPTH: usize = 64;

/// Why an operation fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PatchError {
    /// The path is invalid.
    #[error("is not a JSON Pointer: start it with / (the whole template can't be replaced)")]
    Pointer,
    /// The path is too deep.
    #[error("is deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A part of the path doesn't exist.
    #[error("can't be reached, because {0:?} doesn't exist in the template: add it first")]
    NoWay(String),
    /// The target doesn't exist.
    #[error("doesn't exist")]
    Missing,
    /// The list doesn't have this index.
    #[error("ends with {0:?}, which is not an index of a list of {1}")]
    Index(String, usize),
    /// The parent is neither a list nor an object.
    #[error("enters a value that is neither an object nor a list")]
    NoContainer,
    /// A value is missing, or isn't permitted.
    #[error("{0}")]
    Value(&'static str),
    /// Only a list can extend a list, and only an object can extend an object.
    #[error("is {what}, which {by} can't extend: extend a list by a list, and an object by an object")]
    NotExtended {
        /// The type of the existing value.
        what: &'static str,
        /// The type of the new value.
        by: &'static str,
    },
    /// The value isn't JSON.
    #[error("has a value that is not JSON: {0}")]
    Json(String),
}

/// Applies an operation. If it fails, the document stays unchanged.
pub(super) fn apply(document: &mut Value, operation: &Operation) -> Result<(), PatchError> {
    let value = match (operation.action, &operation.value) {
        (Action::Remove, None) => None,
        (Action::Remove, Some(_)) => return Err(PatchError::Value("is removed, so it must have no value")),
        (_, None) => return Err(PatchError::Value("needs a value")),
        (_, Some(text)) => Some(serde_json::from_str(text).map_err(|error| PatchError::Json(error.to_string()))?),
    };
    if let (Action::Extend, Some(value)) = (operation.action, &value) {
        if !operation.path.starts_with('/') {
            return Err(PatchError::Pointer);
        }
        return extend(walk(document, &operation.path)?, value);
    }
    let (way, last) = operation.path.rsplit_once('/').ok_or(PatchError::Pointer)?;
    let place = walk(document, way)?;
    let last = unescaped(last);
    match place {
        Value::Object(fields) => match (operation.action, value) {
            (Action::Add, Some(value)) => {
                fields.insert(last, value);
            }
            (Action::Replace, Some(value)) => *fields.get_mut(&last).ok_or(PatchError::Missing)? = value,
            // Keeps the order of the other fields: otherwise the same template would have two forms.
            _ => {
                fields.shift_remove(&last).ok_or(PatchError::Missing)?;
            }
        },
        Value::Array(items) => {
            let length = items.len();
            let at = if last == "-" { Some(length) } else { index(&last, length) };
            let most = if operation.action == Action::Add { length } else { length.saturating_sub(1) };
            let at =
                at.filter(|at| *at <= most && (length > 0 || operation.action == Action::Add)).ok_or(PatchError::Index(last, length))?;
            match (operation.action, value) {
                (Action::Add, Some(value)) => items.insert(at, value),
                (Action::Replace, Some(value)) => items[at] = value,
                _ => {
                    items.remove(at);
                }
            }
        }
        _ => return Err(PatchError::NoContainer),
    }
    Ok(())
}

/// The value at the end of a pointer.
fn walk<'a>(document: &'a mut Value, way: &str) -> Result<&'a mut Value, PatchError> {
    if way.split('/').count() > MAX_DEPTH {
        return Err(PatchError::TooDeep);
    }
    let mut place = document;
    for token in way.split('/').skip(1).map(unescaped) {
        place = match place {
            Value::Object(fields) => fields.get_mut(&token),
            Value::Array(items) => index(&token, items.len()).and_then(|at| items.get_mut(at)),
            _ => None,
        }
        .ok_or(PatchError::NoWay(token))?;
    }
    if way.is_empty() || way.starts_with('/') { Ok(place) } else { Err(PatchError::Pointer) }
}

/// Appends the elements of a list, or adds the members of an object.
fn extend(place: &mut Value, by: &Value) -> Result<(), PatchError> {
    match (place, by) {
        (Value::Array(items), Value::Array(more)) => items.extend_from_slice(more),
        (Value::Object(fields), Value::Object(more)) => fields.extend(more.iter().map(|(name, value)| (name.clone(), value.clone()))),
        (place, by) => return Err(PatchError::NotExtended { what: shape(place), by: shape(by) }),
    }
    Ok(())
}

fn shape(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
        _ => "a single value",
    }
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// An index in the form of RFC 6901: digits without a leading zero, up to the length.
fn index(token: &str, length: usize) -> Option<usize> {
    let canonical = token == "0" || (!token.starts_with('0') && !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit()));
    token.parse().ok().filter(|at| canonical && *at <= length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(action: Action, path: &str, value: Option<Value>) -> Result<Value, String> {
        let mut document = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "x/y": 1, "m~n": 2}});
        let value = value.map(|value| value.to_string());
        let operation = Operation { action, path: path.to_owned(), value, layer: "plugin".to_owned() };
        let before = document.clone();
        match apply(&mut document, &operation) {
            Ok(()) => Ok(document["spec"].take()),
            Err(error) => {
                assert_eq!(document, before, "a failed operation has changed something");
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn values_are_added_replaced_and_removed() {
        use Action::{Add, Remove, Replace};
        let containers = |spec: Result<Value, String>| spec.unwrap()["containers"].take();
        assert_eq!(containers(patched(Add, "/spec/containers/-", Some(json!(1)))), json!([{"name": "a"}, {"name": "b"}, 1]));
        assert_eq!(containers(patched(Add, "/spec/containers/0", Some(json!(1)))), json!([1, {"name": "a"}, {"name": "b"}]));
        assert_eq!(containers(patched(Replace, "/spec/containers/1", Some(json!(1)))), json!([{"name": "a"}, 1]));
        assert_eq!(containers(patched(Remove, "/spec/containers/0", None)), json!([{"name": "b"}]));
        assert_eq!(containers(patched(Add, "/spec/containers/1/name", Some(json!("c")))), json!([{"name": "a"}, {"name": "c"}]));
        assert_eq!(patched(Replace, "/spec/x~1y", Some(json!(null))).unwrap()["x/y"], json!(null));
        assert_eq!(patched(Remove, "/spec/m~0n", None).unwrap().get("m~n"), None);
    }

    #[test]
    fn what_cannot_be_done_is_told_with_the_place() {
        use Action::{Add, Remove, Replace};
        let cases = [
            (Add, "", Some(json!({})), "is not a JSON Pointer"),
            (Add, "spec/x", Some(json!({})), "is not a JSON Pointer"),
            (Add, "/spec/volumes/-", Some(json!({})), "can't be reached, because \"volumes\" doesn't exist in the template: add it first"),
            (Add, "/spec/containers/3", Some(json!({})), "not an index of a list of 2"),
            (Add, "/spec/containers/01", Some(json!({})), "not an index of a list of 2"),
            (Add, "/spec/containers/+1", Some(json!({})), "not an index of a list of 2"),
            (Remove, "/spec/containers/-", None, "not an index of a list of 2"),
            (Replace, "/spec/containers/2", Some(json!({})), "not an index of a list of 2"),
            (Remove, "/spec/nothing", None, "doesn't exist"),
            (Replace, "/spec/nothing", Some(json!({})), "doesn't exist"),
            (Add, "/spec/containers/0/name/x", Some(json!({})), "neither an object nor a list"),
            (Remove, "/spec/containers", Some(json!({})), "must have no value"),
            (Add, "/spec/x", None, "needs a value"),
        ];
        for (action, path, value, says) in cases {
            let said = patched(action, path, value).expect_err(path);
            assert!(said.contains(says), "{path}: {said}");
        }
        assert!(patched(Add, &"/0".repeat(70), Some(json!(1))).unwrap_err().contains("deeper than 64"));
        let operation = Operation { action: Add, path: "/a".into(), value: Some("{".into()), layer: String::new() };
        assert!(apply(&mut json!({}), &operation).unwrap_err().to_string().contains("not JSON"));
    }

    #[test]
    fn a_list_is_extended_at_its_end_and_an_object_by_its_members() {
        let extended = |path: &str, value: Value| patched(Action::Extend, path, Some(value));
        let spec = extended("/spec/containers", json!([{"name": "c"}, {"name": "d"}])).unwrap();
        let names: Vec<_> = spec["containers"].as_array().unwrap().iter().map(|container| container["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        let spec = extended("/spec/containers/0", json!({"name": "z", "image": "i"})).unwrap();
        assert_eq!(spec["containers"][0], json!({"name": "z", "image": "i"}));
        for (path, value, says) in [
            ("/spec/containers", json!({}), "is a list, which an object can't extend"),
            ("/spec/containers/0", json!([1]), "is an object, which a list can't extend"),
            ("/spec/x~1y", json!([1]), "is a single value, which a list can't extend"),
            ("/spec/missing", json!([1]), "can't be reached, because \"missing\" doesn't exist in the template"),
            ("spec", json!([1]), "is not a JSON Pointer"),
        ] {
            let said = extended(path, value).unwrap_err();
            assert!(said.contains(says), "{path}: {said}");
        }
    }
}
