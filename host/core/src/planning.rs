//! From a snapshot to a plan: the conditions of plugins, the kind, what was taken over, the guards, and who else works on the subject.

use crate::{
    contest::{self, Contest},
    decide::{Policies, Standing},
    guards::{self, Judging},
    kinds::{Kind, kept},
    plan::{Plan, Theirs},
    settings::Settings,
    world::{Snapshot, subject::Control},
};

/// What is to become of a subject of a kind.
pub fn plan(kind: &dyn Kind, mut snapshot: Snapshot, policies: &Policies, settings: &Settings) -> Plan {
    snapshot.stand_ins = kind.stand_ins(&snapshot);
    let standing = if snapshot.children.is_empty() { Standing::New } else { Standing::Running };
    // Everything in a plan is decided under one set.
    let mut policies = policies.pin(standing);
    guards::meet(&snapshot, &mut policies);
    let mut plan = kind.plan(&snapshot, &policies, settings);
    kept::keep(&snapshot, plan.objects.as_mut());
    let mut plan = Judging::new(&snapshot, &policies).bound(plan);
    plan.keeps = kept::stays(&snapshot);
    plan.theirs = theirs(&snapshot);
    plan.status.conditions.push(match &plan.theirs {
        Some(Theirs::Contested(contest)) => contest.condition(),
        _ => contest::nobody_else(&snapshot.subject),
    });
    plan
}

/// Why a subject isn't ours, if it isn't.
pub fn theirs(snapshot: &Snapshot) -> Option<Theirs> {
    if snapshot.subject.control == Control::LeftAlone {
        return Some(Theirs::LeftAlone);
    }
    Contest::of(&snapshot.subject).map(Theirs::Contested)
}
