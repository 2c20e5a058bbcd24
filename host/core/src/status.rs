//! From what a plan tells to the status that is written, and the events that go with a change of it.

use crate::{
    condition::{CONTESTED, Condition, READY, UPDATE_STUCK, condition_json, status_text},
    plan::{Status, UndecidedSteps},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// What came of carrying out a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Everything is as planned.
    Done,
    /// Nothing was to be done: what there is stays as it is.
    Held,
    /// Everything is as planned, and its pods restart in the subject's turn.
    InTurn,
    /// What there is stays as it is until it is the subject's turn: a sentence.
    Waits(String),
    /// Nothing is to be done, for the subject is somebody else's: a sentence.
    LeftAlone(String),
    /// Something could not be written: a word and a sentence.
    Failed(String, String),
}

/// The field of OME's with the time of the last change of a status.
pub const LAST_RECONCILE_TIME: &str = "lastReconcileTime";

/// Whether what is planned is what the cluster has.
pub const APPLIED: &str = "Applied";

/// The reason of [`APPLIED`] where a subject waits for its turn to restart pods.
pub const WAITING: &str = "WaitingForTurn";

/// The reason of [`APPLIED`] where no policy decides anew about a subject that is as it asks to be.
const UNDECIDED: &str = "Undecided";

/// The reason of [`APPLIED`] where it is a subject's turn to restart pods, and it was ready before: a host that leads next goes on by it.
pub const RESTARTING: &str = "Restarting";

/// An event that is due because a condition has turned: always a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionEvent {
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
}

/// The status that a subject should have, and the events of the way there. The times of what hasn't turned stay as they were, so that
/// an unchanged status is the same to the byte.
pub fn settle(
    before: &Value,
    noun: &str,
    planned: Status,
    applied: &Applied,
    generation: Option<i64>,
    now: Timestamp,
) -> (Value, Vec<TransitionEvent>) {
    let known = before["conditions"].as_array();
    let kept = is_applied(before, generation) && planned.undecided != UndecidedSteps::None;
    let Status { mut conditions, mut fields, types, ready: words, changed_field, undecided } = planned;
    conditions.push(match applied {
        Applied::Held if kept => Condition::unknown(
            APPLIED,
            UNDECIDED,
            "The policies have not decided on the current spec: existing objects stay unchanged. The other conditions give the reason.",
        ),
        Applied::Done => Condition::satisfied(APPLIED, "Applied", format!("The objects of the {noun} are as planned.")),
        Applied::Held => Condition::unknown(
            APPLIED,
            "Held",
            "Nothing is written: existing objects stay unchanged. The other conditions give the reason.",
        ),
        Applied::InTurn => {
            let message = format!("The objects of the {noun} are as planned. Its pods are restarting.");
            Condition::satisfied(APPLIED, RESTARTING, message)
        }
        // It serves as it did: that is no reason not to be ready.
        Applied::Waits(message) => Condition::satisfied(APPLIED, WAITING, message),
        Applied::LeftAlone(message) => Condition::unknown(APPLIED, "LeftAlone", message),
        Applied::Failed(reason, message) => Condition::no(APPLIED, reason, message),
    });
    match undecided {
        UndecidedSteps::All if kept => {}
        UndecidedSteps::Some(steps) if kept => conditions.push(ready_without(&conditions, &[&steps[..], &[APPLIED]].concat())),
        _ => conditions.push(ready(&conditions)),
    }
    if let (Some(ready), Some((reason, message))) = (conditions.last_mut().filter(|last| last.type_ == READY), words)
        && ready.status == Some(true)
    {
        (ready.reason, ready.message) = (reason.to_owned(), message.to_owned());
    }
    let mut events = Vec::new();
    let told = conditions.into_iter().map(|condition| {
        let former = known.into_iter().flatten().find(|former| former["type"] == condition.type_);
        events.extend(transition_event(former, &condition));
        condition_json(condition, former, generation, now)
    });
    let told: Vec<Value> = told.collect();
    let ours = |type_: &Value| told.iter().any(|ours| ours["type"] == *type_) || types.iter().any(|ours| *type_ == **ours);
    let of_others: Vec<Value> = known.into_iter().flatten().filter(|other| !ours(&other["type"])).cloned().collect();
    // What others tell stays: their fields, and the conditions that we don't know.
    let mut status = before.as_object().cloned().unwrap_or_default();
    if let Some(generation) = generation {
        status.insert("observedGeneration".to_owned(), json!(generation));
    }
    status.insert("conditions".to_owned(), told.into_iter().chain(of_others).collect());
    status.append(&mut fields);
    status.retain(|_, value| !value.is_null());
    if let Some(field) = changed_field
        && before.as_object() != Some(&status)
    {
        status.insert(field.to_owned(), now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    }
    (Value::Object(status), events)
}

/// A status without the times at which it was written. A CRD of OME's own drops conditions, so they would be new at each look.
pub fn without_times(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(fields) = status.as_object_mut() {
        fields.remove(LAST_RECONCILE_TIME);
        for condition in fields.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            condition.as_object_mut().map(|condition| condition.remove("lastTransitionTime"));
        }
    }
    status
}

