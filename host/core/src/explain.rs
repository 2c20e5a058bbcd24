//! Explains a subject's plan: its decisions as JSON. The format is documented in docs/render.md.

pub mod full;
pub mod labels;
mod lines;
pub mod pod;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod why;

use crate::{
    condition::READY,
    decide::{
        AskedPlugin,
        propagation::{self, Propagated},
        selection::{self, Judged, Selection},
        templating::{self, Templated},
    },
    plan::{Decided, NotOurs, Plan},
    status::{APPLIED, Applied, settle},
    world::{ObjectKey, Subject},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The complete explanation of a subject's plan. `stored` are its [`stored_conditions`], if it is in a cluster.
pub fn json(subject: &Subject, plan: &Plan, stored: &[Value]) -> Value {
    let ObjectKey { resource, namespace, name } = &subject.key;
    let decisions: Vec<Value> = plan.decisions.iter().map(|decided| decision(plan, decided)).collect();
    json!({
        "subject": {"kind": resource.kind, "namespace": namespace, "name": name},
        "decisions": decisions,
        "conditions": conditions(subject, plan),
        "storedConditions": stored,
    })
}

fn decision(plan: &Plan, decided: &Decided) -> Value {
    match decided {
        Decided::Selection(inputs, decision) => selected_one(plan, inputs, &decision.plugins, &decision.answer),
        Decided::Template(key, inputs, decision) => template(key, inputs, &decision.plugins, &decision.answer),
        Decided::Metadata(_, inputs, decision) => metadata(inputs, &decision.plugins, &decision.answer),
    }
}

fn plugins(asked: &[AskedPlugin]) -> Vec<Value> {
    asked.iter().map(|asked| json!({"name": asked.plugin, "digest": asked.digest})).collect()
}

/// The index of the candidate that the plan uses: an earlier choice may stay although another candidate is better now.
pub(crate) fn selected(plan: &Plan, inputs: &selection::Inputs) -> Option<usize> {
    let so = plan.status.conditions.iter().any(|condition| condition.type_ == "RuntimeSelected" && condition.status == Some(true));
    let runtime = plan.status.fields.get("runtime").filter(|_| so)?;
    inputs.candidates.iter().position(|candidate| runtime["name"] == candidate.name && runtime["kind"] == candidate.kind)
}

fn selected_one(plan: &Plan, inputs: &selection::Inputs, asked: &[AskedPlugin], answer: &Selection) -> Value {
    let named = |place: usize| {
        let candidate = &inputs.candidates[place];
        json!({"kind": candidate.kind, "namespace": candidate.namespace, "name": candidate.name})
    };
    let mut ranked = Vec::new();
    for place in &answer.ranking {
        if let Some(Judged::Eligible(eligible)) = answer.judged.get(*place) {
            let mut one = named(*place);
            one["score"] = number(eligible.score);
            ranked.push(one);
        }
    }
    let mut excluded = Vec::new();
    for (place, judged) in answer.judged.iter().enumerate() {
        if let Judged::Excluded { reason, .. } = judged {
            let mut one = named(place);
            one["code"] = reason.code.as_str().into();
            one["message"] = reason.message.as_str().into();
            excluded.push(one);
        }
    }
    json!({
        "point": "runtime-selection", "plugins": plugins(asked), "selected": selected(plan, inputs).map(named), "ranked": ranked,
        "excluded": excluded, "tie": answer.tie,
    })
}

/// An integer without decimals: 10 rather than 10.0.
pub(crate) fn number(score: f64) -> Value {
    #[allow(clippy::cast_possible_truncation)] // The next line checks the range.
    if score.fract() == 0.0 && score.abs() < 1e15 { json!(score as i64) } else { json!(score) }
}

fn template(key: &ObjectKey, inputs: &templating::Inputs, asked: &[AskedPlugin], answer: &Templated) -> Value {
    let steps = answer.steps.iter().map(|step| {
        let operation = &step.operation;
        let value = operation.value.as_deref().map(|value| serde_json::from_str::<Value>(value).unwrap_or_else(|_| value.into()));
        json!({
            "path": operation.path, "action": operation.action, "value": value, "layer": operation.layer, "plugin": step.plugin,
        })
    });
    let reasons = answer.reasons.iter().map(|(plugin, reason)| json!({"plugin": plugin, "code": reason.code, "message": reason.message}));
    json!({
        "point": "pod-templating", "plugins": plugins(asked),
        "target": {
            "group": key.resource.group, "kind": key.resource.kind, "name": key.name, "role": inputs.role, "groupRole": inputs.group_role,
        },
        "steps": steps.collect::<Vec<_>>(), "reasons": reasons.collect::<Vec<_>>(),
    })
}

fn metadata(inputs: &propagation::Inputs, asked: &[AskedPlugin], answer: &Propagated) -> Value {
    let target = &inputs.target;
    let placed = |placed: &[pointsman_sandbox::point::propagation::Placed]| -> Vec<Value> {
        placed.iter().map(|placed| json!({"key": placed.key, "value": placed.value, "source": placed.layer})).collect()
    };
    let dropped = answer.dropped.iter().map(|(_, dropped)| {
        json!({"key": dropped.key, "source": dropped.layer, "reason": dropped.reason.code, "message": dropped.reason.message})
    });
    json!({
        "point": "metadata-propagation", "plugins": plugins(asked),
        "target": {
            "group": target.group, "kind": target.kind, "name": target.name, "role": target.role, "groupRole": target.group_role,
            "place": target.place,
        },
        "labels": placed(&answer.labels), "annotations": placed(&answer.annotations), "dropped": dropped.collect::<Vec<_>>(),
    })
}

/// The conditions of the stored status that differ from the predicted ones. Only `Applied` and `Ready`: they depend on the writes, and the
/// prediction assumes that these succeed.
pub fn stored_conditions(subject: &Subject, plan: &Plan) -> Vec<Value> {
    let (status, predicted) = (subject.status(), conditions(subject, plan));
    let stored = status["conditions"].as_array().into_iter().flatten();
    let stored = stored.filter(|stored| stored["type"] == APPLIED || stored["type"] == READY);
    stored.map(without_time).filter(|stored| !predicted.contains(stored)).collect()
}

/// The predicted conditions for the status, without times: as if everything were written.
pub(crate) fn conditions(subject: &Subject, plan: &Plan) -> Vec<Value> {
    let noun = subject.key.resource.noun();
    let applied = match &plan.not_ours {
        Some(NotOurs::LeftAlone(why)) => Applied::LeftAlone(why.clone()),
        _ if plan.objects.is_some() => Applied::Done,
        _ => Applied::Held,
    };
    let (status, _) = settle(&subject.status(), noun, plan.status.clone(), &applied, subject.generation, Timestamp::UNIX_EPOCH);
    let told = status["conditions"].as_array().cloned().unwrap_or_default();
    told.iter().map(without_time).collect()
}

/// A condition of a status, without its time.
fn without_time(condition: &Value) -> Value {
    ["type", "status", "reason", "message"].iter().map(|field| ((*field).to_owned(), condition[*field].clone())).collect()
}
