//! The lookups of rules, evaluated as by the controller: plans are made from a world, and from its changes.
#![allow(clippy::needless_pass_by_value)]

use crate::policies::{compilers, engines};
use pointsman::load::Loader;
use pointsman_core::{
    decide::{Policies, Unheard, set::ActiveSet},
    guards::VALID,
    kinds,
    plan::Plan,
    planning,
    resource::{
        BASE_MODEL, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, NAMESPACE, Resource,
        SERVING_RUNTIME,
    },
    rules::{
        Rules,
        judge::RuleInput,
        lookups::LookupContext,
        rule::{RuleError, bind},
    },
    settings::Settings,
    world::{ObjectKey, Touched, World},
};
use pointsman_crds::policy::rule::RuleStage;
use pointsman_sandbox::{engine::Lane, point::Subject};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

static LOADER: LazyLock<Loader> = LazyLock::new(|| Loader::new(Arc::clone(engines()), compilers()));

/// A world of services, and its rules.
struct Scene {
    world: World,
    policies: Policies,
    version: u64,
}

impl Scene {
    fn under(rules: &[(&str, Value)]) -> Self {
        let rules = rules.iter().map(|(name, spec)| {
            let spec = serde_json::from_value(spec.clone()).unwrap();
            Arc::new(LOADER.rule(bind(name, &spec, None)).unwrap())
        });
        let rules = Rules::new(rules.collect(), Some(LOADER.evaluator().unwrap()));
        let policies = Policies::new(ActiveSet::new(Vec::new()).ruled(rules), Arc::new(Unheard));
        let mut scene = Self { world: World::default(), policies, version: 0 };
        for name in ["one", "two"] {
            scene.put(&NAMESPACE, "", name, 0, json!({}));
        }
        scene
    }

    /// Adds an object that was created this many seconds after the first one.
    fn put(&mut self, resource: &'static Resource, namespace: &str, name: &str, second: u32, body: Value) -> ObjectKey {
        self.version += 1;
        let metadata = json!({
            "name": name, "namespace": namespace, "uid": format!("{}-{namespace}-{name}", resource.kind),
            "resourceVersion": self.version.to_string(), "creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60),
            "generation": self.version,
        });
        let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata});
        object.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        self.world.put(resource, &object);
        ObjectKey { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn service(&mut self, namespace: &str, name: &str, second: u32, replicas: u32) -> ObjectKey {
        let spec = json!({"spec": {"model": {"uri": "hf://example/llama"}, "replicas": replicas}});
        self.put(&LLM_INFERENCE_SERVICE, namespace, name, second, spec)
    }

    /// The condition `Valid`. The reads are recorded, as the controller does.
    fn says(&mut self, key: &ObjectKey) -> String {
        let plan = self.plan(key);
        let valid = plan.status.conditions.iter().find(|condition| condition.type_ == VALID).unwrap();
        format!("{} {}", valid.reason, valid.message)
    }

    fn plan(&mut self, key: &ObjectKey) -> Plan {
        let snapshot = self.world.snapshot(key, 0).unwrap();
        let revision = snapshot.revision;
        let plan = planning::plan(kinds::find(key.resource).unwrap(), snapshot, &self.policies, &Settings::default());
        self.world.read(key, revision, plan.reads.clone());
        plan
    }

    /// The subjects that the changes since the last call affect.
    fn touched(&mut self) -> BTreeSet<String> {
        let Touched { now, soon } = self.world.take_touched();
        now.into_iter().chain(soon).map(|key| key.name).collect()
    }
}

