use super::{ObjectKey, ObjectUpdate, Read, Touched, World, child::SUBJECT_KIND};
use crate::{
    resource::{
        CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, DEPLOYMENT, INFERENCE_POOL, INFERENCE_SERVICE, NAMESPACE, POD, REFERENCE_GRANT,
        Resource,
    },
    subject_kind::{COMPONENT, SUBJECT},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn key(resource: &'static Resource, name: &str) -> ObjectKey {
    let namespace = if resource.namespaced { "chat".to_owned() } else { String::new() };
    ObjectKey { resource, namespace, name: name.to_owned() }
}

/// Parses an object without a known earlier state.
fn news(resource: &'static Resource, object: &Value) -> ObjectUpdate {
    ObjectUpdate::read(resource, &object.to_string(), |_| None)
}

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "chat", "uid": format!("uid-{name}"), "generation": 1, "resourceVersion": "1"}, "spec": {}})
}

fn runtime(image: &str, architecture: &str) -> Value {
    json!({
        "kind": "ClusterServingRuntime", "metadata": {"name": "vllm"},
        "spec": {
            "supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "modelArchitecture": architecture}],
            "engineConfig": {"runner": {"image": image}},
        },
    })
}

fn deployment(owner: &str, version: u64, available: i64) -> Value {
    json!({
        "metadata": {
            "name": "a-engine", "namespace": "chat", "uid": "d", "resourceVersion": version.to_string(),
            "labels": {SUBJECT_KIND: "InferenceService"}, "ownerReferences": [{"uid": owner, "controller": true}],
        },
        "status": {"availableReplicas": available},
    })
}

/// A world with three services and no touched subjects.
fn world() -> World {
    let mut world = World::default();
    for name in ["a", "b", "c"] {
        world.put(&INFERENCE_SERVICE, &service(name));
    }
    world.put(&CLUSTER_SERVING_RUNTIME, &runtime("vllm:1", "Llama"));
    world.take_touched();
    world
}

fn reads(world: &mut World, service: &str, reads: &[Read]) {
    let revision = world.revision;
    world.read(&key(&INFERENCE_SERVICE, service), revision, reads.iter().cloned().collect());
}

fn names(keys: BTreeSet<ObjectKey>) -> Vec<String> {
    keys.into_iter().map(|key| key.name).collect()
}

fn touched(world: &mut World) -> (Vec<String>, Vec<String>) {
    let Touched { now, soon } = world.take_touched();
    (names(now), names(soon))
}

#[test]
fn an_edit_of_a_runtime_reaches_those_who_use_it_and_if_it_suits_others_now_those_who_choose() {
    let mut world = world();
    reads(&mut world, "a", &[Read::Object(key(&CLUSTER_SERVING_RUNTIME, "vllm"))]);
    reads(&mut world, "b", &[Read::Candidates(String::new())]);
    world.put(&CLUSTER_SERVING_RUNTIME, &runtime("vllm:2", "Llama"));
    assert_eq!(touched(&mut world).0, ["a"]);
    world.put(&CLUSTER_SERVING_RUNTIME, &runtime("vllm:2", "Mistral"));
    assert_eq!(touched(&mut world).0, ["a", "b"]);
    world.remove(&key(&CLUSTER_SERVING_RUNTIME, "vllm"));
    assert_eq!(touched(&mut world).0, ["a", "b"]);
}

#[test]
fn what_was_read_and_not_there_counts_when_it_comes() {
    let mut world = world();
    reads(&mut world, "c", &[Read::Object(key(&CLUSTER_BASE_MODEL, "llama")), Read::Namespace("chat".to_owned())]);
    let model = json!({"kind": "ClusterBaseModel", "metadata": {"name": "llama"}, "spec": {"storage": {"storageUri": "hf://a/b"}}});
    world.put(&CLUSTER_BASE_MODEL, &model);
    assert_eq!(touched(&mut world).0, ["c"]);
    world.put(&NAMESPACE, &json!({"metadata": {"name": "chat", "labels": {"team": "a"}}}));
    assert_eq!(touched(&mut world).0, ["c"]);
    world.put(&NAMESPACE, &json!({"metadata": {"name": "chat", "labels": {"team": "a"}, "annotations": {"other": "thing"}}}));
    assert!(touched(&mut world).0.is_empty());
}

#[test]
fn a_change_between_the_snapshot_and_the_note_of_what_was_read_is_not_lost() {
    let mut world = world();
    let snapshot = world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap();
    world.put(&CLUSTER_SERVING_RUNTIME, &runtime("vllm:2", "Llama"));
    assert!(touched(&mut world).0.is_empty());
    let read = BTreeSet::from([Read::Object(key(&CLUSTER_SERVING_RUNTIME, "vllm"))]);
    world.read(&key(&INFERENCE_SERVICE, "a"), snapshot.revision, read);
    assert_eq!(touched(&mut world).0, ["a"]);
}

