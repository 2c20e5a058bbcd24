//! The effect on one subject if another policy set plans it.

use super::{fields::leaves, places::places};
use crate::{
    plan::{Object, Plan},
    world::{
        ObjectKey, Snapshot,
        child::{REVISION, REVISION_LABEL, REVISIONS},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    mem,
};

/// The kind of change, the least severe first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// The objects stay unchanged.
    #[default]
    Nothing,
    /// Another runtime would be chosen. The subject keeps its runtime until its spec changes or a user requests another choice.
    Choice,
    /// Only labels and annotations of objects change, not the pod templates.
    Metadata,
    /// Objects change in another way, or are created or removed.
    Objects,
    /// Planning succeeded before and now fails. Existing objects stay unchanged until it succeeds again.
    Failed,
    /// Pods restart.
    Restarts,
}

impl Effect {
    /// The effect in words, for a line about a subject.
    pub fn description(self) -> &'static str {
        match self {
            Self::Nothing => "nothing changes",
            Self::Choice => "would choose another runtime at the next choice",
            Self::Metadata => "metadata changes",
            Self::Objects => "objects change",
            Self::Failed => "planning fails",
            Self::Restarts => "pods restart",
        }
    }
}

/// The change of a subject, and its places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectChange {
    /// The most severe effect.
    pub effect: Effect,
    /// The first places, the most severe effect first: an object, and a path in it. The last entry is the number of further places, if any.
    pub places: Vec<String>,
    /// All fields, sorted by name: an object, and the path of a leaf in it.
    pub fields: BTreeSet<String>,
    /// Whether another runtime would be chosen, regardless of `effect`.
    pub chooses_otherwise: bool,
}

/// The change of one object.
struct ObjectChange {
    effect: Effect,
    places: Vec<String>,
    fields: Vec<String>,
}

impl ObjectChange {
    fn new(effect: Effect, key: &ObjectKey, what: &str, leaves: Vec<String>) -> Self {
        Self { effect, places: vec![format!("{}: {what}", object_name(key))], fields: fields(key, leaves) }
    }
}

/// The entry in `fields` for a change of the runtime that would be chosen.
const NEXT_CHOICE: &str = "the runtime of the next choice";

/// The ends of the paths of revision numbers. They follow from the rest of an object and change whenever it changes, so they aren't listed
/// unless nothing else differs.
const NUMBERS: [&str; 3] = [REVISION_LABEL, REVISION, REVISIONS];

fn is_number(path: &str) -> bool {
    NUMBERS.iter().any(|number| path.ends_with(&format!("{number:?}")))
}

fn fields(key: &ObjectKey, leaves: Vec<String>) -> Vec<String> {
    leaves.into_iter().filter(|leaf| !is_number(leaf)).map(|leaf| format!("{}: {leaf}", object_name(key))).collect()
}

/// The number of places of an object that precede further places of the objects before it.
const FIRST_PLACES_PER_OBJECT: usize = 3;

/// The maximum number of reported places per subject.
const MAX_PLACES: usize = 6;

/// The change of a subject if the second plan is applied instead of the first.
pub fn change(snapshot: &Snapshot, before: &Plan, after: &Plan) -> SubjectChange {
    let mut change = object_changes(snapshot, before, after);
    // If no runtime can be chosen any more, planning fails, which `effect` reports.
    if let (Some(one), Some(other)) = (&before.next_choice, &after.next_choice)
        && one != other
    {
        change.chooses_otherwise = true;
        change.fields.insert(NEXT_CHOICE.to_owned());
        change.effect = change.effect.max(Effect::Choice);
        let last = change.places.len().min(MAX_PLACES - 1);
        change.places.insert(last, format!("{other} instead of {one}"));
    }
    let further = change.places.len().saturating_sub(MAX_PLACES);
    change.places.truncate(MAX_PLACES);
    if further > 0 {
        change.places.push(format!("and {further} more"));
    }
    change
}

/// The change of the objects, with all places.
fn object_changes(snapshot: &Snapshot, before: &Plan, after: &Plan) -> SubjectChange {
    let Some(planned) = &after.objects else {
        // If planning failed before, too, nothing changes.
        return if before.objects.is_none() { SubjectChange::default() } else { failed(after) };
    };
    let mut changes = match &before.objects {
        Some(former) => of_plans(snapshot, former, after, planned),
        None => of_what_runs(snapshot, after, planned),
    };
    changes.sort_by_key(|change| Reverse(change.effect));
    let effect = changes.first().map(|change| change.effect).unwrap_or_default();
    let fields = changes.iter_mut().flat_map(|change| mem::take(&mut change.fields)).collect();
    let (mut places, mut further) = (Vec::new(), Vec::new());
    for mut change in changes {
        further.extend(change.places.split_off(change.places.len().min(FIRST_PLACES_PER_OBJECT)));
        places.extend(change.places);
    }
    places.extend(further);
    SubjectChange { effect, places, fields, chooses_otherwise: false }
}

