//! The conditions of a benchmark, and the fields of its status.

use super::{ACCEPTED, COMPLETED, ENDPOINT_READY, PlanBuilder, STEPS, arguments, spec::Accepted, storage};
use crate::{
    condition::{Condition, DECIDED},
    kinds::job_run::{self, SPEC_HASH_FIELD},
    world::{
        OwnedObject,
        pod::PodFailure,
        workload_status::{JobState, JobStatus},
    },
};
use serde_json::{Map, Value, json};

// The states of OME's API.
const PENDING: &str = "Pending";
const RUNNING: &str = "Running";
const COMPLETED_STATE: &str = "Completed";
const FAILED: &str = "Failed";

const START_TIME: &str = "startTime";
const COMPLETION_TIME: &str = "completionTime";
const FAILURE_MESSAGE: &str = "failureMessage";
const RESULT_LOCATION: &str = "resultLocation";

impl PlanBuilder<'_> {
    /// The conditions, including `stopped`.
    pub(super) fn conditions(&self, stopped: Option<&Condition>) -> Vec<Condition> {
        let at = stopped.map(|stopped| stopped.type_);
        let before =
            |step: &str| at.is_none_or(|at| STEPS.iter().position(|known| *known == step) < STEPS.iter().position(|known| *known == at));
        let mut conditions: Vec<Condition> = STEPS
            .into_iter()
            .map(|step| match stopped.filter(|stopped| stopped.type_ == step) {
                Some(stopped) => stopped.clone(),
                None if before(step) => self.step_done(step),
                None => Condition::unknown(step, "Blocked", format!("Waiting for {}.", at.unwrap_or(ACCEPTED))),
            })
            .collect();
        conditions.push(job_run::up_to_date(self.job().into_iter(), &self.benchmark.spec_hash, "benchmark"));
        conditions.push(self.completed(stopped));
        conditions
    }

    /// The condition for a completed step. The message stays the same after the Job is created, even if the step's inputs change.
    fn step_done(&self, step: &'static str) -> Condition {
        match step {
            ENDPOINT_READY => Condition::satisfied(
                step,
                "Ready",
                "The endpoint was resolved, and a service of the cluster was Ready, when the Job was created.",
            ),
            DECIDED => Condition::satisfied(step, "Decided", "The policies have decided."),
            _ => match self.spec_notes() {
                notes if notes.is_empty() => Condition::satisfied(step, "Accepted", "The spec is valid."),
                notes => Condition::satisfied(step, "Ignored", notes.join(" ")).with_event(),
            },
        }
    }

    /// Whether the existing Job was created from the current spec; true if there is no Job.
    fn is_of_this_spec(&self) -> bool {
        self.job().is_none_or(|job| job.observed.spec_hash.as_ref() == Some(&self.benchmark.spec_hash))
    }

    /// Notes on the spec for the user.
    fn spec_notes(&self) -> Vec<String> {
        let Some(accepted) = self.benchmark.accept().ok().filter(|_| self.is_of_this_spec()) else { return Vec::new() };
        let output = self.output(&accepted).map(|(output, _)| output.notes).unwrap_or_default();
        [accepted.notes.clone(), arguments::service_notes(&accepted), output].concat()
    }

    pub(super) fn output(&self, accepted: &Accepted) -> Result<(storage::Storage, String), storage::Refusal> {
        storage::output(&accepted.spec.output_location, &self.benchmark.namespace, &self.folder(accepted)?)
    }

    /// Whether the results exist.
    fn completed(&self, stopped: Option<&Condition>) -> Condition {
        let Some(job) = self.job() else {
            if self.is_over() {
                return self.former(COMPLETED);
            }
            return match stopped {
                Some(stopped) => Condition::unknown(COMPLETED, "Blocked", format!("Waiting for {}.", stopped.type_)),
                None => Condition::unknown(COMPLETED, PENDING, starting(&self.benchmark.name)),
            };
        };
        let Some(status) = job.observed.job.as_deref() else {
            return Condition::unknown(COMPLETED, PENDING, starting(&job.key.name));
        };
        match status.state {
            JobState::Suspended => {
                let message =
                    format!("The Job {} is suspended: it starts once it is resumed, by a queue or by whoever suspended it.", job.key.name);
                Condition::unknown(COMPLETED, "Suspended", message)
            }
            JobState::Pending => self.pending(job),
            JobState::Running => Condition::unknown(COMPLETED, RUNNING, self.running(job, status)),
            JobState::Ending => Condition::unknown(COMPLETED, RUNNING, "The last pods of the Job are ending."),
            JobState::Complete => {
                let message = match self.location() {
                    Some(location) => format!("The results are at {location}."),
                    None => "The Job has succeeded.".to_owned(),
                };
                Condition::satisfied(COMPLETED, COMPLETED_STATE, message).with_event()
            }
            JobState::Failed => {
                let reason = job.observed.condition("Failed").map_or("JobFailed", |failed| &failed.reason);
                Condition::no(COMPLETED, if reason.is_empty() { "JobFailed" } else { reason }, self.failure(job))
            }
        }
    }

    /// The condition for a Job whose pods haven't started.
    fn pending(&self, job: &OwnedObject) -> Condition {
        match self.failing_pod() {
            Some((pod, failure)) if failure.started => {
                Condition::no(COMPLETED, "PodFailing", format!("The pod {pod} is failing. {}", sentence(&failure.message)))
            }
            Some((pod, failure)) => {
                Condition::unknown(COMPLETED, "Unschedulable", format!("The pod {pod} has no node. {}", sentence(&failure.message)))
            }
            None => Condition::unknown(COMPLETED, PENDING, starting(&job.key.name)),
        }
    }

    /// The progress of a Job whose pods have started.
    fn running(&self, job: &OwnedObject, status: &JobStatus) -> String {
        if status.failed == 0 {
            return "The benchmark is running.".to_owned();
        }
        let (retries, ..) = self.benchmark.changeable();
        let attempt = format!("Attempt {} of {} is running.", status.failed + 1, retries + 1);
        match self.failing_pod() {
            Some((pod, failure)) => format!("{attempt} The pod {pod} of an earlier one failed. {}", sentence(&failure.message)),
            None => format!("{attempt} The pods of earlier ones failed: `kubectl describe job {}` has their events.", job.key.name),
        }
    }

    fn failing_pod(&self) -> Option<(&str, &PodFailure)> {
        let mut pods = self.asking.snapshot.pods.iter();
        pods.find_map(|pod| Some((pod.name.as_str(), pod.failure.as_ref()?)))
    }

    /// Why the Job has failed. The reason from a pod is retained after the pod is gone.
    fn failure(&self, job: &OwnedObject) -> String {
        let failed = job.observed.condition("Failed");
        let said = failed.map(|failed| failed.message.as_str()).filter(|said| !said.is_empty()).unwrap_or("it gives no reason");
        let of_job = format!("The Job {} has failed: {}", job.key.name, sentence(said));
        if let Some((pod, failure)) = self.failing_pod().filter(|(_, failure)| failure.started) {
            return format!("{of_job} The pod {pod} failed. {}", sentence(&failure.message));
        }
        let former = self.before[FAILURE_MESSAGE].as_str().filter(|former| former.starts_with(&of_job));
        former.map_or(of_job.clone(), str::to_owned)
    }

    /// The previous condition.
    fn former(&self, type_: &'static str) -> Condition {
        let conditions = self.before["conditions"].as_array().into_iter().flatten();
        let former = conditions.into_iter().find(|condition| condition["type"] == type_);
        let text = |field: &str| former.and_then(|former| former[field].as_str()).map(str::to_owned);
        let failed = self.before["state"] == FAILED;
        let status = match text("status").as_deref() {
            Some("True") => true,
            Some("False") => false,
            // Another controller ran the benchmark.
            _ => !failed,
        };
        let words = if failed { (FAILED, "The benchmark has failed.") } else { (COMPLETED_STATE, "The benchmark has completed.") };
        let told = former.filter(|_| text("status").is_some_and(|status| status != "Unknown"));
        let (reason, message) = match told {
            Some(_) => (text("reason").unwrap_or_default(), text("message").unwrap_or_default()),
            None => (words.0.to_owned(), words.1.to_owned()),
        };
        Condition::new(type_, Some(status), reason, message)
    }

    /// The location of the results of the existing Job, or of the one to be created.
    fn location(&self) -> Option<String> {
        if !self.is_of_this_spec() {
            return self.before[RESULT_LOCATION].as_str().map(str::to_owned);
        }
        let accepted = self.benchmark.accept().ok()?;
        self.output(&accepted).ok().map(|(_, location)| location)
    }

    /// The fields of the status. Those of a completed run stay unchanged.
    pub(super) fn fields(&self, conditions: &[Condition]) -> Map<String, Value> {
        // They stay until the next run has its Job: if the spec is reverted before, nothing runs.
        if self.is_over() || self.job().is_none() && self.record.has_ended() {
            return Map::new();
        }
        let job = self.job();
        let status = job.and_then(|job| job.observed.job.as_deref());
        let state = match status.map(|status| status.state) {
            None | Some(JobState::Pending | JobState::Suspended) => PENDING,
            Some(JobState::Running | JobState::Ending) => RUNNING,
            Some(JobState::Complete) => COMPLETED_STATE,
            Some(JobState::Failed) => FAILED,
        };
        let message = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_).map(|condition| condition.message.clone());
        let stopped = || conditions.iter().find(|condition| STEPS.contains(&condition.type_) && condition.status != Some(true));
        let details = match state {
            PENDING if job.is_none() => stopped().map(|stopped| stopped.message.clone()).or_else(|| message(COMPLETED)),
            PENDING | RUNNING => message(COMPLETED),
            _ => None,
        };
        let failure = (state == FAILED).then(|| message(COMPLETED)).flatten();
        let fields = [
            ("state", json!(state)),
            (START_TIME, json!(status.and_then(|status| status.start_time.as_deref()))),
            (COMPLETION_TIME, json!(status.and_then(|status| status.end_time.as_deref()))),
            (FAILURE_MESSAGE, json!(failure)),
            ("details", json!(details)),
            (SPEC_HASH_FIELD, json!(job.and_then(|job| job.observed.spec_hash.as_deref()))),
            (RESULT_LOCATION, json!(self.location().filter(|_| job.is_some()))),
        ];
        fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
    }
}

fn starting(job: &str) -> String {
    format!("The pod of the Job {job} hasn't started yet.")
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim().trim_end_matches('.'))
}
