//! The Jobs of a subject: an existing Job keeps its pod template, and a run whose end is recorded isn't repeated.
//!
//! The API server rejects a change of a Job's pod template. A plan therefore repeats the fields that we own in the existing Job, even if
//! the spec or the policies have changed, updates only the mutable fields, and reports that the spec has changed.

use crate::{
    condition::Condition,
    objects::Metadata,
    plan::Object,
    world::{ObjectKey, OwnedObject, Snapshot, child::SPEC_HASH},
};
use pointsman_sandbox::digest::{Digest, sorted};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Whether the Jobs were created from the current spec. Not required for Ready.
pub(super) const UP_TO_DATE: &str = "UpToDate";

/// The field of a status with the hash of the spec that the last run was created from.
pub(super) const SPEC_HASH_FIELD: &str = "specHash";

/// The field of a status that exists once the last run has ended.
const COMPLETION_TIME: &str = "completionTime";

/// The delay before a subject is planned again after its run has ended, to apply the fields that depend on the recorded end
/// ([`RunRecord::ttl`]).
pub(super) const RECORD_DELAY: Duration = Duration::from_secs(1);

/// The hash of the part of a spec that a run depends on: all fields except those that may change while its Jobs exist.
pub(super) fn spec_hash(spec: &Value, changeable: &[&str]) -> String {
    let fixed = spec.as_object().into_iter().flatten().filter(|(field, _)| !changeable.contains(&field.as_str()));
    let fixed: Map<String, Value> = fixed.map(|(field, value)| (field.clone(), value.clone())).collect();
    Digest::of_value(&sorted(&Value::Object(fixed))).map(|digest| digest.short()).unwrap_or_default()
}

/// The last run as the subject's status records it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunRecord {
    ended: bool,
    spec_hash: Option<String>,
}

impl RunRecord {
    pub(super) fn from_status(status: &Value) -> Self {
        Self { ended: status[COMPLETION_TIME].is_string(), spec_hash: status[SPEC_HASH_FIELD].as_str().map(str::to_owned) }
    }

    /// Whether the last run has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether this is the record of a Job's run. Without a recorded hash there was only one run.
    pub(super) fn is_about(&self, job: &OwnedObject) -> bool {
        self.spec_hash.is_none() || job.observed.spec_hash == self.spec_hash
    }

    /// Whether missing Jobs are created: after a run has ended, only if the spec has changed. Its Jobs may be gone because their time to
    /// live is over. Without a recorded hash (another controller ran it, or its CRD has no such field) the spec of the run is unknown, and
    /// it isn't repeated.
    pub(super) fn allows_run(&self, spec_hash: &str) -> bool {
        !self.ended || self.spec_hash.as_deref().is_some_and(|recorded| recorded != spec_hash)
    }

    /// The time to live of a Job, once its end is recorded. If it were deleted earlier, it would run again.
    pub(super) fn ttl(&self, job: Option<&OwnedObject>, seconds: Option<i64>) -> Option<i64> {
        let is_recorded = self.ended && job.is_some_and(|job| self.is_about(job));
        seconds.filter(|_| is_recorded)
    }
}

/// The Job with this name, if it exists and is ours: its template stays unchanged.
pub(super) fn find<'s>(snapshot: &'s Snapshot, key: &ObjectKey) -> Option<&'s OwnedObject> {
    snapshot.child(key.resource, &key.name).map(|live| &**live).filter(|live| live.ours())
}

