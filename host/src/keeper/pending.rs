//! The differences between the active set and the PolicyPlugins and ValidationRules, and whether they may become active. Pure.

use super::record::{ActiveRecord, Origin, Recorded, RecordedRule};
use k8s_openapi::apimachinery::pkg::{apis::meta::v1::Time, util::intstr::IntOrString};
use pointsman_core::{
    decide::{member::Member, set::ActiveSet},
    rules::{Rules, rule::Rule},
};
use pointsman_crds::policy::{
    plugin::{PluginFailurePolicy, PluginSignature, PolicyPoint, UpdateStrategy, UpdateStrategyType},
    set::BlastRadius,
};
use pointsman_sandbox::evaluator::Evaluator;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    sync::Arc,
};

/// The pending change of one plugin or rule.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) name: String,
    pub(super) wanted: WantedState,
    /// The update strategy of its object, if it has one.
    pub(super) said: Option<UpdateStrategy>,
    pub(super) strategy: UpdateStrategy,
    /// The field manager that requested it, if known.
    pub(super) by: Option<String>,
    /// Its object's group label: all changes of a group become active together.
    pub(super) group: Option<String>,
}

impl WantedState {
    /// Whether both are the same, regardless of when they were loaded.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plugin(one, signature), Self::Plugin(other, another)) => {
                let bound = |member: &Option<Arc<Member>>| member.as_ref().map(|member| member.bound.clone());
                bound(one) == bound(other) && signature == another
            }
            (Self::Rule(one), Self::Rule(other)) => {
                let bound = |rule: &Option<Arc<Rule>>| rule.as_ref().map(|rule| rule.bound.clone());
                bound(one) == bound(other)
            }
            _ => false,
        }
    }
}

/// A plugin or a rule, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChangeKey {
    Plugin(String),
    Rule(String),
}

impl fmt::Display for ChangeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(name) => write!(f, "plugin {name}"),
            Self::Rule(name) => write!(f, "rule {name}"),
        }
    }
}

/// The changes of one candidate.
pub(super) type ChangeKeys = BTreeSet<ChangeKey>;

/// The requested state; none if the object was deleted.
#[derive(Clone, Debug)]
pub(super) enum WantedState {
    Plugin(Option<Arc<Member>>, Option<PluginSignature>),
    Rule(Option<Arc<Rule>>),
}

impl Pending {
    pub(super) fn key(&self) -> ChangeKey {
        match self.wanted {
            WantedState::Plugin(..) => ChangeKey::Plugin(self.name.clone()),
            WantedState::Rule(_) => ChangeKey::Rule(self.name.clone()),
        }
    }

    pub(super) fn is_plugin(&self, name: &str) -> bool {
        self.name == name && matches!(self.wanted, WantedState::Plugin(..))
    }

    pub(super) fn is_rule(&self, name: &str) -> bool {
        self.name == name && matches!(self.wanted, WantedState::Rule(_))
    }
}

/// Groups the changes that become active together: each change is a group of its own, unless its object has a group label.
pub(super) fn grouped(pending: Vec<Pending>) -> Vec<Vec<Pending>> {
    let (mut alone, mut groups) = (Vec::new(), BTreeMap::<String, Vec<Pending>>::new());
    for pending in pending {
        match &pending.group {
            Some(group) => groups.entry(group.clone()).or_default().push(pending),
            None => alone.push(vec![pending]),
        }
    }
    alone.into_iter().chain(groups.into_values()).collect()
}

/// The sets of connected numbers. Numbers without a connection are left out.
pub(super) fn connected(pairs: &[(usize, usize)]) -> Vec<BTreeSet<usize>> {
    let mut all: Vec<BTreeSet<usize>> = Vec::new();
    for &(one, other) in pairs {
        let (with, without): (Vec<_>, Vec<_>) = mem::take(&mut all).into_iter().partition(|set| set.contains(&one) || set.contains(&other));
        all = without;
        all.push(with.into_iter().flatten().chain([one, other]).collect());
    }
    all.sort();
    all
}

/// The default update strategy: a plugin that affects pods restarts none without an approval.
pub(super) fn usual(points: &[PolicyPoint]) -> UpdateStrategy {
    let of_pods = [PolicyPoint::PodTemplating, PolicyPoint::MetadataPropagation].iter().any(|point| points.contains(point));
    UpdateStrategy { type_: if of_pods { UpdateStrategyType::Guarded } else { UpdateStrategyType::Immediate }, ..UpdateStrategy::default() }
}

/// The decision on a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PromotionDecision {
    /// It is within all limits.
    Promote,
    /// It needs an approval, for this reason.
    Approval(String),
    /// It is only compared, and never becomes active.
    Never,
}

