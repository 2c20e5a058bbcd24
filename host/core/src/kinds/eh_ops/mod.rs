//! inference.eh-ops.io: InferenceModel, a model server that competes with others for the memory of its nodes, and sleeps while nobody asks.
//!
//! Where it runs and whether it is awake is for the allocation to say; the plan makes the objects of that.

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

/// The port on which a model's server answers.
pub const PORT: u16 = 8080;

/// Whether the model has a place in memory.
pub const ALLOCATED: &str = "Allocated";
/// Whether its Deployment works.
const AVAILABLE: &str = "Available";

/// The reasons of the page.
mod reasons {
    pub(super) const DEPLOYING: &str = "Deploying";
    pub(super) const DEPLOYED: &str = "Deployed";
    pub(super) const FAILED: &str = "Failed";
    pub(super) const INSUFFICIENT_MEMORY: &str = "InsufficientMemory";
    pub(super) const SCALED_TO_ZERO: &str = "ScaledToZero";
    pub(super) const PENDING: &str = "Pending";
    pub(super) const TERMINATING: &str = "Terminating";
}

/// Why there is no plan for the objects: the condition that says it.
struct PlanError {
    condition: Condition,
    again: Option<Duration>,
    /// Whether a policy had nothing to say.
    undecided: bool,
}

/// A plan in the making.
struct PlanBuilder<'a> {
    asking: Questions<'a>,
    subject: Digested<Subject>,
    /// As the allocation reads it.
    model: Model,
    /// What of it can't be read.
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
    /// Whether its Deployment is to have a pod.
    fn runs(&self) -> bool {
        match self.entry.as_deref() {
            // A pod that runs goes on while what it depends on restarts.
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
            // Nothing is known of its place: what there is stays.
            None => Err(PlanError::new(self.allocated())),
            // No policy is asked what goes: one that fails would keep the model from being deleted.
            Some(Entry::Placed { held, .. }) if self.is_deleted() && held.phase != Phase::Stopping => Err(PlanError::new(self.allocated())),
            Some(_) if self.is_deleted() => Ok(Vec::new()),
            Some(Entry::External) => Ok(Vec::new()),
            // It has become external: until its pod has gone, its Deployment stays as it is.
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

    /// Turns what a policy couldn't decide into the condition that says it.
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