#[test]
fn what_objects_and_failing_pods_report_touches_their_subject_soon_and_only_once() {
    let mut world = world();
    world.put(&DEPLOYMENT, &deployment("uid-a", 5, 0));
    assert_eq!(touched(&mut world), (vec![], vec!["a".to_owned()]));
    world.put(&DEPLOYMENT, &deployment("uid-a", 6, 0));
    assert_eq!(touched(&mut world), (vec![], vec![]), "nothing that matters has changed");
    world.put(&DEPLOYMENT, &deployment("uid-a", 4, 9));
    assert_eq!(touched(&mut world), (vec![], vec![]), "an older state is no news");
    let pod = |waiting: Value| {
        json!({
            "metadata": {"name": "p", "namespace": "chat", "labels": {SUBJECT_KIND: "InferenceService", SUBJECT: "b", COMPONENT: "engine"}},
            "status": {"containerStatuses": [{"name": "x", "state": waiting}]},
        })
    };
    world.put(&POD, &pod(json!({"running": {}})));
    assert_eq!(touched(&mut world), (vec![], vec![]), "a pod that works is no news");
    world.put(&POD, &pod(json!({"waiting": {"reason": "CrashLoopBackOff"}})));
    assert_eq!(touched(&mut world).1, ["b"]);
    assert_eq!(world.snapshot(&key(&INFERENCE_SERVICE, "b"), 0).unwrap().pods.len(), 1);
    world.remove(&key(&POD, "p"));
    assert_eq!(touched(&mut world).1, ["b"]);
}

#[test]
fn an_object_goes_with_its_owner_and_a_list_made_anew_counts_even_if_it_seems_older() {
    let mut world = world();
    world.put(&DEPLOYMENT, &deployment("uid-a", 5, 1));
    world.put(&DEPLOYMENT, &deployment("uid-b", 6, 1));
    assert!(world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap().children.is_empty());
    assert_eq!(world.owner(&key(&DEPLOYMENT, "a-engine")), Some(Some(&key(&INFERENCE_SERVICE, "b"))));
    world.apply_listed(news(&DEPLOYMENT, &deployment("uid-b", 2, 7)));
    assert_eq!(world.snapshot(&key(&INFERENCE_SERVICE, "b"), 0).unwrap().children[0].observed.available, 7);
    world.remove(&key(&INFERENCE_SERVICE, "b"));
    assert_eq!(world.owner(&key(&DEPLOYMENT, "a-engine")), Some(None));
    assert_eq!(world.keys(&DEPLOYMENT).len(), 1);
}

#[test]
fn an_answer_to_a_write_brings_nothing_back_and_no_older_list_takes_it_away() {
    let mut world = world();
    world.apply_response(news(&DEPLOYMENT, &deployment("uid-a", 10, 3)));
    world.apply_listed(news(&DEPLOYMENT, &deployment("uid-a", 8, 1)));
    assert_eq!(world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap().children[0].observed.available, 3);
    world.advance_to(&key(&DEPLOYMENT, "a-engine"), 11);
    world.remove(&key(&DEPLOYMENT, "a-engine"));
    world.apply_response(news(&DEPLOYMENT, &deployment("uid-a", 10, 3)));
    assert!(world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap().children.is_empty());
}

