//! The predicted effect of a set is what happens once it is active, subject by subject: random changes of policies in sequence, each
//! compared with the effect on all objects.

use super::{LABEL, LABELS, digest, is, label, next, recorded, set_that, start};
use crate::services::{LastSeen, Space, fixed, own_cluster, with_model};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams},
};
use pointsman::keeper::sets;
use pointsman_core::{
    resource::{DEPLOYMENT, INFERENCE_SERVICE, LEADER_WORKER_SET, LLM_INFERENCE_SERVICE, POD, Resource, SERVING_RUNTIME},
    subject_kind::ALL,
    subject_kind::SUBJECT_KINDS,
    world::child::SUBJECT_KIND,
};
use pointsman_crds::policy::set::PolicySetPhase;
use pointsman_sandbox::digest::Digest;
use pointsman_tests::{PolicyCluster, condition, eventually, plugin_bytes, with_other_digest};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// An annotation that the built-in policy propagates to objects and never to pods, for LLMInferenceServices only if it is approved.
const OF_OBJECTS: &str = "ome.io/version";

/// The service whose change shows that the host has processed its queue.
pub(super) const LAST: &str = "last";

/// A random generator: a seed, and the number of draws so far.
struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.thrown += 1;
        let drawn = Digest::hash(&[self.seed.to_be_bytes(), self.thrown.to_be_bytes()].concat());
        usize::from(drawn.0[0]) % sides
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// A change of policies.
#[derive(Debug)]
enum Change {
    /// A PolicyPlugin is created or changed.
    Bound(&'static str, Value),
    /// A PolicyPlugin is deleted.
    Deleted(&'static str),
    /// The label plugin gets other bytes with the same behaviour.
    Bytes(usize),
}

impl Change {
    /// Draws a change, given the existing PolicyPlugins without the built-in ones.
    fn drawn(dice: &mut Dice, there: &BTreeSet<&'static str>) -> Self {
        match dice.below(10) {
            0..=3 => Self::of_plugin(dice, there, "labels"),
            4 | 5 => Self::of_plugin(dice, there, "next"),
            6 | 7 => Self::of_builtin("metadata-propagation", &dice.one_of(&carrying())),
            8 => Self::of_builtin("pod-templating", &dice.one_of(&templating())),
            _ if there.contains("labels") && dice.below(2) == 0 => Self::Bytes(dice.below(100)),
            _ => Self::of_plugin(dice, there, "cost"),
        }
    }

    fn of_plugin(dice: &mut Dice, there: &BTreeSet<&'static str>, name: &'static str) -> Self {
        if there.contains(name) && dice.below(3) == 0 {
            return Self::Deleted(name);
        }
        let mut spec = Map::from_iter([
            ("source".to_owned(), json!({"configMap": {"name": name}})),
            ("order".to_owned(), dice.one_of(&[50, 100, 150]).into()),
            ("strategy".to_owned(), wide()),
        ]);
        let config = match name {
            "labels" => Some(json!({"label": dice.one_of(&[LABEL, "team"])})),
            "cost" => Some(json!({"weight": dice.one_of(&[1, 10, 100])})),
            _ => None,
        };
        let given = [("match", dice.one_of(&selections())), ("config", config)];
        spec.extend(given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))));
        Self::Bound(name, spec.into())
    }

    /// A change of a built-in, which only changes its configuration.
    fn of_builtin(name: &'static str, config: &Value) -> Self {
        let mut spec = json!({"source": {"builtin": {"name": name}}, "order": 0, "strategy": wide()});
        if !config.is_null() {
            spec["config"] = config.clone();
        }
        Self::Bound(name, spec)
    }
}

/// A strategy that activates any change, after its effect was reported.
fn wide() -> Value {
    json!({"type": "Guarded", "maxChanged": "100%", "maxRestarting": "100%"})
}

/// The possible selections of a plugin's subjects.
fn selections() -> [Option<Value>; 6] {
    [
        None,
        Some(json!({"objectSelector": {"matchLabels": {"tier": "gold"}}})),
        Some(json!({"objectSelector": {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}})),
        Some(json!({"kinds": [{"group": "ome.io", "kind": "InferenceService"}]})),
        Some(json!({"kinds": [{"group": "serving.kserve.io", "kind": "LLMInferenceService"}]})),
        Some(json!({"namespaceSelector": {"matchLabels": {"team": "search"}}})),
    ]
}

