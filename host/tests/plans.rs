//! Invariants of every plan.

use crate::planning::{plan, resource, world};
use pointsman_core::{
    plan::Plan,
    resource::Resource,
    subject_kind::ALL,
    world::{ObjectKey, World, child},
};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAMESPACE: &str = "chat";

/// The parts of a plan that reach the cluster, as text.
fn plan_text(plan: &Plan) -> String {
    let objects = plan.objects.as_ref().map(|objects| objects.iter().map(pointsman_core::plan::Object::manifest).collect::<Vec<_>>());
    let conditions: Vec<Value> = plan
        .status
        .conditions
        .iter()
        .map(|condition| json!([condition.type_, condition.status, condition.reason, condition.message]))
        .collect();
    json!([objects, conditions, plan.status.fields]).to_string()
}

/// A service in the form of a cluster, with a previously chosen runtime if there is one.
fn living(mut service: Value, prior: Option<&str>) -> Value {
    service["metadata"]["uid"] = "12345678-1234-1234-1234-123456789abc".into();
    service["metadata"]["generation"] = 1.into();
    if let Some(prior) = prior {
        service["status"] = json!({"runtime": {"name": prior, "kind": "ClusterServingRuntime", "chosenAtGeneration": 1}});
    }
    service
}

/// The live object of the API server after an apply for a subject.
fn applied(subject: &Resource, object: Value, version: usize) -> Value {
    let mut object = object;
    object["metadata"]["uid"] = format!("child-{version}").into();
    object["metadata"]["resourceVersion"] = version.to_string().into();
    object["metadata"]["generation"] = 1.into();
    let fields = fields(&json!({"metadata": {
        "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
        "ownerReferences": object["metadata"]["ownerReferences"],
    }, "spec": object["spec"], "rules": object["rules"], "roleRef": object["roleRef"], "subjects": object["subjects"]}));
    object["metadata"]["managedFields"] = json!([{"manager": child::manager(subject.kind), "operation": "Apply", "fieldsV1": fields}]);
    object
}

/// The managedFields of an apply, in which every list is owned as a whole.
fn fields(value: &Value) -> Value {
    let Some(object) = value.as_object() else { return json!({}) };
    let there = object.iter().filter(|(_, value)| !value.is_null());
    Value::Object(there.map(|(key, value)| (format!("f:{key}"), fields(value))).collect())
}

/// A service of any kind.
fn services() -> impl Strategy<Value = Value> {
    prop_oneof![pointsman_samples::service(NAMESPACE), pointsman_samples::llm_service(NAMESPACE)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 5000 } else { 500 }))]

    #[test]
    fn any_order_of_events_gives_the_same_plan(
        service in services(),
        prior in prop::option::of(prop::sample::select(vec!["vllm", "vllm-twin", "gone"])),
        order in Just((0..64_usize).collect::<Vec<_>>()).prop_shuffle(),
        noise in prop::collection::vec(0..64_usize, 0..20),
    ) {
        let service = living(service, prior);
        let mut events = pointsman_samples::context(NAMESPACE);
        events.push(service.clone());
        let expected = plan_text(&plan(&world(&events), &service));

        // The same objects in another order, with additional changes in between.
        let mut world = World::default();
        let shuffled: Vec<usize> = order.into_iter().filter(|at| *at < events.len()).collect();
        for at in &shuffled {
            world.put(resource(&events[*at]), &events[*at]);
        }
        for at in noise.into_iter().map(|at| at % events.len()) {
            let event = &events[at];
            let text = |field: &str| event["metadata"][field].as_str().unwrap_or_default().to_owned();
            let key = ObjectKey { resource: resource(event), namespace: text("namespace"), name: text("name") };
            let mut other = event.clone();
            other["spec"] = json!({"disabled": true, "storage": {"storageUri": "local:///x"}});
            world.put(key.resource, &other);
            world.remove(&key);
            world.put(key.resource, event);
        }
        world.set_available(ALL.iter().copied().collect());
        prop_assert_eq!(plan_text(&plan(&world, &service)), expected);
    }

    #[test]
    fn planning_twice_gives_the_same_bytes_and_what_was_applied_is_as_planned(service in services()) {
        let service = living(service, None);
        let mut objects = pointsman_samples::context(NAMESPACE);
        objects.push(service.clone());
        let mut world = world(&objects);
        let first = plan(&world, &service);
        prop_assert_eq!(plan_text(&first), plan_text(&plan(&world, &service)));

        // The choice is stored in the status, and the objects exist: nothing else changes.
        let mut later = service.clone();
        later["status"] = Value::Object(first.status.fields.clone());
        world.put(resource(&later), &later);
        for (number, object) in first.objects.iter().flatten().enumerate() {
            world.put(object.key.resource, &applied(resource(&later), object.manifest(), number + 1));
        }
        let second = plan(&world, &later);
        let bodies = |plan: &Plan| -> Option<Vec<String>> {
            let whole = |object: &pointsman_core::plan::Object| {
                let mut whole = object.manifest();
                // It starts with the requested minimum, and then another owner sets the number.
                if object.yields_replicas {
                    whole["spec"].as_object_mut().unwrap().remove("replicas");
                }
                whole.to_string()
            };
            plan.objects.as_ref().map(|objects| objects.iter().map(whole).collect())
        };
        prop_assert_eq!(bodies(&first), bodies(&second));
        let key = ObjectKey { resource: resource(&later), namespace: NAMESPACE.to_owned(), name: later["metadata"]["name"].as_str().unwrap().to_owned() };
        let snapshot = world.snapshot(&key, 1_000_000_000).unwrap();
        for object in second.objects.iter().flatten() {
            let child = snapshot.child(object.key.resource, &object.key.name).unwrap();
            prop_assert!(child.settled(&object.body, object.fingerprint) || child.observed.replicas_ours, "{}", object.key);
        }
    }
}
