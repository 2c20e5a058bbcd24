//! A restarted host creates the same objects for a subject as one that has been watching all the time. A model of an API server stores
//! them: with server-side apply it tracks the fields of each manager, treats atomic values as a whole, and adds defaults within them.

use crate::planning::{plan, resource, world};
use pointsman_core::{
    plan::Object,
    world::{ObjectKey, World, child},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const NAMESPACE: &str = "chat";

/// The objects that an API server treats as atomic.
const ATOMIC_MAPS: [&str; 4] = ["selector", "nodeSelector", "labelSelector", "podSelector"];

/// The default that the API server adds to each item of an atomic list.
const DEFAULT: (&str, &str) = ("defaulted", "by the API server");

/// The stored objects of one subject.
#[derive(Clone, Debug, Default)]
struct Server {
    objects: BTreeMap<ObjectKey, Value>,
    version: u64,
}

impl Server {
    fn apply(&mut self, object: &Object, manager: &str) {
        self.version += 1;
        let planned = object.written();
        let live = self.objects.remove(&object.key).unwrap_or_else(|| json!({"metadata": {"uid": format!("child-{}", self.version)}}));
        let replicas = live.pointer("/spec/replicas").cloned();
        let before = live.pointer("/metadata/managedFields/0/fieldsV1").cloned().unwrap_or_default();
        let said = |value: &Value| {
            let mut said = value.clone();
            for key in ["managedFields", "name", "namespace", "uid", "resourceVersion", "generation"] {
                said["metadata"].as_object_mut().unwrap().remove(key);
            }
            // These have no owner.
            for key in ["apiVersion", "kind"] {
                said.as_object_mut().unwrap().remove(key);
            }
            said
        };
        let mut after = merged(&said(&live), &said(&planned), &before);
        // Another manager owns it until the autoscaler does.
        if let (true, Some(replicas)) = (object.yields_replicas, replicas) {
            after["spec"]["replicas"] = replicas;
        }
        let fields = fields(&said(&planned), "");
        for (key, value) in [("name", object.key.name.as_str().into()), ("namespace", object.key.namespace.as_str().into())] {
            after["metadata"][key] = value;
        }
        (after["apiVersion"], after["kind"]) = (planned["apiVersion"].clone(), planned["kind"].clone());
        after["metadata"]["uid"] = live["metadata"]["uid"].clone();
        after["metadata"]["resourceVersion"] = self.version.to_string().into();
        after["metadata"]["generation"] = 1.into();
        after["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
        self.objects.insert(object.key.clone(), after);
    }

    /// The state that is compared in the end.
    fn told(&self) -> BTreeMap<String, Value> {
        let told = |(key, object): (&ObjectKey, &Value)| {
            let mut object = object.clone();
            for key in ["uid", "resourceVersion"] {
                object["metadata"].as_object_mut().unwrap().remove(key);
            }
            (key.to_string(), object)
        };
        self.objects.iter().map(told).collect()
    }
}

/// Lists whose items have names are merged by name.
fn is_keyed(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(|item| item["name"].is_string())
}

fn is_atomic(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(_) => ATOMIC_MAPS.contains(&key),
        Value::Array(list) => !is_keyed(list),
        _ => true,
    }
}

/// The managedFields of an apply.
fn fields(value: &Value, key: &str) -> Value {
    match value {
        _ if is_atomic(value, key) => json!({}),
        Value::Object(object) => {
            let there = object.iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(key, value)| (format!("f:{key}"), fields(value, key))).collect())
        }
        Value::Array(list) => {
            let item = |item: &Value| {
                let mut owned = fields(item, "");
                owned["."] = json!({});
                (format!("k:{}", json!({"name": item["name"]})), owned)
            };
            Value::Object(list.iter().map(item).collect())
        }
        _ => json!({}),
    }
}

/// A live value after an apply: fields that the manager owned and no longer sets are removed.
fn merged(live: &Value, planned: &Value, owned: &Value) -> Value {
    match (live, planned) {
        (Value::Object(live), Value::Object(planned)) => {
            let mut all = live.clone();
            for key in owned.as_object().into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("f:")) {
                if !planned.contains_key(key) {
                    all.remove(key);
                }
            }
            for (key, planned) in planned.iter().filter(|(_, value)| !value.is_null()) {
                let before = live.get(key).filter(|live| !is_atomic(planned, key) && !is_atomic(live, key));
                let value = match before {
                    Some(live) => merged(live, planned, &owned[format!("f:{key}")]),
                    None => defaulted(planned, key),
                };
                all.insert(key.clone(), value);
            }
            Value::Object(all)
        }
        (Value::Array(live), Value::Array(planned)) => {
            let item = |planned: &Value| match live.iter().find(|live| live["name"] == planned["name"]) {
                Some(live) => merged(live, planned, &owned[format!("k:{}", json!({"name": planned["name"]}))]),
                None => defaulted(planned, ""),
            };
            Value::Array(planned.iter().map(item).collect())
        }
        _ => defaulted(planned, ""),
    }
}

