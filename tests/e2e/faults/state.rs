//! The final state of a namespace.

use crate::services::{CHILDREN, Space, condition};
use kube::api::ListParams;
use pointsman_core::{
    resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, Resource},
    world::child::{FIELD_MANAGER_PREFIX, PLAN_HASH, REVISIONS},
};
use serde_json::Value;
use std::collections::BTreeMap;

async fn all(space: &Space<'_>, resource: &Resource) -> Vec<Value> {
    let listed = space.api(resource).list(&ListParams::default()).await.unwrap();
    listed.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

/// The conditions of subjects that haven't applied their newest generation.
pub(super) async fn unapplied(space: &Space<'_>) -> Vec<String> {
    let mut subjects = all(space, &INFERENCE_SERVICE).await;
    subjects.extend(all(space, &LLM_INFERENCE_SERVICE).await);
    let applied = |subject: &Value| {
        condition(subject, "Applied")["status"] == "True" && subject["status"]["observedGeneration"] == subject["metadata"]["generation"]
    };
    let told = |subject: &Value| format!("{}: {}", subject["metadata"]["name"], subject["status"]["conditions"]);
    subjects.iter().filter(|subject| !applied(subject)).map(told).collect()
}

/// Everything that hosts have written there, without parts that differ per cluster or time.
pub(super) async fn end_state(space: &Space<'_>) -> BTreeMap<String, Value> {
    let mut state = BTreeMap::new();
    for resource in CHILDREN.into_iter().chain([&INFERENCE_SERVICE, &LLM_INFERENCE_SERVICE]) {
        for object in all(space, resource).await {
            if let Some(told) = of_hosts(&object) {
                let name = format!("{} {}", resource.kind, object["metadata"]["name"].as_str().unwrap());
                let elsewhere = without_revisions(&told.to_string().replace(&space.0.name, "NAMESPACE"));
                state.insert(without_revisions(&name), serde_json::from_str(&elsewhere).unwrap());
            }
        }
    }
    state
}

/// The part of an object that hosts influence.
fn of_hosts(object: &Value) -> Option<Value> {
    let mut told = object.clone();
    let managed = object["metadata"]["managedFields"].as_array()?;
    let mut ours: Vec<Value> = managed
        .iter()
        .filter(|managed| managed["manager"].as_str().is_some_and(|manager| manager.starts_with(FIELD_MANAGER_PREFIX)))
        .map(|managed| serde_json::json!([managed["manager"], managed["operation"], managed["subresource"], managed["fieldsV1"]]))
        .collect();
    if ours.is_empty() {
        return None;
    }
    let is_subject = [INFERENCE_SERVICE.kind, LLM_INFERENCE_SERVICE.kind].contains(&object["kind"].as_str()?);
    let metadata = told["metadata"].as_object_mut()?;
    for key in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp"] {
        metadata.remove(key);
    }
    for owner in told["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        owner["uid"] = "UID".into();
    }
    for managed in &mut ours {
        managed.pointer_mut("/3/f:metadata/f:ownerReferences").and_then(Value::as_object_mut).map(serde_json::Map::clear);
        let annotations = managed.pointer_mut("/3/f:metadata/f:annotations").and_then(Value::as_object_mut);
        annotations.map(|annotations| annotations.remove(&format!("f:{REVISIONS}")));
    }
    // Annotations of other controllers about their own objects, and hashes that include the name of the namespace.
    for annotation in ["deployment.kubernetes.io/revision", PLAN_HASH] {
        told["metadata"]["annotations"].as_object_mut().map(|annotations| annotations.remove(annotation));
    }
    for key in ["clusterIP", "clusterIPs"] {
        told["spec"].as_object_mut().map(|spec| spec.remove(key));
    }
    if !is_subject {
        told.as_object_mut()?.remove("status");
    }
    forget_how_often(&mut told);
    told["managedFields"] = ours.into();
    Some(told)
}

/// Removes the numbers of revisions at the end of names, such as -00002.
fn without_revisions(text: &str) -> String {
    let mut parts = text.split('-');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        rest += "-";
        rest += if digits == 5 { &part[digits..] } else { part };
    }
    rest
}

/// Removes the values that depend on the number and the times of edits.
fn forget_how_often(value: &mut Value) {
    const COUNTED: [&str; 8] = [
        "lastTransitionTime",
        "observedGeneration",
        "chosenAtGeneration",
        "ome.io/resource-version",
        "pointsman.dev/revision",
        REVISIONS,
        "pointsman.dev/runtime",
        "serving.ome.io/revision",
    ];
    match value {
        Value::Object(object) => {
            object.retain(|key, _| !COUNTED.contains(&key.as_str()) && !key.ends_with("Revision"));
            object.values_mut().for_each(forget_how_often);
        }
        Value::Array(list) => list.iter_mut().for_each(forget_how_often),
        _ => {}
    }
}