/// A planned Job. `changeable` are the fields of its spec that may change at any time; `fixed` builds the others and is only called if
/// there is no Job yet: afterwards they stay unchanged.
pub(super) fn object<E>(
    snapshot: &Snapshot,
    key: ObjectKey,
    mut metadata: Metadata,
    spec_hash: &str,
    changeable: Map<String, Value>,
    fixed: impl FnOnce() -> Result<Map<String, Value>, E>,
) -> Result<Object, E> {
    let live = find(snapshot, &key);
    let kept = live.and_then(OwnedObject::made_from).and_then(|mut kept| kept.get_mut("spec")?.as_object_mut().map(std::mem::take));
    let keeps_template = kept.is_some();
    let created_from = live.and_then(|live| live.observed.spec_hash.as_deref()).unwrap_or(spec_hash).to_owned();
    metadata.annotations.insert(SPEC_HASH.to_owned(), created_from);
    let mut spec = match kept {
        Some(kept) => kept,
        None => fixed()?,
    };
    spec.extend(changeable);
    let body = json!({"metadata": metadata.into_value(), "spec": spec});
    Ok(Object { keeps_template, ..Object::new(key, body) })
}

/// Whether existing Jobs were created from the current spec.
pub(super) fn up_to_date<'j>(jobs: impl Iterator<Item = &'j OwnedObject>, spec_hash: &str, noun: &str) -> Condition {
    let differs = |job: &&OwnedObject| job.observed.spec_hash.as_deref().is_some_and(|created_from| created_from != spec_hash);
    let old: Vec<&ObjectKey> = jobs.filter(differs).map(|job| &job.key).collect();
    let Some(first) = old.first() else {
        return Condition::satisfied(UP_TO_DATE, "UpToDate", format!("No Job of the {noun} was created from an earlier spec.")).optional();
    };
    let names = old.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join(" ");
    let message = match &old[..] {
        [_] => format!("The Job {names} was created from an earlier spec, and stays unchanged. To run the current spec, delete it: "),
        _ => format!("{} Jobs were created from an earlier spec, and stay unchanged. To run the current spec, delete them: ", old.len()),
    };
    let command = format!("`kubectl delete jobs --cascade=foreground -n {} {names}`.", first.namespace);
    Condition::no(UP_TO_DATE, "SpecChanged", message + &command).optional().with_event()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        resource::{BENCHMARK_JOB, JOB},
        world::{World, child::SUBJECT_KIND},
    };

    fn key() -> ObjectKey {
        ObjectKey { resource: &JOB, namespace: "ml".to_owned(), name: "a".to_owned() }
    }

    /// A world with a subject, optionally with a Job whose template is ours; a scheduler owns the node selector.
    fn snapshot(job: bool) -> Snapshot {
        let mut world = World::default();
        world.put_subject_object(&BENCHMARK_JOB, &json!({"metadata": {"name": "a", "namespace": "ml", "uid": "u"}, "spec": {}}));
        if job {
            let fields = json!({
                "f:metadata": {"f:annotations": {format!("f:{SPEC_HASH}"): {}}},
                "f:spec": {"f:backoffLimit": {}, "f:template": {"f:spec": {
                    "f:restartPolicy": {}, "f:tolerations": {},
                    "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}, "f:image": {}}},
                }}},
            });
            world.put(
                &JOB,
                &json!({
                    "metadata": {
                        "name": "a", "namespace": "ml", "uid": "j", "generation": 1, "labels": {SUBJECT_KIND: "BenchmarkJob"},
                        "annotations": {SPEC_HASH: "old"}, "ownerReferences": [{"uid": "u", "controller": true}],
                        "managedFields": [{"manager": "pointsman/benchmarkjob", "operation": "Apply", "fieldsV1": fields}],
                    },
                    "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"job-name": "a"}}, "spec": {
                        "restartPolicy": "Never", "nodeSelector": {"pool": "theirs"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
                        "containers": [{"name": "main", "image": "old", "imagePullPolicy": "Always"}],
                    }}},
                }),
            );
        }
        let key = ObjectKey { resource: &BENCHMARK_JOB, ..key() };
        world.snapshot(&key, 0).unwrap()
    }

    fn planned(snapshot: &Snapshot, backoff_limit: i64) -> Object {
        let fixed = || {
            let spec =
                json!({"restartPolicy": "Never", "nodeSelector": {"pool": "ours"}, "containers": [{"name": "main", "image": "new"}]});
            Ok::<_, ()>(Map::from_iter([("template".to_owned(), json!({ "spec": spec }))]))
        };
        let changeable = Map::from_iter([("backoffLimit".to_owned(), json!(backoff_limit))]);
        object(snapshot, key(), Metadata::default(), "new", changeable, fixed).unwrap()
    }

    #[test]
    fn a_job_that_exists_keeps_its_template_and_what_others_have_taken_of_it() {
        let snapshot = snapshot(true);
        let live = find(&snapshot, &key()).unwrap();
        let same = planned(&snapshot, 0);
        assert!(same.keeps_template && live.keeps_pods(&same.body));
        assert_eq!(
            same.body["spec"]["template"],
            json!({"spec": {
                "restartPolicy": "Never", "tolerations": [{"key": "gpu", "operator": "Exists"}], "containers": [{"name": "main", "image": "old"}],
            }})
        );
        assert_eq!(same.body["metadata"]["annotations"][SPEC_HASH], "old");
        let changed = planned(&snapshot, 3);
        assert!(live.keeps_pods(&changed.body) && !live.settled(&changed.body, changed.fingerprint));
    }

    #[test]
    fn a_job_that_does_not_exist_is_made_from_the_spec_as_it_is() {
        let snapshot = snapshot(false);
        let object = planned(&snapshot, 0);
        assert!(!object.keeps_template);
        assert_eq!(object.body.pointer("/spec/template/spec/containers/0/image").unwrap(), "new");
        assert_eq!(object.body["metadata"]["annotations"][SPEC_HASH], "new");
    }

    #[test]
    fn another_spec_is_reported_with_what_it_takes() {
        let snapshot = snapshot(true);
        let jobs = || find(&snapshot, &key()).into_iter();
        assert_eq!(up_to_date(jobs(), "old", "benchmark").status, Some(true));
        let condition = up_to_date(jobs(), "new", "benchmark");
        assert!(condition.status == Some(false) && !condition.required_for_ready && condition.emits_event);
        assert!(condition.message.ends_with("delete it: `kubectl delete jobs --cascade=foreground -n ml a`."), "{}", condition.message);
        assert_eq!(up_to_date(std::iter::empty(), "new", "benchmark").status, Some(true));
    }

    #[test]
    fn a_run_whose_end_is_recorded_is_only_repeated_with_another_spec() {
        let record = |status: Value| RunRecord::from_status(&status);
        assert!(record(json!(null)).allows_run("a") && record(json!({"specHash": "a"})).allows_run("a"));
        assert!(!record(json!({"completionTime": "t", "specHash": "a"})).allows_run("a"));
        assert!(record(json!({"completionTime": "t", "specHash": "a"})).allows_run("b"));
        assert!(!record(json!({"completionTime": "t"})).allows_run("b"), "nobody knows what it was created from");
    }

    #[test]
    fn a_job_goes_by_itself_only_once_its_end_is_recorded() {
        let snapshot = snapshot(true);
        let job = find(&snapshot, &key());
        let ttl = |status: Value| RunRecord::from_status(&status).ttl(job, Some(60));
        assert_eq!(ttl(json!({"specHash": "old"})), None);
        assert_eq!(ttl(json!({"specHash": "older", "completionTime": "t"})), None, "that was the run before");
        assert_eq!(ttl(json!({"specHash": "old", "completionTime": "t"})), Some(60));
    }

    #[test]
    fn only_what_runs_depend_on_is_hashed_in_any_order() {
        let hash = |spec: Value| spec_hash(&spec, &["ttl"]);
        assert_eq!(hash(json!({"a": 1, "b": {"c": 2, "d": 3}, "ttl": 1})), hash(json!({"b": {"d": 3, "c": 2}, "a": 1})));
        assert_ne!(hash(json!({"a": 1})), hash(json!({"a": 2})));
    }
}
