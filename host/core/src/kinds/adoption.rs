//! Keeps adopted objects as they are until the subject changes, so that their pods don't restart.

use crate::{
    plan::Object,
    resource::{
        HORIZONTAL_POD_AUTOSCALER, INFERENCE_POOL, NETWORK_POLICY, POD_DISRUPTION_BUDGET, ROLE, ROLE_BINDING, Resource, SCALED_OBJECT,
        SERVICE, SERVICE_ACCOUNT,
    },
    workload::Workload,
    world::{
        ObjectKey, Snapshot,
        adopted::{ADOPTED, Adopted},
        child::{Observed, REVISION},
        pod::WORKER_INDEX,
    },
};
use pointsman_sandbox::digest::{Digest, sorted};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The revision number of a workload without counted revisions.
const FIRST_REVISION: &str = "00001";

/// The kinds of pods' identities and permissions.
static IDENTITY_KINDS: [&Resource; 3] = [&SERVICE_ACCOUNT, &ROLE, &ROLE_BINDING];

type Labels = BTreeMap<String, String>;

/// The labels of a workload's pods.
struct WorkloadPods {
    /// The labels of the planned templates, one map per template.
    planned: Vec<Labels>,
    /// Whether the last template is for the workers of a group.
    grouped: bool,
    /// If the workload is adopted, the labels of all its pods, now and after a rollout.
    carried: Option<Labels>,
    /// Further labels that all its pods have until a rollout.
    yet: Labels,
}

/// Replaces planned objects by the adopted ones.
pub fn keep(snapshot: &Snapshot, objects: Option<&mut Vec<Object>>) {
    let Some(objects) = objects.filter(|_| snapshot.children.iter().any(|child| child.observed.adopted.is_some())) else { return };
    let service = snapshot.subject.label.as_str();
    let mut all = Vec::new();
    let mut renamed = BTreeMap::new();
    for object in objects.iter_mut() {
        let workload = Workload::find(object.key.resource).filter(|workload| workload.adopted_by.is_some());
        let runs = workload.is_some();
        let live = snapshot.child(object.key.resource, &object.key.name);
        let adopted = live.and_then(|live| Some((live, live.observed.adopted.as_deref()?)));
        let planned =
            if runs { templates(object).into_iter().map(|template| labels(&template["metadata"]["labels"])).collect() } else { Vec::new() };
        let mut pods = WorkloadPods { planned, grouped: workload.is_some_and(Workload::is_grouped), carried: None, yet: Labels::new() };
        if let Some((live, adopted)) = adopted {
            if live.key != object.key {
                renamed.insert((object.key.resource.kind, object.key.name.clone()), live.key.name.clone());
                object.key = live.key.clone();
            }
            object.body["metadata"]["annotations"][ADOPTED] = adopted.from.as_str().into();
            if let Some(exposed) = &adopted.exposed {
                keep_exposed(&mut object.body["spec"], exposed);
            }
            if runs {
                keep_running(object, adopted, live.observed.revision.as_deref());
                let of = workload.and_then(|workload| workload.adopted_by).unwrap_or_default();
                pods.carried = Some(adopted.selector().unwrap_or_else(|| Labels::from([(of.to_owned(), live.key.name.clone())])));
                pods.yet = adopted
                    .templates()
                    .first()
                    .filter(|_| adopted.is_unchanged_since_adoption())
                    .map(|first| labels(&first["metadata"]["labels"]))
                    .unwrap_or_default();
            }
        }
        all.extend(runs.then_some(pods));
    }
    for object in objects {
        retarget(object, &renamed);
        for path in selectors(object.key.resource) {
            if let Some(selector) = object.body.pointer_mut(path) {
                *selector = json!(found(labels(selector), &all, service));
            }
        }
        if object.key.resource == &NETWORK_POLICY
            && let Some(from) = object.body.pointer_mut("/spec/ingress/1/from").and_then(Value::as_array_mut)
        {
            let planned = labels(&from.first().unwrap_or(&Value::Null)["podSelector"]["matchLabels"]);
            let others: BTreeSet<Labels> =
                pods_meant(&planned, &all).into_iter().filter(|pods| pods.lacks(&planned)).map(|pods| pods.carries(&planned)).collect();
            from.extend(others.into_iter().map(|others| json!({"podSelector": {"matchLabels": others}})));
        }
        *object = Object {
            yields_replicas: object.yields_replicas,
            keeps_template: object.keeps_template,
            ..Object::new(object.key.clone(), object.body.take())
        };
    }
}