/// The JSON merge patch that makes the one value the other. A field that is gone becomes null.
pub fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| (key.clone(), old.get(key).map_or_else(|| value.clone(), |old| difference(old, value))));
    Value::Object(gone.chain(changed).collect())
}

/// Whether what runs is what this generation of the subject asks for.
fn is_applied(status: &Value, generation: Option<i64>) -> bool {
    let told = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == APPLIED);
    told.is_some_and(|told| {
        let settled = told["status"] == "True" && told["reason"] != WAITING || told["reason"] == UNDECIDED;
        settled && told["observedGeneration"].as_i64() == generation
    })
}

/// The first state that is needed and isn't there, or that everything is.
pub fn ready(conditions: &[Condition]) -> Condition {
    ready_without(conditions, &[])
}

fn ready_without(conditions: &[Condition], spared: &[&str]) -> Condition {
    if let Some(contested) = conditions.iter().find(|condition| condition.type_ == CONTESTED && condition.status == Some(true)) {
        return Condition::no(READY, CONTESTED, contested.message.clone());
    }
    let needed = || conditions.iter().filter(|condition| condition.required_for_ready && !spared.contains(&condition.type_));
    // What failed says more than what isn't known yet.
    let missing =
        needed().find(|condition| condition.status == Some(false)).or_else(|| needed().find(|condition| condition.status.is_none()));
    let stuck = || needed().find(|condition| condition.reason == UPDATE_STUCK);
    match missing.or_else(stuck) {
        None => Condition::satisfied(READY, "Ready", "Everything works."),
        Some(missing) => Condition { type_: READY, ..missing.clone() },
    }
}

