//! TrainingJob: a run in several pods, as Jobs whose pods know each other by name.
//!
//! What is decided about a run (it starts again, it has ended) is written into the status first, and acted upon by the plan after that: a
//! host that stops in between, or another one, goes on from there.

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

/// Whether the job can be carried out as it is specified.
const ACCEPTED: &str = "Accepted";

// The conditions that Kubeflow's users know.
const CREATED: &str = "Created";
const RUNNING: &str = "Running";
const RESTARTING: &str = "Restarting";
const SUSPENDED: &str = "Suspended";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// Whether the FineTunedWeight exists that the job asks for.
const WEIGHT_CREATED: &str = "FineTunedWeightCreated";

/// What a job's status may have, in the order in which it stands there.
const TYPES: &[&str] =
    &[ACCEPTED, DECIDED, CREATED, RUNNING, RESTARTING, SUSPENDED, SUCCEEDED, FAILED, WEIGHT_CREATED, job_run::UP_TO_DATE];

/// What a pod of a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Replica {
    Worker,
    Launcher,
}

impl Replica {
    const ALL: [Self; 2] = [Self::Worker, Self::Launcher];

    /// As the labels and the status name it, and the spec.
    fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Launcher => "launcher",
        }
    }

    /// What the Job of these pods is called: the pods have `-INDEX` behind it.
    fn job_name(self, job: &str) -> String {
        format!("{job}-{}", self.name())
    }
}

/// Why there is no plan for the objects: the condition that says it.
struct PlanError {
    condition: Condition,
    again: Option<Duration>,
    /// Whether a policy had nothing to say.
    undecided: bool,
}

impl PlanError {
    /// The spec asks for what can't be.
    fn refused(reason: &str, message: String) -> Box<Self> {
        Box::new(Self { condition: Condition::no(ACCEPTED, reason, message), again: None, undecided: false })
    }
}

/// A plan in the making.
struct PlanBuilder<'a> {
    snapshot: &'a Snapshot,
    settings: &'a Settings,
    asking: Questions<'a>,
    /// The status as it was.
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
            // What runs is supervised, whatever its spec has become: a Job that exists isn't made anew.
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

    /// Nothing is known of what the job asks for: what exists stays, and its status too.
    fn unreadable(self, stop: PlanError) -> Plan {
        let status = Status { conditions: vec![stop.condition], ..Status::default() };
        Plan { status, reads: self.asking.reads, decisions: self.asking.decisions, ..Plan::default() }
    }

    /// Turns what a policy couldn't decide into the condition that says it.
    fn undecided(&self, undecided: &Undecided) -> Box<PlanError> {
        let condition = Condition::no(DECIDED, undecided.reason(), questions::undecided_message(self.snapshot, undecided));
        Box::new(PlanError { condition, again: Some(questions::POLICY_FAILURE_RETRY), undecided: true })
    }
}

/// The conditions of the steps on the way to the objects, `stopped` among them.
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
