//! The models, weights and runtimes that subjects use, and warnings for users who delete one or start to use a deprecated one.

use crate::{
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, FINE_TUNED_WEIGHT, INFERENCE_SERVICE, Resource, SERVING_RUNTIME},
    world::{ObjectKey, Subject, Surroundings},
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// The maximum number of users in a warning.
const MAX_USERS_LISTED: usize = 3;

/// The objects that a subject uses: those that it names, if they exist, and the runtime that was chosen for it.
pub fn used_by(subject: &Subject, around: &Surroundings) -> BTreeSet<ObjectKey> {
    if *subject.key.resource != INFERENCE_SERVICE {
        return BTreeSet::new();
    }
    let content = subject.content();
    let spec = Named::from_spec(&content["spec"]);
    let own = &subject.key.namespace;
    let runtime = spec.runtime(subject, around);
    spec.model(own, around).into_iter().chain(spec.weights(around)).chain(runtime).collect()
}

/// The runtime that a subject uses: the one that it names, otherwise the one that was chosen for it.
pub fn runtime_used_by(subject: &Subject, around: &Surroundings) -> Option<ObjectKey> {
    let is_service = *subject.key.resource == INFERENCE_SERVICE;
    is_service.then(|| Named::from_spec(&subject.content()["spec"]).runtime(subject, around))?
}

/// The users of an object: subjects, and the weights of a base model.
pub fn users(key: &ObjectKey, around: &Surroundings) -> Vec<String> {
    if ![&BASE_MODEL, &CLUSTER_BASE_MODEL, &FINE_TUNED_WEIGHT, &SERVING_RUNTIME, &CLUSTER_SERVING_RUNTIME].contains(&key.resource) {
        return Vec::new();
    }
    // Parsing thousands of subjects takes longer than searching them for a word.
    let may_use =
        |subject: &&Arc<Subject>| (key.namespace.is_empty() || key.namespace == subject.key.namespace) && subject.contains(&key.name);
    let subjects = around.crowd.before(None, None).filter(may_use).filter(|subject| used_by(subject, around).contains(key));
    let mut users: Vec<String> = subjects.map(|subject| subject.key.to_string()).collect();
    if [&BASE_MODEL, &CLUSTER_BASE_MODEL].contains(&key.resource) {
        let made_of = around.weights.all().filter(|(_, weight)| {
            let (namespace, name) = &weight.tuned;
            *name == key.name && (*namespace == key.namespace || namespace.is_empty() && !around.models.contains("", name))
        });
        users.extend(made_of.map(|(name, _)| format!("FineTunedWeight {name}")));
    }
    users.sort();
    users
}

/// The warning for a user who deletes an object, if any.
pub fn deletion_warning(key: &ObjectKey, around: &Surroundings) -> Option<String> {
    let users = users(key, around);
    let listed = users.iter().take(MAX_USERS_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match users.len().saturating_sub(MAX_USERS_LISTED) {
        0 if users.is_empty() => return None,
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the {} {} is used by {listed}{more}: existing pods stay, and changes wait until it exists again",
        key.resource.kind, key.name
    ))
}

/// The warnings for a user who writes a service, in addition to those of rules: it names deprecated objects.
pub fn deprecation_warnings(key: &ObjectKey, spec: &Value, around: &Surroundings) -> Vec<String> {
    if *key.resource != INFERENCE_SERVICE {
        return Vec::new();
    }
    let named = Named::from_spec(spec);
    let model = named
        .model(&key.namespace, around)
        .filter(|model| around.models.get(&model.namespace, &model.name).is_some_and(|model| model.is_deprecated));
    let weights = named.weights(around).filter(|weight| around.weights.get("", &weight.name).is_some_and(|weight| weight.is_deprecated));
    let warning = |used: ObjectKey| format!("the {} {} is deprecated: plan to serve another", used.resource.kind, used.name);
    model.into_iter().chain(weights).map(warning).collect()
}

/// The names in the spec of an InferenceService.
#[derive(Default)]
struct Named {
    /// The model's name and kind.
    model: Option<(String, String)>,
    weights: Vec<String>,
    /// The runtime's name and kind. An empty kind means either.
    runtime: Option<(String, String)>,
}

