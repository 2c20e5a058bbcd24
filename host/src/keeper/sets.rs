//! PolicySet objects: what is frozen in them, and what is told of them. Pure.

use super::record::ActiveRecord;
use crate::pace::Progress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Resource, ResourceExt};
use pointsman_crds::policy::set::{BlastRadius, PolicySet, PolicySetHost, PolicySetPhase, PolicySetSpec, PolicySetStatus};
use pointsman_sandbox::{builtin::BUILTINS, digest::Digest};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation by which somebody approves a set: its value is the digest that is meant.
pub const APPROVED: &str = "policy.pointsman.dev/approved";

/// The annotation by which somebody holds a set: its value is the digest that is meant. Until it is taken away that set decides, whatever the
/// PolicyPlugins want.
pub const HOLD: &str = "policy.pointsman.dev/hold";

/// The annotation of the active set by which nobody gets a turn to restart pods: its value says why.
pub const PAUSED: &str = "policy.pointsman.dev/paused";

/// How many sets are kept that neither decide, nor did so last, nor are to decide.
const MAX_OLD_SETS: usize = 10;

/// The name of a set, by its digest.
pub fn name(digest: &str) -> String {
    format!("set-{}", digest.trim_start_matches("sha256:").get(..12).unwrap_or_default())
}

/// A digest as people are told it: enough of it to know it again.
pub(super) fn short(digest: &str) -> String {
    digest.get(..19).unwrap_or(digest).to_owned()
}

/// The set of a record, as an object.
pub(super) fn from_record(record: &ActiveRecord, version: &str) -> PolicySet {
    let digests: Vec<Digest> = BUILTINS.iter().map(|builtin| Digest::hash(builtin.bytes)).collect();
    let mut set = PolicySet::new(
        &name(&record.digest),
        PolicySetSpec {
            digest: record.digest.clone(),
            host: PolicySetHost { version: version.to_owned(), builtins: Digest::of_all(&digests).to_string() },
            plugins: record.plugins.values().map(|recorded| recorded.active.clone()).collect(),
            rules: record.rules.values().map(|recorded| recorded.active.clone()).collect(),
        },
    );
    set.labels_mut().insert("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned());
    set
}

/// What is known of a set beside what its status says already.
#[derive(Clone, Debug, Default)]
pub(super) struct SetFacts {
    /// Whether what was told of its comparison and of approvals is of another time.
    pub(super) anew: bool,
    /// Against which set it is or was compared.
    pub(super) against: Option<String>,
    pub(super) summary: Option<String>,
    pub(super) changes: Option<Vec<String>>,
    pub(super) radius: Option<BlastRadius>,
    /// Whether it was compared on all live subjects.
    pub(super) shadowed: Option<bool>,
    /// Whether somebody's word is needed, and is there.
    pub(super) approved: Option<Approved>,
    /// What it waits for, or why it was abandoned.
    pub(super) message: Option<String>,
    /// Of the active one: how far it has come.
    pub(super) pace: Option<Progress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approved {
    /// It is within all bounds.
    NotNeeded,
    /// It isn't there.
    Awaited,
    /// It is there.
    Given,
    /// It is only tried.
    NeverActive,
}

/// The status that a set should have. What nothing new is known of stays as it is.
pub(super) fn status(set: &PolicySet, phase: PolicySetPhase, since: Option<&Time>, facts: &SetFacts, now: &Time) -> PolicySetStatus {
    let mut before = set.status.clone().unwrap_or_default();
    if facts.anew {
        before.blast_radius = None;
        before.message = None;
        before.conditions.retain(|condition| condition.type_ != "Shadowed" && condition.type_ != "Approved");
    }
    let turned = before.phase != Some(phase);
    let promoted_at = match phase {
        PolicySetPhase::Active if turned || before.promoted_at.is_none() => Some(since.unwrap_or(now).clone()),
        _ => before.promoted_at.clone(),
    };
    let mut conditions: Vec<Condition> = Vec::new();
    let mut condition = |type_: &str, status: Option<bool>, reason: &str, message: &str| {
        let status = pointsman_core::condition::status_text(status);
        let former = before.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status);
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: set.meta().generation,
            last_transition_time: former.map_or_else(|| now.clone(), |former| former.last_transition_time.clone()),
        });
    };
    let known = |type_: &str| before.conditions.iter().find(|condition| condition.type_ == type_);
    let state = |known: &Condition| known.status.to_lowercase().parse().ok();
    match facts.shadowed {
        Some(true) => condition("Shadowed", Some(true), "Compared", "It was compared with the active set on all live subjects."),
        Some(false) => condition("Shadowed", Some(false), "Comparing", "It is being compared with the active set on the live subjects."),
        None => match known("Shadowed") {
            Some(known) => condition("Shadowed", state(known), &known.reason, &known.message),
            None => condition("Shadowed", None, "NotCompared", "It wasn't compared with another set on live subjects."),
        },
    }
    match facts.approved {
        Some(Approved::NotNeeded) => {
            condition("Approved", Some(true), "NotNeeded", "It is within what its plugins allow without approval.");
        }
        Some(Approved::Given) => condition("Approved", Some(true), "Approved", "Somebody has approved this digest."),
        Some(Approved::Awaited) => condition("Approved", Some(false), "Awaited", "It needs somebody's approval."),
        Some(Approved::NeverActive) => condition("Approved", Some(false), "OnlyTried", "A plugin that it changes has the strategy Shadow."),
        None => match known("Approved") {
            Some(known) => condition("Approved", state(known), &known.reason, &known.message),
            None => condition("Approved", None, "NotJudged", "Whether the set needs an approval is not known yet."),
        },
    }
    match (phase, &promoted_at) {
        (PolicySetPhase::Active, _) => condition("Promoted", Some(true), "Active", "The set decides."),
        (_, Some(_)) => condition("Promoted", Some(true), "Replaced", "Another set has replaced this one."),
        (_, None) => condition("Promoted", Some(false), "NeverActive", "The set has not decided yet."),
    }
    let paced = facts.pace.as_ref().and_then(paced);
    // A host that leads anew looks at everything first; meanwhile what was told of this set stays.
    let told = known("RolledOut").filter(|_| !turned && matches!(paced, Some((BEGINNING, _))));
    if phase == PolicySetPhase::Active {
        match (told, &paced) {
            (Some(told), _) => condition("RolledOut", state(told), &told.reason, &told.message),
            (None, Some((BEGINNING, message))) => condition("RolledOut", None, BEGINNING, message),
            (None, Some((reason, message))) => condition("RolledOut", Some(false), reason, message),
            (None, None) => condition("RolledOut", Some(true), "Everywhere", "The set is rolled out to all subjects."),
        }
    }
    let told = told.and_then(|_| before.message.clone());
    let news = if told.is_some() { told } else { paced.filter(|(reason, _)| *reason != BEGINNING || turned).map(|(_, message)| message) };
    let stays = phase != PolicySetPhase::Active && !turned;
    PolicySetStatus {
        observed_generation: set.meta().generation,
        phase: Some(phase),
        against: facts.against.clone().or(before.against),
        summary: facts.summary.clone().or(before.summary),
        changes: facts.changes.clone().unwrap_or(before.changes),
        blast_radius: facts.radius.clone().or(before.blast_radius),
        message: facts.message.clone().or(news).or(before.message.filter(|_| stays)),
        promoted_at,
        conditions,
    }
}

