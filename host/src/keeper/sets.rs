//! PolicySet objects: their frozen content and their statuses. Pure.

use super::record::{ActiveRecord, Origin};
use crate::pace::Progress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Resource, ResourceExt};
use pointsman_crds::policy::{
    plugin::PolicyPlugin,
    rule::ValidationRule,
    set::{BlastRadius, PolicySet, PolicySetActivation, PolicySetHost, PolicySetOrigin, PolicySetPhase, PolicySetSpec, PolicySetStatus},
};
use pointsman_sandbox::{builtin::BUILTINS, digest::Digest};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation that approves a set: its value is the approved digest.
pub const APPROVED: &str = "policy.pointsman.dev/approved";

/// The annotation that holds a set: its value is the digest. Until it is removed, that set is active regardless of the PolicyPlugins.
pub const HOLD: &str = "policy.pointsman.dev/hold";

/// The annotation of the active set that pauses restarts of pods: its value is the reason.
pub const PAUSED: &str = "policy.pointsman.dev/paused";

/// The maximum number of activations in a set's status.
const MAX_ACTIVATIONS: usize = 10;

/// The start of a set's message that an approval of the set it has replaced doesn't cover it.
pub const NOT_COVERED: &str = "The approval of ";

/// The maximum number of retained sets that were once active, in addition to those in use; and of those that never were.
const MAX_OLD_SETS: usize = 10;

/// The name of a set, by its digest.
pub fn name(digest: &str) -> String {
    format!("set-{}", digest.trim_start_matches("sha256:").get(..12).unwrap_or_default())
}

/// What a user does with a candidate that needs an approval.
pub(super) fn review_and_approve(set: &str) -> String {
    format!("review `pointsman policy history {set}`, then run `pointsman policy approve {set}`")
}

/// The words before the reason for an approval.
const BECAUSE: &str = ", because ";

/// The message about a version that needs an approval. If planning fails because of a plugin, the remedy is a fix, not an approval.
/// [`why_approval_is_needed`] finds the reason in it.
pub(super) fn approval_needed(version: &str, set: &str, why: &str, failed: Option<&str>) -> String {
    let needed = format!("{version} needs an approval of the PolicySet {set}{BECAUSE}{why}");
    match failed {
        None => format!("{needed}: {}.", review_and_approve(set)),
        Some(failed) => format!("{needed} ({failed}): push a fix; `pointsman policy history {set}` lists the changed subjects."),
    }
}

/// The reason for an approval in a message of a PolicyPlugin's condition Ready.
pub fn why_approval_is_needed(message: &str) -> Option<&str> {
    let (_, why) = message.split_once(BECAUSE)?;
    // The remedy contains no further colon.
    Some(why.rsplit_once(": ").map_or(why, |(why, _)| why).trim_end_matches('.'))
}

/// A digest as it is shown: enough of it to recognize it.
pub(super) fn short(digest: &str) -> String {
    digest.get(..19).unwrap_or(digest).to_owned()
}