impl Named {
    fn from_spec(spec: &Value) -> Self {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let kind = |value: &Value, default: &str| text(&value["kind"]).unwrap_or_else(|| default.to_owned());
        let names = |value: &Value| value.as_array().into_iter().flatten().filter_map(text).collect::<Vec<_>>();
        let (model, runtime, predictor) = (&spec["model"], &spec["runtime"], &spec["predictor"]["model"]);
        Self {
            model: text(&model["name"])
                .map(|name| (name, kind(model, "ClusterBaseModel")))
                .or_else(|| Some((text(&predictor["baseModel"])?, "ClusterBaseModel".to_owned()))),
            weights: [names(&model["fineTunedWeights"]), names(&predictor["fineTunedWeights"])].concat(),
            runtime: text(&runtime["name"])
                .map(|name| (name, kind(runtime, "ClusterServingRuntime")))
                .or_else(|| Some((text(&predictor["runtime"])?, String::new()))),
        }
    }

    /// The model, if it exists: a cluster-scoped one takes precedence if the kind permits it.
    fn model(&self, own: &str, around: &Surroundings) -> Option<ObjectKey> {
        let (name, kind) = self.model.as_ref()?;
        let places = [(&CLUSTER_BASE_MODEL, ""), (&BASE_MODEL, own)];
        let places = if kind == "BaseModel" { &places[1..] } else { &places[..] };
        first(places, name, |namespace| around.models.contains(namespace, name))
    }

    fn runtime(&self, subject: &Subject, around: &Surroundings) -> Option<ObjectKey> {
        let chosen = || {
            let status = subject.status();
            let runtime = &status["runtime"];
            Some((runtime["name"].as_str()?.to_owned(), runtime["kind"].as_str()?.to_owned()))
        };
        let (name, kind) = self.runtime.clone().or_else(chosen)?;
        runtime_at(&name, &kind, &subject.key.namespace, around)
    }

    fn weights<'a>(&'a self, around: &'a Surroundings) -> impl Iterator<Item = ObjectKey> + 'a {
        let known = self.weights.iter().filter(|name| around.weights.contains("", name));
        known.map(|name| ObjectKey { resource: &FINE_TUNED_WEIGHT, namespace: String::new(), name: name.clone() })
    }
}

/// A runtime, if it exists.
fn runtime_at(name: &str, kind: &str, own: &str, around: &Surroundings) -> Option<ObjectKey> {
    let (own, cluster) = ((&SERVING_RUNTIME, own), (&CLUSTER_SERVING_RUNTIME, ""));
    let places = match kind {
        "ServingRuntime" => vec![own],
        "ClusterServingRuntime" => vec![cluster, own],
        _ => vec![own, cluster],
    };
    first(&places, name, |namespace| around.runtimes.all.contains(namespace, name))
}

