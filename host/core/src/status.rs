//! Converts a plan's status into the status to write, and the events for its changes.

use crate::{
    condition::{CONTESTED, Condition, READY, UPDATE_STUCK, condition_json, status_text},
    plan::{Status, UndecidedSteps},
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// The result of carrying out a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// All objects are as planned.
    Done,
    /// Nothing was planned: existing objects stay unchanged.
    Held,
    /// All objects are as planned, and the pods are restarting.
    InTurn,
    /// Existing objects stay unchanged until the queued subject may restart its pods: a message.
    Waits(String),
    /// Nothing is written, because the subject isn't ours: a message.
    LeftAlone(String),
    /// Something could not be written: a reason and a message.
    Failed(String, String),
}

/// OME's field with the time of a status's last change.
pub const LAST_RECONCILE_TIME: &str = "lastReconcileTime";

/// Whether the cluster has the planned objects.
pub const APPLIED: &str = "Applied";

/// The reason of [`APPLIED`] for a subject that is queued for a restart.
pub const WAITING: &str = "WaitingForTurn";

/// The reason of [`APPLIED`] if no policy could decide and the spec is unchanged.
const UNDECIDED: &str = "Undecided";

/// The reason of [`APPLIED`] for a subject that restarts its pods and was ready before: the next leader reads it to continue.
pub const RESTARTING: &str = "Restarting";

/// An event for the change of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionEvent {
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
    /// Whether the condition needs attention.
    pub is_warning: bool,
}

/// The status to write, and the events for its changes. Times of unchanged conditions are retained, so that an unchanged status is
/// identical byte by byte.
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
        // The subject serves as before, so it can be Ready.
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
    // Fields of others and unknown conditions are retained.
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

/// A status without times. A CRD of OME's own drops conditions, so their times would be new at each comparison.
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

/// The JSON merge patch from one value to the other. Removed fields become null.
pub fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| (key.clone(), old.get(key).map_or_else(|| value.clone(), |old| difference(old, value))));
    Value::Object(gone.chain(changed).collect())
}

/// Whether the running objects match this generation of the subject.
fn is_applied(status: &Value, generation: Option<i64>) -> bool {
    let told = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == APPLIED);
    told.is_some_and(|told| {
        let settled = told["status"] == "True" && told["reason"] != WAITING || told["reason"] == UNDECIDED;
        settled && told["observedGeneration"].as_i64() == generation
    })
}

/// Ready, from the first required condition that isn't met, or True if all are.
pub fn ready(conditions: &[Condition]) -> Condition {
    ready_without(conditions, &[])
}

fn ready_without(conditions: &[Condition], spared: &[&str]) -> Condition {
    if let Some(contested) = conditions.iter().find(|condition| condition.type_ == CONTESTED && condition.status == Some(true)) {
        return Condition::no(READY, CONTESTED, contested.message.clone());
    }
    let needed = || conditions.iter().filter(|condition| condition.required_for_ready && !spared.contains(&condition.type_));
    // A failure says more than an unknown state.
    let missing =
        needed().find(|condition| condition.status == Some(false)).or_else(|| needed().find(|condition| condition.status.is_none()));
    let stuck = || needed().find(|condition| condition.reason == UPDATE_STUCK);
    match missing.or_else(stuck) {
        None => Condition::satisfied(READY, "Ready", "Everything works."),
        Some(missing) => Condition { type_: READY, ..missing.clone() },
    }
}

/// The event for a change of a condition, if any.
fn transition_event(before: Option<&Value>, after: &Condition) -> Option<TransitionEvent> {
    let status = status_text(after.status);
    let same = before.is_some_and(|before| {
        before["status"] == status && before["reason"] == after.reason && (!after.emits_event || before["message"] == after.message)
    });
    if same {
        return None;
    }
    let failed = after.status == Some(false);
    // Ready only repeats another condition. Success needs no event: that would be an additional write per service.
    let wanted = after.type_ != READY && ((failed && after.required_for_ready) || after.emits_event);
    wanted.then(|| TransitionEvent { reason: after.reason.clone(), message: after.message.clone(), is_warning: after.needs_attention() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::COMPLETED;
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
        // If the API server stores no conditions, only the times differ at each comparison.
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
    fn success_is_no_warning() {
        let conditions = vec![
            Condition::satisfied(COMPLETED, "Completed", "It has completed.").with_event(),
            Condition::satisfied("Valid", "Warned", "It may be wrong.").with_event(),
        ];
        let (_, events) = settle(&Value::Null, "benchmark", status(conditions), &Applied::Done, None, at(1));
        let types: Vec<_> = events.iter().map(|event| (event.reason.as_str(), event.is_warning)).collect();
        assert_eq!(types, [("Completed", false), ("Warned", true)]);
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
        // A new spec without a decision isn't applied.
        let (edited, _) = settle(&held, "service", failed(steps()), &Applied::Held, Some(2), at(3));
        assert_eq!((told(&edited, "Applied"), told(&edited, "Ready")), ("Unknown Held".to_owned(), "False PolicyFailed".to_owned()));
        // A subject without any decision was never Ready.
        let (new, _) = settle(&Value::Null, "service", failed(steps()), &Applied::Held, Some(1), at(3));
        assert_eq!(told(&new, "Ready"), "False PolicyFailed");
    }
}
