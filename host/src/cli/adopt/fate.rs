//! The outcome of an adoption for each object of a service.

use pointsman_core::{
    plan::Object,
    quantity,
    resource::Resource,
    workload::Workload,
    world::{adopted::Adopted, child::manager, owned},
};
use serde_json::{Map, Value, json};

/// The outcome for an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ObjectOutcome {
    /// It stays unchanged, except for labels and annotations.
    AsItIs,
    /// These fields change.
    Changed(Vec<String>),
    /// The service doesn't need it.
    Removed,
}

/// Whether a kind runs pods: such an object is never removed.
pub(super) fn runs_pods(resource: &Resource) -> bool {
    Workload::find(resource).is_some()
}

/// The outcome for an adopted object, and the number of pods that restart.
pub(super) fn fate(kind: &str, after: &Value, planned: Option<&Object>) -> (ObjectOutcome, i64) {
    let Some(planned) = planned else { return (ObjectOutcome::Removed, 0) };
    let ours = owned::part(after, &manager(kind));
    let mut changed = Vec::new();
    let none = Map::new();
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (part, planned) in planned.body.as_object().unwrap_or(&none).iter().filter(|(part, _)| *part != "metadata") {
        if part != "spec" {
            changed.extend((!contains(planned, &after[part])).then(|| part.clone()));
            continue;
        }
        for (field, planned) in &fields(planned) {
            let same = contains(planned, &after[part][field]) && (field != "selector" || same_selector(planned, &after[part][field]));
            changed.extend((!same && !is_template(field)).then(|| format!("{part}.{field}")));
        }
        for (field, _) in fields(&ours[part]) {
            let gone = planned.get(&field).is_none() && field != "replicas" && !usual(&field, &after[part][&field]);
            changed.extend(gone.then(|| format!("{part}.{field}")));
        }
    }
    changed.sort();
    (if changed.is_empty() { ObjectOutcome::AsItIs } else { ObjectOutcome::Changed(changed) }, restarts(after, planned))
}

/// The present and the planned number of replicas, if they differ.
pub(super) fn rescaled(live: &Value, planned: &Object) -> Option<String> {
    if !runs_pods(planned.key.resource) || planned.yields_replicas {
        return None;
    }
    let (now, then) = (live["spec"]["replicas"].as_i64()?, planned.body["spec"]["replicas"].as_i64()?);
    (now != then).then(|| format!("{now} -> {then} replicas"))
}

fn is_template(field: &str) -> bool {
    field == "template" || field == "leaderWorkerTemplate"
}

/// The number of pods that get another template.
fn restarts(live: &Value, planned: &Object) -> i64 {
    let Some(adopted) = Adopted::from_live(live).filter(|adopted| adopted.runs.is_some()) else { return 0 };
    let spec = &planned.body["spec"];
    let same = adopted.runs.iter().flatten().filter(|(field, _)| is_template(field)).all(|(field, live)| spec[field] == *live);
    let replicas = live["spec"]["replicas"].as_i64().unwrap_or(1);
    if same { 0 } else { replicas * live["spec"]["leaderWorkerTemplate"]["size"].as_i64().unwrap_or(1) }
}

/// Whether a value contains everything that is planned. It may contain more, such as defaults.
fn contains(planned: &Value, live: &Value) -> bool {
    match (planned, live) {
        (Value::Object(planned), Value::Object(live)) => {
            planned.iter().all(|(key, planned)| planned.is_null() || contains(planned, live.get(key).unwrap_or(&Value::Null)))
        }
        (Value::Array(planned), Value::Array(live)) => {
            planned.len() == live.len() && planned.iter().zip(live).all(|(planned, live)| contains(planned, live))
        }
        (Value::Object(empty), Value::Null) => empty.is_empty(),
        (Value::Array(empty), Value::Null) => empty.is_empty(),
        (planned, live) => planned == live || quantity::parse(planned).is_some_and(|planned| quantity::parse(live) == Some(planned)),
    }
}

/// A selector with another key selects other pods.
fn same_selector(planned: &Value, live: &Value) -> bool {
    planned == live
}

