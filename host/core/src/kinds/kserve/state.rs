//! The conditions of the parts of a service, from the state of its objects and pods.

use super::{
    COMBINED, DECIDED, GATEWAYS_READY, HTTP_ROUTES, POOL, PlanBuilder, ROUTER, SCHEDULER_READY, StepResults, WORKLOADS,
    metadata::SCHEDULER,
    router::SCHEDULER_NAME,
    service::{Workload, WorkloadRole},
};
use crate::{
    condition::Condition,
    kinds::workload_health::{AvailabilityPolicy, WorkloadHealth},
    resource::{DEPLOYMENT, LEADER_WORKER_SET},
};
use pointsman_sandbox::point::Role;

impl WorkloadRole {
    pub(super) const fn condition(self) -> &'static str {
        match self {
            Self::Main => "MainWorkloadReady",
            Self::Prefill => "PrefillWorkloadReady",
        }
    }

    /// The type of the condition for the workers of its groups.
    const fn of_workers(self) -> &'static str {
        match self {
            Self::Main => "WorkerWorkloadReady",
            Self::Prefill => "PrefillWorkerWorkloadReady",
        }
    }
}

impl PlanBuilder<'_> {
    /// The conditions of all parts, including `stopped`.
    pub(super) fn conditions(&self, found: &StepResults, stopped: Option<&Condition>) -> Vec<Condition> {
        let mut told = Vec::new();
        let combined = stopped.filter(|stopped| stopped.type_ == COMBINED).cloned();
        told.push(combined.unwrap_or_else(|| match self.service.notes.join(" ") {
            notes if notes.is_empty() => {
                Condition::satisfied(COMBINED, "Combined", "The service, its base configurations and the presets are combined.")
            }
            notes => Condition::satisfied(COMBINED, "Ignored", notes).with_event(),
        }));
        told.push(match stopped {
            Some(stopped) if stopped.type_ == DECIDED => stopped.clone(),
            None => Condition::satisfied(DECIDED, "Decided", "The policies have decided."),
            Some(stopped) => Condition::unknown(DECIDED, "Blocked", format!("Waiting for {}.", stopped.type_)),
        });
        let mut workloads: Vec<Condition> = WorkloadRole::ALL.into_iter().flat_map(|part| self.of_workload(part, found)).collect();
        let mut router = self.of_router_parts(found);
        for condition in workloads.iter_mut().chain(&mut router) {
            if let Some(stopped) = stopped.filter(|stopped| stopped.type_ == condition.type_) {
                *condition = stopped.clone();
            }
        }
        let of_workloads = WorkloadRole::ALL.map(|part| [part.condition(), part.of_workers()]).concat();
        for (type_, types, mut parts, well) in [
            (WORKLOADS, of_workloads, workloads, "All workloads are available."),
            (ROUTER, vec![GATEWAYS_READY, HTTP_ROUTES, POOL, SCHEDULER_READY], router, "The service is reachable."),
        ] {
            let former = self.former(&types, &parts);
            let all = all(type_, [&parts, &former], well);
            let some = type_ == WORKLOADS || !parts.is_empty() || !former.is_empty();
            told.append(&mut parts);
            told.extend(Some(all).filter(|_| some));
        }
        told
    }

    /// The previous conditions of the parts of an unreadable service, except for parts that were observed.
    fn former(&self, types: &[&'static str], seen: &[Condition]) -> Vec<Condition> {
        if !self.service.workloads.is_empty() {
            return Vec::new();
        }
        let before = self.asking.snapshot.subject.status();
        let untold = types.iter().filter(|type_| seen.iter().all(|seen| seen.type_ != **type_));
        let told = untold.filter_map(|type_| {
            let told = before["conditions"].as_array()?.iter().find(|told| told["type"] == **type_)?;
            let status =
                [("True", true), ("False", false)].into_iter().find_map(|(word, status)| (told["status"] == word).then_some(status));
            let text = |field: &str| told[field].as_str().unwrap_or_default();
            Some(Condition::new(type_, status, text("reason"), text("message")))
        });
        told.collect()
    }

    fn of_workload(&self, part: WorkloadRole, found: &StepResults) -> Vec<Condition> {
        let snapshot = self.asking.snapshot;
        let wanted = self.service.workload(part);
        let live = part.workloads(&snapshot.subject.key.name).into_iter().find_map(|(resource, name)| snapshot.child(resource, &name));
        let live = live.filter(|live| !live.deleting);
        let fares = match (live, wanted) {
            (Some(live), _) => {
                let components = [Role::Main, Role::Leader, Role::Worker].map(|place| part.component(place));
                let pods = snapshot.pods.iter().filter(|pod| components.contains(&pod.component));
                WorkloadHealth::observe(part.condition(), live, pods, AvailabilityPolicy::AsItSays)
            }
            (None, Some(Workload { runs: (resource, name), .. })) if found.objects.is_some() => {
                WorkloadHealth::being_created(part.condition(), resource, name)
            }
            (None, wanted) if wanted.is_some() || part == WorkloadRole::Main => {
                let message = format!("There is no {} yet: the other conditions give the reason.", part.name());
                WorkloadHealth::absent(Condition::unknown(part.condition(), "Blocked", message))
            }
            (None, _) => return Vec::new(),
        };
        // If the service is unreadable, the existing object determines this.
        let runs = wanted.map(|wanted| wanted.runs.0).or_else(|| Some(live?.key.resource));
        let of_workers = (runs == Some(&LEADER_WORKER_SET)).then(|| Condition { type_: part.of_workers(), ..fares.condition.clone() });
        [Some(fares.condition), of_workers].into_iter().flatten().collect()
    }

    fn of_router_parts(&self, found: &StepResults) -> Vec<Condition> {
        let mut told = Vec::new();
        if self.routed() {
            told.push(self.of_gateways());
            told.push(self.of_routes(found));
        }
        if self.service.scheduled() {
            told.push(self.of_pool(found));
        }
        told.extend(self.of_scheduler_pods(found));
        told
    }

    fn of_scheduler_pods(&self, found: &StepResults) -> Option<Condition> {
        let snapshot = self.asking.snapshot;
        let name = format!("{}{SCHEDULER_NAME}", self.service.name);
        let live = snapshot.child(&DEPLOYMENT, &name).filter(|live| !live.deleting);
        let fares = match live {
            Some(live) => {
                let pods = snapshot.pods.iter().filter(|pod| pod.component == SCHEDULER);
                // One ready replica is enough. Of several of llm-d's, only the leader is ever ready.
                WorkloadHealth::observe(SCHEDULER_READY, live, pods, AvailabilityPolicy::One)
            }
            None if !self.service.scheduled() => return None,
            None if found.objects.is_some() => WorkloadHealth::being_created(SCHEDULER_READY, &DEPLOYMENT, &name),
            None => {
                let message = "There is no scheduler yet: the other conditions give the reason.";
                WorkloadHealth::absent(Condition::unknown(SCHEDULER_READY, "Blocked", message))
            }
        };
        Some(fares.condition)
    }
}

/// The condition of the first part that isn't ready, or that all are ready.
fn all(type_: &'static str, parts: [&[Condition]; 2], well: &str) -> Condition {
    let first = |status: Option<bool>| parts.into_iter().flatten().find(|part| part.status == status);
    match first(Some(false)).or_else(|| first(None)) {
        Some(part) => Condition { type_, emits_event: false, ..part.clone() },
        None => Condition::satisfied(type_, "Ready", well),
    }
}