/// A new value with the defaults in the items of its atomic lists.
fn defaulted(value: &Value, key: &str) -> Value {
    match value {
        Value::Object(object) => {
            let there = object.iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(key, value)| (key.clone(), defaulted(value, key))).collect::<Map<_, _>>())
        }
        Value::Array(list) => {
            let item = |item: &Value| {
                let mut item = defaulted(item, "");
                if let (true, Some(object)) = (is_atomic(value, key), item.as_object_mut()) {
                    object.insert(DEFAULT.0.to_owned(), DEFAULT.1.into());
                }
                item
            };
            Value::Array(list.iter().map(item).collect())
        }
        other => other.clone(),
    }
}

/// A host with its view of the objects.
struct Host {
    world: World,
    server: Server,
    service: Value,
}

impl Host {
    fn start(server: Server, service: Value) -> Self {
        let mut objects = pointsman_samples::context(NAMESPACE);
        objects.push(service.clone());
        let mut world = world(&objects);
        for (key, object) in &server.objects {
            world.put(key.resource, object);
        }
        Self { world, server, service }
    }

    fn edit(&mut self, service: &Value) {
        let status = self.service["status"].take();
        self.service = service.clone();
        self.service["status"] = status;
        self.world.put(resource(&self.service), &self.service);
    }

    /// Reconciles the service until there is nothing to write.
    fn settle(&mut self) {
        let manager = child::manager(resource(&self.service).kind);
        let mut last = Vec::new();
        for _ in 0..6 {
            let plan = plan(&self.world, &self.service);
            let status = Value::Object(plan.status.fields.clone());
            let quiet = status == self.service["status"];
            self.service["status"] = status;
            self.world.put(resource(&self.service), &self.service);
            let Some(objects) = plan.objects else { return };
            let snapshot = self.world.snapshot(&key(&self.service), 1_000_000_000).unwrap();
            let unsettled = objects.iter().filter(|object| {
                let child = snapshot.child(object.key.resource, &object.key.name);
                child.is_none_or(|child| !child.settled(&object.body, object.fingerprint))
            });
            let unsettled: Vec<&Object> = unsettled.collect();
            let planned: Vec<&ObjectKey> = objects.iter().map(|object| &object.key).collect();
            let gone: Vec<ObjectKey> = snapshot
                .children
                .iter()
                .map(|child| child.key.clone())
                .filter(|key| !planned.contains(&key) && !plan.retained.contains(key))
                .collect();
            if quiet && unsettled.is_empty() && gone.is_empty() {
                return;
            }
            last = unsettled.iter().map(|object| object.key.to_string()).chain(gone.iter().map(ToString::to_string)).collect();
            for object in unsettled {
                self.server.apply(object, &manager);
                self.world.put(object.key.resource, &self.server.objects[&object.key]);
            }
            for key in gone {
                self.server.objects.remove(&key);
                self.world.remove(&key);
            }
        }
        panic!("the host doesn't come to rest: {last:?} of {}", self.service);
    }
}

fn key(service: &Value) -> ObjectKey {
    let text = |field: &str| service["metadata"][field].as_str().unwrap().to_owned();
    ObjectKey { resource: resource(service), namespace: text("namespace"), name: text("name") }
}

/// An edit: another spec, or the removal of a value in the previous one, at a path with one number per level.
#[derive(Clone, Debug)]
enum Edit {
    Other(Value),
    Less(Vec<u8>),
}

/// Removes the value at the end of a path.
fn remove(value: &mut Value, way: &[u8]) {
    let Some((turn, rest)) = way.split_first() else { return };
    let at = |count: usize| usize::from(*turn) % count.max(1);
    let inner = |value: &Value| !rest.is_empty() && (value.is_object() || value.is_array());
    match value {
        Value::Object(object) => {
            let Some(key) = object.keys().nth(at(object.len())).cloned() else { return };
            if inner(&object[&key]) { remove(&mut object[&key], rest) } else { drop(object.remove(&key)) }
        }
        Value::Array(list) if !list.is_empty() => {
            let at = at(list.len());
            if inner(&list[at]) { remove(&mut list[at], rest) } else { drop(list.remove(at)) }
        }
        _ => {}
    }
}