fn quota(within: &str) -> Value {
    json!({
        "match": {"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]},
        "lookups": [{"name": "used", "subjects": {"within": within, "sum": "has(object.spec.replicas) ? object.spec.replicas : 1"}}],
        "variables": [{"name": "own", "expression": "has(object.spec.replicas) ? object.spec.replicas : 1"}],
        "validations": [{
            "expression": "lookups.used + variables.own <= 10",
            "messageExpression": "'older services have ' + string(lookups.used) + ' of 10, and it wants ' + string(variables.own)",
        }],
    })
}

#[test]
fn older_services_count_first_and_a_newer_one_never_takes_from_them() {
    let mut scene = Scene::under(&[("quota", quota("Namespace"))]);
    let first = scene.service("one", "zebra", 1, 4);
    let second = scene.service("one", "yak", 2, 5);
    let elsewhere = scene.service("two", "ant", 0, 9);
    for key in [&first, &second, &elsewhere] {
        assert_eq!(scene.says(key), "Valid The service satisfies all rules.", "{key}");
    }
    scene.touched();
    // A newer service is checked against the older ones, and no other subject is even planned again.
    let third = scene.service("one", "ape", 3, 2);
    assert_eq!(scene.says(&third), "RuleBroken No object is created: quota: older services have 9 of 10, and it wants 2.");
    assert_eq!(scene.touched(), ["ape".to_owned()].into());
    assert_eq!((scene.says(&first), scene.says(&second)).0, "Valid The service satisfies all rules.");
    assert_eq!(scene.says(&second), "Valid The service satisfies all rules.");
    // Replicas that an older service releases are available to the next one, which is planned again.
    scene.service("one", "zebra", 1, 3);
    assert_eq!(scene.touched(), ["ape", "yak", "zebra"].map(str::to_owned).into());
    assert_eq!(scene.says(&third), "Valid The service satisfies all rules.");
    scene.service("one", "zebra", 1, 4);
    assert!(scene.says(&third).starts_with("RuleBroken"));
    scene.touched();
    scene.world.remove(&second);
    assert_eq!(scene.touched(), ["ape", "yak"].map(str::to_owned).into());
    assert_eq!(scene.says(&third), "Valid The service satisfies all rules.");
    // A new service with the same name is the newest one.
    let second = scene.service("one", "yak", 9, 5);
    assert!(scene.says(&second).starts_with("RuleBroken"), "{}", scene.says(&second));
    assert_eq!(scene.says(&third), "Valid The service satisfies all rules.");
}

#[test]
fn of_one_second_the_first_by_name_is_the_oldest_and_everywhere_counts_where_that_is_said() {
    let mut scene = Scene::under(&[("quota", quota("Cluster"))]);
    let b = scene.service("one", "b", 5, 6);
    let a = scene.service("two", "a", 5, 6);
    let verdicts = [scene.says(&b), scene.says(&a)].map(|said| said.starts_with("RuleBroken"));
    assert_eq!(verdicts, [false, true], "the namespace comes before the name");
    scene.touched();
    scene.service("one", "b", 5, 1);
    assert!(scene.touched().contains("a"), "one of another namespace is told too");
    assert_eq!(scene.says(&a), "Valid The service satisfies all rules.");
}

#[test]
fn a_subject_whose_term_makes_no_sense_is_refused_itself_and_takes_nothing_from_others() {
    let mut spec = quota("Namespace");
    spec["lookups"][0]["subjects"]["sum"] = "object.spec.replicas".into();
    let mut scene = Scene::under(&[("quota", spec)]);
    scene.put(&INFERENCE_SERVICE, "one", "other", 0, json!({"spec": {}}));
    let key = scene.service("one", "b", 2, 6);
    assert_eq!(scene.says(&key), "Valid The service satisfies all rules.");
    let broken = scene.put(&LLM_INFERENCE_SERVICE, "one", "a", 1, json!({"spec": {"model": {"uri": "hf://example/llama"}}}));
    let said = scene.says(&broken);
    assert!(
        said.contains("spec.lookups[used].subjects.sum: what the object itself adds: ") && said.contains("no such key: replicas"),
        "{said}"
    );
    let negative = json!({"spec": {"model": {"uri": "hf://example/llama"}, "replicas": -5}});
    let negative = scene.put(&LLM_INFERENCE_SERVICE, "one", "aa", 1, negative);
    let said = scene.says(&negative);
    assert!(said.contains("what the object itself adds: it is -5, but must not be negative"), "{said}");
    assert_eq!(scene.says(&key), "Valid The service satisfies all rules.", "what others write wrongly is nothing to it");
    let large = scene.service("one", "c", 3, 5);
    assert!(scene.says(&large).contains("older services have 6 of 10, and it wants 5"), "{}", scene.says(&large));
}

#[test]
fn what_no_rule_judges_counts_only_where_something_was_made_for_it() {
    let mut scene = Scene::under(&[("quota", quota("Namespace"))]);
    let alone = |managers: Value| {
        json!({
            "metadata": {
                "name": "a", "namespace": "one", "uid": "a", "creationTimestamp": "2026-01-01T00:00:01Z",
                "annotations": {"pointsman.dev/control": "false"}, "managedFields": managers,
            },
            "spec": {"model": {"uri": "hf://example/llama"}, "replicas": 9},
        })
    };
    scene.world.put(&LLM_INFERENCE_SERVICE, &alone(json!([])));
    let key = scene.service("one", "b", 2, 6);
    assert_eq!(scene.says(&key), "Valid The service satisfies all rules.");
    scene.touched();
    let by_us =
        json!([{"manager": "pointsman/llminferenceservice", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}}]);
    scene.world.put(&LLM_INFERENCE_SERVICE, &alone(by_us));
    assert!(scene.touched().contains("b"));
    assert!(scene.says(&key).contains("older services have 9 of 10, and it wants 6"), "{}", scene.says(&key));
}

