//! Contests: another controller manages a subject, so this one doesn't. Detects the contest and reports it.

use crate::{
    condition::{CONTESTED, Condition, READY, condition_json},
    world::{
        ObjectKey, Subject,
        adopted::WORKLOADS,
        subject::{CONTROL, Control},
        writers::Writer,
    },
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

/// Another controller manages the subject: only an adoption ends the contest.
const OTHER_CONTROLLER: &str = "OtherController";

/// Another controller has created an object: the object is rechecked.
const MADE: &str = "MadeByOther";

/// Another field manager reverts what we write: writing is retried at long intervals.
const CHANGED_BACK: &str = "ChangedBack";

/// How often a state is rechecked that only the API server knows.
const CONTEST_RECHECK_INTERVAL: Duration = Duration::from_mins(1);

/// The number of status writes by one other controller within the window after which the subject is contested.
const FOREIGN_WRITES: usize = 3;
/// See [`FOREIGN_WRITES`].
const FOREIGN_WRITE_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// A contest for a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contest {
    reason: &'static str,
    /// The other controller, what it does, and the remedy: constant during the contest.
    what: String,
    /// The time of the other manager's write, if known.
    since: Option<Timestamp>,
}

impl Contest {
    /// Detects a contest in the subject itself: another controller has written its status since the last adoption, if any.
    pub fn detect(subject: &Subject) -> Option<Self> {
        // A shortcut for the common case: this runs at every reconciliation.
        if subject.writers.is_empty() && !subject.mentions(OTHER_CONTROLLER) {
            return None;
        }
        let counts = |time: Option<Timestamp>| subject.adopted.is_none_or(|adopted| time.is_some_and(|time| time > adopted));
        let status = subject.status();
        let writer = subject.writers.iter().find(|writer| counts(writer.time)).filter(|_| !was_reconciled_by_us(subject, &status));
        if let Some(writer) = writer {
            return Some(Self::from_writer(writer));
        }
        // Our condition replaces the other controller's managed fields, so the condition itself is the only remaining evidence.
        let told = condition(&status, CONTESTED).filter(|told| told["status"] == "True" && told["reason"] == OTHER_CONTROLLER)?;
        let since = told["lastTransitionTime"].as_str().and_then(|time| time.parse().ok());
        counts(since).then(|| Self { reason: OTHER_CONTROLLER, what: told["message"].as_str().unwrap_or_default().to_owned(), since: None })
    }

    /// Another controller writes the status.
    fn from_writer(Writer { manager, time }: &Writer) -> Self {
        Self::other(OTHER_CONTROLLER, &format!("The controller {manager:?} writes the status of this service"), *time)
    }

    /// Another controller has created an object that the plan contains.
    pub fn made(object: &str, maker: Option<Writer>) -> Self {
        let Writer { manager, time } = maker.unwrap_or_else(unknown_writer);
        Self::other(MADE, &format!("The controller {manager:?} created the {object} for this service"), time)
    }

    /// Another field manager reverts each of our writes to an object.
    pub fn changed_back(object: &str, times: u32, other: Option<Writer>) -> Self {
        let Writer { manager, time } = other.unwrap_or_else(unknown_writer);
        let what = format!(
            "The {object} was written as planned {times} times within a minute, and {manager:?} changes it back: stop it from managing the \
             object. Pointsman tries again."
        );
        Self { reason: CHANGED_BACK, what, since: time }
    }

    fn other(reason: &'static str, what: &str, since: Option<Timestamp>) -> Self {
        let what = format!(
            "{what}, so nothing is written. To adopt the service, stop that controller for this kind or namespace, then run `pointsman \
             adopt`. To leave it to that controller, set the annotation {CONTROL}: \"false\", or exclude its kind or namespace with this \
             controller's --control."
        );
        Self { reason, what, since }
    }

    /// Whether only an adoption can end it.
    pub fn needs_adoption(&self) -> bool {
        self.reason == OTHER_CONTROLLER
    }