/// Unplanned objects that are retained: the identities of adopted pods, until none of these pods is left.
pub fn retained_objects(snapshot: &Snapshot) -> BTreeSet<ObjectKey> {
    let runs_on = snapshot.children.iter().any(|child| {
        let Observed { adopted, generation, observed_generation, replicas, current, updated, available, .. } = &child.observed;
        // A group that is being replaced counts neither as current nor as updated, and its old workers stop last.
        let asked = replicas.unwrap_or_default().max(*current);
        let rolls = asked > *updated.min(available) || observed_generation.is_some() && observed_generation < generation;
        adopted.as_ref().is_some_and(|adopted| adopted.runs.is_some() && (adopted.is_unchanged_since_adoption() || rolls))
    });
    let theirs = snapshot.children.iter().filter(|child| runs_on && child.observed.adopted.is_some());
    theirs.map(|child| child.key.clone()).filter(|key| IDENTITY_KINDS.contains(&key.resource)).collect()
}

/// A workload keeps its selector. It keeps its pods until the plan differs from the first one after the adoption.
fn keep_running(object: &mut Object, adopted: &Adopted, revision: Option<&str>) {
    let hash_of = |revision: &str| revision.split_once('-').map(|(_, hash)| hash.to_owned());
    let annotations = &object.body["metadata"]["annotations"];
    let told = annotations[REVISION].as_str().and_then(hash_of);
    let counted = told.is_some();
    let planned = told.unwrap_or_else(|| hash(&templates(object)));
    let kept = adopted.is_unchanged_since_adoption() && revision.and_then(hash_of).is_none_or(|known| known == planned);
    let is_grouped = is_grouped(object);
    let spec = &mut object.body["spec"];
    if kept {
        let mut runs = adopted.runs.clone().unwrap_or_default();
        if !is_grouped {
            // A change of the rollout strategy doesn't replace pods.
            runs.retain(|key, _| key == "template" || key == "selector");
        }
        for (key, value) in runs {
            spec[key] = value;
        }
        if !counted {
            object.body["metadata"]["annotations"][REVISION] = format!("{FIRST_REVISION}-{planned}").into();
        }
    } else if let Some(selector) = adopted.selector() {
        for (key, value) in &selector {
            spec["template"]["metadata"]["labels"][key] = value.as_str().into();
        }
        spec["selector"] = json!({ "matchLabels": selector });
    } else if is_grouped
        && adopted.templates().first().is_some_and(|leader| leader["spec"]["serviceAccountName"].is_string())
        && let Some(leader) = spec.pointer_mut("/leaderWorkerTemplate/leaderTemplate/spec").and_then(Value::as_object_mut)
    {
        // If the field is only omitted, the leaders' StatefulSet keeps the value in the deprecated field `serviceAccount`.
        leader.entry("serviceAccountName").or_insert_with(|| "default".into());
    }
}

/// A Service stays reachable from outside the cluster, at its known node ports and load balancer. A headless Service isn't reachable from
/// outside.
fn keep_exposed(spec: &mut Value, exposed: &Map<String, Value>) {
    if spec["clusterIP"] == "None" {
        return;
    }
    let live = exposed.get("ports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for planned in spec["ports"].as_array_mut().into_iter().flatten() {
        if let Some(live) = live.iter().find(|live| live["port"] == planned["port"] && !live["nodePort"].is_null()) {
            planned["nodePort"] = live["nodePort"].clone();
        }
    }
    for (key, value) in exposed.iter().filter(|(key, _)| *key != "ports") {
        spec[key] = value.clone();
    }
}

