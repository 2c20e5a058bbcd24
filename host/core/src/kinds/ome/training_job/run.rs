//! The state of a run, from its Jobs and its status: pure.

use super::{FAILED, Replica, SUCCEEDED, spec::Training};
use crate::{
    kinds::job_run::RECORD_DELAY,
    resource::JOB,
    world::{OwnedObject, Snapshot, child::Condition, workload_status::JobState},
};
use k8s_openapi::jiff::Timestamp;
use pointsman_crds::ome::training_job::{CleanPodPolicy, RestartPolicy};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// A run.
#[derive(Debug)]
pub(super) struct Run<'s> {
    pub(super) phase: Phase,
    /// The number of restarts.
    pub(super) restarts: i64,
    /// The Jobs of the current attempt.
    pub(super) jobs: BTreeMap<Replica, &'s OwnedObject>,
    /// Whether any attempt has Jobs that aren't being deleted.
    pub(super) has_jobs: bool,
    /// Whether a queue has suspended the workers, and the only other Job is a launcher that is being deleted.
    launcher_leaves: bool,
    pub(super) start_time: Option<String>,
    pub(super) completion_time: Option<String>,
    pub(super) recheck_after: Option<Duration>,
}

/// The phase of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The user has suspended it.
    Suspended,
    /// Jobs of an earlier attempt, or deleted Jobs, are disappearing.
    Clearing,
    /// It is running or starting.
    Going,
    /// It has failed, and restarts once that is recorded.
    StartsAgain(Ending),
    /// It has ended.
    Ended(Ended),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) succeeded: bool,
    pub(super) ending: Ending,
    /// Whether the status already records it, so that the next steps can follow.
    pub(super) recorded: bool,
}

/// Why a run or an attempt has ended: a reason and a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) reason: String,
    pub(super) message: String,
}

/// The result of an attempt, from its Jobs.
enum Verdict {
    Succeeded(Ending, Option<String>),
    Failed { ending: Ending, at: Option<String>, may_repeat: bool },
}

/// The reason of a Job that has failed by a rule on its pods' exit codes.
const POD_FAILURE_POLICY: &str = "PodFailurePolicy";

/// The reason of a Job or a run that has exceeded its deadline.
const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// The reason of a Job whose pods have all ended, some of them in failure.
const FAILED_INDEXES: &str = "FailedIndexes";

impl<'s> Run<'s> {
    pub(super) fn assess(snapshot: &'s Snapshot, before: &Value, training: &Training) -> Self {
        let all: BTreeMap<Replica, &OwnedObject> = Replica::ALL
            .into_iter()
            .filter_map(|replica| Some((replica, &**snapshot.child(&JOB, &replica.job_name(&training.name))?)))
            .filter(|(_, job)| job.ours())
            .collect();
        let attempt = |job: &OwnedObject| job.observed.attempt.unwrap_or_default();
        let recorded = before["restarts"].as_i64().unwrap_or_default();
        // If the status is lost, the Jobs still have the number: the run doesn't start over.
        let restarts = all.values().filter(|job| !job.deleting).map(|job| attempt(job)).fold(recorded, i64::max);
        let is_current = |job: &OwnedObject| !job.deleting && attempt(job) == restarts;
        let jobs: BTreeMap<_, _> = all.iter().filter(|(_, job)| is_current(job)).map(|(replica, job)| (*replica, *job)).collect();
        let text = |field: &str| before[field].as_str().map(str::to_owned);
        let mut run = Self {
            phase: Phase::Going,
            restarts,
            start_time: text("startTime"),
            completion_time: text("completionTime"),
            recheck_after: None,
            has_jobs: all.values().any(|job| !job.deleting),
            jobs,
            launcher_leaves: false,
        };
        if run.completion_time.is_some() {
            run.phase = Phase::Ended(Ended::from_status(before));
            return run;
        }
        if training.spec.suspend == Some(true) {
            run.phase = Phase::Suspended;
            run.start_time = None;
            return run;
        }
        let orphaned = run.jobs.contains_key(&Replica::Launcher) && !run.jobs.contains_key(&Replica::Worker);
        let is_queued = run.state(Replica::Worker) == Some(JobState::Suspended);
        run.launcher_leaves = is_queued && all.len() > run.jobs.len();
        if run.jobs.len() < all.len() && !run.launcher_leaves || orphaned {
            run.phase = Phase::Clearing;
            return run;
        }
        run.follow(training, snapshot);
        run
    }

