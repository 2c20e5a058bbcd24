//! The parts of objects that rules can read: what the user has written, and the name and labels of a namespace.

use crate::world::LAST_APPLIED;
use serde_json::{Map, Value, json};

/// An object in the form for rules at every entry point: what its user has written.
pub fn object(api_version: &str, kind: &str, namespace: &str, name: &str, content: &Value) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), name.into());
    if !namespace.is_empty() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    for part in ["labels", "annotations"] {
        let Some(Value::Object(map)) = content["metadata"].get(part) else { continue };
        let map: Map<_, _> = map.iter().filter(|(key, _)| *key != LAST_APPLIED).map(|(key, value)| (key.clone(), value.clone())).collect();
        // The API server doesn't store empty ones.
        if !map.is_empty() {
            metadata.insert(part.to_owned(), Value::Object(map));
        }
    }
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    object.insert("metadata".to_owned(), Value::Object(metadata));
    if let Some(spec) = content.get("spec").filter(|spec| !spec.is_null()) {
        object.insert("spec".to_owned(), spec.clone());
    }
    Value::Object(object)
}

/// A namespace in the form for rules.
pub fn namespace<'a>(name: &str, labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Value {
    let labels: Map<String, Value> = labels.into_iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_see_what_a_user_has_written_and_neither_kubectl_s_note_nor_empty_maps() {
        let metadata = json!({"labels": {}, "annotations": {LAST_APPLIED: "{}", "a": "b"}, "uid": "1", "finalizers": ["x/y"]});
        let seen = object("v1", "A", "n", "a", &json!({"metadata": metadata, "spec": {"b": 1}, "status": {}}));
        let wanted = json!({"name": "a", "namespace": "n", "annotations": {"a": "b"}});
        assert_eq!(seen, json!({"apiVersion": "v1", "kind": "A", "metadata": wanted, "spec": {"b": 1}}));
        let bare = object("v1", "A", "", "a", &json!({"metadata": {"annotations": {LAST_APPLIED: "{}"}}, "spec": null}));
        assert_eq!(bare, json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}));
    }
}
