//! The effect of a plan on running pods, and the health of these pods: pure.

use crate::{
    allocation::{Entry, Phase},
    plan::{Object, Plan},
    workload::Workload,
    world::{OwnedObject, Snapshot},
};
use std::sync::Arc;

/// The state of a subject's pods, and the effect of the plan on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodImpact {
    /// Whether the plan replaces running pods.
    pub restarts: bool,
    /// Whether pods are being replaced.
    pub rolling: bool,
    /// Whether some of them are available.
    pub serves: bool,
    /// The first failing pod, with the failure.
    pub broken: Option<String>,
    /// The first object that reports a stuck rollout.
    pub late: Option<String>,
}

impl PodImpact {
    /// Determines it from the snapshot and its plan. `insisted` reports objects that the API server changed after our last write: writing
    /// them again changes nothing.
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

/// The effect of an allocation on a subject's pods, if it isn't a restart: such a change isn't queued, and a sleeping model has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatedPods {
    /// They are stopping or gone.
    Gone,
    /// They don't exist yet.
    Starting,
    /// They stay unchanged, until they stop or a different plan is possible.
    Unchanged,
}

impl AllocatedPods {
    /// None if the plan may restart pods that stay.
    pub fn find(snapshot: &Snapshot, plan: &Plan) -> Option<Self> {
        let Entry::Placed { held, .. } = snapshot.allocated.as_deref()? else { return Some(Self::Gone) };
        let has_pods = || snapshot.children.iter().any(|child| makes_pods(child) && child.observed.replicas != Some(0));
        match held.phase {
            Phase::Stopping => Some(Self::Gone),
            Phase::Draining(_) => Some(Self::Unchanged),
            Phase::Admitted if plan.objects.is_none() => Some(Self::Unchanged),
            Phase::Admitted => (!has_pods()).then_some(Self::Starting),
        }
    }
}

/// Whether a plan replaces running pods.
pub fn restarts(snapshot: &Snapshot, objects: &[Object], plan: &Plan, insisted: impl Fn(&Object, &OwnedObject) -> bool) -> bool {
    snapshot.children.iter().filter(|child| makes_pods(child)).any(|child| match objects.iter().find(|object| object.key == child.key) {
        Some(object) => !child.keeps_pods(&object.body) && !insisted(object, child),
        None => !plan.retained.contains(&child.key),
    })
}

/// Whether an object has pods that a plan could replace: a Job's pods can't be replaced.
fn makes_pods(child: &OwnedObject) -> bool {
    child.ours() && !child.deleting && Workload::find(child.key.resource).is_some_and(|workload| !workload.is_immutable())
}

fn rolls(child: &OwnedObject) -> bool {
    let observed = &child.observed;
    let wanted = observed.replicas.unwrap_or(1);
    // Of several scheduler replicas, only the leader is ever available.
    let keeps_old_pods = Workload::find(child.key.resource).is_some_and(|workload| workload.keeps_old_pods);
    let enough = if keeps_old_pods { wanted.min(1) } else { wanted };
    !observed.current_generation() || observed.updated < wanted || observed.available < enough || observed.current > wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        allocation::{Held, SleepReason},
        key::ObjectKey,
        resource::{DEPLOYMENT, INFERENCE_MODEL},
        subject_kind::SUBJECT_KIND,
        world::World,
    };
    use serde_json::json;

    /// A model whose Deployment, if any, has this number of replicas.
    fn snapshot(entry: Option<Entry>, replicas: Option<i64>) -> Snapshot {
        let key = ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: "llama".to_owned() };
        let mut world = World::default();
        world.put_subject_object(&INFERENCE_MODEL, &json!({"metadata": {"name": "llama", "namespace": "ml", "uid": "u"}, "spec": {}}));
        if let Some(replicas) = replicas {
            let fields = json!({"f:spec": {"f:replicas": {}, "f:template": {}}});
            let deployment = json!({
                "metadata": {
                    "name": "llama", "namespace": "ml", "uid": "d", "labels": {SUBJECT_KIND: "InferenceModel"},
                    "ownerReferences": [{"uid": "u", "controller": true}],
                    "managedFields": [{"manager": "pointsman/inferencemodel", "operation": "Apply", "fieldsV1": fields}],
                },
                "spec": {"replicas": replicas, "template": {}},
            });
            world.put(&DEPLOYMENT, &deployment);
        }
        world.set_allocated(&entry.map(|entry| (key.clone(), entry)).into_iter().collect());
        world.snapshot(&key, 0).unwrap()
    }

    #[test]
    fn only_pods_that_stay_can_be_restarted() {
        let found = |phase: Option<Phase>, replicas: Option<i64>| {
            let placed = |phase| Entry::Placed { held: Held { phase, ..Held::default() }, unseen: false, starts_after: Vec::new() };
            let plan = Plan { objects: Some(Vec::new()), ..Plan::default() };
            AllocatedPods::find(&snapshot(Some(phase.map_or(Entry::Asleep, placed)), replicas), &plan)
        };
        assert_eq!(found(Some(Phase::Admitted), Some(1)), None);
        assert_eq!(found(Some(Phase::Admitted), Some(0)), Some(AllocatedPods::Starting), "it comes to another node than before");
        assert_eq!(found(Some(Phase::Admitted), None), Some(AllocatedPods::Starting));
        assert_eq!(found(Some(Phase::Draining(SleepReason::Idle)), Some(1)), Some(AllocatedPods::Unchanged));
        assert_eq!(found(Some(Phase::Stopping), Some(1)), Some(AllocatedPods::Gone), "also if it is being deleted");
        assert_eq!(found(None, Some(0)), Some(AllocatedPods::Gone));
        // Its needs aren't reserved yet, or there is no decision: it isn't Ready, but not because of a restart.
        let placed = Entry::Placed { held: Held::default(), unseen: false, starts_after: Vec::new() };
        assert_eq!(AllocatedPods::find(&snapshot(Some(placed), Some(1)), &Plan::default()), Some(AllocatedPods::Unchanged));
        assert_eq!(AllocatedPods::find(&snapshot(None, Some(1)), &Plan::default()), None, "it doesn't compete");
    }
}
