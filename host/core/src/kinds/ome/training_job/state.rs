//! The status of a training job, in Kubeflow's terms.

use super::{
    CREATED, FAILED, PlanBuilder, RESTARTING, RUNNING, Replica, SUCCEEDED, SUSPENDED,
    run::{Ended, Ending, Phase, Run},
    spec::Training,
};
use crate::{
    condition::Condition,
    kinds::job_run::{self, SPEC_HASH_FIELD, UP_TO_DATE},
    world::workload_status::JobState,
};
use serde_json::{Map, Value, json};

/// The label with the queue of a Job, for Kueue.
pub(super) const QUEUE: &str = "kueue.x-k8s.io/queue-name";

impl PlanBuilder<'_> {
    /// The conditions of the run.
    pub(super) fn run_conditions(&self, training: &Training, run: &Run<'_>, is_planned: bool) -> Vec<Condition> {
        let going = self.going(training, run, is_planned);
        let mut conditions = vec![created(training, run), going.clone().optional()];
        conditions.push(self.restarting(training, run));
        conditions.push(suspended(training, run));
        match &run.phase {
            Phase::Ended(Ended { succeeded: true, ending: Ending { reason, message }, .. }) => {
                conditions.push(Condition::satisfied(SUCCEEDED, reason, message));
            }
            Phase::Ended(Ended { succeeded: false, ending: Ending { reason, message }, .. }) => {
                conditions.push(Condition::no(SUCCEEDED, reason, message));
                conditions.push(Condition::satisfied(FAILED, reason, message).optional());
            }
            _ => conditions.push(Condition::unknown(SUCCEEDED, going.reason, going.message)),
        }
        conditions
    }

    /// Whether the run is in progress, and what it waits for.
    fn going(&self, training: &Training, run: &Run<'_>, is_planned: bool) -> Condition {
        let no = |reason: &str, message: String| Condition::no(RUNNING, reason, message);
        let worker = run.state(Replica::Worker);
        let workers = training.workers();
        match (&run.phase, worker) {
            (Phase::Ended(ended), _) => no(&ended.ending.reason, ended.ending.message.clone()),
            (Phase::Suspended, _) => no("Suspended", "spec.suspend is true: the job has no pods.".to_owned()),
            (Phase::StartsAgain(ending), _) => no("Restarting", format!("The run is restarting. {}", ending.message)),
            (Phase::Clearing, _) => no("Restarting", "The pods of the earlier attempt are ending.".to_owned()),
            (Phase::Going, None) if !is_planned => no("Blocked", "The Jobs don't exist: the conditions above give the reason.".to_owned()),
            (Phase::Going, Some(JobState::Suspended)) => no("Queued", queued(training)),
            (Phase::Going, None) => no("Pending", pending(workers)),
            (Phase::Going, Some(_))
                if training.has_launcher() && !run.jobs.contains_key(&Replica::Launcher) && run.is_changed(training) =>
            {
                let message = "The launcher doesn't start, because the spec changed after the workers were created.";
                no("SpecChanged", message.to_owned())
            }
            (Phase::Going, Some(state)) => {
                let ready = run.ready_workers();
                if state == JobState::Running && (ready > 0 || run.jobs.contains_key(&Replica::Launcher)) {
                    // The number of Ready pods changes often, so it isn't in the message: the replica statuses have the number of existing
                    // pods.
                    return Condition::satisfied(RUNNING, "Running", "The run is in progress.");
                }
                let homeless = self.snapshot.pods.iter().find_map(|pod| Some((&pod.name, pod.failure.as_ref()?)));
                match homeless {
                    Some((pod, failure)) if failure.started => {
                        no("PodsFailing", format!("The pod {pod} is failing. {}.", failure.message.trim_end_matches('.')))
                    }
                    Some((pod, failure)) => {
                        no("Unschedulable", format!("The pod {pod} has no node. {}.", failure.message.trim_end_matches('.')))
                    }
                    None => no("Pending", pending(workers)),
                }
            }
        }
    }

    /// Whether the run restarts after a failure. The message repeats the failure until it has restarted.
    fn restarting(&self, training: &Training, run: &Run<'_>) -> Condition {
        let limit = training.spec.backoff_limit.unwrap_or(0);
        let no = |message: &str| Condition::no(RESTARTING, "NotRestarting", message).optional();
        match (&run.phase, run.state(Replica::Worker)) {
            (Phase::StartsAgain(ending), _) => {
                let message = format!("The run is restarting ({} of {limit}). {}", run.restarts, ending.message);
                Condition::satisfied(RESTARTING, ending.reason.as_str(), message).optional().with_event()
            }
            (Phase::Clearing | Phase::Going, None | Some(JobState::Pending)) if run.restarts > 0 => {
                let conditions = || self.before["conditions"].as_array().into_iter().flatten();
                let former = conditions().find(|condition| condition["type"] == RESTARTING && condition["status"] == "True");
                let text = |field: &str, otherwise: &str| former.and_then(|former| former[field].as_str()).unwrap_or(otherwise).to_owned();
                let message = format!("The run is restarting ({} of {limit}).", run.restarts);
                Condition::satisfied(RESTARTING, text("reason", "Failed"), text("message", &message)).optional().with_event()
            }
            _ if run.restarts > 0 => no("The run was restarted."),
            _ => no("The run has never been restarted."),
        }
    }

    /// The fields of the status, without the conditions.
    pub(super) fn fields(&self, training: &Training, run: &Run<'_>) -> Map<String, Value> {
        let mut statuses = Map::new();
        for replica in training.replicas() {
            let observed = run.jobs.get(&replica).and_then(|job| job.observed.job.as_deref());
            let counts = match observed {
                Some(job) => json!({"active": job.active, "succeeded": job.succeeded, "failed": job.failed}),
                // The counts of pods that were deleted after the end are retained.
                None if matches!(run.phase, Phase::Ended(_)) => {
                    let mut former = self.before["replicaStatuses"][replica.name()].clone();
                    if former.is_object() {
                        former["active"] = 0.into();
                    }
                    former
                }
                None => json!({"active": 0, "succeeded": 0, "failed": 0}),
            };
            statuses.insert(replica.name().to_owned(), counts);
        }
        let hash = run.jobs.get(&Replica::Worker).and_then(|job| job.observed.spec_hash.clone());
        let hash = hash.map_or_else(|| self.before[SPEC_HASH_FIELD].clone(), Value::from);
        [
            ("replicaStatuses", Value::Object(statuses)),
            ("startTime", json!(run.start_time)),
            ("completionTime", json!(run.completion_time)),
            ("restarts", if run.restarts > 0 { run.restarts.into() } else { Value::Null }),
            (SPEC_HASH_FIELD, hash),
        ]
        .into_iter()
        .map(|(field, value)| (field.to_owned(), value))
        .collect()
    }

    /// Whether the run was created from the current spec.
    pub(super) fn up_to_date(&self, training: &Training, run: &Run<'_>, is_refused: bool) -> Condition {
        let noun = "run";
        if let Phase::Ended(_) = run.phase {
            let hash = self.before[SPEC_HASH_FIELD].as_str();
            if hash.is_some_and(|hash| hash != training.hash) {
                let message = "The spec has changed, but a run that has ended isn't repeated: create another TrainingJob.";
                return Condition::no(UP_TO_DATE, "SpecChanged", message).optional().with_event();
            }
            return job_run::up_to_date(std::iter::empty(), &training.hash, noun);
        }
        let jobs = run.jobs.values().copied();
        let condition = job_run::up_to_date(jobs, &training.hash, noun);
        if condition.status != Some(false) {
            return condition;
        }
        if is_refused {
            // If its Jobs were deleted, the run couldn't start again.
            let message = "The run was created from an earlier spec, and the current one is rejected: correct it, or revert the edit.";
            return Condition { message: message.to_owned(), ..condition };
        }
        let message = format!(
            "{} Or set spec.suspend to true, and to false once the pods have ended. The run restarts from the beginning.",
            condition.message
        );
        Condition { message, ..condition }
    }
}

