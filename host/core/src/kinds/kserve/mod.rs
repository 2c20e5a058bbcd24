//! serving.kserve.io: LLMInferenceService.

#![allow(clippy::unnecessary_box_returns, reason = "a step's error is large, and boxed wherever it is made")]

mod combine;
mod metadata;
mod preset;
mod reached;
mod route_scope;
mod router;
mod scaler;
mod scheduler;
mod service;
mod state;
mod template;
mod workload;

use super::{
    Kind,
    questions::{self, Questions},
};
use crate::{
    condition::{Condition, DECIDED},
    decide::{Pinned, Undecided},
    plan::{Object, Plan, Status, UndecidedSteps},
    resource::{GATEWAY, HTTP_ROUTE, INFERENCE_POOL, LLM_INFERENCE_SERVICE, Resource},
    settings::Settings,
    world::{
        ObjectKey, Read, Snapshot,
        referenced::{Parent, ReferencedObject},
    },
};
use pointsman_sandbox::{digest::Digested, point::propagation::Layer};
use serde_json::Value;
use service::Service;
use std::{sync::Arc, time::Duration};

/// The kind `LLMInferenceService`.
#[derive(Debug)]
pub struct LlmInferenceServices;

/// Whether the service, its base configurations and the presets form a valid spec.
const COMBINED: &str = "PresetsCombined";
/// Whether all workloads are ready.
const WORKLOADS: &str = "WorkloadsReady";
/// Whether the Gateways of the routes are ready.
const GATEWAYS_READY: &str = "GatewaysReady";
/// Whether the Gateways have accepted the routes.
const HTTP_ROUTES: &str = "HTTPRoutesReady";
/// Whether the Gateways have accepted the pool.
const POOL: &str = "InferencePoolReady";
/// Whether the scheduler is ready.
const SCHEDULER_READY: &str = "SchedulerWorkloadReady";
/// Whether requests reach the service.
const ROUTER: &str = "RouterReady";

/// All condition types. Upstream's clients wait for the types that they know; the conditions of a removed part are removed.
const TYPES: [&str; 12] = [
    COMBINED,
    DECIDED,
    "MainWorkloadReady",
    "WorkerWorkloadReady",
    "PrefillWorkloadReady",
    "PrefillWorkerWorkloadReady",
    WORKLOADS,
    GATEWAYS_READY,
    HTTP_ROUTES,
    POOL,
    SCHEDULER_READY,
    ROUTER,
];

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
}

/// A plan in progress.
struct PlanBuilder<'a> {
    asking: Questions<'a>,
    settings: &'a Settings,
    service: Service,
    /// The sources of labels and annotations: the same for every object.
    layers: Digested<Vec<Layer>>,
    /// The planned route, and all existing routes to the service.
    route: Option<Value>,
    routes: Vec<Arc<ReferencedObject>>,
}

/// The results of the completed steps.
#[derive(Default)]
struct StepResults {
    objects: Option<Vec<Object>>,
}

impl Kind for LlmInferenceServices {
    fn resource(&self) -> &'static Resource {
        &LLM_INFERENCE_SERVICE
    }

    fn plan(&self, snapshot: &Snapshot, policies: &Pinned<'_>, settings: &Settings) -> Plan {
        let mut making = PlanBuilder {
            asking: Questions::new(snapshot, policies, settings),
            settings,
            service: Service::default(),
            layers: Digested::default(),
            route: None,
            routes: Vec::new(),
        };
        let mut found = StepResults::default();
        let stop = making.steps(&mut found).err();
        let again = stop.as_ref().and_then(|stop| stop.again);
        let undecided = match &stop {
            Some(stop) if stop.undecided => UndecidedSteps::Some(vec![COMBINED, DECIDED]),
            _ => UndecidedSteps::None,
        };
        let conditions = making.conditions(&found, stop.as_ref().map(|stop| &stop.condition));
        // If the service is unreadable, its parts are unknown: their conditions stay unchanged.
        let types: &[_] = if making.service.workloads.is_empty() { &[] } else { &TYPES };
        let fields = making.fields(&found);
        let Questions { reads, decisions, .. } = making.asking;
        Plan {
            objects: found.objects,
            status: Status { conditions, fields, types, ready: None, changed_field: None, undecided },
            reads,
            decisions,
            recheck_after: again,
            ..Plan::default()
        }
    }
}

impl PlanBuilder<'_> {
    fn steps(&mut self, found: &mut StepResults) -> Result<(), Box<PlanError>> {
        let key = &self.asking.snapshot.subject.key;
        // Set first, because the conditions of existing parts need them even if the rest fails.
        (self.service.name, self.service.namespace) = (key.name.clone(), key.namespace.clone());
        self.service = Service::read(&mut self.asking, self.settings)?;
        self.layers = self.metadata_layers();
        self.route = self.route_spec();
        self.check_route()?;
        self.routes = self.find_routes();
        self.asking.reads.extend(self.named_objects());
        let key = |parent: Parent| ObjectKey { resource: &GATEWAY, namespace: parent.namespace, name: parent.name };
        let gateways = self.gateways().into_iter().map(key);
        self.asking.reads.extend(gateways.map(Read::Object));
        let mut objects = vec![self.reaching()?];
        for workload in self.service.workloads.clone() {
            objects.append(&mut self.deployed(&workload)?);
        }
        objects.append(&mut self.scheduler()?);
        objects.extend(self.route()?);
        found.objects = Some(objects);
        Ok(())
    }

    /// The objects of other owners that the service names.
    fn named_objects(&self) -> Vec<Read> {
        let key = |resource: &'static Resource, name: String| {
            Read::Object(ObjectKey { resource, namespace: self.service.namespace.clone(), name })
        };
        let pool = (self.service.scheduled() && !self.own_pool()).then(|| key(&INFERENCE_POOL, self.pool_name()));
        self.route_refs().into_iter().map(|name| key(&HTTP_ROUTE, name)).chain(pool).collect()
    }

    /// Converts a missing decision into the condition that reports it.
    fn undecided(&self, undecided: &Undecided) -> Box<PlanError> {
        let condition = Condition::no(DECIDED, undecided.reason(), questions::undecided_message(self.asking.snapshot, undecided));
        Box::new(PlanError { condition, again: Some(questions::POLICY_FAILURE_RETRY), undecided: true })
    }
}