/// Whether a field has Kubernetes' default.
fn usual(field: &str, value: &Value) -> bool {
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}});
    let by_ones = json!({"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0, "partition": 0}});
    let usual = [
        ("progressDeadlineSeconds", json!(600)),
        ("revisionHistoryLimit", json!(10)),
        ("strategy", rolling),
        ("rolloutStrategy", by_ones),
        ("networkConfig", json!({"subdomainPolicy": "Shared"})),
        ("type", json!("ClusterIP")),
        ("sessionAffinity", json!("None")),
        ("internalTrafficPolicy", json!("Cluster")),
    ];
    // An assigned address stays, regardless of who requested it.
    field.starts_with("clusterIP") || field.starts_with("ipFamil") || usual.contains(&(field, value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::resource::{DEPLOYMENT, KNATIVE_SERVICE, RAY_CLUSTER};
    use pointsman_core::{
        resource::SERVICE,
        world::{ObjectKey, adopted::ADOPTED},
    };

    fn planned(resource: &'static Resource, body: Value) -> Object {
        Object::new(ObjectKey { resource, namespace: "a".to_owned(), name: "b".to_owned() }, body)
    }

    fn live(spec: &Value, fields: &Value) -> Value {
        let managed = json!([{"manager": "pointsman/inferenceservice", "operation": "Apply", "fieldsV1": {"f:spec": fields}}]);
        json!({"metadata": {"annotations": {ADOPTED: "manager"}, "managedFields": managed}, "spec": spec})
    }

    #[test]
    fn what_changes_is_named_and_what_is_usual_is_not() {
        let spec = json!({
            "type": "ClusterIP", "clusterIP": "None", "selector": {"app": "a"}, "externalName": "x",
            "ports": [{"port": 80, "protocol": "TCP"}],
        });
        let fields = json!({"f:type": {}, "f:clusterIP": {}, "f:selector": {}, "f:ports": {}, "f:externalName": {}});
        let after = live(&spec, &fields);
        let fate_of = |spec: Value| fate("InferenceService", &after, Some(&planned(&SERVICE, json!({"metadata": {}, "spec": spec})))).0;
        let ports = json!([{"port": 80}]);
        assert_eq!(fate_of(json!({"selector": {"app": "a"}, "ports": ports, "externalName": "x"})), ObjectOutcome::AsItIs);
        let all = ["spec.externalName", "spec.ports", "spec.selector"].map(str::to_owned);
        assert_eq!(fate_of(json!({"selector": {"app": "a", "b": "c"}, "ports": [{"port": 81}]})), ObjectOutcome::Changed(all.to_vec()));
        assert_eq!(fate("InferenceService", &after, None).0, ObjectOutcome::Removed);
    }

    #[test]
    fn another_number_of_replicas_is_told() {
        let told =
            |replicas: i64| rescaled(&json!({"spec": {"replicas": 5}}), &planned(&DEPLOYMENT, json!({"spec": {"replicas": replicas}})));
        assert_eq!((told(2).as_deref(), told(5)), (Some("5 -> 2 replicas"), None));
    }

    #[test]
    fn a_cluster_of_ray_runs_pods_and_is_planned_by_nobody() {
        assert!(runs_pods(&RAY_CLUSTER) && runs_pods(&KNATIVE_SERVICE) && !runs_pods(&SERVICE));
        assert_eq!(fate("InferenceService", &live(&json!({}), &json!({})), None).0, ObjectOutcome::Removed);
    }

    #[test]
    fn pods_restart_for_another_template_and_no_other_field() {
        let template = |image: &str| json!({"spec": {"containers": [{"name": "a", "image": image}]}});
        let after = live(&json!({"replicas": 3, "template": template("a:1"), "paused": false}), &json!({"f:template": {}}));
        let with = |image: &str| planned(&DEPLOYMENT, json!({"spec": {"template": template(image), "paused": true}}));
        assert_eq!(fate("InferenceService", &after, Some(&with("a:1"))), (ObjectOutcome::Changed(vec!["spec.paused".to_owned()]), 0));
        assert_eq!(fate("InferenceService", &after, Some(&with("a:2"))).1, 3);
    }
}