/// The possible configurations of the built-in policy for labels and annotations.
fn carrying() -> [Value; 8] {
    [
        json!({}),
        json!({"managedBy": "somebody"}),
        json!({"upstreamKeys": false}),
        json!({"namespaceLabels": ["team"]}),
        json!({"internalKeys": [OF_OBJECTS]}),
        json!({"internalKeys": ["tier"]}),
        json!({"llmInferenceService": {"approvedAnnotations": [OF_OBJECTS]}}),
        json!({"llmInferenceService": {"approvedLabels": ["tier"]}, "internalKeys": [OF_OBJECTS]}),
    ]
}

/// The possible configurations of the built-in policy for pods.
fn templating() -> [Value; 5] {
    [
        json!({}),
        json!({"modelRoot": "/models"}),
        json!({"placement": false}),
        json!({"parallelism": false}),
        json!({"storageInitializer": "example.com/initializer:1"}),
    ]
}

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

/// The objects of each subject.
pub(super) type Made = BTreeMap<String, Objects>;

/// The effect per subject; unchanged subjects are absent.
pub(super) type Effects = BTreeMap<String, String>;

/// An object without fields that controllers and the API server add.
fn desired(object: DynamicObject) -> Value {
    let DynamicObject { metadata, mut data, .. } = object;
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| !key.starts_with("deployment.kubernetes.io/"));
    json!({"labels": metadata.labels, "annotations": annotations, "rest": data})
}

/// The kinds that a subject can own.
fn kinds() -> Vec<&'static Resource> {
    let served = |resource: &&'static Resource| resource.neighbour.is_none() || **resource == LEADER_WORKER_SET;
    ALL.iter().copied().filter(|resource| resource.namespaced && **resource != POD).filter(served).collect()
}

/// All objects of the subjects in these namespaces.
pub(super) async fn made(spaces: &[Space<'_>]) -> Made {
    let ours = ListParams::default().labels(SUBJECT_KIND);
    let mut made = Made::new();
    for space in spaces {
        for resource in kinds() {
            for object in space.api(resource).list(&ours).await.unwrap().items {
                let owners = object.owner_references();
                let owner = owners.iter().find(|owner| SUBJECT_KINDS.iter().any(|kind| kind.resource.kind == owner.kind));
                let Some(subject) = owner.map(|owner| format!("{} {}/{}", owner.kind, space.0.name, owner.name)) else { continue };
                let name = format!("{} {}", resource.kind, object.name_any());
                made.entry(subject).or_default().insert(name, desired(object));
            }
        }
    }
    made
}

/// The pod template.
fn template(object: &Value) -> Option<&Value> {
    ["/rest/spec/leaderWorkerTemplate", "/rest/spec/template"].iter().find_map(|path| object.pointer(path))
}

fn without_metadata(objects: &Objects) -> BTreeMap<&String, &Value> {
    objects.iter().map(|(name, object)| (name, &object["rest"])).collect()
}

/// The effect on one subject, in the words of a report.
fn effect(before: &Objects, after: &Objects) -> Option<&'static str> {
    let restarts = before.iter().any(|(name, was)| template(was).is_some() && after.get(name).and_then(template) != template(was));
    if restarts {
        Some("Restarts")
    } else if without_metadata(before) != without_metadata(after) {
        Some("Objects")
    } else {
        (before != after).then_some("Metadata")
    }
}

/// The effect on all subjects.
pub(super) fn effects(before: &Made, after: &Made) -> Effects {
    let none = Objects::new();
    let subjects: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let effects = subjects.into_iter().filter_map(|subject| {
        let of = |made: &Made| made.get(subject).unwrap_or(&none).clone();
        Some((subject.clone(), effect(&of(before), &of(after))?.to_owned()))
    });
    effects.collect()
}