/// Whether a candidate's changes are within the limits of all its parts.
pub(super) fn verdict<'a>(strategies: impl IntoIterator<Item = &'a UpdateStrategy>, radius: &BlastRadius) -> PromotionDecision {
    let mut over = Vec::new();
    for strategy in strategies {
        if strategy.type_ == UpdateStrategyType::Shadow {
            return PromotionDecision::Never;
        }
        // It has no limits except for failures.
        if strategy.type_ == UpdateStrategyType::Immediate {
            continue;
        }
        let restarting = strategy.max_restarting.as_ref().map_or(0, |most| bound(most, radius.subjects));
        if radius.restarts > restarting {
            over.push(format!("the pods of {} would restart; the limit is {restarting}", counted(radius.restarts)));
        }
        let changed = radius.objects + radius.metadata;
        if let Some(most) = strategy.max_changed.as_ref().map(|most| bound(most, radius.subjects)).filter(|most| changed > *most) {
            over.push(format!("{} would change in other ways; the limit is {most}", counted(changed)));
        }
        let choices = strategy.max_choices.as_ref().map(|most| bound(most, radius.subjects));
        if let Some(most) = choices.filter(|most| radius.choices > *most) {
            over.push(format!("{} would choose another runtime at the next choice; the limit is {most}", counted(radius.choices)));
        }
    }
    if radius.failed > 0 {
        over.push(format!("planning would fail for {}", counted(radius.failed)));
    }
    if let Some(scores) = radius.scores.as_ref().filter(|scores| scores.failed > 0) {
        over.push(format!("{} of {} recorded scheduling-scoring questions would no longer be answered", scores.failed, scores.questions));
    }
    over.sort();
    over.dedup();
    if over.is_empty() { PromotionDecision::Promote } else { PromotionDecision::Approval(over.join("; ")) }
}

fn counted(subjects: i64) -> String {
    if subjects == 1 { "1 subject".to_owned() } else { format!("{subjects} subjects") }
}

/// The number of subjects that a limit allows. Percentages are rounded down.
fn bound(most: &IntOrString, of: i64) -> i64 {
    match most {
        IntOrString::Int(number) => (*number).into(),
        IntOrString::String(percent) => percent.trim_end_matches('%').parse::<i64>().unwrap_or_default() * of / 100,
    }
}

/// The active set and its record with these changes. The record keeps previous sets that subjects may still be on.
pub(super) fn put_together(
    active: &ActiveSet,
    record: &ActiveRecord,
    pending: &[Pending],
    in_use: bool,
    evaluator: Option<&Arc<Evaluator>>,
    now: &Time,
) -> (ActiveSet, ActiveRecord) {
    let mut record = record.clone();
    let mut members: Vec<Arc<Member>> =
        active.members().iter().filter(|member| !pending.iter().any(|pending| pending.is_plugin(member.name()))).cloned().collect();
    let others = active.rules().all().iter().filter(|rule| !pending.iter().any(|pending| pending.is_rule(rule.name())));
    let mut rules: Vec<Arc<Rule>> = others.cloned().collect();
    for Pending { name, wanted, said, .. } in pending {
        let (member, signature) = match wanted {
            WantedState::Plugin(Some(member), signature) => (member, signature),
            WantedState::Plugin(None, _) => {
                record.plugins.remove(name);
                continue;
            }
            WantedState::Rule(None) => {
                record.rules.remove(name);
                continue;
            }
            WantedState::Rule(Some(rule)) => {
                let recorded = RecordedRule { active: rule.bound.clone(), strategy: said.clone(), origin: Origin::default() };
                record.rules.insert(name.clone(), recorded);
                rules.push(Arc::clone(rule));
                continue;
            }
        };
        record.promote(member.bound.clone(), signature.clone(), said.clone(), now.clone());
        let current = active.member(name);
        let former = current.filter(|current| current.bound.digest != member.bound.digest).map(|current| Arc::new(current.after(None)));
        let previous = former.or_else(|| current.and_then(|current| current.previous.clone()));
        members.push(Arc::new(member.after(previous.filter(|previous| previous.missing().is_none()))));
    }
    let set = ActiveSet::new(members).ruled(Rules::new(rules, evaluator.cloned()));
    record.set_active(set.digest().to_string(), in_use, now.clone());
    (set, record)
}

