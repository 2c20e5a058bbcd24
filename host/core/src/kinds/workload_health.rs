//! The health of workloads, for all kinds.

use crate::{
    condition::{Condition, UPDATE_STUCK},
    resource::Resource,
    world::{OwnedObject, Pod, pod::PodFailure},
};
use std::sync::Arc;

/// The health of a Deployment or a LeaderWorkerSet.
pub(super) struct WorkloadHealth {
    pub(super) condition: Condition,
    /// Whether all its pods have the latest template and are available.
    pub(super) rolled_out: bool,
    /// The number of its available replicas.
    pub(super) ready: i64,
    pub(super) failing: Vec<(String, PodFailure)>,
}

/// When a workload counts as available.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AvailabilityPolicy {
    /// If its condition is true: with nearly all replicas.
    AsItSays,
    /// With one replica.
    One,
}

impl WorkloadHealth {
    /// Determines the health from the workload's status and its pods.
    pub(super) fn observe<'p>(
        type_: &'static str,
        live: &OwnedObject,
        pods: impl Iterator<Item = &'p Arc<Pod>>,
        enough: AvailabilityPolicy,
    ) -> Self {
        let observed = &live.observed;
        let failing: Vec<(String, PodFailure)> = pods.filter_map(|pod| Some((pod.name.clone(), pod.failure.clone()?))).collect();
        let wanted = observed.replicas.unwrap_or(1);
        let current = observed.current_generation();
        let name = format!("{} {}", live.key.resource.display_name(), live.key.name);
        let says = observed.condition("Available").is_some_and(|condition| condition.status == "True");
        let available = says || enough == AvailabilityPolicy::One && observed.available > 0;
        let refused = observed.condition("ReplicaFailure").filter(|condition| condition.status == "True");
        let late = observed.condition("Progressing").filter(|condition| condition.status == "False");
        let broken = failing.iter().find(|(_, failure)| failure.started);
        let homeless = failing.iter().find(|(_, failure)| !failure.started);
        let condition = if current && available && wanted == 0 {
            Condition::satisfied(type_, "ScaledToZero", format!("The {name} is scaled to zero."))
        } else if current && available {
            let is_replaced = observed.updated < wanted || observed.current > wanted;
            match failing.first().filter(|_| is_replaced) {
                Some((pod, failure)) => Condition::satisfied(type_, UPDATE_STUCK, stuck(&name, pod, failure)),
                None => Condition::satisfied(type_, "Available", format!("The {name} is available.")),
            }
        } else if let Some((pod, failure)) = broken {
            Condition::no(type_, "PodsFailing", format!("The pod {pod} is failing. {}.", failure.message.trim_end_matches('.')))
        } else if let Some(refused) = refused {
            Condition::no(
                type_,
                "PodsRefused",
                format!("The pods of the {name} can't be created: {}.", refused.message.trim_end_matches('.')),
            )
        } else if let Some(late) = late.filter(|_| current) {
            Condition::no(type_, late.reason.clone(), format!("The {name} is not progressing: {}", late.message))
        } else if let Some((pod, failure)) = homeless {
            Condition::unknown(type_, "Unschedulable", format!("The pod {pod} has no node. {}.", failure.message.trim_end_matches('.')))
        } else {
            Condition::unknown(type_, "Progressing", unavailable(&name))
        };
        let rolled_out = current && available && observed.updated >= wanted && observed.available >= wanted && observed.current <= wanted;
        Self { condition, rolled_out, ready: observed.available, failing }
    }

    /// The health of a workload that doesn't exist yet: the same condition as for a new one, so that it is written only once.
    pub(super) fn being_created(type_: &'static str, resource: &Resource, name: &str) -> Self {
        Self::absent(Condition::unknown(type_, "Progressing", unavailable(&format!("{} {name}", resource.display_name()))))
    }

    /// No workload exists.
    pub(super) fn absent(condition: Condition) -> Self {
        Self { condition, rolled_out: false, ready: 0, failing: Vec::new() }
    }
}