/// The PolicySet of a record.
pub(super) fn from_record(record: &ActiveRecord, version: &str) -> PolicySet {
    let digests: Vec<Digest> = BUILTINS.iter().map(|builtin| Digest::hash(builtin.bytes)).collect();
    let mut set = PolicySet::new(
        &name(&record.digest),
        PolicySetSpec {
            digest: record.digest.clone(),
            number: record.number,
            host: PolicySetHost { version: version.to_owned(), builtins: Digest::of_all(&digests).to_string() },
            plugins: record.plugins.values().map(|recorded| recorded.active.clone()).collect(),
            rules: record.rules.values().map(|recorded| recorded.active.clone()).collect(),
            origins: origins(record),
        },
    );
    set.labels_mut().insert("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned());
    set
}

/// The origins of a record's plugins and rules.
fn origins(record: &ActiveRecord) -> Vec<PolicySetOrigin> {
    let origin = |kind: &str, name: &String, Origin { set, by }: &Origin| PolicySetOrigin {
        kind: kind.to_owned(),
        name: name.clone(),
        set: *set,
        by: by.clone(),
    };
    let plugins = record.plugins.iter().map(|(name, recorded)| origin(&PolicyPlugin::kind(&()), name, &recorded.origin));
    let rules = record.rules.iter().map(|(name, recorded)| origin(&ValidationRule::kind(&()), name, &recorded.origin));
    plugins.chain(rules).collect()
}

/// The facts about a set that its status doesn't have yet.
#[derive(Clone, Debug, Default)]
pub(super) struct SetFacts {
    /// Whether the reported comparison and approval are out of date.
    pub(super) anew: bool,
    /// The set that it is or was compared with.
    pub(super) against: Option<String>,
    pub(super) summary: Option<String>,
    pub(super) changes: Option<Vec<String>>,
    pub(super) radius: Option<BlastRadius>,
    /// Whether it was compared on all live subjects.
    pub(super) shadowed: Option<bool>,
    /// Whether it needs an approval, and has one.
    pub(super) approved: Option<Approved>,
    /// Why it waits, or why it was abandoned.
    pub(super) message: Option<String>,
    /// The set that replaces it.
    pub(super) replaced_by: Option<String>,
    /// The rollout's progress, for the active set.
    pub(super) pace: Option<Progress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approved {
    /// It is within all limits.
    NotNeeded,
    /// It needs an approval and has none.
    Awaited,
    /// It is approved.
    Given,
    /// It is only compared, and never becomes active.
    NeverActive,
}

/// The status that a set should have. Fields without new facts stay unchanged.
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
            None => condition("Shadowed", None, "NotCompared", "It was not compared with another set on live subjects."),
        },
    }
    match facts.approved {
        Some(Approved::NotNeeded) => {
            condition("Approved", Some(true), "NotNeeded", "Its changes are within the limits of its plugins' strategies.");
        }
        Some(Approved::Given) => condition("Approved", Some(true), "Approved", "This digest is approved."),
        Some(Approved::Awaited) => condition("Approved", Some(false), "Awaited", "It needs an approval."),
        Some(Approved::NeverActive) => condition("Approved", Some(false), "OnlyTried", "A plugin that it changes has the strategy Shadow."),
        None => match known("Approved") {
            Some(known) => condition("Approved", state(known), &known.reason, &known.message),
            None => condition("Approved", None, "NotJudged", "It is not known yet whether the set needs an approval."),
        },
    }
    match (phase, &promoted_at) {
        (PolicySetPhase::Active, _) => condition("Promoted", Some(true), "Active", "The set is active."),
        (_, Some(_)) => condition("Promoted", Some(true), "Replaced", "Another set has replaced this one."),
        (_, None) => condition("Promoted", Some(false), "NeverActive", "The set has never been active."),
    }
    let paced = facts.pace.as_ref().and_then(paced);
    // A new leader first checks all subjects; meanwhile the reported state of this set stays.
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
    let (against, summary) = (facts.against.clone().or(before.against), facts.summary.clone().or(before.summary));
    let blast_radius = facts.radius.clone().or(before.blast_radius);
    let is_compared = conditions.iter().any(|condition| condition.type_ == "Shadowed" && condition.status == "True");
    let mut activations = before.activations;
    if phase == PolicySetPhase::Active {
        if turned {
            let at = promoted_at.clone().unwrap_or_else(|| now.clone());
            activations.push(PolicySetActivation { at, against: against.clone(), summary: summary.clone(), blast_radius: None });
            activations.drain(..activations.len().saturating_sub(MAX_ACTIVATIONS));
        }
        // The first report stays, regardless of later results.
        if let Some(last) = activations.last_mut().filter(|last| last.blast_radius.is_none() && is_compared) {
            last.blast_radius = blast_radius.clone().map(|radius| BlastRadius { examples: Vec::new(), ..radius });
        }
    }
    PolicySetStatus {
        observed_generation: set.meta().generation,
        phase: Some(phase),
        against,
        summary,
        changes: facts.changes.clone().unwrap_or(before.changes),
        blast_radius,
        message: facts.message.clone().or(news).or(before.message.filter(|_| stays)),
        // A set that was replaced may be nominated again.
        replaced_by: match phase {
            PolicySetPhase::Abandoned | PolicySetPhase::Previous => facts.replaced_by.clone().or(before.replaced_by.filter(|_| !turned)),
            PolicySetPhase::Candidate | PolicySetPhase::Active => None,
        },
        phase_since: if turned { Some(now.clone()) } else { before.phase_since },
        promoted_at,
        activations,
        conditions,
    }
}

/// The reason of RolledOut until all subjects were checked.
const BEGINNING: &str = "Beginning";

/// The progress of the active set's rollout, until it is complete.
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