    /// When to recheck whether it has ended, if no watch reports that.
    pub fn recheck_after(&self) -> Option<Duration> {
        (self.reason == MADE).then_some(CONTEST_RECHECK_INTERVAL)
    }

    /// The message during the contest, without a time.
    pub fn message(&self) -> &str {
        &self.what
    }

    /// The condition for it.
    pub fn condition(&self) -> Condition {
        let seen = self.since.map(|since| format!(" Seen at {since}.")).unwrap_or_default();
        Condition::satisfied(CONTESTED, self.reason, format!("{}{seen}", self.what)).optional().with_event()
    }

    /// Whether a status already reports it. The time is ignored, because it would change with each write of the other controller.
    pub fn is_reported_in(&self, status: &Value) -> bool {
        condition(status, CONTESTED).is_some_and(|told| {
            told["status"] == "True"
                && told["reason"] == self.reason
                && told["message"].as_str().is_some_and(|message| message.starts_with(&self.what))
        })
    }

    /// The status that reports the contest: adds Contested, and sets Ready unless that belongs to the other controller. Everything else
    /// stays unchanged.
    pub fn status_with_contest(&self, before: &Value, generation: Option<i64>, now: Timestamp) -> Value {
        let contested = self.condition();
        let ready = Condition::no(READY, CONTESTED, contested.message.clone());
        let mut after = if before.is_object() { before.clone() } else { json!({}) };
        let mut conditions = before["conditions"].as_array().cloned().unwrap_or_default();
        let whose = |type_| conditions.iter().find(|known| known["type"] == type_);
        let ready_is_ours =
            whose(CONTESTED).is_some_and(|told| told["status"] != "True") || whose(READY).is_none_or(|ready| ready["reason"] == CONTESTED);
        for told in [Some(contested), ready_is_ours.then_some(ready)].into_iter().flatten() {
            let place = conditions.iter().position(|known| known["type"] == told.type_);
            let written = condition_json(told, place.map(|place| &conditions[place]), generation, now);
            match place {
                Some(place) => conditions[place] = written,
                None => conditions.push(written),
            }
        }
        after["conditions"] = conditions.into();
        after
    }
}

/// Whether we reconciled the subject before the other write: our status contains more than the contest.
fn was_reconciled_by_us(subject: &Subject, status: &Value) -> bool {
    let told = condition(status, CONTESTED).filter(|told| told["status"] == "True");
    subject.told_by_us && told.is_none_or(|told| told["reason"] == CHANGED_BACK)
}

/// The foreign status writes on subjects that we reconcile. A single write, by a person's tool or a backup, is overwritten; repeated writes
/// by the same manager mean another controller.
#[derive(Debug, Default)]
pub struct ForeignStatusWriters(HashMap<ObjectKey, (String, BTreeSet<Writer>)>);

impl ForeignStatusWriters {
    /// Records the writers of a subject's current version, and returns a contest if one has written too often.
    pub fn record(&mut self, subject: &Subject) -> Option<Contest> {
        let new = |writer: &&Writer| writer.time.is_some() && subject.adopted.is_none_or(|adopted| writer.time > Some(adopted));
        let mut writers = subject.writers.iter().filter(new).filter(|_| was_reconciled_by_us(subject, &subject.status())).peekable();
        writers.peek()?;
        let (uid, seen) = self.0.entry(subject.key.clone()).or_default();
        if *uid != subject.uid {
            (*uid, *seen) = (subject.uid.clone(), BTreeSet::new());
        }
        for writer in writers {
            seen.insert(writer.clone());
            let since = writer.time.and_then(|time| time.checked_sub(FOREIGN_WRITE_WINDOW).ok());
            seen.retain(|known| known.manager != writer.manager || known.time > since);
            if seen.iter().filter(|known| known.manager == writer.manager).count() >= FOREIGN_WRITES {
                return Some(Contest::from_writer(writer));
            }
        }
        None
    }

