//! The origin of the labels and annotations of all objects and pods.

use super::lines::{cut, line, role, table, word};
use crate::{
    decide::{
        Decision,
        propagation::{Propagated, Writer},
    },
    plan::{Decided, Plan},
    world::{ObjectKey, Subject},
};
use pointsman_sandbox::point::propagation::{Placed, Target};

/// The writer of labels and annotations that no plugin sets.
pub(super) const HOST: &str = "the host";

/// The labels and annotations of each object and of the pods of each template, each with its layer and its writer.
pub fn text(subject: &Subject, plan: &Plan) -> String {
    let ObjectKey { resource, namespace, name } = &subject.key;
    let mut text = format!("{} {namespace}/{name}\n", resource.kind);
    for decided in &plan.decisions {
        if let Decided::Metadata(target, _, decision) = decided {
            text.push('\n');
            target_labels(&mut text, target, decision);
        }
    }
    if plan.decisions.iter().all(|decided| !matches!(decided, Decided::Metadata(..))) {
        line(&mut text, 0, "no labels or annotations are decided");
    }
    text
}

/// The labels and annotations of one object or pod template.
pub(super) fn target_labels(text: &mut String, target: &Target, decision: &Decision<Propagated>) {
    let answer = &*decision.answer;
    let role = role(target.role, target.group_role);
    let role = if role.is_empty() { role } else { format!(", {role}") };
    line(text, 0, &format!("{} {}{role}, {}", target.kind, target.name, word(&target.place)));
    let mut rows = vec![["", "KEY", "VALUE", "FROM", "SET BY"].map(str::to_owned)];
    for (what, placed, writers) in
        [("label", &answer.labels, &answer.label_writers), ("annotation", &answer.annotations, &answer.annotation_writers)]
    {
        let row = |(Placed { key, value, layer }, writer): (&Placed, &Writer)| {
            let writer = decision.writer(*writer).unwrap_or(HOST);
            [what.to_owned(), key.clone(), cut(value), layer.clone(), writer.to_owned()]
        };
        rows.extend(placed.iter().zip(writers).map(row));
    }
    for (plugin, dropped) in &answer.dropped {
        let what = format!("dropped {}", word(&dropped.sort));
        let why = format!("{}: {}", dropped.reason.code, dropped.reason.message);
        rows.push([what, dropped.key.clone(), why, dropped.layer.clone(), plugin.clone()]);
    }
    table(text, &rows);
    for (plugin, reason) in &answer.reasons {
        line(text, 1, &format!("{}: {} ({plugin})", reason.code, reason.message));
    }
}