/// The message if previous pods serve and a new one fails.
fn stuck(workload: &str, pod: &str, failure: &PodFailure) -> String {
    let since = failure.pod_created.as_ref().map(|created| format!(", created at {created},")).unwrap_or_default();
    let fails = if failure.started { "fails" } else { "has no node" };
    format!(
        "The {workload} is available, but its update is stuck: the pod {pod}{since} {fails}. {}.",
        failure.message.trim_end_matches('.')
    )
}

fn unavailable(workload: &str) -> String {
    format!("The {workload} isn't available yet.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        resource::{DEPLOYMENT, LLM_INFERENCE_SERVICE},
        world::{ObjectKey, World, child::SUBJECT_KIND},
    };
    use serde_json::json;

    #[test]
    fn an_update_whose_pods_fail_is_stuck_although_former_pods_serve() {
        let mut world = World::default();
        world.put(&LLM_INFERENCE_SERVICE, &json!({"metadata": {"name": "llama", "namespace": "chat", "uid": "u"}, "spec": {}}));
        let deployment = |updated: i64, current: i64| {
            json!({
                "metadata": {
                    "name": "serves", "namespace": "chat", "uid": "d", "generation": 2, "labels": {SUBJECT_KIND: "LLMInferenceService"},
                    "ownerReferences": [{"uid": "u", "controller": true}],
                },
                "spec": {"replicas": 1},
                "status": {
                    "observedGeneration": 2, "replicas": current, "updatedReplicas": updated, "availableReplicas": 1,
                    "conditions": [{"type": "Available", "status": "True"}],
                },
            })
        };
        let failure = PodFailure {
            message: "It ended".to_owned(),
            pod_created: Some("2026-01-01T00:00:00Z".to_owned()),
            started: true,
            ..PodFailure::default()
        };
        let pod = Arc::new(Pod { name: "new".to_owned(), failure: Some(failure), ..Pod::default() });
        let key = ObjectKey { resource: &LLM_INFERENCE_SERVICE, namespace: "chat".to_owned(), name: "llama".to_owned() };
        let mut told = |updated: i64, current: i64| {
            world.put(&DEPLOYMENT, &deployment(updated, current));
            let children = world.snapshot(&key, 0).unwrap().children;
            WorkloadHealth::observe("WorkloadReady", &children[0], [&pod].into_iter(), AvailabilityPolicy::AsItSays).condition
        };
        let stuck = told(1, 2);
        assert_eq!((stuck.status, &*stuck.reason), (Some(true), UPDATE_STUCK));
        let expected =
            "The Deployment serves is available, but its update is stuck: the pod new, created at 2026-01-01T00:00:00Z, fails. It ended.";
        assert_eq!(stuck.message, expected);
        // A replica that crashes once in a while doesn't block the update.
        assert_eq!(told(1, 1).reason, "Available");
    }

    #[test]
    fn where_one_leads_one_is_enough() {
        let mut world = World::default();
        world.put(&LLM_INFERENCE_SERVICE, &json!({"metadata": {"name": "llama", "namespace": "chat", "uid": "u"}, "spec": {}}));
        world.put(
            &DEPLOYMENT,
            &json!({
                "metadata": {
                    "name": "picks", "namespace": "chat", "uid": "d", "generation": 2, "labels": {SUBJECT_KIND: "LLMInferenceService"},
                    "ownerReferences": [{"uid": "u", "controller": true}],
                },
                "spec": {"replicas": 3},
                "status": {
                    "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 1,
                    "conditions": [{"type": "Available", "status": "False"}, {"type": "Progressing", "status": "False", "reason": "Late"}],
                },
            }),
        );
        let key = ObjectKey { resource: &LLM_INFERENCE_SERVICE, namespace: "chat".to_owned(), name: "llama".to_owned() };
        let children = world.snapshot(&key, 0).unwrap().children;
        let told = |enough| WorkloadHealth::observe("SchedulerWorkloadReady", &children[0], std::iter::empty(), enough).condition;
        assert_eq!((told(AvailabilityPolicy::One).status, told(AvailabilityPolicy::AsItSays).status), (Some(true), Some(false)));
    }
}