fn created(training: &Training, run: &Run<'_>) -> Condition {
    let name = Replica::Worker.job_name(&training.name);
    match run.phase {
        Phase::Suspended => Condition::no(CREATED, "Suspended", "spec.suspend is true.").optional(),
        Phase::Ended(_) => Condition::satisfied(CREATED, "JobsCreated", "The Jobs were created.").optional(),
        _ if run.jobs.contains_key(&Replica::Worker) => {
            Condition::satisfied(CREATED, "JobsCreated", format!("The Job {name} exists.")).optional()
        }
        _ => Condition::no(CREATED, "Pending", format!("The Job {name} doesn't exist yet.")).optional(),
    }
}

fn suspended(training: &Training, run: &Run<'_>) -> Condition {
    match (&run.phase, run.state(Replica::Worker)) {
        (Phase::Suspended, _) => {
            let message = "spec.suspend is true: set it to false to start the run.";
            Condition::satisfied(SUSPENDED, "Suspended", message).optional()
        }
        (Phase::Going, Some(JobState::Suspended)) => Condition::satisfied(SUSPENDED, "Queued", queued(training)).optional(),
        _ => Condition::no(SUSPENDED, "NotSuspended", "The run is not suspended.").optional(),
    }
}

fn queued(training: &Training) -> String {
    match training.labels.get(QUEUE) {
        Some(queue) => format!("The run is queued in {queue} until Kueue admits its workers."),
        None => "Another controller has suspended the Job of the workers.".to_owned(),
    }
}

fn pending(workers: i32) -> String {
    match workers {
        1 => "The worker isn't Ready yet.".to_owned(),
        workers => format!("The {workers} workers aren't Ready yet."),
    }
}
