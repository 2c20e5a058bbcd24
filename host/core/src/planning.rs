//! From a snapshot to a plan: match conditions, the kind, adopted objects, the guards, and contests.

use crate::{
    condition::{Condition, DECIDED},
    contest::{self, Contest},
    decide::{Policies, Standing},
    guards::{self, PlanGuard},
    kinds::{Kind, adoption},
    plan::{NotOurs, Plan, Status, UndecidedSteps, left_alone},
    pod_scheduler::name_schedulers,
    settings::Settings,
    world::{Snapshot, subject::Control},
};
use pointsman_sandbox::isolate::isolated;
use std::time::Duration;

/// The delay before a plan is tried again after an internal error.
const INTERNAL_ERROR_RETRY: Duration = Duration::from_mins(1);

/// Plans a subject of a kind. An internal error doesn't affect the plans of other subjects.
pub fn plan(kind: &dyn Kind, snapshot: Snapshot, policies: &Policies, settings: &Settings) -> Plan {
    let consequence = snapshot.consequence();
    isolated(|| whole(kind, snapshot, policies, settings)).unwrap_or_else(|error| {
        let told = Condition::no(DECIDED, "InternalError", format!("{consequence}: {error}."));
        let status = Status { conditions: vec![told], undecided: UndecidedSteps::All, ..Status::default() };
        Plan { status, recheck_after: Some(INTERNAL_ERROR_RETRY), ..Plan::default() }
    })
}

fn whole(kind: &dyn Kind, mut snapshot: Snapshot, policies: &Policies, settings: &Settings) -> Plan {
    snapshot.stand_ins = kind.adopted_names(&snapshot);
    let standing = if snapshot.children.is_empty() { Standing::New } else { Standing::Running };
    // All decisions of a plan use one policy set.
    let mut policies = policies.pin(standing);
    guards::evaluate_match_conditions(&snapshot, &mut policies);
    let mut plan = kind.plan(&snapshot, &policies, settings);
    adoption::keep(&snapshot, plan.objects.as_mut());
    name_schedulers(&snapshot, settings.pod_scheduler.as_deref(), &plan.decisions, plan.objects.as_deref_mut().unwrap_or_default());
    // No objects are created for a subject that is being deleted, and rules must not block the deletion.
    let mut plan = if snapshot.subject.deleting { plan } else { PlanGuard::new(&snapshot, &policies).enforce(plan) };
    plan.retained = adoption::retained_objects(&snapshot);
    plan.not_ours = theirs(&snapshot);
    plan.status.conditions.push(match &plan.not_ours {
        Some(NotOurs::Contested(contest)) => contest.condition(),
        _ => contest::uncontested(&snapshot.subject),
    });
    plan
}

/// Why a subject isn't ours, if so.
pub fn theirs(snapshot: &Snapshot) -> Option<NotOurs> {
    let noun = snapshot.subject.key.resource.noun();
    match &snapshot.subject.control {
        Control::LeftAlone => return Some(NotOurs::LeftAlone(left_alone(noun))),
        Control::ManagedBy(other) => {
            return Some(NotOurs::LeftAlone(format!("The {noun} is not managed: its spec.managedBy is {other:?}.")));
        }
        Control::AsConfigured | Control::Unreadable(_) => {}
    }
    Contest::detect(&snapshot.subject).map(NotOurs::Contested)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Pinned;
    use crate::{
        decide::{Unheard, set::ActiveSet},
        resource::{INFERENCE_SERVICE, Resource},
        status::{Applied, settle},
        world::{ObjectKey, World},
    };
    use k8s_openapi::jiff::Timestamp;
    use pointsman_sandbox::isolate;
    use serde_json::json;
    use std::sync::Arc;

    /// A kind with an internal error for one subject.
    #[derive(Debug)]
    struct Mistaken;

    impl Kind for Mistaken {
        fn resource(&self) -> &'static Resource {
            &INFERENCE_SERVICE
        }

        #[allow(clippy::panic)]
        fn plan(&self, snapshot: &Snapshot, _: &Pinned<'_>, _: &Settings) -> Plan {
            assert!(snapshot.subject.key.name != "odd", "a mistake of ours");
            Plan {
                status: Status { conditions: vec![Condition::satisfied("Fine", "Fine", "It is.")], ..Status::default() },
                ..Plan::default()
            }
        }
    }

    #[test]
    fn a_mistake_that_one_subject_comes_upon_is_its_own_condition_and_nobody_else_notices() {
        let policies = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
        let mut world = World::default();
        let planned = |world: &mut World, name: &str| {
            world.put(&INFERENCE_SERVICE, &json!({"metadata": {"name": name, "namespace": "a", "uid": name, "generation": 1}, "spec": {}}));
            let key = ObjectKey { resource: &INFERENCE_SERVICE, namespace: "a".to_owned(), name: name.to_owned() };
            plan(&Mistaken, world.snapshot(&key, 0).unwrap(), &policies, &Settings::default())
        };
        let before = isolate::count();
        let broken = planned(&mut world, "odd");
        assert_eq!((isolate::count() - before, broken.objects.is_none(), broken.recheck_after), (1, true, Some(INTERNAL_ERROR_RETRY)));
        let told = &broken.status.conditions[0];
        assert_eq!((told.type_, told.status, &*told.reason), (DECIDED, Some(false), "InternalError"));
        assert!(
            told.message.starts_with("No object is created: internal error ") && told.message.contains("search the log"),
            "{}",
            told.message
        );
        let (status, _) = settle(&json!(null), "service", broken.status, &Applied::Held, Some(1), Timestamp::UNIX_EPOCH);
        assert!(status["conditions"].as_array().unwrap().iter().any(|told| told["type"] == "Ready" && told["reason"] == "InternalError"));
        let other = planned(&mut world, "even");
        assert!(other.status.conditions.iter().any(|told| told.type_ == "Fine"));
        assert_eq!(isolate::count() - before, 1);
    }
}