/// The service at first and after each edit, and whether the host restarts before it sees that edit.
fn edits() -> impl Strategy<Value = Vec<(Value, bool)>> {
    let edit = |service: BoxedStrategy<Value>| prop_oneof![1 => service.prop_map(Edit::Other), 2 => prop::collection::vec(any::<u8>(), 1..6).prop_map(Edit::Less)];
    let sequence = |service: BoxedStrategy<Value>| (service.clone(), prop::collection::vec((edit(service), any::<bool>()), 1..6));
    let sequences = prop_oneof![sequence(pointsman_samples::service(NAMESPACE)), sequence(pointsman_samples::llm_service(NAMESPACE))];
    sequences.prop_map(|(first, edits)| {
        let mut sequence = vec![(first, false)];
        for (edit, restarts) in edits {
            let service = match edit {
                Edit::Other(service) => service,
                Edit::Less(way) => {
                    let mut service = sequence[sequence.len() - 1].0.clone();
                    remove(&mut service["spec"], &way);
                    service
                }
            };
            sequence.push((service, restarts));
        }
        for (generation, (service, _)) in sequence.iter_mut().enumerate() {
            service["metadata"]["name"] = "edited".into();
            service["metadata"]["uid"] = "12345678-1234-1234-1234-123456789abc".into();
            service["metadata"]["generation"] = (generation + 1).into();
        }
        sequence
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 2000 } else { 100 }))]

    #[test]
    fn a_host_that_starts_anew_ends_where_one_ends_that_ran_all_along(edits in edits()) {
        let first = &edits[0].0;
        let mut steady = Host::start(Server::default(), first.clone());
        let mut restarted = Host::start(Server::default(), first.clone());
        steady.settle();
        restarted.settle();
        for (service, restarts) in &edits[1..] {
            steady.edit(service);
            steady.settle();
            restarted.edit(service);
            if *restarts {
                restarted = Host::start(restarted.server, restarted.service);
            }
            restarted.settle();
        }
        prop_assert_eq!(steady.server.told(), restarted.server.told());
    }
}

fn service(spec: &Value) -> Value {
    json!({
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService",
        "metadata": {"name": "edited", "namespace": NAMESPACE, "uid": "12345678-1234-1234-1234-123456789abc", "generation": 1},
        "spec": spec,
    })
}

#[test]
fn a_key_that_only_moves_changes_nothing() {
    let with = |volume: Value| {
        service(&json!({
            "model": {"uri": "hf://example/llama", "name": "llama"},
            "template": {"containers": [{"name": "main", "image": "example.com/vllm:1"}], "volumes": [volume]},
        }))
    };
    let mut host = Host::start(Server::default(), with(json!({"name": "cache", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}})));
    host.settle();
    let version = host.server.version;
    host.edit(&with(json!({"emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}, "name": "cache"})));
    host.settle();
    assert_eq!(host.server.version, version, "nothing is written");
    host.edit(&with(json!({"emptyDir": {"sizeLimit": "2Gi", "medium": "Memory"}, "name": "cache"})));
    host.settle();
    assert!(host.server.version > version, "a value that changes is written");
}

#[test]
fn a_key_that_an_earlier_plan_left_in_an_atomic_value_goes_whoever_looks_first() {
    let template = |selector: Value, toleration: Value| {
        json!({
            "model": {"uri": "hf://example/llama", "name": "llama"},
            "template": {
                "containers": [{"name": "main", "image": "example.com/vllm:1"}], "nodeSelector": selector, "tolerations": [toleration],
            },
        })
    };
    let before =
        service(&template(json!({"gpu": "h100", "zone": ""}), json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"})));
    let after = service(&template(json!({"gpu": "h100"}), json!({"key": "gpu", "operator": "Exists"})));
    let mut host = Host::start(Server::default(), before);
    host.settle();
    let (_, made) = host.server.objects.iter().find(|(key, _)| key.resource.kind == "Deployment").unwrap();
    assert_eq!(made["spec"]["template"]["spec"]["nodeSelector"], json!({"gpu": "h100", "zone": ""}));
    host.edit(&after);
    let mut host = Host::start(host.server, host.service);
    host.settle();
    let (_, made) = host.server.objects.iter().find(|(key, _)| key.resource.kind == "Deployment").unwrap();
    assert_eq!(made["spec"]["template"]["spec"]["nodeSelector"], json!({"gpu": "h100"}));
    let toleration = json!({"key": "gpu", "operator": "Exists", DEFAULT.0: DEFAULT.1});
    assert_eq!(made["spec"]["template"]["spec"]["tolerations"], json!([toleration]));
}
