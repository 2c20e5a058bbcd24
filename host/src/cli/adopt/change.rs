//! The patches for adoption and release: one per object, guarded by the state it was computed for.

use super::fields::{given_back, taken};
use k8s_openapi::jiff::Timestamp;
use pointsman_core::{
    resource::Resource,
    world::{
        adopted::{ADOPTED, WORKLOADS},
        child::{REVISION, SUBJECT_KIND, manager},
        subject::CONTROL,
        writers::{self, Writer},
    },
};
use serde_json::{Map, Value, json};

/// The prefix of all our labels and annotations.
const OURS: &str = "pointsman.dev/";

/// The revision of a workload whose pods get our template at once: no template has it.
const NO_REVISION: &str = "00000-none";

/// Another controller's object, before and after its adoption.
#[derive(Debug)]
pub(super) struct TakenOver {
    /// The previous manager.
    pub(super) from: String,
    /// Whether it was adopted before.
    pub(super) again: bool,
    /// The object after the adoption.
    pub(super) after: Value,
    /// The patch that adopts it.
    pub(super) patch: Value,
}

/// Adopts an object for a subject.
pub(super) fn take_over(resource: &Resource, object: &Value, subject: (&str, &str), new_templates: bool) -> TakenOver {
    let (kind, uid) = subject;
    let managed = managed(object);
    let maker = writers::maker(&managed, uid).filter(|maker| writers::foreign(&maker.manager)).or_else(|| writers::last(&managed));
    let maker = maker.map_or_else(|| "unknown".to_owned(), |Writer { manager, .. }| manager);
    // Somebody may have removed our label since the first adoption.
    let before = object["metadata"]["annotations"][ADOPTED].as_str();
    let (from, again) = (before.map_or(maker, str::to_owned), before.is_some());
    let runs = object["spec"]["template"].is_object() || object["spec"]["leaderWorkerTemplate"].is_object();
    let mut annotations = Map::from_iter([(ADOPTED.to_owned(), from.as_str().into())]);
    if runs && new_templates {
        annotations.insert(REVISION.to_owned(), NO_REVISION.into());
    }
    let metadata = json!({
        "labels": {SUBJECT_KIND: kind}, "annotations": annotations,
        "managedFields": taken(&managed, &from, &manager(kind), &resource.api_version()),
    });
    let mut after = object.clone();
    for part in ["labels", "annotations"] {
        for (key, value) in metadata[part].as_object().into_iter().flatten() {
            after["metadata"][part][key] = value.clone();
        }
    }
    after["metadata"]["managedFields"] = metadata["managedFields"].clone();
    TakenOver { from, again, after, patch: guarded(object, metadata) }
}

/// Returns an object to a manager.
pub(super) fn give_back(resource: &Resource, object: &Value, to: &str) -> Value {
    let gone = |part: &str| -> Map<String, Value> {
        let keys = object["metadata"][part].as_object().into_iter().flatten().map(|(key, _)| key);
        keys.filter(|key| key.starts_with(OURS)).map(|key| (key.clone(), Value::Null)).collect()
    };
    let managed = given_back(&managed(object), to, &resource.api_version());
    guarded(object, json!({"labels": gone("labels"), "annotations": gone("annotations"), "managedFields": managed}))
}

/// The patch that marks a subject as adopted, with the finalizers that it keeps.
pub(super) fn claim(subject: &Value, now: Timestamp, workloads: &[String], finalizers: &[String]) -> Value {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let workloads = if workloads.is_empty() { Value::Null } else { workloads.join(",").into() };
    let mut metadata = json!({"annotations": {ADOPTED: time, WORKLOADS: workloads, CONTROL: null}});
    if !finalizers.is_empty() {
        let all = subject["metadata"]["finalizers"].as_array().into_iter().flatten();
        let kept = all.filter(|known| !finalizers.iter().any(|gone| *known == gone)).cloned();
        metadata["finalizers"] = kept.collect::<Vec<Value>>().into();
    }
    guarded(subject, metadata)
}

/// The patch that marks a subject as not managed.
pub(super) fn release(subject: &Value) -> Value {
    guarded(subject, json!({"annotations": {ADOPTED: null, WORKLOADS: null, CONTROL: "false"}}))
}

/// The finalizers that a manager has set on a subject: once the manager is gone, nothing removes them.
pub(super) fn finalizers(subject: &Value, from: &[String]) -> Vec<String> {
    let owned = |entry: &Value| -> Vec<String> {
        let owned = entry.pointer("/fieldsV1/f:metadata/f:finalizers").and_then(Value::as_object);
        let names = owned.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("v:"));
        names.filter_map(|name| serde_json::from_str(name).ok()).collect()
    };
    let managed = managed(subject);
    let of_them = managed.iter().filter(|entry| from.iter().any(|from| entry["manager"] == from.as_str()));
    of_them.flat_map(owned).collect()
}