    /// Determines the phase from the Jobs of the attempt.
    fn follow(&mut self, training: &Training, snapshot: &Snapshot) {
        let worker = self.state(Replica::Worker);
        if worker == Some(JobState::Suspended) {
            // A queue starts it later, possibly again after preempting it.
            self.start_time = None;
        } else if self.start_time.is_none() {
            self.start_time = self.jobs.get(&Replica::Worker).and_then(|job| job.observed.job.as_ref()?.start_time.clone());
        }
        let overdue = self.overdue(training, snapshot.now);
        match self.verdict(training, snapshot).or(overdue) {
            None => self.recheck_after = self.deadline(training, snapshot.now),
            Some(Verdict::Failed { ending, may_repeat: true, .. })
                if self.restarts < i64::from(training.spec.backoff_limit.unwrap_or(0)) =>
            {
                self.restarts += 1;
                self.recheck_after = Some(RECORD_DELAY);
                self.phase = Phase::StartsAgain(ending);
            }
            Some(verdict) => {
                let (succeeded, ending, at) = match verdict {
                    Verdict::Succeeded(ending, at) => (true, ending, at),
                    Verdict::Failed { ending, at, .. } => (false, ending, at),
                };
                self.completion_time = Some(at.unwrap_or_else(|| time(snapshot.now)));
                self.recheck_after = Some(RECORD_DELAY);
                self.phase = Phase::Ended(Ended { succeeded, ending, recorded: false });
            }
        }
    }

    fn verdict(&self, training: &Training, snapshot: &Snapshot) -> Option<Verdict> {
        let succeeded = |reason: &str, message: &str, replica: Replica| {
            Some(Verdict::Succeeded(Ending { reason: reason.to_owned(), message: message.to_owned() }, self.end_time(replica)))
        };
        let state = |replica| self.state(replica);
        match (state(Replica::Launcher), state(Replica::Worker)) {
            (Some(JobState::Complete), _) => succeeded("LauncherSucceeded", "The launcher has succeeded.", Replica::Launcher),
            // A queue has preempted the workers: a launcher without workers fails, which is no failure of the run.
            (_, Some(JobState::Suspended)) => None,
            (Some(JobState::Failed), _) => Some(self.failed(training, snapshot, Replica::Launcher)),
            (_, Some(JobState::Failed)) if training.elastic().is_some() && self.some_workers_succeeded() => {
                let message = "The remaining workers have succeeded.";
                succeeded("WorkersSucceeded", message, Replica::Worker)
            }
            (_, Some(JobState::Failed)) => Some(self.failed(training, snapshot, Replica::Worker)),
            (None, Some(JobState::Complete)) if training.has_launcher() => {
                let message = "The workers ended before the launcher started: set a command that waits for it, or none.";
                let ending = Ending { reason: "WorkersEnded".to_owned(), message: message.to_owned() };
                Some(Verdict::Failed { ending, at: self.end_time(Replica::Worker), may_repeat: false })
            }
            (None, Some(JobState::Complete)) => succeeded("WorkersSucceeded", "All workers have succeeded.", Replica::Worker),
            _ => None,
        }
    }

    fn failed(&self, training: &Training, snapshot: &Snapshot, replica: Replica) -> Verdict {
        let condition = self.condition(replica, "Failed").cloned().unwrap_or_default();
        let may_repeat = condition.reason != DEADLINE_EXCEEDED
            && match training.restart_policy() {
                RestartPolicy::Never => false,
                RestartPolicy::OnFailure => true,
                RestartPolicy::ExitCode => condition.reason != POD_FAILURE_POLICY,
            };
        let mut pods = snapshot.pods.iter().filter(|pod| pod.component == replica.name());
        let pod = pods.find_map(|pod| Some((&pod.name, pod.failure.as_ref().filter(|failure| failure.started)?)));
        let pod = pod.map(|(pod, failure)| format!(" The pod {pod}: {}.", failure.message.trim_end_matches('.'))).unwrap_or_default();
        let message = format!(
            "The Job {} has failed ({}): {}.{pod}",
            replica.job_name(&training.name),
            condition.reason,
            condition.message.trim_end_matches('.')
        );
        Verdict::Failed { ending: Ending { reason: condition.reason, message }, at: self.end_time(replica), may_repeat }
    }

    /// Whether an elastic run has ended with fewer workers than it started with.
    fn some_workers_succeeded(&self) -> bool {
        let succeeded = || self.jobs.get(&Replica::Worker).and_then(|job| Some(job.observed.job.as_ref()?.succeeded)).unwrap_or_default();
        self.condition(Replica::Worker, "Failed").is_some_and(|failed| failed.reason == FAILED_INDEXES) && succeeded() > 0
    }

    /// The deadline of the run: a Job's own deadline only counts one attempt.
    fn overdue(&self, training: &Training, now: u64) -> Option<Verdict> {
        let seconds = training.spec.active_deadline_seconds?;
        (self.left(seconds, now)? == Duration::ZERO).then(|| {
            let message = format!("The run has taken longer than spec.activeDeadlineSeconds ({seconds}), its restarts included.");
            let ending = Ending { reason: DEADLINE_EXCEEDED.to_owned(), message };
            Verdict::Failed { ending, at: None, may_repeat: false }
        })
    }

    fn deadline(&self, training: &Training, now: u64) -> Option<Duration> {
        // The first attempt's Job enforces the deadline itself.
        training.spec.active_deadline_seconds.filter(|_| self.restarts > 0).and_then(|seconds| self.left(seconds, now))
    }

