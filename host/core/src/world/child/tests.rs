use super::*;
use crate::resource::DEPLOYMENT;
use serde_json::json;

#[test]
fn a_deployment_tells_its_owner_its_replicas_and_what_we_own() {
    let live = json!({
        "metadata": {
            "name": "a", "namespace": "b", "uid": "1", "resourceVersion": "17", "generation": 2,
            "labels": {SUBJECT_KIND: "InferenceService"},
            "ownerReferences": [{"uid": "x"}, {"uid": "y", "controller": true}],
            "managedFields": [{"manager": "pointsman/inferenceservice", "operation": "Apply", "fieldsV1": {"f:spec": {"f:paused": {}}}}],
        },
        "spec": {"replicas": 5, "paused": true},
        "status": {"observedGeneration": 1, "replicas": 4, "availableReplicas": 3, "conditions": [{"type": "Available", "status": "True"}]},
    });
    let read = |live: &Value, known: Option<&OwnedObject>| {
        let (key, text) = (ObjectKey { resource: &DEPLOYMENT, namespace: "b".to_owned(), name: "a".to_owned() }, live.to_string());
        OwnedObject::from_live(key, (&text, &Live::parse(&text)), known)
    };
    let child = read(&live, None);
    assert_eq!((child.version, child.owner.as_deref()), (17, Some("y")));
    assert_eq!((child.observed.replicas, child.observed.available, child.observed.replicas_ours), (Some(5), 3, false));
    assert!(!child.observed.current_generation());
    assert!(child.observed.condition("Available").is_some());
    assert!(!child.settled(&json!({"spec": {"paused": false}}), 8));
    assert!(child.settled_at("/spec", &json!({"paused": true})));
    assert!(child.keeps_pods(&json!({"spec": {"paused": false}})), "there is no template in either");
    assert!(!child.keeps_pods(&json!({"spec": {"template": {"x": 1}}})));
    assert!(child.settled(&json!({"spec": {"paused": true}}), 7) && child.settled(&json!({}), 7) && child.ours());
    assert!(child.keeps_pods(&json!({"spec": {"paused": false}})) && !child.keeps_pods(&json!({"spec": {"template": {"x": 1}}})));

    // After a start, the hash of the plan tells a default from a leftover of an earlier plan.
    let planned = json!({"spec": {"tolerations": [{"key": "gpu"}]}});
    let written_by = |fingerprint: u64| {
        let by = PlanHash::from_plan(&DEPLOYMENT, &planned, fingerprint);
        let mut whole = live.clone();
        whole["metadata"]["annotations"] = json!({PLAN_HASH: by.to_string()});
        whole["metadata"]["managedFields"][0]["fieldsV1"] =
            json!({"f:metadata": {"f:annotations": {format!("f:{PLAN_HASH}"): {}}}, "f:spec": {"f:tolerations": {}}});
        whole["spec"] = json!({"tolerations": [{"key": "gpu", "effect": "NoSchedule"}]});
        read(&whole, None)
    };
    assert!(written_by(7).settled(&planned, 7));
    assert!(!written_by(6).settled(&planned, 7));

    // The next state of the object is as planned by the same plan, but not by another one.
    let mut next = live;
    next["status"]["replicas"] = 5.into();
    let same = read(&next, Some(&child));
    assert_eq!((same.observed.current, same.observed.replicas), (5, Some(5)));
    assert!(same.settled(&json!({}), 7) && same.differs(&child) && !same.settled(&json!({"spec": {"paused": true}}), 8));
    next["metadata"]["annotations"] = json!({"theirs": "1"});
    assert!(read(&next, Some(&same)).settled(&json!({}), 7), "what others change is nothing of ours");
    next["spec"]["paused"] = false.into();
    let other = read(&next, Some(&child));
    assert!(!other.settled(&json!({"spec": {"paused": true}}), 7) && other.differs(&child));
}
