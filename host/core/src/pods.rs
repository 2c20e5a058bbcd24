//! What a plan does to the pods that run, and how those fare: pure.

use crate::{
    plan::{Object, Plan},
    workload::Workload,
    world::{OwnedObject, Snapshot},
};
use std::sync::Arc;

/// What is to be known of a subject's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodImpact {
    /// Whether the plan makes other pods of those that run.
    pub restarts: bool,
    /// Whether pods are being replaced.
    pub rolling: bool,
    /// Whether some of them take requests.
    pub serves: bool,
    /// Which of them fails, and how.
    pub broken: Option<String>,
    /// Which of its objects says that its rollout is stuck.
    pub late: Option<String>,
}

impl PodImpact {
    /// As the snapshot and its plan say. What was written and came out otherwise is as it will stay: `was_mutated_by_server` knows.
    pub fn assess(snapshot: &Snapshot, plan: &Plan, insisted: impl Fn(&Object, &OwnedObject) -> bool) -> Self {
        let workloads = || snapshot.children.iter().filter(|child| makes_pods(child));
        let reports = |child: &&Arc<OwnedObject>| Workload::find(child.key.resource).is_some_and(|workload| workload.reports_stuck);
        let late = workloads().filter(reports).find_map(|child| {
            let progressing = child.observed.condition("Progressing").filter(|_| child.observed.current_generation())?;
            let late = progressing.status == "False";
            late.then(|| format!("the {} is not progressing: {}", child.key, progressing.message.trim_end_matches('.')))
        });
        let broken = snapshot.pods.iter().find_map(|pod| {
            let failure = pod.failure.as_ref().filter(|failure| failure.started)?;
            Some(format!("the pod {} is failing: {}", pod.name, failure.message.trim_end_matches('.')))
        });
        Self {
            restarts: plan.objects.as_ref().is_some_and(|objects| restarts(snapshot, objects, plan, insisted)),
            rolling: workloads().any(|child| rolls(child)),
            serves: workloads().any(|child| child.observed.available > 0),
            broken,
            late,
        }
    }
}

/// Whether a plan makes other pods of those that run.
pub fn restarts(snapshot: &Snapshot, objects: &[Object], plan: &Plan, insisted: impl Fn(&Object, &OwnedObject) -> bool) -> bool {
    snapshot.children.iter().filter(|child| makes_pods(child)).any(|child| match objects.iter().find(|object| object.key == child.key) {
        Some(object) => !child.keeps_pods(&object.body) && !insisted(object, child),
        None => !plan.retained.contains(&child.key),
    })
}

fn makes_pods(child: &OwnedObject) -> bool {
    child.ours() && !child.deleting && !child.key.resource.pods().is_empty()
}

fn rolls(child: &OwnedObject) -> bool {
    let observed = &child.observed;
    let wanted = observed.replicas.unwrap_or(1);
    // Of a scheduler with several replicas one leads and the others are never available.
    let keeps_old_pods = Workload::find(child.key.resource).is_some_and(|workload| workload.keeps_old_pods);
    let enough = if keeps_old_pods { wanted.min(1) } else { wanted };
    !observed.current_generation() || observed.updated < wanted || observed.available < enough || observed.current > wanted
}
