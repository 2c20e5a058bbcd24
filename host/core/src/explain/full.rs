//! The complete explanation as text.

use super::{
    conditions,
    lines::{cut, line, role, table, word},
    number, selected,
};
use crate::{
    decide::{
        AskedPlugin, FailedPlugin, propagation,
        selection::{self, Judged},
        templating,
    },
    plan::{Decided, Plan},
    world::{ObjectKey, Subject},
};
use pointsman_sandbox::point::{Reason, propagation::Placed, selection::Candidate};
use serde_json::Value;

/// All decisions about a subject. `stored` are its stored conditions that differ from the predicted ones.
pub fn text(subject: &Subject, plan: &Plan, stored: &[Value]) -> String {
    let ObjectKey { resource, namespace, name } = &subject.key;
    let mut text = format!("{} {namespace}/{name}\n", resource.kind);
    for decided in &plan.decisions {
        text.push('\n');
        match decided {
            Decided::Selection(inputs, decision) => {
                head(&mut text, "runtime-selection", None, &decision.plugins, &decision.failed);
                selection(&mut text, plan, inputs, &decision.answer);
            }
            Decided::Template(key, inputs, decision) => {
                let target = format!("{} {}, {}", key.resource.kind, key.name, role(Some(inputs.role), inputs.group_role));
                head(&mut text, "pod-templating", Some(target), &decision.plugins, &decision.failed);
                template(&mut text, &decision.answer);
            }
            Decided::Metadata(target, _, decision) => {
                let role = role(target.role, target.group_role);
                let role = if role.is_empty() { role } else { format!(", {role}") };
                let place = format!("{} {}{role}, {}", target.kind, target.name, word(&target.place));
                head(&mut text, "metadata-propagation", Some(place), &decision.plugins, &decision.failed);
                metadata(&mut text, &decision.answer);
            }
        }
    }
    let predicted = conditions(subject, plan);
    if stored.is_empty() {
        condition_table(&mut text, "conditions", &predicted);
    } else {
        condition_table(&mut text, "conditions (predicted)", &predicted);
        condition_table(&mut text, "conditions (stored, where they differ)", stored);
    }
    text
}

fn condition_table(text: &mut String, heading: &str, conditions: &[Value]) {
    text.push('\n');
    line(text, 0, heading);
    let cell = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let row = |condition: &Value| ["type", "status", "reason", "message"].map(|field| cell(condition, field));
    let rows: Vec<[String; 4]> = conditions.iter().map(row).collect();
    table(text, &rows);
}

fn head(text: &mut String, point: &str, target: Option<String>, asked: &[AskedPlugin], failed: &[FailedPlugin]) {
    let target = target.map(|target| format!(": {target}")).unwrap_or_default();
    let short = |digest: &str| digest.get(..19).unwrap_or(digest).to_owned();
    let asked: Vec<String> = asked.iter().map(|asked| format!("{} {}", asked.plugin, short(&asked.digest))).collect();
    line(text, 0, &format!("{point}{target} (by {})", asked.join(", ")));
    for failed in failed {
        line(text, 1, &format!("no answer by {}: {}", failed.plugin, failed.error));
    }
}

fn selection(text: &mut String, plan: &Plan, inputs: &selection::Inputs, answer: &selection::Selection) {
    let selected = selected(plan, inputs);
    let name = |place: usize| {
        let Candidate { kind, namespace, name, .. } = &inputs.candidates[place];
        if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
    };
    let mut rows = Vec::new();
    for (rank, place) in answer.ranking.iter().enumerate() {
        if let Some(Judged::Eligible(eligible)) = answer.judged.get(*place) {
            let mark = if selected == Some(*place) { "selected" } else { "" };
            let score = format!("score {}", number(eligible.score));
            rows.push([(rank + 1).to_string(), name(*place), score, mark.to_owned(), reasons(&eligible.reasons)]);
        }
    }
    table(text, &rows);
    let mut rows = Vec::new();
    for (place, judged) in answer.judged.iter().enumerate() {
        if let Judged::Excluded { reason, .. } = judged {
            rows.push(["excluded".to_owned(), name(place), reason.code.clone(), reason.message.clone()]);
        }
    }
    table(text, &rows);
    if answer.tie {
        line(text, 1, "tie: the name alone decides between the first two");
    }
    if selected.is_none() {
        line(text, 1, "selected: none");
    }
}

fn reasons(reasons: &[Reason]) -> String {
    reasons.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join(" ")
}

fn template(text: &mut String, answer: &templating::Templated) {
    let rows: Vec<[String; 2]> = answer
        .steps
        .iter()
        .map(|step| {
            let operation = &step.operation;
            let what = match &operation.value {
                Some(value) => format!("{} = {}", operation.path, cut(value)),
                None => format!("{} is removed", operation.path),
            };
            [what, format!("{} ({})", operation.layer, step.plugin)]
        })
        .collect();
    table(text, &rows);
    for (plugin, reason) in &answer.reasons {
        line(text, 1, &format!("{}: {} ({plugin})", reason.code, reason.message));
    }
}

fn metadata(text: &mut String, answer: &propagation::Propagated) {
    let mut rows = Vec::new();
    let mut add = |what: &str, placed: &[Placed]| {
        rows.extend(
            placed.iter().map(|placed| [what.to_owned(), format!("{} = {}", placed.key, cut(&placed.value)), placed.layer.clone()]),
        );
    };
    add("label", &answer.labels);
    add("annotation", &answer.annotations);
    table(text, &rows);
    let dropped: Vec<[String; 4]> = answer
        .dropped
        .iter()
        .map(|(_, dropped)| {
            let why = format!("{}: {}", dropped.reason.code, dropped.reason.message);
            [format!("dropped {}", word(&dropped.sort)), dropped.key.clone(), dropped.layer.clone(), why]
        })
        .collect();
    table(text, &dropped);
}
