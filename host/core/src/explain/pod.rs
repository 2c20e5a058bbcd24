//! The parts of a plan that concern one pod.

use super::{
    conditions,
    lines::{line, wrapped},
    stored_conditions,
    summary::{Contributions, attention},
};
use crate::{
    guards::provenance::template_decisions,
    objects::strings,
    plan::{Object, Plan},
    subject_kind::SubjectKind,
    workload::{GroupRole, Workload},
    world::{Labels, ObjectKey, Pod, Subject, pod::WORKER_INDEX},
};
use pointsman_sandbox::point::Role;
use serde_json::Value;

/// KubeRay's label with a pod's role in its group.
const RAY_NODE_TYPE: &str = "ray.io/node-type";

/// The maximum number of differing labels that are listed.
const MAX_LABELS: usize = 3;

/// The kind and name of the subject that a live pod belongs to, if any.
pub fn subject(pod: &Value) -> Option<(&'static SubjectKind, String)> {
    let Pod { kind, subject, .. } = Pod::from_value(pod);
    let kind = SubjectKind::parse(&kind).filter(|_| !subject.is_empty())?;
    Some((kind, subject))
}

/// The state of a live pod, the object that creates it, and the contribution of each plugin. Lines of tables are truncated at `width`, if
/// there is one.
pub fn text(subject: &Subject, plan: &Plan, live: &Value, width: Option<usize>) -> String {
    let ObjectKey { resource, namespace, name } = &subject.key;
    let field = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let pod = Pod::from_value(live);
    let mut text = format!("Pod {}/{} of {} {namespace}/{name}\n", pod.namespace, pod.name, resource.kind);
    let node = field("/spec/nodeName").map_or_else(|| "without a node".to_owned(), |node| format!("on the node {node}"));
    let phase = if pod.deleting { "terminating" } else { field("/status/phase").unwrap_or("Unknown") };
    line(&mut text, 1, &format!("{phase}, {node}"));
    if let Some(failure) = &pod.failure {
        wrapped(&mut text, 1, &format!("{}: {}", failure.reason, failure.message));
    }
    let labels = strings(&live["metadata"]["labels"]);
    match template(plan, &labels) {
        None => line(&mut text, 1, "no planned object has a template of this pod"),
        Some((object, role, planned)) => {
            let key = &object.key;
            line(&mut text, 1, &format!("{} {} makes it{}", key.resource.kind, key.name, difference(&labels, planned)));
            let decisions = template_decisions(object, &plan.decisions, role);
            text.push_str("\nplugins\n");
            Contributions::collect(decisions).print(&mut text, width);
        }
    }
    text.push('\n');
    attention(&mut text, plan, &conditions(subject, plan), &stored_conditions(subject, plan));
    text
}

/// The template that shares the most labels with a pod, if any.
fn template<'p>(plan: &'p Plan, labels: &Labels) -> Option<(&'p Object, Option<Role>, &'p Value)> {
    let templates = plan.objects.iter().flatten().flat_map(|object| {
        let found = Workload::find(object.key.resource).map(|workload| workload.templates_in(&object.body)).unwrap_or_default();
        found.into_iter().map(move |(template, role)| (object, role, template))
    });
    let fitting = templates.filter(|(_, role, _)| role.is_none_or(|role| role == place(labels)));
    let common = |(_, _, template): &(&Object, Option<GroupRole>, &Value)| {
        let planned = strings(&template["metadata"]["labels"]);
        planned.iter().filter(|(key, value)| labels.get(*key) == Some(value)).count()
    };
    let (object, role, template) = fitting.filter(|found| common(found) > 0).max_by_key(common)?;
    let role = role.map(|role| match role {
        GroupRole::Leader => Role::Leader,
        GroupRole::Worker => Role::Worker,
    });
    Some((object, role, template))
}

/// A pod's role in its group, from the labels of the group's controller.
fn place(labels: &Labels) -> GroupRole {
    let leads = match (labels.get(WORKER_INDEX), labels.get(RAY_NODE_TYPE)) {
        (Some(index), _) => index == "0",
        (None, Some(node_type)) => node_type == "head",
        (None, None) => true,
    };
    if leads { GroupRole::Leader } else { GroupRole::Worker }
}

/// The labels in which a pod differs from its planned template: another version of the template created it.
fn difference(labels: &Labels, template: &Value) -> String {
    let planned = strings(&template["metadata"]["labels"]);
    let other = planned.iter().filter(|(key, value)| labels.get(*key) != Some(value));
    let other: Vec<String> = other
        .map(|(key, value)| format!("{key} is {}, planned is {value}", labels.get(key).map_or("missing", String::as_str)))
        .take(MAX_LABELS)
        .collect();
    if other.is_empty() { String::new() } else { format!(", from another template than the planned one: {}", other.join("; ")) }
}