/// Compares two plans, object by object.
fn of_plans(snapshot: &Snapshot, former: &[Object], after: &Plan, planned: &[Object]) -> Vec<ObjectChange> {
    let planned_before: BTreeMap<&ObjectKey, &Object> = former.iter().map(|object| (&object.key, object)).collect();
    let differing = planned.iter().filter_map(|object| match planned_before.get(&object.key) {
        Some(former) if former.fingerprint == object.fingerprint => None,
        Some(former) => Some(differs(snapshot, former, object)),
        None => Some(made(object)),
    });
    let gone = former.iter().filter(|object| !stays(&object.key, after, planned));
    differing.chain(gone.map(|object| removed(snapshot, &object.key, leaves(Some(&object.body), None)))).collect()
}

/// Compares a plan with the existing objects, if planning failed before.
fn of_what_runs(snapshot: &Snapshot, after: &Plan, planned: &[Object]) -> Vec<ObjectChange> {
    let differing = planned.iter().filter_map(|object| match snapshot.children.iter().find(|child| child.key == object.key) {
        Some(live) if live.settled(&object.body, object.fingerprint) => None,
        Some(live) => {
            let effect = if live.keeps_pods(&object.body) { Effect::Objects } else { Effect::Restarts };
            Some(ObjectChange::new(effect, &object.key, "planned again", leaves(None, Some(&object.body))))
        }
        None => Some(made(object)),
    });
    let gone = snapshot.children.iter().filter(|child| child.ours()).map(|child| &child.key).filter(|key| !stays(key, after, planned));
    differing.chain(gone.map(|key| removed(snapshot, key, Vec::new()))).collect()
}

/// Whether an object still exists after the plan is applied.
fn stays(key: &ObjectKey, after: &Plan, planned: &[Object]) -> bool {
    planned.iter().any(|object| object.key == *key) || after.retained.contains(key)
}

fn failed(after: &Plan) -> SubjectChange {
    let needed = || after.status.conditions.iter().filter(|condition| condition.required_for_ready);
    // A failed condition is more informative than those that are unknown as a result.
    let why = needed().find(|condition| condition.status == Some(false)).or_else(|| needed().find(|condition| condition.status.is_none()));
    let places = why.map(|condition| format!("{}: {}", condition.reason, condition.message));
    SubjectChange { effect: Effect::Failed, places: places.into_iter().collect(), ..SubjectChange::default() }
}

/// Records that the API server rejects the new objects of a subject: then no part of the plan is worth anything.
pub fn rejected(change: &mut SubjectChange, why: &str) {
    change.effect = Effect::Failed;
    change.places = vec![format!("Invalid: {why}")];
}

fn made(object: &Object) -> ObjectChange {
    ObjectChange::new(Effect::Objects, &object.key, "created", leaves(None, Some(&object.body)))
}

fn removed(snapshot: &Snapshot, key: &ObjectKey, leaves: Vec<String>) -> ObjectChange {
    let restarts = !key.resource.pods().is_empty() && runs(snapshot, key);
    ObjectChange::new(if restarts { Effect::Restarts } else { Effect::Objects }, key, "removed", leaves)
}

/// Whether an object exists, so that it may have pods.
fn runs(snapshot: &Snapshot, key: &ObjectKey) -> bool {
    snapshot.children.iter().any(|child| child.key == *key)
}

fn differs(snapshot: &Snapshot, former: &Object, object: &Object) -> ObjectChange {
    let (one, other) = (&former.body, &object.body);
    let restarts = runs(snapshot, &object.key) && object.key.resource.pods().iter().any(|path| one.pointer(path) != other.pointer(path));
    let effect = if restarts {
        Effect::Restarts
    } else if without_metadata(one) == without_metadata(other) {
        Effect::Metadata
    } else {
        Effect::Objects
    };
    let mut all = places(one, other, usize::MAX);
    if all.iter().any(|place| !is_number(place)) {
        all.retain(|place| !is_number(place));
    }
    // The fields that restart pods come first.
    all.sort_by_key(|place| restarts && !place.starts_with("spec"));
    let places = all.into_iter().map(|place| format!("{}: {place}", object_name(&object.key))).collect();
    ObjectChange { effect, places, fields: fields(&object.key, leaves(Some(one), Some(other))) }
}

