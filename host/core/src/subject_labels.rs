//! The labels that are copied from objects to their subject, for selectors, unless another field manager sets them.

use crate::{plan::Object, subject_kind::SubjectKind, world::Subject};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The complete set of our labels on a subject, if it differs from the current one. The values are those that the policies gave to its
/// objects, so that unusual names are encoded in the same way.
pub fn labels_to_write(subject: &Subject, objects: &[Object]) -> Option<BTreeMap<String, String>> {
    // A subject that has ended and needs no objects any more can still be found by its labels.
    if objects.is_empty() {
        return None;
    }
    let keys = SubjectKind::find(subject.key.resource)?.selector_labels;
    let metadata = objects.iter().map(|object| &object.body["metadata"]["labels"]);
    let labels: Vec<&Value> = metadata.filter(|labels| labels.is_object()).collect();
    let value = |key: &str| {
        let values: BTreeSet<&str> = labels.iter().filter_map(|labels| labels[key].as_str()).collect();
        // If the objects have different values, the subject has none.
        if values.len() == 1 { values.first().map(|value| (*value).to_owned()) } else { None }
    };
    // A subject's content doesn't contain the labels that only we own.
    let content = if keys.is_empty() { Value::Null } else { subject.content() };
    let others = &content["metadata"]["labels"];
    let free = keys.iter().filter(|key| others.get(**key).is_none());
    let wanted: BTreeMap<String, String> = free.filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect();
    (wanted != subject.own_labels).then_some(wanted)
}

/// Removes all of our labels from a subject, if labels are disabled.
pub fn labels_to_withdraw(subject: &Subject) -> Option<BTreeMap<String, String>> {
    (!subject.own_labels.is_empty()).then(BTreeMap::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        resource::{DEPLOYMENT, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource, SERVICE},
        world::{ObjectKey, World, subject::LABELS_MANAGER},
    };
    use serde_json::json;
    use std::sync::Arc;

    const MODEL: &str = "serving.ome.io/model";
    const MANAGED_BY: &str = "ome.io/managed-by";

    fn object(resource: &'static Resource, labels: Value) -> Object {
        let key = ObjectKey { resource, namespace: "prod".to_owned(), name: "chat".to_owned() };
        let mut body = json!({"metadata": {}});
        body["metadata"]["labels"] = labels;
        Object::new(key, body)
    }

    fn subject(resource: &'static Resource, labels: Value, managers: &[(&str, &[&str])]) -> Arc<Subject> {
        let managed = managers.iter().map(|(manager, keys)| {
            let owned: serde_json::Map<String, Value> = keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
            json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": owned}}})
        });
        let mut object = json!({"metadata": {"namespace": "prod", "name": "chat", "uid": "u"}, "spec": {}});
        object["metadata"]["managedFields"] = managed.collect();
        object["metadata"]["labels"] = labels;
        let mut world = World::default();
        world.put(resource, &object);
        Arc::clone(world.subjects().next().unwrap())
    }

    fn wanted(subject: &Subject, objects: &[Object]) -> Option<Value> {
        labels_to_write(subject, objects).map(|labels| json!(labels))
    }

    #[test]
    fn a_subject_gets_what_its_objects_agree_on_and_no_more() {
        let bare = subject(&INFERENCE_SERVICE, Value::Null, &[]);
        let objects = [
            object(&SERVICE, json!({MODEL: "llama", MANAGED_BY: "me", "serving.ome.io/component": "engine", "model.ome.io/size": "8B"})),
            object(&DEPLOYMENT, json!({MODEL: "llama", "model.ome.io/size": "7B", "team": "a"})),
            object(&DEPLOYMENT, Value::Null),
        ];
        assert_eq!(wanted(&bare, &objects).unwrap(), json!({MANAGED_BY: "me", MODEL: "llama"}));
        assert_eq!(wanted(&bare, &[]), None);
        assert_eq!(wanted(&subject(&LLM_INFERENCE_SERVICE, Value::Null, &[]), &objects), None);
    }

    #[test]
    fn what_somebody_else_has_set_stays_and_what_is_ours_follows_the_objects() {
        let objects = [object(&SERVICE, json!({MODEL: "llama", MANAGED_BY: "ome-controller"}))];
        let theirs = subject(&INFERENCE_SERVICE, json!({MODEL: "mine"}), &[("kubectl", &[MODEL])]);
        assert_eq!(wanted(&theirs, &objects).unwrap(), json!({MANAGED_BY: "ome-controller"}));
        let labels = json!({MODEL: "llama", MANAGED_BY: "ome-controller"});
        let ours = subject(&INFERENCE_SERVICE, labels.clone(), &[(LABELS_MANAGER, &[MODEL, MANAGED_BY])]);
        assert_eq!(wanted(&ours, &objects), None);
        assert_eq!(wanted(&ours, &[object(&SERVICE, json!({MODEL: "phi"}))]).unwrap(), json!({MODEL: "phi"}));
        assert_eq!(labels_to_withdraw(&ours), Some(BTreeMap::new()));
        // Both own the label, so it belongs to the other.
        let shared = subject(&INFERENCE_SERVICE, labels, &[(LABELS_MANAGER, &[MODEL, MANAGED_BY]), ("argocd", &[MODEL])]);
        assert_eq!(json!(shared.own_labels), json!({MANAGED_BY: "ome-controller"}));
        assert_eq!(wanted(&shared, &objects), None);
        assert_eq!(labels_to_withdraw(&theirs), None);
    }

    #[test]
    fn what_it_has_from_us_changes_neither_its_content_nor_its_digest() {
        let owner: &[(&str, &[&str])] = &[(LABELS_MANAGER, &[MODEL])];
        for others in [Value::Null, json!({"team": "a", "tier": "b"})] {
            let before = subject(&INFERENCE_SERVICE, others.clone(), &[]);
            let mut labels = json!({MODEL: "llama"});
            labels.as_object_mut().unwrap().extend(others.as_object().cloned().unwrap_or_default());
            let after = subject(&INFERENCE_SERVICE, labels, owner);
            assert_eq!((before.content(), before.digest()), (after.content(), after.digest()));
            assert!(before.asks_the_same(&after) && before.differs(&after));
        }
    }
}