/// The time of the adoption: now, but not before the last write, in case the clocks differ.
pub(super) fn adoption(now: Timestamp, written: impl IntoIterator<Item = Timestamp>) -> Timestamp {
    written.into_iter().fold(now, Timestamp::max)
}

pub(super) fn managed(object: &Value) -> Vec<Value> {
    object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
}

fn guarded(object: &Value, mut metadata: Value) -> Value {
    metadata["uid"] = object["metadata"]["uid"].clone();
    metadata["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    json!({ "metadata": metadata })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::resource::DEPLOYMENT;

    fn deployment() -> Value {
        json!({
            "metadata": {
                "name": "chat-engine", "uid": "d", "resourceVersion": "7", "labels": {"app": "a"},
                "managedFields": [{
                    "manager": "manager", "operation": "Update", "apiVersion": "apps/v1",
                    "fieldsV1": {"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}}, "f:spec": {"f:replicas": {}}},
                }],
            },
            "spec": {"replicas": 1, "template": {"metadata": {}, "spec": {}}},
        })
    }

    #[test]
    fn an_object_that_is_taken_over_and_given_back_is_as_it_was() {
        let before = deployment();
        let TakenOver { from, again, mut after, patch } = take_over(&DEPLOYMENT, &before, ("InferenceService", "u"), false);
        assert_eq!((from.as_str(), &patch["metadata"]["resourceVersion"]), ("manager", &json!("7")));
        assert_eq!((again, &patch["metadata"]["annotations"]), (false, &json!({ADOPTED: "manager"})));
        assert_eq!(after["metadata"]["managedFields"][0]["manager"], "pointsman/inferenceservice");
        after["metadata"]["annotations"]["theirs"] = "stays".into();
        let back = give_back(&DEPLOYMENT, &after, &from);
        assert_eq!(back["metadata"]["labels"], json!({SUBJECT_KIND: null}));
        assert_eq!(back["metadata"]["annotations"], json!({ADOPTED: null}));
        let managed = &back["metadata"]["managedFields"];
        assert_eq!(
            (&managed[0]["manager"], &managed[0]["fieldsV1"]),
            (&json!("manager"), &before["metadata"]["managedFields"][0]["fieldsV1"])
        );
    }

    #[test]
    fn new_templates_are_asked_for_by_a_revision_that_none_has() {
        let taken = take_over(&DEPLOYMENT, &deployment(), ("InferenceService", "u"), true);
        assert_eq!(taken.after["metadata"]["annotations"][REVISION], NO_REVISION);
    }

    #[test]
    fn what_lost_our_label_is_still_the_former_controller_s() {
        let TakenOver { mut after, .. } = take_over(&DEPLOYMENT, &deployment(), ("InferenceService", "u"), false);
        after["metadata"]["labels"] = json!({});
        let TakenOver { from, again, .. } = take_over(&DEPLOYMENT, &after, ("InferenceService", "u"), false);
        assert_eq!((from.as_str(), again), ("manager", true));
    }

    #[test]
    fn a_service_names_the_workloads_that_were_taken_over_with_it() {
        let all = ["Deployment/a".to_owned(), "LeaderWorkerSet/b".to_owned()];
        let claimed = claim(&json!({}), Timestamp::UNIX_EPOCH, &all, &[]);
        assert_eq!(claimed["metadata"]["annotations"][WORKLOADS], "Deployment/a,LeaderWorkerSet/b");
        assert!(release(&json!({}))["metadata"]["annotations"][WORKLOADS].is_null());
    }

    #[test]
    fn the_former_controller_s_finalizers_go_and_no_others() {
        let subject = json!({"metadata": {
            "uid": "u", "resourceVersion": "1", "finalizers": ["a", "b"],
            "managedFields": [
                {"manager": "manager", "fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, "v:\"a\"": {}}}}},
                {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"b\"": {}}}}},
            ],
        }});
        let gone = finalizers(&subject, &["manager".to_owned()]);
        assert_eq!(gone, ["a"]);
        assert_eq!(claim(&subject, Timestamp::UNIX_EPOCH, &[], &gone)["metadata"]["finalizers"], json!(["b"]));
        assert!(claim(&subject, Timestamp::UNIX_EPOCH, &[], &[])["metadata"]["finalizers"].is_null());
    }

    #[test]
    fn a_taking_over_is_never_before_what_was_written() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!((adoption(at(5), [at(3), at(9)]), adoption(at(5), [])), (at(9), at(5)));
    }
}
