//! What a plan does to the pods that run, and how those fare: pure.

use crate::{
    allocation::{Entry, Phase},
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

/// What an allocation makes of the pods of a subject, where that is no restart: it waits for no turn, and one that sleeps has failed at nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatedPods {
    /// They go, or have gone.
    Gone,
    /// There are none yet.
    Starting,
    /// They stay as they are, until they go or something else can be planned.
    Unchanged,
}

impl AllocatedPods {
    /// None where a plan may restart pods that stay.
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

/// Whether a plan makes other pods of those that run.
pub fn restarts(snapshot: &Snapshot, objects: &[Object], plan: &Plan, insisted: impl Fn(&Object, &OwnedObject) -> bool) -> bool {
    snapshot.children.iter().filter(|child| makes_pods(child)).any(|child| match objects.iter().find(|object| object.key == child.key) {
        Some(object) => !child.keeps_pods(&object.body) && !insisted(object, child),
        None => !plan.retained.contains(&child.key),
    })
}

/// Whether it makes pods that a plan could replace: those of a Job stay what they are.
fn makes_pods(child: &OwnedObject) -> bool {
    child.ours() && !child.deleting && Workload::find(child.key.resource).is_some_and(|workload| !workload.is_immutable())
}

fn rolls(child: &OwnedObject) -> bool {
    let observed = &child.observed;
    let wanted = observed.replicas.unwrap_or(1);
    // Of a scheduler with several replicas one leads and the others are never available.
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

    /// A model whose Deployment, if there is one, wants so many pods.
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
        // What it needs isn't reserved yet, or nobody decides: it isn't Ready then, which no restart has to do with.
        let placed = Entry::Placed { held: Held::default(), unseen: false, starts_after: Vec::new() };
        assert_eq!(AllocatedPods::find(&snapshot(Some(placed), Some(1)), &Plan::default()), Some(AllocatedPods::Unchanged));
        assert_eq!(AllocatedPods::find(&snapshot(None, Some(1)), &Plan::default()), None, "it doesn't compete");
    }
}
