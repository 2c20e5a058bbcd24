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

/// Whether the service says what can be done.
const ACCEPTED: &str = "Accepted";
/// Whether there is a model that can be served.
const MODEL_READY: &str = "ModelReady";
/// Whether there is a runtime for it.
const RUNTIME_SELECTED: &str = "RuntimeSelected";
/// Whether that is the best there is.
const RUNTIME_UP_TO_DATE: &str = "RuntimeUpToDate";

/// The steps on the way to the objects, in their order.
const STEPS: [&str; 5] = [ACCEPTED, MODEL_READY, RUNTIME_SELECTED, RUNTIME_UP_TO_DATE, DECIDED];

/// Why there is no plan for the objects: the condition that says it.
#[derive(Debug)]
struct PlanError {
    condition: Condition,
    again: Option<Duration>,
    /// Whether a policy had nothing to say.
    undecided: bool,
    /// What kind of failure it is, in upstream's words.
    failure: &'static str,
}

impl PlanError {
    fn new(step: &'static str, reason: impl Into<String>, message: impl Into<String>, failure: &'static str) -> Box<Self> {
        Box::new(Self { condition: Condition::no(step, reason, message), again: None, undecided: false, failure })
    }
}

/// What a stop means for the model.
struct ModelFailure {
    /// What kind of failure it is, in upstream's words.
    kind: &'static str,
    /// What it is to blame on, as the status of its transition; none if nothing of that.
    blames: Option<&'static str>,
    message: String,
}

/// Upstream's clients read it: a service that waits for its model isn't wrong.
fn transition_status(condition: &Condition) -> Option<&'static str> {
    match condition.reason.as_str() {
        "ModelNotReady" | questions::MISSING_API | questions::MISSING_PERMISSION | "PolicyFailed" | "NoPolicy" => None,
        "ModelFailed" => Some("BlockedByFailedLoad"),
        _ => Some("InvalidSpec"),
    }
}

/// A plan in the making.
struct PlanBuilder<'a> {
    snapshot: &'a Snapshot,
    settings: &'a Settings,
    asking: Questions<'a>,
    service: Service,
    /// The status as it was.
    before: Value,
    conditions: Vec<Condition>,
    /// What a user should know of what was accepted.
    notes: Vec<Note>,
    /// What the status says of the choice of a runtime.
    choice: Option<Value>,
    /// The runtime that would be chosen now.
    next_choice: Option<String>,
}

/// What the steps have found out, as far as they came.
#[derive(Default)]
struct StepResults {
    model: Option<Arc<ModelView>>,
    runtime: Option<Arc<RuntimeView>>,
    /// The fine-tuned weights, by their names.
    weights: Vec<(String, Arc<WeightView>)>,
    components: Vec<DeployedComponent>,
    objects: Option<Vec<Object>>,
    /// The newest revision of each component.
    revisions: BTreeMap<&'static str, String>,
    /// What runs the pods of each component.
    workloads: BTreeMap<&'static str, ObjectKey>,
}

impl StepResults {
    /// The component that requests come to: the router, else the engine.
    fn entry(&self) -> Option<&DeployedComponent> {
        entry(&self.components)
    }
}

/// That the service is accepted, with what a user should know.
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

    /// Puts the plan together. Each state is told however far the steps came.
    fn finish(mut self, found: StepResults, stop: Option<Box<PlanError>>) -> Plan {
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
        let mut conditions = Vec::from(told);
        let parts = self.parts(&found);
        let fields = self.fields(&found, &parts, failure);
        conditions.extend(parts.conditions);
        Plan {
            objects: found.objects,
            status: Status { conditions, fields, types: &[], ready: None, changed_field: None, undecided },
            reads: self.asking.reads,
            decisions: self.asking.decisions,
            next_choice: self.next_choice,
            recheck_after: again,
            ..Plan::default()
        }
    }

    /// Turns what a policy couldn't decide into the condition that says it.
    fn undecided(&self, step: &'static str, undecided: &Undecided) -> Box<PlanError> {
        let condition = Condition::no(step, undecided.reason(), questions::undecided_message(self.snapshot, undecided));
        Box::new(PlanError { condition, again: Some(questions::POLICY_FAILURE_RETRY), undecided: true, failure: "RuntimeUnhealthy" })
    }

    /// A part of the status as it was.
    fn former(&self, field: &str) -> Option<Value> {
        self.before.get(field).filter(|value| !value.is_null()).cloned()
    }
}