fn first(places: &[(&'static Resource, &str)], name: &str, is_there: impl Fn(&str) -> bool) -> Option<ObjectKey> {
    let (resource, namespace) = places.iter().find(|(_, namespace)| is_there(namespace))?;
    Some(ObjectKey { resource, namespace: (*namespace).to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;
    use serde_json::json;

    #[allow(clippy::needless_pass_by_value, reason = "a JSON literal is a value")]
    fn object(namespace: &str, name: &str, spec: Value, status: Value) -> Value {
        let mut object = json!({"metadata": {"name": name, "uid": format!("{namespace}/{name}")}, "spec": spec, "status": status});
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    }

    fn storage() -> Value {
        json!({"storage": {"storageUri": "hf://a/b"}})
    }

    fn key(resource: &'static Resource, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Two models and two runtimes named `a`, one cluster-scoped and one namespaced each, and a weight.
    fn around(services: &[(&str, Value, Value)]) -> Surroundings {
        let mut world = World::default();
        let put = |world: &mut World, resource: &'static Resource, mut object: Value| {
            object["kind"] = resource.kind.into();
            world.put(resource, &object);
        };
        for (resource, namespace) in [(&CLUSTER_BASE_MODEL, ""), (&BASE_MODEL, "prod")] {
            put(&mut world, resource, object(namespace, "a", storage(), json!({"lifecycle": "Deprecated"})));
        }
        for (resource, namespace) in [(&CLUSTER_SERVING_RUNTIME, ""), (&SERVING_RUNTIME, "prod")] {
            put(&mut world, resource, object(namespace, "a", json!({}), json!({})));
        }
        let mut weight = storage();
        weight["baseModelRef"] = json!({"name": "a"});
        put(&mut world, &FINE_TUNED_WEIGHT, object("", "legal", weight, json!({})));
        for (name, spec, status) in services {
            put(&mut world, &INFERENCE_SERVICE, object("prod", name, spec.clone(), status.clone()));
        }
        world.surroundings(&key(&INFERENCE_SERVICE, "prod", "none"))
    }

    fn used(spec: Value, status: Value) -> Vec<String> {
        let around = around(&[("chat", spec, status)]);
        let subject = around.crowd.before(None, None).next().unwrap();
        used_by(subject, &around).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_service_uses_what_it_names_and_the_runtime_that_was_chosen() {
        let (model, own_model) = (key(&CLUSTER_BASE_MODEL, "", "a").to_string(), key(&BASE_MODEL, "prod", "a").to_string());
        let (runtime, own_runtime) = (key(&CLUSTER_SERVING_RUNTIME, "", "a").to_string(), key(&SERVING_RUNTIME, "prod", "a").to_string());
        let weight = key(&FINE_TUNED_WEIGHT, "", "legal").to_string();
        let chosen = json!({"runtime": {"name": "a", "kind": "ServingRuntime"}});
        assert_eq!(used(json!({"model": {"name": "a"}}), chosen.clone()), [model.as_str(), &own_runtime]);
        let named = json!({"model": {"name": "a", "kind": "BaseModel", "fineTunedWeights": ["legal", "gone"]}, "runtime": {"name": "a"}});
        assert_eq!(used(named, chosen), [own_model.as_str(), &runtime, &weight]);
        let old = json!({"predictor": {"model": {"baseModel": "a", "runtime": "a"}}});
        assert_eq!(used(old, json!({})), [model.as_str(), &own_runtime]);
        assert_eq!(used(json!({"model": {"name": "b"}, "runtime": {"name": "b"}}), json!({})), [""; 0]);
    }

    #[test]
    fn who_deletes_what_is_used_is_warned_and_nobody_else() {
        let services: Vec<_> = ["c", "d", "e", "f"].map(|name| (name, json!({"model": {"name": "a"}}), json!({}))).into();
        let around = around(&services);
        let warning = deletion_warning(&key(&CLUSTER_BASE_MODEL, "", "a"), &around).unwrap();
        assert!(warning.starts_with("the ClusterBaseModel a is used by FineTunedWeight legal, "), "{warning}");
        assert!(warning.contains(" and 2 more: existing pods stay") && warning.len() < 256, "{warning}");
        for unused in [key(&BASE_MODEL, "prod", "a"), key(&CLUSTER_SERVING_RUNTIME, "", "a"), key(&FINE_TUNED_WEIGHT, "", "legal")] {
            assert_eq!(deletion_warning(&unused, &around), None, "{unused}");
        }
        assert_eq!(deletion_warning(&key(&INFERENCE_SERVICE, "prod", "c"), &around), None);
    }

    #[test]
    fn who_uses_what_is_deprecated_is_warned() {
        let around = around(&[]);
        let service = key(&INFERENCE_SERVICE, "prod", "chat");
        let warnings = |spec: Value| deprecation_warnings(&service, &spec, &around);
        assert_eq!(
            warnings(json!({"model": {"name": "a", "fineTunedWeights": ["legal"]}})),
            ["the ClusterBaseModel a is deprecated: plan to serve another"]
        );
        assert_eq!(warnings(json!({"model": {"name": "b"}})), [""; 0]);
        assert_eq!(deprecation_warnings(&key(&BASE_MODEL, "prod", "a"), &json!({"model": {"name": "a"}}), &around), [""; 0]);
    }
}