    fn left(&self, seconds: i64, now: u64) -> Option<Duration> {
        left(self.start_time.as_deref()?, seconds, now)
    }

    /// The time until the job itself is deleted, if it is to be.
    pub(super) fn time_to_live(&self, training: &Training, now: u64) -> Option<Duration> {
        let seconds = training.spec.ttl_seconds_after_finished?;
        // Nothing is left if it is over.
        left(self.completion_time.as_deref()?, seconds.into(), now).filter(|left| !left.is_zero())
    }

    /// Whether the job itself is to be deleted.
    pub(super) fn expired(&self, training: &Training, now: u64) -> bool {
        let recorded = matches!(&self.phase, Phase::Ended(ended) if ended.recorded);
        let over = || left(self.completion_time.as_deref()?, training.spec.ttl_seconds_after_finished?.into(), now);
        recorded && over() == Some(Duration::ZERO)
    }

    /// Whether the plan contains the Job for these pods.
    pub(super) fn plans(&self, replica: Replica, training: &Training) -> bool {
        let job = self.jobs.get(&replica);
        match &self.phase {
            Phase::Suspended | Phase::Clearing => false,
            Phase::Going if self.state(Replica::Worker) == Some(JobState::Suspended) => replica == Replica::Worker,
            Phase::Going if replica == Replica::Launcher => job.is_some() || self.may_launch(training),
            Phase::Going => true,
            Phase::Ended(Ended { recorded: true, ending, .. }) => {
                let otherwise = if training.has_launcher() { CleanPodPolicy::Running } else { CleanPodPolicy::None };
                let policy = training.spec.clean_pod_policy.unwrap_or(otherwise);
                let has_ended = self.state(replica).is_some_and(JobState::has_ended);
                let is_overdue = ending.reason == DEADLINE_EXCEEDED && !has_ended;
                job.is_some() && !is_overdue && (policy == CleanPodPolicy::None || policy == CleanPodPolicy::Running && has_ended)
            }
            Phase::StartsAgain(_) | Phase::Ended(_) => job.is_some(),
        }
    }

    /// Whether the launcher may be created: all workers are ready and were created from the current spec.
    fn may_launch(&self, training: &Training) -> bool {
        !self.launcher_leaves && !self.is_changed(training) && self.ready_workers() >= i64::from(training.workers())
    }

    /// Whether the workers were created from another spec than the current one.
    pub(super) fn is_changed(&self, training: &Training) -> bool {
        let created_from = self.jobs.get(&Replica::Worker).and_then(|job| job.observed.spec_hash.as_deref());
        created_from.is_some_and(|created_from| created_from != training.hash)
    }

    /// The attempt of a Job: an existing Job keeps its own, even after the next attempt is decided.
    pub(super) fn attempt(&self, replica: Replica) -> i64 {
        self.jobs.get(&replica).map_or(self.restarts, |job| job.observed.attempt.unwrap_or_default())
    }

    pub(super) fn state(&self, replica: Replica) -> Option<JobState> {
        Some(self.jobs.get(&replica)?.observed.job.as_ref()?.state)
    }

    pub(super) fn ready_workers(&self) -> i64 {
        self.jobs.get(&Replica::Worker).and_then(|job| Some(job.observed.job.as_ref()?.ready)).unwrap_or_default()
    }

    fn end_time(&self, replica: Replica) -> Option<String> {
        self.jobs.get(&replica)?.observed.job.as_ref()?.end_time.clone()
    }

    fn condition(&self, replica: Replica, type_: &str) -> Option<&Condition> {
        self.jobs.get(&replica)?.observed.condition(type_)
    }
}

impl Ended {
    /// The end as the status records it.
    fn from_status(status: &Value) -> Self {
        let conditions = || status["conditions"].as_array().into_iter().flatten();
        let find = |type_: &str| conditions().find(|condition| condition["type"] == type_ && condition["status"] == "True");
        let (succeeded, condition) = match find(SUCCEEDED) {
            Some(condition) => (true, Some(condition)),
            None => (false, find(FAILED)),
        };
        let text = |field: &str| condition.and_then(|condition| condition[field].as_str()).unwrap_or_default().to_owned();
        let (reason, message) = (text("reason"), text("message"));
        let reason = if reason.is_empty() { "Unknown".to_owned() } else { reason };
        Self { succeeded, ending: Ending { reason, message }, recorded: true }
    }
}

/// The remaining part of a duration since a time; none if the time is invalid.
fn left(from: &str, seconds: i64, now: u64) -> Option<Duration> {
    let from: Timestamp = from.parse().ok()?;
    let end = from.as_second().saturating_add(seconds);
    Some(Duration::from_secs(u64::try_from(end).unwrap_or_default().saturating_sub(now)))
}

/// A Kubernetes timestamp from seconds since 1970.
fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
