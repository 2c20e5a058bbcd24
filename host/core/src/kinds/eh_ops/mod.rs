//! inference.eh-ops.io: InferenceModel, a model server that competes for the memory of nodes and sleeps while it has no requests.
//!
//! The allocation decides on which node it runs and whether it is awake; the plan contains the objects for that.

#![allow(clippy::unnecessary_box_returns, reason = "a step's error is large, and boxed wherever it is made")]

mod backend;
mod objects;
mod state;

use super::{
    Kind,
    questions::{self, Questions},
};
use crate::{
    allocation::{Entry, Model, Phase},
    condition::{Condition, DECIDED},
    decide::{Pinned, Undecided},
    objects::strings,
    plan::{Object, Plan, Status, UndecidedSteps},
    resource::{INFERENCE_MODEL, Resource},
    settings::Settings,
    world::Snapshot,
};
use pointsman_sandbox::{digest::Digested, point::Subject};
use std::{sync::Arc, time::Duration};

/// The kind `InferenceModel`.
#[derive(Debug)]
pub struct InferenceModels;

/// The port of a model's server.
pub const PORT: u16 = 8080;

/// Whether the model has a reservation.
pub const ALLOCATED: &str = "Allocated";
/// Whether its Deployment is available.
const AVAILABLE: &str = "Available";

/// The reasons that upstream documents.
mod reasons {
    pub(super) const DEPLOYING: &str = "Deploying";
    pub(super) const DEPLOYED: &str = "Deployed";
    pub(super) const FAILED: &str = "Failed";
    pub(super) const INSUFFICIENT_MEMORY: &str = "InsufficientMemory";
    pub(super) const SCALED_TO_ZERO: &str = "ScaledToZero";
    pub(super) const PENDING: &str = "Pending";
    pub(super) const TERMINATING: &str = "Terminating";
}

/// Why the objects can't be planned: the condition that reports it.
struct PlanError {
    condition: Condition,
    again: Option<Duration>,
    /// Whether a policy gave no answer.
    undecided: bool,
}

/// A plan in progress.
struct PlanBuilder<'a> {
    asking: Questions<'a>,
    subject: Digested<Subject>,
    /// The model, as for the allocation.
    model: Model,
    /// Its invalid fields.
    problems: Vec<String>,
    spec: serde_json::Value,
    entry: Option<Arc<Entry>>,
}

impl Kind for InferenceModels {
    fn resource(&self) -> &'static Resource {
        &INFERENCE_MODEL
    }

    fn plan(&self, snapshot: &Snapshot, policies: &Pinned<'_>, settings: &Settings) -> Plan {
        let mut content = snapshot.subject.content();
        let asking = Questions::new(snapshot, policies, settings);
        let map = |name: &str| strings(&content["metadata"][name]);
        let subject = asking.subject(&map("labels"), &map("annotations"));
        let (model, problems) = Model::from_content(&content, 0);
        let mut making = PlanBuilder { asking, subject, model, problems, spec: content["spec"].take(), entry: snapshot.allocated.clone() };
        let made = making.objects();
        let stop = made.as_ref().err();
        let again = stop.and_then(|stop| stop.again);
        let undecided = if stop.is_some_and(|stop| stop.undecided) { UndecidedSteps::Some(vec![DECIDED]) } else { UndecidedSteps::None };
        let conditions = making.conditions(stop.map(|stop| &stop.condition));
        let fields = making.fields();
        let Questions { reads, decisions, .. } = making.asking;
        Plan {
            objects: made.ok(),
            status: Status {
                conditions,
                fields,
                types: &[ALLOCATED, AVAILABLE, DECIDED],
                undecided,
                changed_field: None,
                ready: Some((reasons::DEPLOYED, "Requests are served.")),
            },
            reads,
            decisions,
            recheck_after: again,
            ..Plan::default()
        }
    }
}

impl PlanBuilder<'_> {
    /// Whether its Deployment needs a pod.
    fn runs(&self) -> bool {
        match self.entry.as_deref() {
            // A running pod isn't stopped while a dependency restarts.
            Some(Entry::Placed { held, starts_after, .. }) if held.phase != Phase::Stopping => starts_after.is_empty() || self.is_running(),
            Some(Entry::Assumed) => true,
            _ => false,
        }
    }

    fn is_deleted(&self) -> bool {
        self.asking.snapshot.subject.deleting
    }

    fn is_running(&self) -> bool {
        self.deployment().is_some_and(|live| live.observed.replicas.unwrap_or(1) > 0)
    }

    fn objects(&mut self) -> Result<Vec<Object>, Box<PlanError>> {
        match self.entry.as_deref() {
            // Its reservation is unknown: existing objects stay unchanged.
            None => Err(PlanError::new(self.allocated())),
            // Policies aren't called for a model that is being deleted: a failing policy would block its deletion.
            Some(Entry::Placed { held, .. }) if self.is_deleted() && held.phase != Phase::Stopping => Err(PlanError::new(self.allocated())),
            Some(_) if self.is_deleted() => Ok(Vec::new()),
            Some(Entry::External) => Ok(Vec::new()),
            // It has become external: its Deployment stays unchanged until its pod is gone.
            Some(Entry::Placed { .. }) if self.model.external => Err(PlanError::new(self.allocated())),
            Some(Entry::Placed { held, .. }) if held.phase != Phase::Stopping && !self.model.needs.fit(held.amounts) => {
                let lacking = self.model.needs.lacking(held.amounts, "free");
                let message = format!(
                    "It stays on the node {} with its previous requests: it needs {lacking}. It changes once a node has room for that.",
                    held.node
                );
                Err(PlanError::new(Condition::no(ALLOCATED, reasons::INSUFFICIENT_MEMORY, message)))
            }
            Some(_) => Ok([Some(self.workload()?), self.service()?].into_iter().flatten().collect()),
        }
    }

    /// Converts a missing decision into the condition that reports it.
    fn undecided(&self, undecided: &Undecided) -> Box<PlanError> {
        let condition = Condition::no(DECIDED, undecided.reason(), questions::undecided_message(self.asking.snapshot, undecided));
        Box::new(PlanError { condition, again: Some(questions::POLICY_FAILURE_RETRY), undecided: true })
    }
}

impl PlanError {
    fn new(condition: Condition) -> Box<Self> {
        Box::new(Self { condition, again: None, undecided: false })
    }
}

#[cfg(test)]
mod tests;