#[test]
fn a_pod_that_changes_its_labels_is_no_longer_whose_it_was() {
    let mut world = world();
    let pod = |of: &str| {
        json!({
            "metadata": {"name": "p", "namespace": "chat", "labels": {SUBJECT_KIND: "InferenceService", SUBJECT: of, COMPONENT: "engine"}},
            "status": {"containerStatuses": [{"name": "x", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        })
    };
    let failing = |world: &World, of: &str| world.snapshot(&key(&INFERENCE_SERVICE, of), 0).unwrap().pods.len();
    world.put(&POD, &pod("a"));
    world.take_touched();
    world.put(&POD, &pod("b"));
    assert_eq!(touched(&mut world).1, ["a", "b"]);
    assert_eq!((failing(&world, "a"), failing(&world, "b")), (0, 1));
}

#[test]
fn what_subjects_name_is_found_whoever_made_it_and_whatever_labels_it_has() {
    let mut world = world();
    let pool = |managers: Value| {
        json!({
            "metadata": {
                "name": "p", "namespace": "chat", "uid": "p", "resourceVersion": "3", "generation": 1, "managedFields": managers,
                "labels": {SUBJECT_KIND: "LLMInferenceService"}, "ownerReferences": [{"uid": "uid-a", "controller": true}],
            },
            "spec": {"targetPorts": [{"number": 8000}]},
        })
    };
    let seen = |world: &World, by: &str| {
        let snapshot = world.snapshot(&key(&INFERENCE_SERVICE, by), 0).unwrap();
        (snapshot.children.len(), snapshot.referenced.contains_key(&key(&INFERENCE_POOL, "p")))
    };
    reads(&mut world, "b", &[Read::Object(key(&INFERENCE_POOL, "p"))]);
    world.put(&INFERENCE_POOL, &pool(json!([{"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}}])));
    assert_eq!(touched(&mut world).0, ["b"]);
    assert_eq!(seen(&world, "a"), (0, true), "it has our label, and we didn't write it");
    let ours = json!([{"manager": "pointsman/llminferenceservice", "operation": "Apply", "fieldsType": "FieldsV1",
                       "fieldsV1": {"f:spec": {"f:targetPorts": {}}}}]);
    let mut taken = pool(ours.clone());
    for gateway in ["edge", "other"] {
        let conditions = json!([{"type": "Accepted", "status": "True", "observedGeneration": 1}]);
        taken["status"] = json!({"parents": [{"parentRef": {"name": gateway}, "conditions": conditions}]});
        world.put(&INFERENCE_POOL, &taken);
        assert_eq!(touched(&mut world).1, ["a"], "who says it is news to whose it is");
    }
    world.put(&INFERENCE_POOL, &pool(ours.clone()));
    assert_eq!((seen(&world, "a"), seen(&world, "b")), ((1, true), (0, true)));
    let mut older = pool(ours);
    (older["metadata"]["resourceVersion"], older["metadata"]["generation"]) = ("2".into(), 0.into());
    world.put(&INFERENCE_POOL, &older);
    let snapshot = world.snapshot(&key(&INFERENCE_SERVICE, "b"), 0).unwrap();
    assert_eq!(snapshot.referenced(&INFERENCE_POOL, "chat", "p").unwrap().generation, Some(1), "an older state is no news");
    world.remove(&key(&INFERENCE_POOL, "p"));
    assert_eq!(touched(&mut world), (vec!["b".to_owned()], vec!["a".to_owned()]));
    assert_eq!(seen(&world, "a"), (0, false));
}

#[test]
fn an_object_of_another_namespace_belongs_to_nobody_whatever_owner_it_names() {
    let mut world = world();
    let mut slipped = deployment("uid-a", 2, 1);
    slipped["metadata"]["namespace"] = "ads".into();
    world.put(&DEPLOYMENT, &slipped);
    assert!(world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap().children.is_empty());
    assert!(touched(&mut world).1.is_empty());
    let there = ObjectKey { namespace: "ads".to_owned(), ..key(&DEPLOYMENT, "a-engine") };
    assert_eq!(world.owner(&there), Some(None), "whose it says it is isn't there");
}

#[test]
fn whoever_has_read_another_subject_is_touched_by_its_status_and_by_grants() {
    let mut world = world();
    let read = [Read::Object(key(&INFERENCE_SERVICE, "b")), Read::Grants("chat".to_owned())];
    reads(&mut world, "a", &read);
    let mut ready = service("b");
    ready["metadata"]["resourceVersion"] = "2".into();
    ready["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    world.put(&INFERENCE_SERVICE, &ready);
    assert_eq!(names(world.take_touched().now), ["a", "b"]);
    assert_eq!(
        world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap().other_subject(&key(&INFERENCE_SERVICE, "b")).unwrap().status(),
        ready["status"]
    );

    let side = json!([{"group": "ome.io", "kind": "InferenceService", "namespace": "chat"}]);
    let grant = json!({"metadata": {"name": "g", "namespace": "chat"}, "spec": {"from": side, "to": side}});
    world.put(&REFERENCE_GRANT, &grant);
    assert_eq!(names(world.take_touched().now), ["a"]);
    let grants = |world: &World| world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap().grants(&key(&INFERENCE_SERVICE, "b"));
    assert!(grants(&world));
    assert_eq!(world.keys(&REFERENCE_GRANT).len(), 1);
    world.remove(&key(&REFERENCE_GRANT, "g"));
    assert_eq!(names(world.take_touched().now), ["a"]);
    assert!(!grants(&world));

    world.remove(&key(&INFERENCE_SERVICE, "b"));
    assert_eq!(names(world.take_touched().now), ["a", "b"]);
}