/// The pod templates of a planned workload.
fn templates(object: &Object) -> Vec<&Value> {
    let found = Workload::find(object.key.resource).map(|workload| workload.templates_in(&object.body)).unwrap_or_default();
    found.into_iter().map(|(template, _)| template).collect()
}

fn is_grouped(object: &Object) -> bool {
    Workload::find(object.key.resource).is_some_and(Workload::is_grouped)
}

fn hash(templates: &[&Value]) -> String {
    let sorted: Vec<Value> = templates.iter().map(|template| sorted(template)).collect();
    Digest::of_value(&sorted).map(|digest| digest.short()).unwrap_or_default()
}

fn labels(value: &Value) -> Labels {
    crate::objects::strings(value)
}

/// The paths of an object's pod selectors.
fn selectors(resource: &Resource) -> &'static [&'static str] {
    if resource == &SERVICE {
        &["/spec/selector"]
    } else if resource == &POD_DISRUPTION_BUDGET || resource == &INFERENCE_POOL {
        &["/spec/selector/matchLabels"]
    } else if resource == &NETWORK_POLICY {
        &["/spec/podSelector/matchLabels"]
    } else {
        &[]
    }
}

impl WorkloadPods {
    /// Whether some of these pods lack the labels of a selector.
    fn lacks(&self, selector: &Labels) -> bool {
        self.carried.as_ref().is_some_and(|carried| !within(selector, carried) && !within(selector, &self.yet))
    }

    /// The labels that identify those of the pods that a selector is meant to match.
    fn carries(&self, selector: &Labels) -> Labels {
        let planned = || self.planned.iter().find(|planned| within(selector, planned)).cloned();
        let mut carried = self.carried.clone().or_else(planned).unwrap_or_default();
        let only_leaders =
            self.grouped && (selector.contains_key(WORKER_INDEX) || !self.planned.iter().all(|planned| within(selector, planned)));
        carried.extend(only_leaders.then(|| (WORKER_INDEX.to_owned(), "0".to_owned())));
        carried
    }
}

fn within(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(key, value)| key == WORKER_INDEX || labels.get(key) == Some(value))
}

/// The pods that a selector is meant to match.
fn pods_meant<'a>(selector: &Labels, all: &'a [WorkloadPods]) -> Vec<&'a WorkloadPods> {
    all.iter().filter(|pods| pods.planned.iter().any(|planned| within(selector, planned))).collect()
}

/// A selector that matches the intended pods, both adopted and new ones.
fn found(selector: Labels, all: &[WorkloadPods], service: &str) -> Labels {
    let meant = pods_meant(&selector, all);
    // If no pods lack the labels, the selector already matches them.
    if !meant.iter().any(|pods| pods.lacks(&selector)) {
        return selector;
    }
    let alone = meant.len() == 1;
    let mut common = meant.iter().map(|pods| pods.carries(&selector));
    let first = common.next().unwrap_or_default();
    let common: Labels =
        common.fold(first, |common, next| common.into_iter().filter(|(key, value)| next.get(key) == Some(value)).collect());
    // A workload's own selector matches no other pods. The labels that several workloads share might, unless one of them is the service's
    // name.
    if alone || common.iter().any(|(key, value)| key != WORKER_INDEX && value == service) { common } else { selector }
}

/// Updates an autoscaler's target if its workload has another name.
fn retarget(object: &mut Object, renamed: &BTreeMap<(&'static str, String), String>) {
    if ![&HORIZONTAL_POD_AUTOSCALER, &SCALED_OBJECT].contains(&object.key.resource) {
        return;
    }
    let target: Option<&mut Map<String, Value>> = object.body.pointer_mut("/spec/scaleTargetRef").and_then(Value::as_object_mut);
    let Some(target) = target else { return };
    let name = renamed.iter().find(|((kind, name), _)| target["kind"] == **kind && target["name"] == name.as_str()).map(|(_, name)| name);
    if let Some(name) = name {
        target.insert("name".to_owned(), name.as_str().into());
    }
}

#[cfg(test)]
mod tests;