#[test]
fn models_and_runtimes_are_found_by_name_and_whoever_looked_is_told_when_one_comes() {
    let lookups = json!([
        {"name": "models", "models": {"name": "object.spec.model.name"}},
        {"name": "named", "runtimes": {"name": "'vllm'"}},
        {"name": "all", "runtimes": {}},
    ]);
    let message = "'models ' + lookups.models.map(m, m.kind + (m.disabled ? ' off' : ' on') + (has(m.state) ? ' ' + m.state : '')).join(',') \
                   + '; named ' + lookups.named.map(r, r.kind).join(',') + '; all ' + lookups.all.map(r, r.name + r.?labels['tier'].orValue('')).join(',')";
    let spec = json!({
        "match": {"kinds": [{"group": "ome.io", "kind": "InferenceService"}]}, "actions": ["Warn"],
        "matchConditions": [{"name": "named", "expression": "has(object.spec.model)"}],
        "lookups": lookups, "validations": [{"expression": "false", "messageExpression": message}],
    });
    let mut scene = Scene::under(&[("seen", spec)]);
    let key = scene.put(&INFERENCE_SERVICE, "one", "chat", 1, json!({"spec": {"model": {"name": "llama"}}}));
    let nameless = scene.put(&INFERENCE_SERVICE, "one", "nameless", 1, json!({"spec": {}}));
    assert_eq!(scene.says(&key), "Warned seen: models ; named ; all.");
    assert_eq!(scene.says(&nameless), "Valid The service satisfies all rules.", "nothing is looked up where the conditions don't hold");
    scene.touched();

    let model = json!({"spec": {"storage": {"storageUri": "hf://a/b"}, "disabled": true}, "status": {"state": "Ready"}});
    scene.put(&CLUSTER_BASE_MODEL, "", "llama", 1, model);
    assert!(scene.touched().contains("chat"));
    assert_eq!(scene.says(&key), "Warned seen: models ClusterBaseModel off Ready; named ; all.");
    scene.put(&CLUSTER_SERVING_RUNTIME, "", "vllm", 1, json!({"metadata": {"name": "vllm", "labels": {"tier": "+"}}, "spec": {}}));
    scene.put(&SERVING_RUNTIME, "two", "vllm", 1, json!({"spec": {}}));
    assert!(scene.touched().contains("chat"));
    assert_eq!(scene.says(&key), "Warned seen: models ClusterBaseModel off Ready; named ClusterServingRuntime; all vllm+.");
    scene.put(&SERVING_RUNTIME, "one", "vllm", 1, json!({"spec": {}}));
    assert!(scene.says(&key).ends_with("named ClusterServingRuntime,ServingRuntime; all vllm+,vllm."), "{}", scene.says(&key));
}

#[test]
fn what_makes_no_sense_in_a_lookup_is_told_with_its_place() {
    let wrong = |lookup: Value, expression: &str| {
        let spec = json!({
            "match": {"kinds": [{"group": "ome.io", "kind": "InferenceService"}]}, "lookups": [lookup], "validations": [{"expression": expression}],
        });
        match LOADER.rule(bind("r", &serde_json::from_value(spec).unwrap(), None)).unwrap_err() {
            error @ (RuleError::Expressions(_) | RuleError::Spec(_)) => error.to_string(),
            other @ RuleError::Evaluator(_) => panic!("{other}"),
        }
    };
    let models = || json!({"name": "found", "models": {"name": "object.spec.model.name"}});
    let cases = [
        (models(), "lookups.fond.size() > 0", "lookups.fond: a rule has no such field; did you mean found?"),
        (models(), "lookups.found.all(m, m.disabld)", "did you mean disabled?"),
        (
            json!({"name": "found", "models": {"name": "object.spec.modell.name"}}),
            "lookups.found == []",
            "spec.lookups[found].models.name: column 19: object.spec.modell",
        ),
        (
            json!({"name": "n", "subjects": {"sum": "lookups.n"}}),
            "lookups.n > 0",
            "spec.lookups[n].subjects.sum: column 1: undeclared reference to 'lookups'",
        ),
        (
            json!({"name": "n", "subjects": {"sum": "size(namespaceObject.metadata.name)"}}),
            "lookups.n > 0",
            "a sum sees each subject as `object`",
        ),
        (json!({"name": "n", "subjects": {"sum": "object.spec.replcas"}}), "lookups.n > 0", "an InferenceService has no such field"),
        (json!({"name": "n", "subjects": {"sum": "1"}, "runtimes": {}}), "lookups.n > 0", "exactly one of models, runtimes and subjects"),
        (json!({"name": "n"}), "lookups.n > 0", "exactly one of"),
        (
            json!({"name": "n", "subjects": {"sum": "1", "kinds": [{"group": "ome.io", "kind": "InferenceServices"}]}}),
            "lookups.n > 0",
            "spec.lookups[n].subjects.kinds: sums cover subjects: InferenceService, BenchmarkJob, TrainingJob, LLMInferenceService",
        ),
        (json!({"name": "found", "models": {"name": "request.name"}}), "lookups.found == []", "request is known to admission only"),
    ];
    for (lookup, expression, says) in cases {
        let said = wrong(lookup, expression);
        assert!(said.contains(says), "{expression}: {said}");
    }
}