/// The reason of RolledOut until everything was looked at.
const BEGINNING: &str = "Beginning";

/// How far the active set has come, where it isn't everywhere yet.
fn paced(progress: &Progress) -> Option<(&'static str, String)> {
    let Progress { restarting, at_it, waiting, stopped, held, known, .. } = progress;
    let more = if *at_it > restarting.len() { ", ..." } else { "" };
    let at_it = if *at_it == 0 { "restarting: 0".to_owned() } else { format!("restarting: {at_it} ({}{more})", restarting.join(", ")) };
    match stopped {
        Some(why) => Some((
            "Paused",
            format!(
                "Paused; {at_it}, queued: {waiting}. {why}. Run `pointsman policy resume` to continue, or `pointsman policy rollback` to go back."
            ),
        )),
        None if !known => Some((BEGINNING, "Checking which subjects must restart their pods.".to_owned())),
        None if *waiting == 0 && restarting.is_empty() => None,
        None if held.is_empty() => Some(("Rolling", format!("Rolling out; {at_it}, queued: {waiting}."))),
        None => {
            let failed = held.join("; ");
            Some(("Rolling", format!("Rolling out; {at_it}, queued: {waiting}. {failed}: no other service restarts in that namespace.")))
        }
    }
}

/// The sets that are kept no longer, oldest first.
pub(super) fn superfluous(sets: &BTreeMap<String, PolicySet>, in_use: &BTreeSet<String>) -> Vec<String> {
    let mut free: Vec<_> = sets.values().filter(|set| !in_use.contains(&set.name_any())).collect();
    // What has decided once is of more interest than what never has.
    let told = |set: &PolicySet| set.status.as_ref().and_then(|status| status.promoted_at.as_ref()).map(|at| at.0);
    free.sort_by_key(|set| (told(set), set.creation_timestamp().map(|at| at.0)));
    free.iter().take(free.len().saturating_sub(MAX_OLD_SETS)).map(|set| set.name_any()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn time(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn set(digit: char) -> PolicySet {
        from_record(&ActiveRecord { digest: format!("sha256:{}", digit.to_string().repeat(64)), ..ActiveRecord::default() }, "0.1.0")
    }

    fn conditions(status: &PolicySetStatus) -> Vec<(&str, &str)> {
        status.conditions.iter().map(|condition| (condition.status.as_str(), condition.reason.as_str())).collect()
    }

    #[test]
    fn a_set_goes_by_its_digest() {
        assert_eq!(set('a').name_any(), "set-aaaaaaaaaaaa");
    }

    #[test]
    fn what_is_known_stays_told_and_nothing_changes_while_nothing_has() {
        let mut set = set('a');
        let facts = SetFacts {
            summary: Some("one".to_owned()),
            radius: Some(BlastRadius { restarts: 3, ..BlastRadius::default() }),
            shadowed: Some(true),
            approved: Some(Approved::Awaited),
            message: Some("waits".to_owned()),
            ..SetFacts::default()
        };
        let first = status(&set, PolicySetPhase::Candidate, None, &facts, &time(1));
        assert_eq!(conditions(&first), [("True", "Compared"), ("False", "Awaited"), ("False", "NeverActive")]);
        set.status = Some(first.clone());
        assert_eq!(status(&set, PolicySetPhase::Candidate, None, &SetFacts::default(), &time(2)), first);
        let unknown = status(&self::set('b'), PolicySetPhase::Abandoned, None, &SetFacts::default(), &time(1));
        let again = PolicySet { status: Some(unknown.clone()), ..self::set('b') };
        assert_eq!(status(&again, PolicySetPhase::Abandoned, None, &SetFacts::default(), &time(2)), unknown);
        let active = status(&set, PolicySetPhase::Active, Some(&time(5)), &SetFacts::default(), &time(6));
        assert_eq!((active.promoted_at.clone(), active.message.clone(), active.summary.as_deref()), (Some(time(5)), None, Some("one")));
        assert_eq!(active.blast_radius.as_ref().map(|radius| radius.restarts), Some(3));
        set.status = Some(active);
        // A host that leads anew writes nothing while it looks at what is as it was.
        let pace = |known: bool| SetFacts { pace: Some(Progress { known, ..Progress::default() }), ..SetFacts::default() };
        let everywhere = status(&set, PolicySetPhase::Active, None, &pace(true), &time(7));
        assert_eq!(conditions(&everywhere)[3], ("True", "Everywhere"));
        let again = PolicySet { status: Some(everywhere.clone()), ..set.clone() };
        assert_eq!(status(&again, PolicySetPhase::Active, None, &pace(false), &time(8)), everywhere);
        let fresh = status(&self::set('c'), PolicySetPhase::Active, None, &pace(false), &time(8));
        assert_eq!(
            (conditions(&fresh)[3], fresh.message.as_deref()),
            (("Unknown", "Beginning"), Some("Checking which subjects must restart their pods."))
        );
        let previous = status(&set, PolicySetPhase::Previous, None, &SetFacts::default(), &time(9));
        assert_eq!((previous.promoted_at.clone(), conditions(&previous)[2]), (Some(time(5)), ("True", "Replaced")));
    }

    #[test]
    fn of_sets_that_nobody_uses_the_newest_are_kept_first_of_all_those_that_have_decided() {
        let mut sets = BTreeMap::new();
        for (second, digit) in (0..).zip("0123456789abcdef".chars()) {
            let mut set = set(digit);
            set.meta_mut().creation_timestamp = Some(time(second));
            let promoted_at = (digit == '1').then(|| time(second));
            set.status = Some(PolicySetStatus { promoted_at, ..PolicySetStatus::default() });
            sets.insert(set.name_any(), set);
        }
        let in_use = BTreeSet::from([name(&format!("sha256:{}", "0".repeat(64)))]);
        let gone: Vec<String> = superfluous(&sets, &in_use).iter().map(|name| name[4..5].to_owned()).collect();
        assert_eq!(gone, ["2", "3", "4", "5", "6"]);
    }
}
