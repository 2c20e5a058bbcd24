//! The status of a runtime: the services that use it, and the models that it can serve.

use crate::{
    decide::selection::Judged,
    live_object::LiveObject,
    resource::{CLUSTER_SERVING_RUNTIME, SERVING_RUNTIME},
    world::{
        ObjectKey, Surroundings,
        ome::{ModelView, RuntimeView},
    },
};
use pointsman_sandbox::{digest::Digested, point::selection::Candidate};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The field manager of runtimes' statuses.
pub const STATUS_MANAGER: &str = "pointsman/runtime-status";

/// The maximum numbers of services and of models that a status lists. Its counts include all.
const MAX_NAMES: usize = 20;

/// The contents of a runtime's status, sorted; it lists the first names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeSummary {
    /// The services that use it, as NAMESPACE/NAME.
    pub services: BTreeSet<String>,
    /// The models that it can serve, as NAME or NAMESPACE/NAME. None if the policies haven't decided.
    pub models: Option<BTreeSet<String>>,
}

impl RuntimeSummary {
    /// The runtime's status with these contents, if it differs from the current one. Every user can read a cluster-scoped runtime, so its
    /// status names nothing in a namespace.
    pub fn status_to_write(&self, key: &ObjectKey, live: &LiveObject) -> Option<Value> {
        if live.is_deleting {
            return None;
        }
        let mut status = live.status.as_object().cloned().unwrap_or_default();
        let mut set = |names: &str, count: &str, all: &BTreeSet<String>| {
            let shown = all.iter().filter(|name| !key.namespace.is_empty() || !name.contains('/'));
            status.insert(names.to_owned(), shown.take(MAX_NAMES).cloned().collect());
            status.insert(count.to_owned(), all.len().into());
        };
        set("services", "serviceCount", &self.services);
        if let Some(models) = &self.models {
            set("models", "modelCount", models);
        }
        status.insert("observedGeneration".to_owned(), live.generation.into());
        let status = Value::Object(status);
        (status != live.status).then_some(status)
    }

    /// Whether a status that the API server has stored has these fields.
    pub fn is_stored(status: &Value) -> bool {
        status.get("serviceCount").is_some()
    }
}

/// All runtimes.
pub fn runtimes(around: &Surroundings) -> impl Iterator<Item = (ObjectKey, &Arc<RuntimeView>)> {
    around.runtimes.all.all().map(|(name, runtime)| {
        let namespace = runtime.candidate.namespace.clone();
        let resource = if namespace.is_empty() { &CLUSTER_SERVING_RUNTIME } else { &SERVING_RUNTIME };
        (ObjectKey { resource, namespace, name: name.to_owned() }, runtime)
    })
}

/// The models that each runtime can serve, by its namespace and name.
pub type ServedModels = BTreeMap<(String, String), BTreeSet<String>>;

/// The models that each runtime can serve, as the policies judge runtimes that a service names. `judge` asks the policies for a namespace;
/// for a model without an answer, the previous result is retained.
pub fn served_models(
    around: &Surroundings,
    before: &ServedModels,
    judge: impl Fn(&str, &ModelView, &Digested<Vec<Candidate>>) -> Option<Vec<Judged>>,
) -> ServedModels {
    let mut scopes: BTreeMap<&str, Vec<Candidate>> = BTreeMap::new();
    for (_, runtime) in around.runtimes.all.all() {
        scopes.entry(&runtime.candidate.namespace).or_default().push(runtime.candidate.clone());
    }
    let mut served = ServedModels::new();
    for (namespace, candidates) in scopes {
        let names: Vec<_> = candidates.iter().map(|candidate| (candidate.namespace.clone(), candidate.name.clone())).collect();
        let candidates = Digested::new(candidates).unwrap_or_default();
        let in_reach = |model: &ModelView| [model.model.namespace.as_str(), ""].contains(&namespace) || model.model.namespace.is_empty();
        for (name, model) in around.models.all().filter(|(_, model)| in_reach(model)) {
            let label = match &*model.model.namespace {
                "" => name.to_owned(),
                namespace => format!("{namespace}/{name}"),
            };
            let judged = judge(namespace, model, &candidates);
            let can_serve = |at: usize, runtime: &(String, String)| match &judged {
                Some(judged) => matches!(judged.get(at), Some(Judged::Eligible(_))),
                None => before.get(runtime).is_some_and(|known| known.contains(&label)),
            };
            for (_, runtime) in names.iter().enumerate().filter(|(at, runtime)| can_serve(*at, runtime)) {
                served.entry(runtime.clone()).or_default().insert(label.clone());
            }
        }
    }
    served
}

