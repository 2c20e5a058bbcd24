//! ome.io: InferenceService.

#![allow(clippy::unnecessary_box_returns, reason = "a step's error is large, and boxed wherever it is made")]

mod adopted;
pub mod benchmark_job;
mod choice;
mod component;
mod keys;
mod metadata;
mod mode;
mod model;
mod objects;
mod pods;
mod predictor;
mod revision;
mod scaling;
mod serverless;
mod service;
mod state;
pub mod training_job;

use super::{
    Kind,
    questions::{self, Questions},
};
use crate::{
    condition::{Condition, DECIDED},
    decide::{Pinned, Undecided},
    plan::{Object, Plan, Status, UndecidedSteps},
    resource::{INFERENCE_SERVICE, Resource},
    settings::Settings,
    world::{
        ObjectKey, Snapshot,
        ome::{ModelView, RuntimeView, WeightView},
    },
};
use component::{ComponentKind, DeployedComponent, KNATIVE_FEATURES, Note};
use metadata::Sources;
use serde_json::Value;
use service::Service;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The kind InferenceService.
#[derive(Debug)]
pub struct InferenceServices;

/// Whether the service's spec is valid.
const ACCEPTED: &str = "Accepted";
/// Whether the model can be served.
const MODEL_READY: &str = "ModelReady";
/// Whether a runtime is selected.
const RUNTIME_SELECTED: &str = "RuntimeSelected";
/// Whether it is the best one.
const RUNTIME_UP_TO_DATE: &str = "RuntimeUpToDate";

/// The steps before the objects are planned, in order.
const STEPS: [&str; 5] = [ACCEPTED, MODEL_READY, RUNTIME_SELECTED, RUNTIME_UP_TO_DATE, DECIDED];

/// Why the objects can't be planned: the condition that reports it.
#[derive(Debug)]
struct PlanError {
    condition: Condition,
    again: Option<Duration>,
    /// Whether a policy gave no answer.
    undecided: bool,
    /// The kind of failure, in upstream's terms.
    failure: &'static str,
}

impl PlanError {
    fn new(step: &'static str, reason: impl Into<String>, message: impl Into<String>, failure: &'static str) -> Box<Self> {
        Box::new(Self { condition: Condition::no(step, reason, message), again: None, undecided: false, failure })
    }
}

/// The effect of a failed step on the model's status.
struct ModelFailure {
    /// The kind of failure, in upstream's terms.
    kind: &'static str,
    /// The transition status, if the failure has a cause for one.
    blames: Option<&'static str>,
    message: String,
}

/// For upstream's clients: a service that waits for its model isn't invalid.
fn transition_status(condition: &Condition) -> Option<&'static str> {
    match condition.reason.as_str() {
        "ModelNotReady" | questions::MISSING_API | questions::MISSING_PERMISSION | "PolicyFailed" | "NoPolicy" => None,
        "ModelFailed" => Some("BlockedByFailedLoad"),
        _ => Some("InvalidSpec"),
    }
}

/// A plan in progress.
struct PlanBuilder<'a> {
    snapshot: &'a Snapshot,
    settings: &'a Settings,
    asking: Questions<'a>,
    service: Service,
    /// The current status.
    before: Value,
    conditions: Vec<Condition>,
    /// Notes for the user on the accepted spec.
    notes: Vec<Note>,
    /// The choice of a runtime for the status.
    choice: Option<Value>,
    /// The runtime that would be chosen now.
    next_choice: Option<String>,
}

/// The results of the completed steps.
#[derive(Default)]
struct StepResults {
    model: Option<Arc<ModelView>>,
    runtime: Option<Arc<RuntimeView>>,
    /// The fine-tuned weights, by name.
    weights: Vec<(String, Arc<WeightView>)>,
    components: Vec<DeployedComponent>,
    objects: Option<Vec<Object>>,
    /// The latest revision of each component.
    revisions: BTreeMap<&'static str, String>,
    /// The object that runs the pods of each component.
    workloads: BTreeMap<&'static str, ObjectKey>,
}

impl StepResults {
    /// The component that receives requests: the router, otherwise the engine.
    fn entry(&self) -> Option<&DeployedComponent> {
        entry(&self.components)
    }
}

/// The condition for an accepted service, with notes for the user.
fn accepted(notes: &[Note]) -> Condition {
    let Some((first, _)) = notes.first() else { return Condition::satisfied(ACCEPTED, "Accepted", "The spec is valid.") };
    let warning = notes.iter().map(|(reason, _)| *reason).find(|reason| *reason != KNATIVE_FEATURES);
    let texts: Vec<&str> = notes.iter().map(|(_, text)| text.as_str()).collect();
    let condition = Condition::satisfied(ACCEPTED, warning.unwrap_or(first), texts.join(" "));
    if warning.is_some() { condition.with_event() } else { condition }
}

fn entry(components: &[DeployedComponent]) -> Option<&DeployedComponent> {
    components.iter().rfind(|component| component.part != ComponentKind::Decoder)
}