/// The effects on the subjects in these namespaces, by a set's report.
pub(super) fn foretold(cluster: &PolicyCluster, set: &str, spaces: &[Space<'_>]) -> Effects {
    let told: Value = serde_json::from_str(&cluster.pointsman(&["policy", "history", set, "-o", "json"]).ok()).unwrap();
    let report = &told["report"];
    let changed = report["changed"].as_array().unwrap_or_else(|| panic!("there is no report: {told:#}"));
    assert_eq!(report["omitted"], 0, "{told:#}");
    let text = |changed: &Value, field: &str| changed[field].as_str().unwrap().to_owned();
    // A next choice affects no object.
    let seen = changed.iter().filter(|changed| changed["effect"] != "Choice");
    let ours = seen.filter(|changed| spaces.iter().any(|space| changed["namespace"] == space.0.name.as_str()));
    let effects = ours.map(|changed| {
        let subject = format!("{} {}/{}", text(changed, "kind"), text(changed, "namespace"), text(changed, "name"));
        (subject, text(changed, "effect"))
    });
    effects.collect()
}

/// Makes a change, and waits until the host has processed it.
async fn carry_out(cluster: &PolicyCluster, client: &Client, change: &Change, there: &mut BTreeSet<&'static str>) {
    match change {
        Change::Bound(name, spec) => {
            cluster.plugin(name, spec.clone()).await;
            let decides = |status: &_| condition(status, "Ready").is_some_and(|(is, ..)| is == "True");
            cluster.status(name, "its newest version decides", decides).await;
            there.insert(*name);
        }
        Change::Deleted(name) => {
            cluster.delete_plugin(name).await;
            let gone = async || (!recorded(client).await.plugins.contains_key(*name)).then_some(());
            eventually(&format!("{name} is out of the set"), gone).await;
            there.remove(name);
        }
        Change::Bytes(number) => {
            let bytes = with_other_digest(&plugin_bytes(LABELS), *number);
            cluster.config_map("labels", &bytes).await;
            cluster.active("labels", &digest(&bytes)).await;
        }
    }
}

/// Waits until the host has processed its queue. It works on one service at a time, in the queue's order, so a service that is queued last
/// is processed last. Twice, because the first time the service may already have been in the queue, before others.
pub(super) async fn is_through(last: &Space<'_>, times: &mut u32) {
    for _ in 0..2 {
        *times += 1;
        let replicas = 1 + *times % 2;
        last.patch(&LLM_INFERENCE_SERVICE, LAST, json!({"spec": {"replicas": replicas}})).await;
        let deployment = format!("{LAST}-kserve");
        last.becomes(&DEPLOYMENT, &deployment, &format!("it has {replicas}"), |now| now["spec"]["replicas"] == replicas).await;
    }
}

/// A service: its kind, its name, and the index of its namespace.
pub(super) type Served = (&'static Resource, String, usize);

/// Creates various services: of both kinds, in both namespaces, with and without the attributes that the plugins read.
pub(super) async fn serve(spaces: &[Space<'_>], number: usize) -> Vec<Served> {
    let mut served = Vec::new();
    for at in 0..number {
        let mut metadata = json!({"labels": {}, "annotations": {}});
        if let Some(tier) = ["gold", "silver"].get(at % 3) {
            metadata["labels"]["tier"] = (*tier).into();
        }
        if at % 2 == 0 {
            metadata["annotations"][OF_OBJECTS] = "7".into();
        }
        let model = json!({"uri": "hf://example/llama"});
        let (kind, spec) = match at % 5 {
            // An autoscaler owns the number of pods.
            0 => (&INFERENCE_SERVICE, with_model(json!({}))),
            1 | 2 => (&INFERENCE_SERVICE, with_model(json!({"engine": fixed(1)}))),
            // A group of two pods.
            3 if at % 2 == 1 => {
                (&LLM_INFERENCE_SERVICE, json!({"model": model, "parallelism": {"pipeline": 2}, "worker": {"containers": []}}))
            }
            _ => (&LLM_INFERENCE_SERVICE, json!({"model": model})),
        };
        let (name, space) = (format!("s-{at}"), at / 2 % spaces.len());
        spaces[space].create(kind, &name, json!({"metadata": metadata, "spec": spec})).await;
        served.push((kind, name, space));
    }
    served
}

pub(super) async fn are_ready(spaces: &[Space<'_>], served: &[Served]) {
    for (kind, name, space) in served {
        spaces[*space].says_of(kind, name, "Ready", "True", "Ready").await;
    }
}

/// A namespace for InferenceServices, with a cheaper runtime in addition to their own.
pub(super) async fn furnished(cluster: &PolicyCluster, labels: Value) -> Space<'_> {
    const PRICE: &str = "cost.example.com/per-hour";
    let space = Space::on(cluster, "oracle").await;
    label(&space, labels).await;
    let runtime = space.patch(&SERVING_RUNTIME, "runtime", json!({"metadata": {"annotations": {PRICE: "2"}}})).await;
    space.create(&SERVING_RUNTIME, "cheap", json!({"metadata": {"annotations": {PRICE: "1"}}, "spec": runtime["spec"]})).await;
    space
}

#[tokio::test]
async fn what_is_predicted_is_what_happens() {
    let full = pointsman_tests::is_full();
    let (changes, number) = if full { (200, 100) } else { (12, 20) };
    // With the default seed, all kinds of changes come early.
    let seed = std::env::var("POINTSMAN_TEST_SEED").map_or(490, |seed| seed.parse().unwrap());
    let mut dice = Dice { seed, thrown: 0 };
    let at = LastSeen::default();
    at.note(format!("the beginning, of POINTSMAN_TEST_SEED={seed}"));

    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&["lws"])));
    let client = cluster.client().await;
    // Restart everything at once, and process one service after the other.
    let host = start(&cluster, &["--pace", "0", "--workers", "1"]).await;
    let search = furnished(&cluster, json!({LABEL: "4711", "team": "search"})).await;
    let spaces = [search, furnished(&cluster, json!({LABEL: "815"})).await];
    let last = Space::bare(&cluster, "oracle-last").await;
    let spec = json!({"model": {"uri": "hf://example/llama"}, "replicas": 1});
    last.create(&LLM_INFERENCE_SERVICE, LAST, json!({"spec": spec})).await;
    let served = serve(&spaces, number).await;
    are_ready(&spaces, &served).await;
    last.says_of(&LLM_INFERENCE_SERVICE, LAST, "Ready", "True", "Ready").await;
    for (name, bytes) in [("labels", plugin_bytes(LABELS)), ("next", next()), ("cost", plugin_bytes("pointsman-example-rust-cost"))] {
        cluster.config_map(name, &bytes).await;
    }

    let (mut there, mut times, mut counts) = (BTreeSet::new(), 0, BTreeMap::<String, usize>::new());
    is_through(&last, &mut times).await;
    let mut before = made(&spaces).await;
    assert_eq!(before.len(), number, "{:?}", before.keys());
    for count in 1..=changes {
        let change = Change::drawn(&mut dice, &there);
        let what = format!("change {count} of POINTSMAN_TEST_SEED={seed}, {change:?}");
        at.note(&what);
        let former = recorded(&client).await.digest;
        carry_out(&cluster, &client, &change, &mut there).await;
        let now = recorded(&client).await.digest;
        let predicted = if now == former {
            Effects::new()
        } else {
            let name = sets::name(&now);
            set_that(&cluster, &format!("{name} decides"), |set| set.spec.digest == now && is(set, PolicySetPhase::Active)).await;
            foretold(&cluster, &name, &spaces)
        };
        let seen = LastSeen::default();
        eventually(&format!("what was predicted happens: {what}"), async || {
            let happened = effects(&before, &made(&spaces).await);
            seen.note(format!("predicted {predicted:#?}\nhappened {happened:#?}"));
            (happened == predicted).then_some(())
        })
        .await;
        // Nothing else has changed.
        is_through(&last, &mut times).await;
        let after = made(&spaces).await;
        assert_eq!(effects(&before, &after), predicted, "{what}");
        for effect in predicted.into_values() {
            *counts.entry(effect).or_default() += 1;
        }
        before = after;
    }
    println!("{changes} changes: {counts:?}");
    assert!(counts.contains_key("Restarts") && counts.contains_key("Metadata"), "{counts:?}");
    are_ready(&spaces, &served).await;
    host.stop();
}