    /// Removes a subject that is deleted.
    pub fn forget(&mut self, subject: &ObjectKey) {
        self.0.remove(subject);
    }
}

/// The condition of a subject that isn't contested.
pub fn uncontested(subject: &Subject) -> Condition {
    if let Control::Unreadable(value) = &subject.control {
        let message = format!("The annotation {CONTROL} has the value {value:?} and is ignored: set it to \"true\" or \"false\".");
        return Condition::no(CONTESTED, "InvalidAnnotation", message).optional().with_event();
    }
    if let Some(problem) = &subject.workloads_problem {
        let message = format!("The annotation {WORKLOADS} {problem}.");
        return Condition::no(CONTESTED, "InvalidAnnotation", message).optional().with_event();
    }
    let message = format!("No other controller manages the {}.", subject.key.resource.noun());
    Condition::no(CONTESTED, "NobodyElse", message).optional()
}

fn unknown_writer() -> Writer {
    Writer { manager: "unknown".to_owned(), time: None }
}

fn condition<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|told| told["type"] == type_)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        resource::INFERENCE_SERVICE,
        world::{World, adopted::ADOPTED},
    };
    use std::sync::Arc;

    fn subject(annotations: &Value, managed: &Value, status: &Value) -> Arc<Subject> {
        let mut world = World::default();
        let metadata = json!({"name": "a", "namespace": "b", "uid": "u", "annotations": annotations, "managedFields": managed});
        world.put(&INFERENCE_SERVICE, &json!({"metadata": metadata, "spec": {}, "status": status}));
        let key = ObjectKey { resource: &INFERENCE_SERVICE, namespace: "b".to_owned(), name: "a".to_owned() };
        world.snapshot(&key, 0).unwrap().subject
    }

    fn wrote(time: &str) -> Value {
        json!([{"manager": "manager", "operation": "Update", "subresource": "status", "time": time}])
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn whoever_writes_the_status_after_the_last_taking_over_contests_it() {
        let contest = |annotations: Value, time: &str| Contest::detect(&subject(&annotations, &wrote(time), &Value::Null));
        let found = contest(json!({}), "2026-01-01T00:00:10Z").unwrap();
        assert!(found.message().starts_with("The controller \"manager\" writes the status") && found.needs_adoption());
        assert_eq!(contest(json!({ADOPTED: "2026-01-01T00:00:10Z"}), "2026-01-01T00:00:10Z"), None);
        assert!(contest(json!({ADOPTED: "2026-01-01T00:00:10Z"}), "2026-01-01T00:00:11Z").is_some());
        assert!(contest(json!({ADOPTED: "yesterday"}), "2026-01-01T00:00:10Z").is_some());
    }

    #[test]
    fn it_is_told_once_beside_what_others_tell_and_lasts_until_a_taking_over() {
        let before = json!({"theirs": 1, "conditions": [{"type": CONTESTED, "status": "False"}, {"type": "Theirs", "status": "True"}]});
        let contest = contest_of("Service b/a", Some(Writer { manager: "manager".to_owned(), time: None }));
        assert!(!contest.is_reported_in(&before));
        let after = contest.status_with_contest(&before, Some(1), at("2026-01-01T00:00:10Z"));
        let told = |type_| condition(&after, type_).unwrap();
        assert_eq!((&told("Ready")["status"], &told("Ready")["reason"]), (&json!("False"), &json!("Contested")));
        assert_eq!((&told("Theirs")["status"], &told(CONTESTED)["status"], &after["theirs"]), (&json!("True"), &json!("True"), &json!(1)));
        assert!(contest.is_reported_in(&after));
        let later = contest_of("Service b/a", Some(Writer { manager: "manager".to_owned(), time: Some(at("2026-01-01T00:01:00Z")) }));
        assert!(later.is_reported_in(&after), "another time is no other state");
        assert!(!contest_of("Service b/a", None).is_reported_in(&after));

        let known = Contest::detect(&subject(&json!({}), &json!([]), &after)).unwrap();
        assert!(known.is_reported_in(&after));
        assert_eq!(Contest::detect(&subject(&json!({ADOPTED: "2026-01-01T00:00:10Z"}), &json!([]), &after)), None);
    }

    fn contest_of(object: &str, maker: Option<Writer>) -> Contest {
        Contest { reason: OTHER_CONTROLLER, ..Contest::made(object, maker) }
    }

    #[test]
    fn ready_stays_as_it_is_where_it_is_the_other_controller_s() {
        let ready = json!({"type": "Ready", "status": "True", "reason": "Theirs"});
        let told = |conditions: Value| {
            let after = Contest::made("Service b/a", None).status_with_contest(
                &json!({"conditions": conditions}),
                None,
                at("2026-01-01T00:00:10Z"),
            );
            condition(&after, "Ready").unwrap()["reason"].clone()
        };
        assert_eq!(told(json!([ready])), "Theirs");
        assert_eq!(told(json!([ready, {"type": CONTESTED, "status": "True"}])), "Theirs");
        assert_eq!(told(json!([ready, {"type": CONTESTED, "status": "False"}])), CONTESTED);
        assert_eq!(told(json!([])), CONTESTED);
    }

    #[test]
    fn what_another_has_made_is_looked_at_again_and_lasts_no_longer_than_it_is_there() {
        let contest = Contest::made("Service b/a", None);
        let after = contest.status_with_contest(&Value::Null, None, at("2026-01-01T00:00:10Z"));
        assert!(!contest.needs_adoption() && contest.recheck_after().is_some());
        assert_eq!(Contest::detect(&subject(&json!({}), &json!([]), &after)), None);
    }

    #[test]
    fn a_stray_write_of_a_status_that_is_ours_counts_when_it_comes_again_and_again() {
        let ours = json!({"conditions": [{"type": CONTESTED, "status": "False", "reason": "NobodyElse"}]});
        let written = |time: &str| {
            let mut managed = wrote(time);
            let entry = json!({"manager": "pointsman/inferenceservice", "operation": "Update", "subresource": "status", "time": time});
            managed.as_array_mut().unwrap().push(entry);
            subject(&json!({ADOPTED: "2026-01-01T00:00:00Z"}), &managed, &ours)
        };
        let counted = |times: &[&str]| {
            let mut strays = ForeignStatusWriters::default();
            times.iter().map(|time| strays.record(&written(time)).is_some()).collect::<Vec<bool>>()
        };
        assert_eq!(Contest::detect(&written("2026-01-01T00:00:01Z")), None);
        let near = ["2026-01-01T00:00:01Z", "2026-01-01T00:00:01Z", "2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"];
        assert_eq!(counted(&near), [false, false, false, true], "the same write counts once");
        let far = ["2026-01-01T00:00:01Z", "2026-01-01T00:05:00Z", "2026-01-01T00:10:01Z"];
        assert_eq!(counted(&far), [false; 3]);
        assert_eq!(
            counted(&["2026-01-01T00:00:00Z", "2025-12-31T00:00:00Z", "2025-12-30T00:00:00Z"]),
            [false; 3],
            "it was taken over since"
        );
    }

    #[test]
    fn what_is_changed_back_is_no_other_controller_s_for_good() {
        let contest = Contest::changed_back("Service b/a", 10, None);
        let after = contest.status_with_contest(&Value::Null, None, at("2026-01-01T00:00:10Z"));
        assert!(!contest.needs_adoption() && contest.is_reported_in(&after));
        assert_eq!(Contest::detect(&subject(&json!({}), &json!([]), &after)), None);
    }

    #[test]
    fn an_annotation_that_means_nothing_is_told() {
        let told = uncontested(&subject(&json!({CONTROL: "no"}), &json!([]), &Value::Null));
        assert!(told.reason == "InvalidAnnotation" && told.message.contains("\"no\""), "{told:?}");
    }
}