/// The event that a change of a condition makes, if it makes one.
fn transition_event(before: Option<&Value>, after: &Condition) -> Option<TransitionEvent> {
    let status = status_text(after.status);
    let same = before.is_some_and(|before| {
        before["status"] == status && before["reason"] == after.reason && (!after.emits_event || before["message"] == after.message)
    });
    if same {
        return None;
    }
    let failed = after.status == Some(false);
    // Ready repeats what another condition says. That all is well needs no event: each would be a write more a service.
    let wanted = after.type_ != READY && ((failed && after.required_for_ready) || after.emits_event);
    wanted.then(|| TransitionEvent { reason: after.reason.clone(), message: after.message.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn status(conditions: Vec<Condition>) -> Status {
        Status { conditions, ..Status::default() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_status_that_did_not_turn_is_the_same_to_the_byte() {
        let planned = || status(vec![Condition::satisfied("A", "Fine", "It is."), Condition::unknown("B", "Waiting", "It may be.")]);
        let (first, events) = settle(&Value::Null, "service", planned(), &Applied::Done, Some(1), at(1));
        assert!(events.is_empty(), "{events:?}");
        let (second, events) = settle(&first, "service", planned(), &Applied::Done, Some(1), at(99));
        assert_eq!(first.to_string(), second.to_string());
        assert!(events.is_empty());
        assert_eq!(first["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:01Z");
    }

    #[test]
    fn the_time_of_the_last_change_is_written_only_with_a_change() {
        let planned = |state: &str| Status {
            fields: Map::from_iter([("state".to_owned(), state.into())]),
            changed_field: Some(LAST_RECONCILE_TIME),
            ..status(vec![Condition::satisfied("A", "Fine", "It is.")])
        };
        let settled = |before: &Value, state, second| settle(before, "benchmark", planned(state), &Applied::Done, Some(1), at(second)).0;
        let first = settled(&Value::Null, "Pending", 1);
        assert_eq!(first["lastReconcileTime"], "1970-01-01T00:00:01Z");
        assert_eq!(settled(&first, "Pending", 9), first);
        assert_eq!(settled(&first, "Running", 9)["lastReconcileTime"], "1970-01-01T00:00:09Z");
        // Where the API server keeps no conditions, each look has other times and says the same.
        let kept = json!({"state": "Pending"});
        let [first, second] = [2, 3].map(|seconds| settled(&kept, "Pending", seconds));
        assert!(first != second && without_times(&first) == without_times(&second), "{first} {second}");
    }

    #[test]
    fn what_others_tell_stays_and_what_is_told_no_more_goes() {
        let before = json!({
            "theirs": 1, "url": "http://old", "runtime": {"name": "a", "x": 1},
            "conditions": [
                {"type": "Theirs", "status": "True"}, {"type": "A", "status": "True", "reason": "Old"}, {"type": "B", "status": "True"},
            ],
        });
        let fields = Map::from_iter([("url".to_owned(), Value::Null), ("runtime".to_owned(), json!({"name": "b"}))]);
        let planned = Status { conditions: vec![Condition::satisfied("A", "Fine", "It is.")], fields, types: &["B"], ..Status::default() };
        let (after, _) = settle(&before, "service", planned, &Applied::Done, Some(2), at(1));
        let types: Vec<&str> = after["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["A", "Applied", "Ready", "Theirs"]);
        assert_eq!((&after["theirs"], after.get("url")), (&json!(1), None));
        let patch = difference(&before, &after);
        assert_eq!((&patch["url"], patch.get("theirs")), (&Value::Null, None));
        assert_eq!(patch["runtime"], json!({"x": null, "name": "b"}));
        assert_eq!(difference(&after, &after), json!({}));
    }

    #[test]
    fn ready_says_what_is_missing_first_of_all_what_failed() {
        let conditions =
            vec![Condition::unknown("A", "Waiting", "a"), Condition::no("B", "Broken", "b"), Condition::no("C", "Aside", "c").optional()];
        let (told, events) = settle(&Value::Null, "service", status(conditions), &Applied::Done, None, at(1));
        let ready = told["conditions"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((ready["status"].as_str(), ready["reason"].as_str()), (Some("False"), Some("Broken")));
        let reasons: Vec<&str> = events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(reasons, ["Broken"]);
    }

    #[test]
    fn an_event_comes_with_the_turn_and_never_again() {
        let fine = || status(vec![Condition::satisfied("A", "Tie", "b and c").with_event()]);
        let (told, events) = settle(&Value::Null, "service", fine(), &Applied::Done, None, at(1));
        assert_eq!(events.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>(), ["Tie"]);
        assert!(settle(&told, "service", fine(), &Applied::Done, None, at(2)).1.is_empty());
        let failed = Applied::Failed("Forbidden".to_owned(), "no".to_owned());
        let (told, events) = settle(&told, "service", fine(), &failed, None, at(3));
        assert_eq!(events.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>(), ["Forbidden"]);
        assert!(settle(&told, "service", fine(), &Applied::Done, None, at(4)).1.is_empty());
    }

    #[test]
    fn what_runs_as_it_is_asked_to_stays_ready_while_nobody_decides_anew() {
        let fine = || status(vec![Condition::satisfied("Decided", "Decided", "d"), Condition::satisfied("Runs", "Runs", "r")]);
        let (before, _) = settle(&Value::Null, "service", fine(), &Applied::Done, Some(1), at(1));
        let failed = |undecided| Status {
            conditions: vec![Condition::no("Decided", "PolicyFailed", "f"), Condition::satisfied("Runs", "Runs", "r")],
            undecided,
            ..Status::default()
        };
        let told = |status: &Value, type_: &str| {
            let told = status["conditions"].as_array().unwrap().iter().find(|told| told["type"] == type_).unwrap();
            format!("{} {}", told["status"].as_str().unwrap(), told["reason"].as_str().unwrap())
        };
        let steps = || UndecidedSteps::Some(vec!["Decided"]);
        let (held, events) = settle(&before, "service", failed(steps()), &Applied::Held, Some(1), at(2));
        let states = ["Decided", "Applied", "Ready"].map(|type_| told(&held, type_));
        assert_eq!(states, ["False PolicyFailed", "Unknown Undecided", "True Ready"]);
        assert_eq!(events.len(), 1, "it is told nevertheless");
        let (again, _) = settle(&held, "service", failed(steps()), &Applied::Held, Some(1), at(3));
        assert_eq!(told(&again, "Ready"), "True Ready");
        let (broken, _) = settle(&held, "service", failed(UndecidedSteps::All), &Applied::Held, Some(1), at(3));
        assert_eq!(told(&broken, "Ready"), "True Ready");
        // An edit that nobody has decided about isn't what runs.
        let (edited, _) = settle(&held, "service", failed(steps()), &Applied::Held, Some(2), at(3));
        assert_eq!((told(&edited, "Applied"), told(&edited, "Ready")), ("Unknown Held".to_owned(), "False PolicyFailed".to_owned()));
        // What never was decided never was ready.
        let (new, _) = settle(&Value::Null, "service", failed(steps()), &Applied::Held, Some(1), at(3));
        assert_eq!(told(&new, "Ready"), "False PolicyFailed");
    }
}