#[test]
fn conditions_may_use_variables_but_not_what_is_looked_up() {
    let spec = |condition: &str| {
        let mut spec = quota("Namespace");
        spec["variables"].as_array_mut().unwrap().push(json!({"name": "all", "expression": "lookups.used + variables.own"}));
        spec["matchConditions"] = json!([{"name": "large", "expression": condition}]);
        spec
    };
    let mut scene = Scene::under(&[("quota", spec("variables.own > 1"))]);
    let first = scene.service("one", "a", 1, 9);
    let (small, large) = (scene.service("one", "b", 2, 1), scene.service("one", "c", 3, 2));
    let fine = "Valid The service satisfies all rules.";
    assert_eq!([scene.says(&first), scene.says(&small)], [fine, fine]);
    assert_eq!(scene.says(&large), "RuleBroken No object is created: quota: older services have 10 of 10, and it wants 2.");
    for condition in ["lookups.used > 1", "variables.all > 1"] {
        let error = LOADER.rule(bind("r", &serde_json::from_value(spec(condition)).unwrap(), None)).unwrap_err().to_string();
        assert!(error.starts_with("spec.matchConditions[large].expression: ") && error.contains("they can't read them"), "{error}");
    }
}

#[test]
fn an_object_never_finds_itself_and_what_is_no_service_comes_after_all_of_them() {
    let lookups = json!([
        {"name": "same", "models": {"name": "object.metadata.name"}},
        {"name": "services", "subjects": {"sum": "1", "kinds": [{"group": "ome.io", "kind": "*"}, {"group": "serving.kserve.io", "kind": "*"}]}},
    ]);
    let kinds = json!([{"group": "ome.io", "kind": "BaseModel"}, {"group": "ome.io", "kind": "InferenceService"}]);
    let message = "lookups.same.map(m, m.kind).join(',') + ' ' + string(lookups.services)";
    let spec =
        json!({"match": {"kinds": kinds}, "lookups": lookups, "validations": [{"expression": "false", "messageExpression": message}]});
    let mut scene = Scene::under(&[("seen", spec)]);
    let model = json!({"spec": {"storage": {"storageUri": "hf://a/b"}}});
    let own = scene.put(&BASE_MODEL, "one", "llama", 1, model.clone());
    scene.put(&CLUSTER_BASE_MODEL, "", "llama", 1, model);
    scene.service("one", "a", 9, 1);
    let about =
        Subject { group: "ome.io".into(), kind: "BaseModel".into(), namespace: "one".into(), name: "llama".into(), ..Subject::default() };
    let surroundings = scene.world.surroundings(&own);
    let around = LookupContext::new(&surroundings, None, None, Duration::from_mins(1));
    let mut root = |name: &str| (name == "object").then(|| json!({"metadata": {"name": "llama"}}).to_string().into());
    let set = scene.policies.active();
    let case =
        RuleInput { stage: RuleStage::Input, about: &about, operation: None, root: &mut root, around: Some(&around), lane: Lane::Work };
    let messages: Vec<String> = set.rules().judge(case).findings.into_iter().map(|finding| finding.message).collect();
    assert_eq!(messages, ["ClusterBaseModel 1"]);
}

/// The example of docs/rules.md.
#[test]
fn no_more_than_ten_gpus_a_namespace() {
    let docs = include_str!("../../docs/rules.md");
    let example = docs.split_once("No more than 10 GPUs a namespace").unwrap().1.split_once("\n\n").unwrap().1;
    let example = example.lines().take_while(|line| line.is_empty() || line.starts_with("    ")).collect::<Vec<_>>().join("\n");
    let mut scene = Scene::under(&[("gpus", serde_saphyr::from_str(&example).unwrap())]);
    let engine = |gpus: Value, replicas: u32| {
        let runner = json!({"name": "main", "image": "vllm", "resources": {"limits": {"nvidia.com/gpu": gpus}}});
        json!({"spec": {"engine": {"minReplicas": replicas, "runner": runner}}})
    };
    let keys =
        [("a", engine(json!("4"), 2)), ("b", json!({"spec": {"engine": {}}})), ("c", engine(json!(2), 1)), ("d", engine(json!("1"), 1))];
    let said = keys.map(|(name, body)| {
        let key = scene.put(&INFERENCE_SERVICE, "one", name, 1, body);
        scene.says(&key)
    });
    let fine = "Valid The service satisfies all rules.";
    let broken = "RuleBroken No object is created: gpus: older services have 10 of 10 GPUs, and this one requests 1.";
    assert_eq!(said, [fine, fine, fine, broken]);
}
