//! Other writers of our objects and statuses, from managedFields.

use super::{
    child::FIELD_MANAGER_PREFIX,
    live::{Live, Managed},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// The prefix of users' tools, which don't reconcile subjects.
const HUMAN_MANAGERS: &str = "kubectl";

/// The prefix of Kubernetes' own controllers, which write many objects.
const KUBERNETES: &str = "kube-";

/// A field manager, with the time of its last write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// The field manager's name.
    pub manager: String,
    /// The time; none if it wasn't recorded.
    pub time: Option<Timestamp>,
}

/// Whether a manager may be another controller of the same kinds.
pub fn foreign(manager: &str) -> bool {
    !manager.starts_with(FIELD_MANAGER_PREFIX) && !manager.starts_with(HUMAN_MANAGERS)
}

/// The other controllers that have written the status of an object, by name.
pub(super) fn of_status(live: &Live<'_>) -> Vec<Writer> {
    let managed = live.metadata.managed_fields.iter().flatten();
    let others = managed.filter(|entry| entry.subresource == "status" && foreign(&entry.manager));
    let writer = |entry: &Managed<'_>| Writer {
        manager: entry.manager.clone().into_owned(),
        time: entry.time.as_deref().and_then(|time| time.parse().ok()),
    };
    let mut writers: Vec<Writer> = others.map(writer).collect();
    writers.sort();
    writers
}

fn writer(entry: &Value) -> Option<Writer> {
    let time = entry["time"].as_str().and_then(|time| time.parse().ok());
    Some(Writer { manager: entry["manager"].as_str()?.to_owned(), time })
}

fn of_itself(entry: &Value) -> bool {
    entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// The creator of an object for the owner with this uid: the manager of the owner reference.
pub fn maker(managed: &[Value], owner: &str) -> Option<Writer> {
    let reference = format!("k:{{\"uid\":\"{owner}\"}}");
    let made =
        |entry: &&Value| entry.pointer("/fieldsV1/f:metadata/f:ownerReferences").is_some_and(|owners| owners.get(&reference).is_some());
    managed.iter().filter(|entry| of_itself(entry)).filter(made).find_map(writer)
}

/// The last of the possible other controllers to have written an object.
pub fn last(managed: &[Value]) -> Option<Writer> {
    let others = managed.iter().filter(|entry| of_itself(entry)).filter_map(writer);
    others.filter(|writer| foreign(&writer.manager) && !writer.manager.starts_with(KUBERNETES)).max_by_key(|writer| writer.time)
}

/// Whether we have written an object.
pub fn ours(managed: &[Value]) -> bool {
    managed
        .iter()
        .any(|entry| of_itself(entry) && entry["manager"].as_str().is_some_and(|manager| manager.starts_with(FIELD_MANAGER_PREFIX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, second: u32, subresource: &str) -> Value {
        json!({"manager": manager, "operation": "Update", "time": format!("2026-01-01T00:00:{second:02}Z"), "subresource": subresource})
    }

    #[test]
    fn of_a_status_only_other_controllers_count() {
        let managed = json!([
            entry("pointsman/inferenceservice", 1, "status"),
            entry("kubectl-edit", 2, "status"),
            entry("manager", 3, "status"),
            entry("manager", 9, ""),
        ]);
        let text = json!({"metadata": {"name": "a", "managedFields": managed}}).to_string();
        let writers = of_status(&Live::parse(&text));
        assert_eq!(writers, [Writer { manager: "manager".to_owned(), time: "2026-01-01T00:00:03Z".parse().ok() }]);
    }

    #[test]
    fn who_has_made_an_object_is_told_by_whose_it_is() {
        let mut made = entry("manager", 1, "");
        made["fieldsV1"] = json!({"f:metadata": {"f:ownerReferences": {".": {}, "k:{\"uid\":\"u\"}": {}}}});
        let managed = [entry("keda", 5, ""), made, entry("kube-controller-manager", 9, "")];
        assert_eq!(maker(&managed, "u").unwrap().manager, "manager");
        assert_eq!(maker(&managed, "v"), None);
        assert_eq!(last(&managed).unwrap().manager, "keda");
        assert!(!ours(&managed) && ours(&[entry("pointsman/inferenceservice", 1, "")]));
    }
}