/// The models in the runtimes' statuses.
pub fn written_models(around: &Surroundings) -> ServedModels {
    let names = |runtime: &RuntimeView| {
        let models = runtime.live.status["models"].as_array().into_iter().flatten();
        models.filter_map(Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    runtimes(around).map(|(key, runtime)| ((key.namespace, key.name), names(runtime))).collect()
}

/// The patch from one status to another, for exactly this object in this version.
pub fn status_patch(uid: &str, resource_version: &str, before: &Value, after: &Value) -> Value {
    let difference = crate::status::difference(before, after);
    json!({"metadata": {"uid": uid, "resourceVersion": resource_version}, "status": difference})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        resource::{BASE_MODEL, CLUSTER_BASE_MODEL, INFERENCE_SERVICE},
        world::World,
    };
    use pointsman_sandbox::point::{Reason, selection::Eligible};

    fn names(number: usize) -> BTreeSet<String> {
        (0..number).map(|number| format!("prod/{number:02}")).collect()
    }

    #[test]
    fn a_status_names_some_and_counts_all_and_is_written_once() {
        let live = LiveObject { generation: 3, status: json!({"conditions": []}), ..LiveObject::default() };
        let summary = RuntimeSummary { services: names(25), models: Some(names(2)) };
        let key = ObjectKey { resource: &SERVING_RUNTIME, namespace: "prod".to_owned(), name: "own".to_owned() };
        let status = summary.status_to_write(&key, &live).unwrap();
        assert_eq!(status["services"].as_array().unwrap().len(), MAX_NAMES);
        assert_eq!((&status["serviceCount"], &status["modelCount"], &status["conditions"]), (&json!(25), &json!(2), &json!([])));
        let written = LiveObject { status: status.clone(), ..live.clone() };
        assert_eq!(summary.status_to_write(&key, &written), None);
        // If the policies have no answer, the models stay unchanged.
        let unknown = RuntimeSummary { models: None, ..summary.clone() };
        assert_eq!(unknown.status_to_write(&key, &written), None);
        let fewer = RuntimeSummary { services: names(0), ..summary.clone() };
        let fewer = fewer.status_to_write(&key, &written).unwrap();
        assert_eq!((&fewer["services"], &fewer["serviceCount"]), (&json!([]), &json!(0)));
        let patch = status_patch("u", "7", &status, &fewer);
        assert_eq!(patch, json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"services": [], "serviceCount": 0}}));
        assert_eq!(summary.status_to_write(&key, &LiveObject { is_deleting: true, ..live }), None);
        // A status that every user can read counts everything, but names nothing in a namespace.
        let key = ObjectKey { resource: &CLUSTER_SERVING_RUNTIME, namespace: String::new(), name: "all".to_owned() };
        let models = ["llama", "prod/own"].map(str::to_owned).into();
        let public = RuntimeSummary { models: Some(models), ..summary }.status_to_write(&key, &LiveObject::default()).unwrap();
        assert_eq!((&public["services"], &public["serviceCount"]), (&json!([]), &json!(25)));
        assert_eq!((&public["models"], &public["modelCount"]), (&json!(["llama"]), &json!(2)));
        assert!(RuntimeSummary::is_stored(&status) && !RuntimeSummary::is_stored(&json!({})));
    }

    #[test]
    fn a_runtime_serves_the_models_within_its_reach() {
        let mut world = World::default();
        for (resource, namespace) in [(&CLUSTER_BASE_MODEL, ""), (&BASE_MODEL, "a"), (&BASE_MODEL, "b")] {
            let metadata = json!({"name": "m", "namespace": namespace});
            world.put(resource, &json!({"kind": resource.kind, "metadata": metadata, "spec": {"storage": {"storageUri": "hf://a/b"}}}));
        }
        for (resource, namespace, name) in
            [(&CLUSTER_SERVING_RUNTIME, "", "all"), (&CLUSTER_SERVING_RUNTIME, "", "none"), (&SERVING_RUNTIME, "a", "own")]
        {
            world.put(resource, &json!({"kind": resource.kind, "metadata": {"name": name, "namespace": namespace}, "spec": {}}));
        }
        let around = world.surroundings(&ObjectKey { resource: &INFERENCE_SERVICE, namespace: "a".to_owned(), name: "x".to_owned() });
        let excluded = || Judged::Excluded { plugin: None, reason: Reason { code: "No".to_owned(), message: String::new() } };
        let served = served_models(&around, &ServedModels::new(), |_, _, candidates| {
            let judge = |candidate: &Candidate| if candidate.name == "none" { excluded() } else { Judged::Eligible(Eligible::default()) };
            Some(candidates.iter().map(judge).collect())
        });
        let models = |namespace: &str, name: &str| {
            served.get(&(namespace.to_owned(), name.to_owned())).map(|models| models.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(models("", "all").unwrap(), ["a/m", "b/m", "m"]);
        assert_eq!(models("a", "own").unwrap(), ["a/m", "m"]);
        assert_eq!(models("", "none"), None);
        // Without an answer, the previous result is retained; without a previous result, it is unknown.
        assert_eq!(served_models(&around, &served, |_, _, _| None), served);
        assert!(served_models(&around, &ServedModels::new(), |_, _, _| None).is_empty());
        let status = json!({"models": ["m", "b/gone"]});
        world.put(
            &SERVING_RUNTIME,
            &json!({"kind": "ServingRuntime", "metadata": {"name": "own", "namespace": "a"}, "spec": {}, "status": status}),
        );
        let around = world.surroundings(&ObjectKey { resource: &INFERENCE_SERVICE, namespace: "a".to_owned(), name: "x".to_owned() });
        let kept = served_models(&around, &written_models(&around), |_, _, _| None);
        assert_eq!(kept[&("a".to_owned(), "own".to_owned())], BTreeSet::from(["m".to_owned()]));
        let keys: Vec<String> = runtimes(&around).map(|(key, _)| key.to_string()).collect();
        assert_eq!(keys, ["ClusterServingRuntime /all", "ClusterServingRuntime /none", "ServingRuntime a/own"]);
    }
}
