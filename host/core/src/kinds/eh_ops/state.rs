//! The status of a model: its reservation, its Deployment, and the fields that upstream documents.

use super::{ALLOCATED, AVAILABLE, PlanBuilder, reasons};
use crate::{
    allocation::{Entry, ObjectName, Phase, memory_text},
    condition::{Condition, DECIDED},
    kinds::workload_health::{AvailabilityPolicy, WorkloadHealth},
    memory_usage::MemoryUsage,
    resource::DEPLOYMENT,
    world::OwnedObject,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

impl PlanBuilder<'_> {
    pub(super) fn deployment(&self) -> Option<&Arc<OwnedObject>> {
        let snapshot = self.asking.snapshot;
        snapshot.child(&DEPLOYMENT, &snapshot.subject.key.name)
    }

    /// The conditions, including `stopped`.
    pub(super) fn conditions(&self, stopped: Option<&Condition>) -> Vec<Condition> {
        let mut conditions = vec![self.allocated()];
        if !matches!(self.entry.as_deref(), None | Some(Entry::External)) {
            conditions.push(Condition::satisfied(DECIDED, "Decided", "The policies have decided."));
        }
        conditions.push(self.available());
        if let Some(stopped) = stopped {
            match conditions.iter_mut().find(|condition| condition.type_ == stopped.type_) {
                Some(condition) => *condition = stopped.clone(),
                None => conditions.insert(0, stopped.clone()),
            }
        }
        conditions
    }

    /// Whether the model has a reservation, and if not, why.
    pub(super) fn allocated(&self) -> Condition {
        let no = |reason: &str, message: String| Condition::no(ALLOCATED, reason, message);
        let unknown = |message: String| Condition::unknown(ALLOCATED, reasons::PENDING, message);
        let needs = self.model.needs;
        let condition = match self.entry.as_deref() {
            None => match &self.asking.snapshot.unallocated {
                Some(why) => unknown(format!("Memory can't be allocated to models: {why}.")),
                None => unknown("It has no node yet.".to_owned()),
            },
            Some(Entry::Placed { held, .. }) if self.is_deleted() => {
                let message = match held.phase {
                    Phase::Stopping => format!("It is being deleted: its pod on the node {} ends.", held.node),
                    _ => "It is being deleted, once the requests in flight are answered.".to_owned(),
                };
                no(reasons::TERMINATING, message)
            }
            Some(_) if self.is_deleted() => no(reasons::TERMINATING, "It is being deleted.".to_owned()),
            Some(Entry::External) => {
                let message = "It has no spec.containerImage: requests go to spec.backendUrl, and no memory is reserved for it.";
                Condition::satisfied(ALLOCATED, "External", message)
            }
            Some(Entry::Assumed) => unknown("Without nodes its placement is unknown: add --nodes FILE.".to_owned()),
            Some(Entry::Asleep) if self.model.off => {
                no(reasons::SCALED_TO_ZERO, "It sleeps, because spec.maxReplicas is 0: set it to 1 to run it.".to_owned())
            }
            Some(Entry::Asleep) => no(reasons::SCALED_TO_ZERO, "It sleeps, because it has no requests. A request wakes it.".to_owned()),
            Some(Entry::Placed { held, starts_after, unseen }) => match &held.phase {
                Phase::Draining(reason) => {
                    no(reasons::SCALED_TO_ZERO, format!("It goes to sleep once the requests in flight are answered. {}", reason.sentence()))
                }
                Phase::Stopping => no(reasons::SCALED_TO_ZERO, format!("Its pod on the node {} ends.", held.node)),
                Phase::Admitted if !starts_after.is_empty() => {
                    let names: Vec<String> = starts_after.iter().map(|key| ObjectName::new(key).to_string()).collect();
                    unknown(format!("It starts once its dependencies are Ready: {}.", names.join(", ")))
                }
                Phase::Admitted => {
                    let reserved = format!("{} are reserved for it on the node {}.", memory_text(held.amounts.memory), held.node);
                    let bypass = " It is never put to sleep, because no gateway has seen a request for it since it was Ready.";
                    Condition::satisfied(ALLOCATED, "Admitted", if *unseen { reserved + bypass } else { reserved })
                }
            },
            Some(Entry::Waiting(waiting)) if waiting.is_coming || waiting.dependency.is_some() => unknown(waiting.sentence(needs)),
            Some(Entry::Waiting(waiting)) => no(reasons::INSUFFICIENT_MEMORY, waiting.sentence(needs)),
            Some(Entry::Refused(refusal)) => {
                no(if refusal.is_about_room() { reasons::INSUFFICIENT_MEMORY } else { reasons::FAILED }, refusal.sentence(needs))
            }
        };
        let message =
            [vec![condition.message], self.problems.iter().map(|problem| format!("Note: {problem}.")).collect()].concat().join(" ");
        Condition { message, ..condition }
    }

    /// Whether the Deployment is available, with upstream's reasons.
    fn available(&self) -> Condition {
        if matches!(self.entry.as_deref(), Some(Entry::External)) {
            return Condition::satisfied(AVAILABLE, reasons::DEPLOYED, "It runs outside of the cluster: its health is unknown.");
        }
        let Some(live) = self.deployment() else {
            return if self.runs() {
                Condition::unknown(AVAILABLE, reasons::DEPLOYING, "Its Deployment isn't available yet.")
            } else {
                Condition::no(AVAILABLE, reasons::SCALED_TO_ZERO, "It is scaled to zero.")
            };
        };
        let WorkloadHealth { condition, .. } =
            WorkloadHealth::observe(AVAILABLE, live, self.asking.snapshot.pods.iter(), AvailabilityPolicy::AsItSays);
        let is_stopped = live.observed.replicas == Some(0);
        match condition.status {
            Some(true) if is_stopped => Condition::no(AVAILABLE, reasons::SCALED_TO_ZERO, "It is scaled to zero."),
            Some(true) => Condition::satisfied(AVAILABLE, reasons::DEPLOYED, condition.message),
            Some(false) => Condition::no(AVAILABLE, reasons::FAILED, condition.message),
            None => Condition::unknown(AVAILABLE, reasons::DEPLOYING, condition.message),
        }
    }

    /// The fields of the status.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let (current, available) = self.deployment().map_or((0, 0), |live| (live.observed.current, live.observed.available));
        let is_served = match self.entry.as_deref() {
            Some(Entry::External) => true,
            Some(Entry::Placed { held, .. }) => held.phase == Phase::Admitted && available > 0,
            _ => false,
        };
        let usage = self.deployment().and_then(|live| live.observed.memory_usage.as_deref());
        let declared = self.spec["memory"].as_str().unwrap_or_default();
        let memory = MemoryUsage::fields(usage, declared);
        let fields = [("ready", json!(is_served)), ("replicas", json!(current))].into_iter().chain(memory);
        fields.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
