//! ome.io: BenchmarkJob, a measurement of a service under load by genai-bench, in a batch Job.

#![allow(clippy::unnecessary_box_returns, reason = "a step's error is large, and boxed wherever it is made")]

mod arguments;
mod endpoint;
mod pod;
mod served;
mod spec;
mod state;
mod storage;
#[cfg(test)]
mod tests;

use crate::{
    condition::{Condition, DECIDED},
    decide::{Pinned, Undecided},
    kinds::{
        Kind,
        job_run::{self, RECORD_DELAY, RunRecord, UP_TO_DATE},
        questions::{self, Questions},
    },
    plan::{Object, Plan, Status, UndecidedSteps},
    resource::{BENCHMARK_JOB, JOB, Resource},
    settings::Settings,
    status::LAST_RECONCILE_TIME,
    world::{ObjectKey, OwnedObject, Snapshot},
};
use serde_json::Value;
use spec::Benchmark;
use std::time::Duration;

/// The kind BenchmarkJob.
#[derive(Debug)]
pub struct BenchmarkJobs;

/// Whether the benchmark's spec is valid.
const ACCEPTED: &str = "Accepted";
/// Whether the endpoint is reachable.
const ENDPOINT_READY: &str = "EndpointReady";
/// Whether the results exist.
const COMPLETED: &str = "Completed";

/// The steps before the Job is created, in order.
const STEPS: [&str; 3] = [ACCEPTED, ENDPOINT_READY, DECIDED];

/// Why the objects can't be planned: the condition that reports it.
struct PlanError {
    condition: Condition,
    again: Option<Duration>,
    /// Whether a policy gave no answer.
    undecided: bool,
}

impl PlanError {
    fn new(step: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { condition: Condition::no(step, reason, message), again: None, undecided: false })
    }

    /// A step that waits for something.
    fn waiting(step: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { condition: Condition::unknown(step, reason, message), again: None, undecided: false })
    }
}

/// A plan in progress.
struct PlanBuilder<'a> {
    asking: Questions<'a>,
    settings: &'a Settings,
    benchmark: Benchmark,
    /// The current status, and its record of the last run.
    before: Value,
    record: RunRecord,
}

impl Kind for BenchmarkJobs {
    fn resource(&self) -> &'static Resource {
        &BENCHMARK_JOB
    }

    fn plan(&self, snapshot: &Snapshot, policies: &Pinned<'_>, settings: &Settings) -> Plan {
        let asking = Questions::new(snapshot, policies, settings);
        let before = snapshot.subject.status();
        let mut making =
            PlanBuilder { benchmark: Benchmark::from_subject(&asking), record: RunRecord::from_status(&before), asking, settings, before };
        let made = making.objects();
        let stop = made.as_ref().err();
        let mut again = stop.and_then(|stop| stop.again);
        let undecided = if stop.is_some_and(|stop| stop.undecided) { UndecidedSteps::Some(STEPS.to_vec()) } else { UndecidedSteps::None };
        let conditions = making.conditions(stop.map(|stop| &stop.condition));
        let fields = making.fields(&conditions);
        if making.job().and_then(|job| job.observed.job.as_ref()).is_some_and(|job| job.state.has_ended()) && !making.is_recorded() {
            again = again.or(Some(RECORD_DELAY));
        }
        let Questions { reads, decisions, .. } = making.asking;
        Plan {
            objects: made.ok(),
            status: Status {
                conditions,
                fields,
                types: &[ACCEPTED, ENDPOINT_READY, DECIDED, UP_TO_DATE, COMPLETED],
                ready: Some(("Completed", "The benchmark has completed: its results are at status.resultLocation.")),
                changed_field: Some(LAST_RECONCILE_TIME),
                undecided,
            },
            reads,
            decisions,
            recheck_after: again,
            ..Plan::default()
        }
    }
}

impl PlanBuilder<'_> {
    fn key(&self) -> ObjectKey {
        ObjectKey { resource: &JOB, ..self.asking.snapshot.subject.key.clone() }
    }

    /// The Job, if it exists. A Job that is being deleted counts until it is gone.
    fn job(&self) -> Option<&OwnedObject> {
        job_run::find(self.asking.snapshot, &self.key())
    }

    /// Whether the status records the end of the existing Job.
    fn is_recorded(&self) -> bool {
        self.record.has_ended() && self.job().is_none_or(|job| self.record.is_about(job))
    }

    /// Whether the last run has ended, its Job is gone, and no other run is requested.
    fn is_over(&self) -> bool {
        self.job().is_none() && !self.record.allows_run(&self.benchmark.spec_hash)
    }

    fn objects(&mut self) -> Result<Vec<Object>, Box<PlanError>> {
        if self.is_over() {
            return Ok(Vec::new());
        }
        // If the spec is unreadable, the Job stays unchanged.
        self.benchmark.readable()?;
        let key = self.key();
        let template = if self.job().is_some() { None } else { Some(self.template(&key)?) };
        let changeable = self.changeable();
        let metadata = self.job_metadata(&key)?;
        let spec_hash = self.benchmark.spec_hash.clone();
        let object =
            job_run::object(self.asking.snapshot, key, metadata, &spec_hash, changeable, || Ok::<_, Box<PlanError>>(pod::fixed(template)))?;
        Ok(vec![object])
    }

    /// Converts a missing decision into the condition that reports it.
    fn undecided(&self, undecided: &Undecided) -> Box<PlanError> {
        let condition = Condition::no(DECIDED, undecided.reason(), questions::undecided_message(self.asking.snapshot, undecided));
        Box::new(PlanError { condition, again: Some(questions::POLICY_FAILURE_RETRY), undecided: true })
    }
}