/// All fields except the object's own labels and annotations.
fn without_metadata(body: &Value) -> Vec<(&String, &Value)> {
    let fields = body.as_object().into_iter().flatten();
    let metadata = body["metadata"].as_object().into_iter().flatten().filter(|(key, _)| !["labels", "annotations"].contains(&key.as_str()));
    let mut all: Vec<_> = fields.filter(|(key, _)| *key != "metadata").chain(metadata).collect();
    all.sort_by_key(|(key, _)| *key);
    all
}

fn object_name(key: &ObjectKey) -> String {
    format!("{} {}", key.resource.display_name(), key.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;
    use crate::{
        condition::Condition,
        plan::Status,
        resource::{DEPLOYMENT, INFERENCE_SERVICE, SERVICE},
        world::{World, child::SUBJECT_KIND},
    };
    use serde_json::json;

    fn key(resource: &'static Resource, name: &str) -> ObjectKey {
        ObjectKey { resource, namespace: "n".to_owned(), name: name.to_owned() }
    }

    /// A service whose engine has a Deployment, and whose decoder doesn't have one yet.
    fn snapshot() -> Snapshot {
        let mut world = World::default();
        world.put(&INFERENCE_SERVICE, &json!({"metadata": {"name": "a", "namespace": "n", "uid": "1"}, "spec": {}}));
        let live = json!({
            "metadata": {
                "name": "a-engine", "namespace": "n", "uid": "2", "labels": {SUBJECT_KIND: "InferenceService"},
                "ownerReferences": [{"uid": "1", "controller": true}],
                "managedFields": [{"manager": "pointsman/inferenceservice", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}],
            },
            "spec": {"replicas": 2},
        });
        world.put(&DEPLOYMENT, &live);
        world.snapshot(&key(&INFERENCE_SERVICE, "a"), 0).unwrap()
    }

    fn deployment(image: &str, team: &str, replicas: i64) -> Object {
        let body = json!({
            "metadata": {"labels": {"team": team}},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "main", "image": image}]}}},
        });
        Object::new(key(&DEPLOYMENT, "a-engine"), body)
    }

    fn service() -> Object {
        Object::new(key(&SERVICE, "a"), json!({"spec": {"ports": []}}))
    }

    fn plan(objects: Vec<Object>) -> Plan {
        Plan { objects: Some(objects), ..Plan::default() }
    }

    fn held() -> Plan {
        let conditions = vec![Condition::no("PoliciesDecided", "PolicyFailed", "it traps")];
        Plan { status: Status { conditions, ..Status::default() }, ..Plan::default() }
    }

    fn effect(before: &Plan, after: &Plan) -> (Effect, Vec<String>) {
        let SubjectChange { effect, places, .. } = change(&snapshot(), before, after);
        (effect, places)
    }

    #[test]
    fn each_change_counts_for_the_heaviest_of_it_and_says_where() {
        let before = plan(vec![deployment("one", "x", 1), service()]);
        let told = |objects| effect(&before, &plan(objects));
        assert_eq!(told(vec![deployment("one", "x", 1), service()]), (Effect::Nothing, vec![]));
        assert_eq!(
            told(vec![deployment("one", "y", 1), service()]),
            (Effect::Metadata, vec!["Deployment a-engine: metadata.labels.team".to_owned()])
        );
        assert_eq!(told(vec![deployment("one", "y", 2), service()]).0, Effect::Objects);
        let restarts = told(vec![deployment("two", "y", 1)]);
        assert_eq!(restarts.0, Effect::Restarts);
        assert_eq!(
            restarts.1,
            [
                "Deployment a-engine: spec.template.spec.containers[main].image",
                "Deployment a-engine: metadata.labels.team",
                "Service a: removed",
            ]
        );
    }

    #[test]
    fn every_field_is_collected_but_numbers_that_follow_from_others() {
        let numbered = |number: &str, team: &str| {
            let mut body = deployment("one", team, 1).body.clone();
            body["metadata"]["annotations"] = json!({REVISION: number, REVISIONS: number});
            body["spec"]["template"]["metadata"] = json!({"labels": {REVISION_LABEL: number}});
            Object::new(key(&DEPLOYMENT, "a-engine"), body)
        };
        let changed = change(&snapshot(), &plan(vec![numbered("1", "x"), service()]), &plan(vec![numbered("2", "y")]));
        let fields: Vec<&str> = changed.fields.iter().map(String::as_str).collect();
        assert_eq!(fields, ["Deployment a-engine: metadata.labels.team", "Service a: spec.ports"]);
        assert_eq!(changed.places, ["Deployment a-engine: metadata.labels.team", "Service a: removed"]);
        let renumbered = change(&snapshot(), &plan(vec![numbered("1", "x")]), &plan(vec![numbered("2", "x")]));
        assert!(renumbered.fields.is_empty());
        assert_eq!(renumbered.places[0], format!("Deployment a-engine: spec.template.metadata.labels.{REVISION_LABEL:?}"));
    }

    #[test]
    fn each_added_variable_is_listed_and_what_exceeds_the_maximum_is_counted() {
        let with_env = |variables: &[&str], replicas: i64| {
            let mut body = deployment("one", "x", replicas).body.clone();
            let env: Vec<Value> = variables.iter().map(|name| json!({"name": name, "value": "x"})).collect();
            body["spec"]["template"]["spec"]["containers"][0]["env"] = env.into();
            Object::new(key(&DEPLOYMENT, "a-engine"), body)
        };
        let before = plan(vec![with_env(&["OLD"], 1), service()]);
        let variable = |name: &str| format!("Deployment a-engine: spec.template.spec.containers[main].env[{name}]");
        let few = change(&snapshot(), &before, &plan(vec![with_env(&["OLD", "TEAM", "A B=C"], 1), service()]));
        assert_eq!((few.effect, few.places), (Effect::Restarts, vec![variable("TEAM"), variable("A B=C")]));
        let many = change(&snapshot(), &before, &plan(vec![with_env(&["OLD", "B", "C", "D", "E", "F", "G"], 1)]));
        let first = [variable("B"), variable("C"), variable("D"), "Service a: removed".to_owned(), variable("E"), variable("F")];
        assert_eq!((&many.places[..6], many.places.get(6).map(String::as_str)), (&first[..], Some("and 1 more")));
        let choosing =
            |runtime: &str, variables: &[&str]| Plan { next_choice: Some(runtime.to_owned()), ..plan(vec![with_env(variables, 1)]) };
        let chosen = change(&snapshot(), &choosing("a", &[]), &choosing("b", &["B", "C", "D", "E", "F", "G"]));
        assert_eq!(chosen.places[5..], ["b instead of a", "and 1 more"]);
    }

    #[test]
    fn pods_of_a_workload_that_is_not_there_yet_do_not_restart_and_those_of_one_that_goes_do() {
        let decoder = |image: &str| Object { key: key(&DEPLOYMENT, "a-decoder"), ..deployment(image, "x", 1) };
        assert_eq!(effect(&plan(vec![decoder("one")]), &plan(vec![decoder("two")])).0, Effect::Objects);
        assert_eq!(effect(&plan(vec![]), &plan(vec![decoder("one")])).0, Effect::Objects);
        assert_eq!(effect(&plan(vec![deployment("one", "x", 1)]), &plan(vec![])).0, Effect::Restarts);
        let kept = Plan { retained: [key(&DEPLOYMENT, "a-engine")].into(), ..plan(vec![]) };
        assert_eq!(effect(&plan(vec![deployment("one", "x", 1)]), &kept).0, Effect::Nothing);
    }

    #[test]
    fn another_choice_is_told_whatever_else_changes_and_alone_is_the_lightest() {
        let choosing = |runtime: &str, team: &str| Plan {
            next_choice: Some(format!("ServingRuntime {runtime}")),
            ..plan(vec![deployment("one", team, 1), service()])
        };
        let chosen = change(&snapshot(), &choosing("a", "x"), &choosing("b", "x"));
        assert_eq!((chosen.effect, chosen.chooses_otherwise), (Effect::Choice, true));
        assert_eq!(chosen.places, ["ServingRuntime b instead of ServingRuntime a"]);
        let relabelled = change(&snapshot(), &choosing("a", "x"), &choosing("b", "y"));
        assert_eq!((relabelled.effect, relabelled.chooses_otherwise), (Effect::Metadata, true));
        assert_eq!(change(&snapshot(), &choosing("a", "x"), &choosing("a", "x")), SubjectChange::default());
    }

    #[test]
    fn a_plan_that_can_no_longer_be_made_is_a_failure_and_one_that_never_could_is_none() {
        let before = plan(vec![service()]);
        assert_eq!(effect(&before, &held()), (Effect::Failed, vec!["PolicyFailed: it traps".to_owned()]));
        assert_eq!(effect(&held(), &held()).0, Effect::Nothing);
        // Without an earlier plan, the existing objects are compared: the Deployment has 2 replicas, and no pod template of ours.
        assert_eq!(effect(&held(), &plan(vec![deployment("one", "x", 2)])).0, Effect::Restarts);
        let as_it_is = Object::new(key(&DEPLOYMENT, "a-engine"), json!({"spec": {"replicas": 2}}));
        assert_eq!(effect(&held(), &plan(vec![as_it_is])).0, Effect::Nothing);
        assert_eq!(effect(&held(), &before).0, Effect::Restarts, "the Deployment is removed");
    }
}
