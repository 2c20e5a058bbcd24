//! From a snapshot to a plan: the conditions of plugins, the kind, what was taken over, the guards, and who else works on the subject.

use crate::{
    condition::{Condition, DECIDED},
    contest::{self, Contest},
    decide::{Policies, Standing},
    guards::{self, PlanGuard},
    kinds::{Kind, adoption},
    plan::{NotOurs, Plan, Status, UndecidedSteps},
    settings::Settings,
    world::{Snapshot, subject::Control},
};
use pointsman_sandbox::isolate::isolated;
use std::time::Duration;

/// After how long a plan is tried again that came upon a mistake of ours.
const INTERNAL_ERROR_RETRY: Duration = Duration::from_mins(1);

/// What is to become of a subject of a kind. A mistake of ours ends nobody else's plan.
pub fn plan(kind: &dyn Kind, snapshot: Snapshot, policies: &Policies, settings: &Settings) -> Plan {
    let stays = if snapshot.children.is_empty() { "Nothing is made" } else { "What runs stays as it is" };
    isolated(|| whole(kind, snapshot, policies, settings)).unwrap_or_else(|error| {
        let told = Condition::no(DECIDED, "InternalError", format!("{stays}: {error}."));
        let status = Status { conditions: vec![told], undecided: UndecidedSteps::All, ..Status::default() };
        Plan { status, recheck_after: Some(INTERNAL_ERROR_RETRY), ..Plan::default() }
    })
}

fn whole(kind: &dyn Kind, mut snapshot: Snapshot, policies: &Policies, settings: &Settings) -> Plan {
    snapshot.stand_ins = kind.adopted_names(&snapshot);
    let standing = if snapshot.children.is_empty() { Standing::New } else { Standing::Running };
    // Everything in a plan is decided under one set.
    let mut policies = policies.pin(standing);
    guards::evaluate_match_conditions(&snapshot, &mut policies);
    let mut plan = kind.plan(&snapshot, &policies, settings);
    adoption::keep(&snapshot, plan.objects.as_mut());
    let mut plan = PlanGuard::new(&snapshot, &policies).enforce(plan);
    plan.retained = adoption::retained_objects(&snapshot);
    plan.not_ours = theirs(&snapshot);
    plan.status.conditions.push(match &plan.not_ours {
        Some(NotOurs::Contested(contest)) => contest.condition(),
        _ => contest::uncontested(&snapshot.subject),
    });
    plan
}

/// Why a subject isn't ours, if it isn't.
pub fn theirs(snapshot: &Snapshot) -> Option<NotOurs> {
    if snapshot.subject.control == Control::LeftAlone {
        return Some(NotOurs::LeftAlone);
    }
    Contest::detect(&snapshot.subject).map(NotOurs::Contested)
}
