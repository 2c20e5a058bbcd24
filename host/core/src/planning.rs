//! From a snapshot to a plan: the conditions of plugins, the kind, what was taken over, the guards, and who else works on the subject.

use crate::{
    contest::{self, Contest},
    decide::{Policies, Standing},
    guards::{self, PlanGuard},
    kinds::{Kind, adoption},
    plan::{NotOurs, Plan},
    settings::Settings,
    world::{Snapshot, subject::Control},
};

/// What is to become of a subject of a kind.
pub fn plan(kind: &dyn Kind, mut snapshot: Snapshot, policies: &Policies, settings: &Settings) -> Plan {
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