/// Whether a member lacks its fallback; loading the record again supplies it.
pub(super) fn lacks_previous(set: &ActiveSet, record: &ActiveRecord) -> bool {
    set.members().iter().any(|member| {
        let previous = |recorded: &Recorded| recorded.previous.is_some();
        member.bound.failure_policy == PluginFailurePolicy::Previous
            && member.previous.is_none()
            && record.plugins.get(member.name()).is_some_and(previous)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(changed: Option<IntOrString>, restarting: Option<IntOrString>) -> UpdateStrategy {
        UpdateStrategy { type_: UpdateStrategyType::Guarded, max_changed: changed, max_restarting: restarting, max_choices: None }
    }

    fn radius(restarts: i64, objects: i64, metadata: i64, failed: i64) -> BlastRadius {
        BlastRadius { subjects: 50, evaluated: 50, restarts, objects, metadata, failed, choices: 0, scores: None, examples: Vec::new() }
    }

    #[test]
    fn an_update_of_what_makes_pods_restarts_none_without_a_word_and_others_are_active_at_once() {
        use PolicyPoint::{MetadataPropagation, PodTemplating, RuntimeSelection, SchedulingScoring};
        assert_eq!(usual(&[RuntimeSelection, SchedulingScoring]).type_, UpdateStrategyType::Immediate);
        for point in [PodTemplating, MetadataPropagation] {
            let usual = usual(&[RuntimeSelection, point]);
            assert_eq!(verdict([&usual], &radius(0, 50, 50, 0)), PromotionDecision::Promote);
            assert!(
                matches!(verdict([&usual], &radius(1, 0, 0, 0)), PromotionDecision::Approval(why) if why.contains("the pods of 1 subject "))
            );
        }
    }

    #[test]
    fn an_immediate_update_has_no_bounds_and_waits_where_plans_fail() {
        let immediate =
            UpdateStrategy { type_: UpdateStrategyType::Immediate, max_changed: Some(IntOrString::Int(0)), ..UpdateStrategy::default() };
        assert_eq!(verdict([&immediate], &radius(50, 0, 0, 0)), PromotionDecision::Promote);
        assert!(
            matches!(verdict([&immediate], &radius(0, 0, 0, 2)), PromotionDecision::Approval(why) if why.starts_with("planning would fail for 2"))
        );
    }

    #[test]
    fn changes_are_alone_unless_their_group_or_what_connects_them_makes_them_one() {
        let pending = |name: &str, group: Option<&str>| Pending {
            name: name.to_owned(),
            wanted: WantedState::Rule(None),
            said: None,
            strategy: UpdateStrategy::default(),
            by: None,
            group: group.map(str::to_owned),
        };
        let all = vec![pending("a", None), pending("b", Some("x")), pending("c", None), pending("d", Some("x")), pending("e", Some("y"))];
        let groups = grouped(all).into_iter().map(|group| group.into_iter().map(|pending| pending.name).collect::<String>());
        assert_eq!(groups.collect::<Vec<_>>(), ["a", "c", "bd", "e"]);

        assert_eq!(connected(&[(0, 1), (4, 5), (2, 1), (3, 3)]), [BTreeSet::from([0, 1, 2]), BTreeSet::from([3]), BTreeSet::from([4, 5])]);
        assert_eq!(connected(&[(0, 1), (2, 3), (1, 2)]), [BTreeSet::from([0, 1, 2, 3])]);
    }

    #[test]
    fn restarts_and_other_changes_are_bounded_apart_in_numbers_or_percent() {
        let percent = |text: &str| Some(IntOrString::String(text.to_owned()));
        let strategy = guarded(percent("10%"), Some(IntOrString::Int(2)));
        assert_eq!(verdict([&strategy], &radius(2, 3, 2, 0)), PromotionDecision::Promote);
        assert!(matches!(verdict([&strategy], &radius(3, 0, 0, 0)), PromotionDecision::Approval(why) if why.contains("the limit is 2")));
        assert!(matches!(verdict([&strategy], &radius(0, 3, 3, 0)), PromotionDecision::Approval(why) if why.contains("the limit is 5")));
        let choosy = UpdateStrategy { max_choices: Some(IntOrString::Int(1)), ..strategy.clone() };
        let choosing = |choices| BlastRadius { choices, ..radius(0, 0, 0, 0) };
        assert_eq!(verdict([&strategy], &choosing(50)), PromotionDecision::Promote);
        assert_eq!(verdict([&choosy], &choosing(1)), PromotionDecision::Promote);
        assert!(
            matches!(verdict([&choosy], &choosing(2)), PromotionDecision::Approval(why) if why.contains("2 subjects would choose another runtime"))
        );
        let strict = guarded(None, percent("1%"));
        assert!(
            matches!(verdict([&strategy, &strict], &radius(1, 0, 0, 0)), PromotionDecision::Approval(why) if why.contains("the limit is 0"))
        );
    }

    #[test]
    fn a_subject_that_fails_needs_a_word_whatever_the_bounds_and_what_is_only_tried_is_never_active() {
        let wide = guarded(None, Some(IntOrString::String("100%".to_owned())));
        assert!(
            matches!(verdict([&wide], &radius(50, 0, 0, 1)), PromotionDecision::Approval(why) if why.starts_with("planning would fail for 1"))
        );
        let tried = UpdateStrategy { type_: UpdateStrategyType::Shadow, ..UpdateStrategy::default() };
        assert_eq!(verdict([&wide, &tried], &radius(0, 0, 0, 0)), PromotionDecision::Never);
    }
}
