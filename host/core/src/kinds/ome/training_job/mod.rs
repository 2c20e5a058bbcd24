//! TrainingJob: a run in several pods, as Jobs whose pods address each other by name.
//!
//! A decision about a run (that it restarts, that it has ended) is first written to the status; only the next plan acts on it. If the host
//! stops in between, it or another host continues from there.

mod env;
mod keys;
mod launch;
mod objects;
mod processes;
mod run;
mod spec;
mod state;
mod weight;

use crate::{
    condition::{Condition, DECIDED},
    decide::{Pinned, Undecided},
    kinds::{
        Kind, job_run,
        questions::{self, Questions},
    },
    plan::{Object, Plan, Status, UndecidedSteps},
    resource::{Resource, TRAINING_JOB},
    settings::Settings,
    world::Snapshot,
};
use run::{Phase, Run};
use serde_json::Value;
use spec::Training;
use std::time::Duration;

/// The kind TrainingJob.
#[derive(Debug)]
pub struct TrainingJobs;

/// Whether the spec is valid.
const ACCEPTED: &str = "Accepted";

// The conditions that Kubeflow's users know.
const CREATED: &str = "Created";
const RUNNING: &str = "Running";
const RESTARTING: &str = "Restarting";
const SUSPENDED: &str = "Suspended";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// Whether the requested FineTunedWeight exists.
const WEIGHT_CREATED: &str = "FineTunedWeightCreated";

/// The condition types of a job's status, in order.
const TYPES: &[&str] =
    &[ACCEPTED, DECIDED, CREATED, RUNNING, RESTARTING, SUSPENDED, SUCCEEDED, FAILED, WEIGHT_CREATED, job_run::UP_TO_DATE];

/// The role of a job's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Replica {
    Worker,
    Launcher,
}

impl Replica {
    const ALL: [Self; 2] = [Self::Worker, Self::Launcher];

    /// Its name in labels, in the status and in the spec.
    fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Launcher => "launcher",
        }
    }

    /// The name of the Job for these pods; the pods' names append `-INDEX`.
    fn job_name(self, job: &str) -> String {
        format!("{job}-{}", self.name())
    }
}

/// Why the objects can't be planned: the condition that reports it.
struct PlanError {
    condition: Condition,
    again: Option<Duration>,
    /// Whether a policy gave no answer.
    undecided: bool,
}

impl PlanError {
    /// The error for a spec that can't be carried out.
    fn refused(reason: &str, message: String) -> Box<Self> {
        Box::new(Self { condition: Condition::no(ACCEPTED, reason, message), again: None, undecided: false })
    }
}

/// A plan in progress.
struct PlanBuilder<'a> {
    snapshot: &'a Snapshot,
    settings: &'a Settings,
    asking: Questions<'a>,
    /// The current status.
    before: Value,
}

impl Kind for TrainingJobs {
    fn resource(&self) -> &'static Resource {
        &TRAINING_JOB
    }

    fn plan(&self, snapshot: &Snapshot, policies: &Pinned<'_>, settings: &Settings) -> Plan {
        let asking = Questions::new(snapshot, policies, settings);
        let making = PlanBuilder { snapshot, settings, asking, before: snapshot.subject.status() };
        match Training::read(&making.asking) {
            Ok(training) => making.plan(&training),
            Err(stop) => making.unreadable(*stop),
        }
    }
}

impl PlanBuilder<'_> {
    fn plan(mut self, training: &Training) -> Plan {
        let run = Run::assess(self.snapshot, &self.before, training);
        let (made, refused) = match training.check() {
            // A running job is supervised regardless of its spec, because an existing Job isn't replaced.
            Err(stop) if run.has_jobs => (self.objects(training, &run), Some(stop)),
            Err(stop) => (Err(stop), None),
            Ok(()) => (self.objects(training, &run), None),
        };
        let stop = made.as_ref().err();
        let mut again = [run.recheck_after, stop.and_then(|stop| stop.again)].into_iter().flatten().min();
        let stopped = refused.as_ref().or(stop).map(|stop| &stop.condition);
        let mut conditions = steps(stopped);
        conditions.extend(self.run_conditions(training, &run, made.is_ok()));
        let mut creates = Vec::new();
        let mut has_weight = true;
        if let Some((condition, weight)) = self.weight(training, &run) {
            has_weight = condition.status.is_some();
            conditions.push(condition);
            creates.extend(weight);
        }
        conditions.push(self.up_to_date(training, &run, refused.is_some()));
        let expired = has_weight && run.expired(training, self.snapshot.now);
        if let Phase::Ended(_) = run.phase
            && let Some(left) = run.time_to_live(training, self.snapshot.now)
        {
            again = Some(again.map_or(left, |again| again.min(left)));
        }
        let undecided = if stop.is_some_and(|stop| stop.undecided) { UndecidedSteps::Some(vec![DECIDED]) } else { UndecidedSteps::None };
        let status = Status {
            conditions,
            fields: self.fields(training, &run),
            types: TYPES,
            ready: Some(("Succeeded", "The run has succeeded.")),
            changed_field: None,
            undecided,
        };
        Plan {
            objects: made.ok(),
            status,
            reads: self.asking.reads,
            decisions: self.asking.decisions,
            creates,
            expired,
            recheck_after: again,
            ..Plan::default()
        }
    }

    /// The plan for an unreadable spec: existing objects stay unchanged, and so does the status.
    fn unreadable(self, stop: PlanError) -> Plan {
        let status = Status { conditions: vec![stop.condition], ..Status::default() };
        Plan { status, reads: self.asking.reads, decisions: self.asking.decisions, ..Plan::default() }
    }

    /// Converts a missing decision into the condition that reports it.
    fn undecided(&self, undecided: &Undecided) -> Box<PlanError> {
        let condition = Condition::no(DECIDED, undecided.reason(), questions::undecided_message(self.snapshot, undecided));
        Box::new(PlanError { condition, again: Some(questions::POLICY_FAILURE_RETRY), undecided: true })
    }
}

/// The conditions of the steps before the objects are planned, including `stopped`.
fn steps(stopped: Option<&Condition>) -> Vec<Condition> {
    let accepted = || Condition::satisfied(ACCEPTED, "Accepted", "The spec is valid.");
    let decided = || Condition::satisfied(DECIDED, "Decided", "The policies have decided.");
    match stopped {
        None => vec![accepted(), decided()],
        Some(stopped) if stopped.type_ == ACCEPTED => {
            vec![stopped.clone(), Condition::unknown(DECIDED, "Blocked", format!("Waiting for {ACCEPTED}."))]
        }
        Some(stopped) => vec![accepted(), stopped.clone()],
    }
}

/// The objects of a plan, or why there are none.
type Made = Result<Vec<Object>, Box<PlanError>>;

#[cfg(test)]
mod tests;