/// The sets that are no longer retained, oldest first. Each activation leaves candidates over the previous set behind; these evict no set
/// that was once active. The age of the others counts from their end: whoever withdraws a change can still read what became of it.
pub(super) fn superfluous(sets: &BTreeMap<String, PolicySet>, in_use: &BTreeSet<String>) -> Vec<String> {
    let decided = |set: &PolicySet| set.status.as_ref().and_then(|status| status.promoted_at.as_ref()).map(|at| at.0);
    let mut free: Vec<_> = sets.values().filter(|set| !in_use.contains(&set.name_any())).collect();
    let ended = |set: &PolicySet| set.status.as_ref().and_then(|status| status.phase_since.as_ref()).map(|at| at.0);
    free.sort_by_key(|set| (decided(set), ended(set), set.creation_timestamp().map(|at| at.0)));
    let (decided, never): (Vec<_>, Vec<_>) = free.into_iter().partition(|set| decided(set).is_some());
    let oldest = |sets: Vec<&PolicySet>| -> Vec<String> {
        sets.iter().take(sets.len().saturating_sub(MAX_OLD_SETS)).map(|set| set.name_any()).collect()
    };
    [oldest(never), oldest(decided)].concat()
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
    fn a_version_that_needs_an_approval_names_the_next_commands_or_the_failure_to_fix() {
        let restarts = "the pods of 3 subjects would restart; the limit is 0";
        let message = approval_needed("The newest version", "set-a", restarts, None);
        assert_eq!(
            message,
            format!(
                "The newest version needs an approval of the PolicySet set-a, because {restarts}: review `pointsman policy history set-a`, \
                 then run `pointsman policy approve set-a`."
            )
        );
        assert_eq!(why_approval_is_needed(&message), Some(restarts));

        let failed = "InferenceService first/qwen: PolicyFailed: it panicked";
        let message = approval_needed("The newest version", "set-a", "planning would fail for 1 subject", Some(failed));
        let why = format!("planning would fail for 1 subject ({failed})");
        assert!(message.contains(&format!(", because {why}: push a fix;")) && !message.contains("approve "), "{message}");
        assert_eq!(why_approval_is_needed(&message), Some(why.as_str()));
        assert_eq!(why_approval_is_needed("It needs one, because it does."), Some("it does"), "an earlier host names no commands");
        assert_eq!(why_approval_is_needed("It waits."), None);
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
        // A new leader writes nothing while it checks an unchanged state.
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
    fn what_was_reported_when_a_set_became_active_stays() {
        let mut set = set('a');
        let radius = |restarts| Some(BlastRadius { restarts, examples: vec!["x".to_owned()], ..BlastRadius::default() });
        let compared = |restarts| SetFacts { radius: radius(restarts), shadowed: Some(true), ..SetFacts::default() };
        let mut tell = |phase, facts: &SetFacts, second| {
            set.status = Some(status(&set, phase, Some(&time(second)), facts, &time(second)));
            let activations = set.status.clone().unwrap().activations;
            activations.iter().map(|each| (each.at.clone(), each.blast_radius.as_ref().map(|radius| radius.restarts))).collect::<Vec<_>>()
        };
        assert_eq!(tell(PolicySetPhase::Candidate, &compared(4), 1), []);
        assert_eq!(tell(PolicySetPhase::Active, &SetFacts::default(), 2), [(time(2), Some(4))]);
        assert_eq!(tell(PolicySetPhase::Active, &compared(6), 3), [(time(2), Some(4))]);
        tell(PolicySetPhase::Previous, &SetFacts::default(), 4);
        // It is rolled back to, and compared once it is active.
        let back = SetFacts { anew: true, ..SetFacts::default() };
        assert_eq!(tell(PolicySetPhase::Active, &back, 5), [(time(2), Some(4)), (time(5), None)]);
        assert_eq!(tell(PolicySetPhase::Active, &compared(1), 6), [(time(2), Some(4)), (time(5), Some(1))]);
    }

    #[test]
    fn a_set_that_is_nominated_again_reports_its_changes_from_the_set_that_is_active_now() {
        let mut set = set('a');
        let nominated = |change: &str, anew| SetFacts {
            anew,
            against: Some(format!("against {change}")),
            summary: Some(change.to_owned()),
            changes: Some(vec![change.to_owned()]),
            ..SetFacts::default()
        };
        set.status = Some(status(&set, PolicySetPhase::Candidate, None, &nominated("one", true), &time(1)));
        set.status = Some(status(&set, PolicySetPhase::Active, Some(&time(2)), &SetFacts::default(), &time(2)));
        set.status = Some(status(&set, PolicySetPhase::Previous, None, &SetFacts::default(), &time(3)));
        // Another leader may continue a nomination.
        for (change, anew) in [("two", true), ("three", false)] {
            let again = status(&set, PolicySetPhase::Candidate, None, &nominated(change, anew), &time(4));
            assert_eq!((again.summary.as_deref(), &again.changes[..]), (Some(change), &[change.to_owned()][..]));
            assert_eq!(again.against, Some(format!("against {change}")));
            assert_eq!(again.activations[0].summary.as_deref(), Some("one"));
        }
    }

    #[test]
    fn of_sets_that_nobody_uses_the_newest_are_kept_of_those_that_decided_and_of_those_that_never_did() {
        let mut sets = BTreeMap::new();
        let digests: Vec<String> = (0..30).map(|number: u64| Digest::hash(&number.to_le_bytes()).to_string()).collect();
        for (second, digest) in (0..).zip(&digests) {
            let mut set = from_record(&ActiveRecord { digest: digest.clone(), ..ActiveRecord::default() }, "0.1.0");
            set.meta_mut().creation_timestamp = Some(time(second));
            let promoted_at = (second % 2 == 1).then(|| time(second));
            set.status = Some(PolicySetStatus { promoted_at, ..PolicySetStatus::default() });
            sets.insert(set.name_any(), set);
        }
        let in_use = BTreeSet::from([name(&digests[0]), name(&digests[3])]);
        let expected = [2, 4, 6, 8, 1, 5, 7, 9].map(|number: usize| name(&digests[number]));
        assert_eq!(superfluous(&sets, &in_use), expected);
        // A set whose change has just been withdrawn can still be read, however old it is.
        let withdrawn = sets.get_mut(&name(&digests[2])).unwrap();
        withdrawn.status.as_mut().unwrap().phase_since = Some(time(100));
        let expected = [4, 6, 8, 10, 1, 5, 7, 9].map(|number: usize| name(&digests[number]));
        assert_eq!(superfluous(&sets, &in_use), expected);
    }
}