impl Kind for InferenceServices {
    fn resource(&self) -> &'static Resource {
        &INFERENCE_SERVICE
    }

    fn adopted_names(&self, snapshot: &Snapshot) -> BTreeMap<ObjectKey, ObjectKey> {
        adopted::stand_ins(snapshot)
    }

    fn has_pending_request(&self, snapshot: &Snapshot, status: &Value) -> bool {
        let chosen = &status["runtime"];
        let request = &snapshot.subject.content()["metadata"]["annotations"][choice::CHOOSE_RUNTIME];
        chosen.is_object() && chosen["chosenOnRequest"].as_str() != request.as_str()
    }

    fn plan(&self, snapshot: &Snapshot, policies: &Pinned<'_>, settings: &Settings) -> Plan {
        let mut making = PlanBuilder {
            snapshot,
            settings,
            asking: Questions::new(snapshot, policies, settings),
            service: Service::default(),
            before: snapshot.subject.status(),
            conditions: Vec::new(),
            notes: Vec::new(),
            choice: None,
            next_choice: None,
        };
        let mut found = StepResults::default();
        let stop = making.steps(&mut found).err();
        making.finish(found, stop)
    }
}

impl PlanBuilder<'_> {
    fn steps(&mut self, found: &mut StepResults) -> Result<(), Box<PlanError>> {
        self.service = Service::read(&self.asking)?;
        self.service.check()?;
        found.model = self.model()?;
        found.weights = self.weights(found.model.as_deref())?;
        found.runtime = self.runtime(found.model.as_ref())?;
        let (components, notes) = self.components(found.runtime.as_deref())?;
        self.notes = notes;
        let mut sources = Sources::new(found.model.as_deref(), found.runtime.as_deref(), &found.weights);
        let made = self.objects(&mut sources, &components)?;
        found.components = components;
        found.revisions = made.revisions;
        found.workloads = made.workloads;
        found.objects = Some(made.objects);
        self.conditions.push(Condition::satisfied(DECIDED, "Decided", "The policies have decided."));
        Ok(())
    }

    /// Builds the plan. All conditions are reported, even if a step failed.
    fn finish(mut self, mut found: StepResults, stop: Option<Box<PlanError>>) -> Plan {
        let (mut again, mut failure, mut stopped, mut undecided) = (None, None, None, UndecidedSteps::None);
        if let Some(stop) = stop {
            failure = Some(ModelFailure {
                kind: stop.failure,
                blames: transition_status(&stop.condition),
                message: stop.condition.message.clone(),
            });
            again = stop.again;
            if stop.undecided {
                undecided = UndecidedSteps::Some(STEPS.to_vec());
            }
            stopped = Some(stop.condition);
        }
        let at = stopped.as_ref().map(|condition| condition.type_);
        let told = STEPS.map(|step| {
            if at == Some(step)
                && let Some(condition) = stopped.take()
            {
                return condition;
            }
            let known = self.conditions.iter().position(|condition| condition.type_ == step).map(|place| self.conditions.remove(place));
            known.unwrap_or_else(|| match (step, at) {
                (ACCEPTED, _) => accepted(&self.notes),
                (RUNTIME_UP_TO_DATE, _) => Condition::unknown(step, "Blocked", format!("Waiting for {RUNTIME_SELECTED}.")).optional(),
                (_, at) => Condition::unknown(step, "Blocked", format!("Waiting for {}.", at.unwrap_or(ACCEPTED))),
            })
        });
        let conditions = Vec::from(told);
        let is_new = found.objects.is_some() && self.snapshot.children.is_empty();
        let if_denied = is_new.then(|| (conditions.clone(), undecided.clone()));
        let status = self.status(conditions, &found, failure, undecided);
        let objects = found.objects.take();
        // If the rules deny the objects of a new service, it has none and isn't reachable.
        let status_if_denied = if_denied.map(|(conditions, undecided)| {
            found.revisions.clear();
            found.workloads.clear();
            self.status(conditions, &found, None, undecided)
        });
        Plan {
            objects,
            status,
            status_if_denied,
            reads: self.asking.reads,
            decisions: self.asking.decisions,
            next_choice: self.next_choice,
            recheck_after: again,
            ..Plan::default()
        }
    }

    /// The status with the conditions of the steps and those of the parts.
    fn status(
        &self,
        mut conditions: Vec<Condition>,
        found: &StepResults,
        failure: Option<ModelFailure>,
        undecided: UndecidedSteps,
    ) -> Status {
        let parts = self.parts(found);
        let fields = self.fields(found, &parts, failure);
        conditions.extend(parts.conditions);
        Status { conditions, fields, types: &[], ready: None, changed_field: None, undecided }
    }

    /// Converts a missing decision into the condition that reports it.
    fn undecided(&self, step: &'static str, undecided: &Undecided) -> Box<PlanError> {
        let condition = Condition::no(step, undecided.reason(), questions::undecided_message(self.snapshot, undecided));
        Box::new(PlanError { condition, again: Some(questions::POLICY_FAILURE_RETRY), undecided: true, failure: "RuntimeUnhealthy" })
    }

    /// A field of the current status.
    fn former(&self, field: &str) -> Option<Value> {
        self.before.get(field).filter(|value| !value.is_null()).cloned()
    }
}
