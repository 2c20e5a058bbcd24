//! The ownership of an object's fields: moved from one manager to another in its managedFields.

use pointsman_core::world::child::FIELD_MANAGER_PREFIX;
use serde_json::{Map, Value, json};

/// The manager name during the adoption. The other fields it writes are ours from the first plan on.
pub(super) const ADOPTER: &str = "pointsman/adopt";

/// The fields that keep their owner: only that may remove its finalizers.
const FINALIZERS: &str = "f:finalizers";

/// The managedFields of an object after all fields of one manager, in this version of its kind, were moved to another.
pub(super) fn taken(managed: &[Value], from: &str, ours: &str, version: &str) -> Vec<Value> {
    let theirs = |entry: &Value| entry["manager"] == from;
    let own = |entry: &Value| entry["manager"] == ours && entry["operation"] == "Apply";
    handed(managed, version, &|entry| theirs(entry) || own(entry), (ours, "Apply"))
}

/// The managedFields of an object after all our fields were returned to another manager.
pub(super) fn given_back(managed: &[Value], to: &str, version: &str) -> Vec<Value> {
    let adopter = |entry: &Value| entry["manager"] == ADOPTER;
    let left: Vec<Value> = managed.iter().filter(|entry| !adopter(entry)).cloned().collect();
    let ours = |entry: &Value| entry["manager"].as_str().is_some_and(|manager| manager.starts_with(FIELD_MANAGER_PREFIX));
    let theirs = |entry: &Value| entry["manager"] == to && entry["operation"] == "Update";
    handed(&left, version, &|entry| ours(entry) || theirs(entry), (to, "Update"))
}

/// Merges the matching entries under one manager. A status isn't moved, and the paths of another version aren't known here.
fn handed(managed: &[Value], version: &str, such: &dyn Fn(&Value) -> bool, (manager, operation): (&str, &str)) -> Vec<Value> {
    let such =
        |entry: &Value| such(entry) && entry["subresource"].as_str().unwrap_or_default().is_empty() && entry["apiVersion"] == version;
    let mut all = json!({});
    let mut time = Value::Null;
    let mut left = Vec::new();
    for entry in managed {
        if !such(entry) {
            left.push(entry.clone());
            continue;
        }
        let mut fields = entry["fieldsV1"].clone();
        let finalizers = fields.pointer_mut("/f:metadata").and_then(Value::as_object_mut).and_then(|metadata| metadata.remove(FINALIZERS));
        if let Some(finalizers) = finalizers.filter(|_| entry["manager"] != manager) {
            let mut stays = entry.clone();
            stays["fieldsV1"] = json!({"f:metadata": {FINALIZERS: finalizers}});
            left.push(stays);
        }
        unite(&mut all, &fields);
        if entry["time"].as_str() > time.as_str() {
            time = entry["time"].clone();
        }
    }
    if all.as_object().is_some_and(|all| !all.is_empty()) {
        let mut entry =
            json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": all});
        if time.is_string() {
            entry["time"] = time;
        }
        left.push(entry);
    }
    left
}

/// Adds a set of fields to another.
fn unite(all: &mut Value, more: &Value) {
    let Some(more) = more.as_object() else { return };
    if !all.is_object() {
        *all = Value::Object(Map::new());
    }
    for (name, inner) in more {
        unite(&mut all[name], inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn names(managed: &[Value]) -> Vec<&str> {
        managed.iter().map(|entry| entry["manager"].as_str().unwrap()).collect()
    }

    const OURS: &str = "pointsman/inferenceservice";

    #[test]
    fn what_one_has_written_is_another_s_and_nothing_else_is() {
        let mut status = entry("manager", "Update", &json!({"f:status": {}}));
        status["subresource"] = "status".into();
        let mut old = entry("manager", "Update", &json!({"f:spec": {"f:old": {}}}));
        old["apiVersion"] = "v1beta1".into();
        let managed = [
            entry("manager", "Update", &json!({"f:spec": {"f:a": {"f:b": {}}, "f:c": {}}})),
            status,
            old,
            entry("kube-controller-manager", "Update", &json!({"f:spec": {"f:replicas": {}}})),
            entry(OURS, "Apply", &json!({"f:spec": {"f:a": {"f:d": {}}}})),
        ];
        let taken = taken(&managed, "manager", OURS, "v1");
        assert_eq!(names(&taken), ["manager", "manager", "kube-controller-manager", OURS]);
        let ours = taken.last().unwrap();
        assert_eq!(
            (&ours["operation"], &ours["fieldsV1"]),
            (&json!("Apply"), &json!({"f:spec": {"f:a": {"f:b": {}, "f:d": {}}, "f:c": {}}}))
        );

        let back = given_back(&taken, "manager", "v1");
        assert_eq!(back.last().unwrap()["fieldsV1"], ours["fieldsV1"]);
        assert_eq!(
            (names(&back), &back.last().unwrap()["operation"]),
            (names(&taken[..3]).into_iter().chain(["manager"]).collect(), &json!("Update"))
        );
    }

    #[test]
    fn a_finalizer_stays_whose_it_is() {
        let managed = [entry("manager", "Update", &json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}}, "f:labels": {}}}))];
        let taken = taken(&managed, "manager", OURS, "v1");
        assert_eq!(names(&taken), ["manager", OURS]);
        assert_eq!(taken[0]["fieldsV1"], json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}}}}));
        assert_eq!(taken[1]["fieldsV1"], json!({"f:metadata": {"f:labels": {}}}));
    }

    #[test]
    fn what_we_have_written_under_any_name_is_given_back() {
        let managed = [
            entry(OURS, "Apply", &json!({"f:spec": {"f:a": {}}})),
            entry("pointsman/inferenceservice.replicas", "Apply", &json!({"f:spec": {"f:replicas": {}}})),
            entry(ADOPTER, "Update", &json!({"f:metadata": {"f:labels": {"f:x": {}}}})),
        ];
        let back = given_back(&managed, "manager", "v1");
        assert_eq!(
            back,
            [entry("manager", "Update", &json!({"f:spec": {"f:a": {}, "f:replicas": {}}}))].map(|mut entry| {
                let order = ["manager", "operation", "apiVersion", "fieldsType", "fieldsV1"];
                let fields = order.map(|key| (key.to_owned(), entry[key].take()));
                Value::Object(fields.into_iter().collect())
            })
        );
    }
}
