//! Proposes candidates over the active set: one per change. Changes of one group are one candidate, and changes of the same fields have an
//! additional candidate that combines them. Only on the leader.

use super::{
    Keeper,
    batch::patience,
    candidate::{Candidate, CandidateKind, Former},
    changes::{describe, summary},
    now,
    pending::{ChangeKey, ChangeKeys, Pending, PromotionDecision, WantedState, connected, grouped, put_together, usual},
    plugin::PluginProgress,
    record::{ActiveRecord, Origin},
    reports,
    rules::RuleProgress,
    sets::{self, APPROVED, SetFacts},
};
use crate::problem::sentence;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::events::EventType,
};
use pointsman_core::{
    compare::{FieldSet, Overlap},
    decide::set::ActiveSet,
    rules::shipped,
};
use pointsman_crds::policy::{
    plugin::{PolicyPoint, UpdateStrategy, UpdateStrategyType},
    set::{BlastRadius, PolicySet, PolicySetPhase, PolicySetPlugin},
};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};
use tokio::time::Instant;

/// The label of PolicyPlugins and ValidationRules that become active together.
pub(super) const UPDATE_GROUP: &str = "policy.pointsman.dev/update-group";

/// The number of transient failures to load a plugin during which its candidate stays unchanged.
const MAX_TRANSIENT_FAILURES: u32 = 3;

/// The maximum number of candidates. Each is compared on all subjects whenever another set becomes active.
pub(super) const MAX_CANDIDATES: usize = 32;

/// Two candidates that change the same fields.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) between: [ChangeKeys; 2],
    pub(super) overlap: Overlap,
}

impl Keeper {
    /// The differences between the active set and the PolicyPlugins and ValidationRules.
    pub(super) fn pending(&self) -> Vec<Pending> {
        let active = self.policies.active();
        let strategy = |said: Option<&UpdateStrategy>, points: &[PolicyPoint]| {
            said.or(self.options.strategy.as_ref()).cloned().unwrap_or_else(|| usual(points))
        };
        let changed = self.works.iter().filter_map(|(name, work)| {
            // A plugin that is about to be rechecked may change.
            let member = work.ready.as_ref().filter(|_| !work.dirty && !work.running && !work.pending)?;
            let same = active.member(name).is_some_and(|active| active.bound == member.bound && active.missing().is_none());
            let spec = &self.plugins.get(name)?.spec;
            (!same).then(|| Pending {
                name: name.clone(),
                said: spec.strategy.clone(),
                // A plugin that is removed from a pod's policy point also changes pods.
                strategy: strategy(
                    spec.strategy.as_ref(),
                    &[&member.bound.points[..], active.member(name).map_or(&[], |active| &active.bound.points)].concat(),
                ),
                by: self.changed_by(name, active.member(name).map(|active| &active.bound), &member.bound),
                group: self.plugins.get(name).and_then(group),
                wanted: WantedState::Plugin(Some(Arc::clone(member)), spec.signature.clone()),
            })
        });
        let gone = self.record.plugins.iter().filter(|(name, _)| !self.plugins.contains_key(*name));
        // A deleted built-in is created again.
        let back: Vec<&str> = self.missing_builtins().map(|builtin| builtin.name).collect();
        let gone = gone.filter(|(name, _)| !back.contains(&name.as_str())).map(|(name, recorded)| Pending {
            name: name.clone(),
            wanted: WantedState::Plugin(None, None),
            said: None,
            strategy: removal_strategy(strategy(recorded.strategy.as_ref(), &recorded.active.points)),
            by: None,
            group: None,
        });
        changed.chain(gone).chain(self.pending_rules()).collect()
    }

    /// The pending changes of rules. A rule restarts nothing, but may block everything: its rejections are limited.
    fn pending_rules(&self) -> Vec<Pending> {
        let strategy = |said: Option<&UpdateStrategy>| {
            let guarded = || UpdateStrategy { type_: UpdateStrategyType::Guarded, ..UpdateStrategy::default() };
            said.or(self.options.strategy.as_ref()).cloned().unwrap_or_else(guarded)
        };
        let changed = self.rule_works.iter().filter_map(|(name, work)| {
            let rule = work.ready.as_ref().filter(|_| !work.dirty && !work.running && !work.pending)?;
            let object = self.rules.get(name)?;
            Some(Pending {
                name: name.clone(),
                wanted: WantedState::Rule(Some(Arc::clone(rule))),
                said: object.spec.strategy.clone(),
                strategy: strategy(object.spec.strategy.as_ref()),
                by: last_manager(object),
                group: group(object),
            })
        });
        // Shipped rules are created again.
        let gone = self.record.rules.iter().filter(|(name, _)| !self.rules.contains_key(*name) && shipped::find(name).is_none());
        let gone = gone.map(|(name, recorded)| Pending {
            name: name.clone(),
            wanted: WantedState::Rule(None),
            said: None,
            strategy: removal_strategy(strategy(recorded.strategy.as_ref())),
            by: None,
            group: None,
        });
        changed.chain(gone).collect()
    }

    /// The last field manager of the PolicyPlugin, or of the ConfigMap with its bytes.
    fn changed_by(&self, name: &str, active: Option<&PolicySetPlugin>, wanted: &PolicySetPlugin) -> Option<String> {
        let plugin = self.plugins.get(name)?;
        let bound_alike = active.is_some_and(|active| {
            PolicySetPlugin { digest: wanted.digest.clone(), version: wanted.version.clone(), ..active.clone() } == *wanted
        });
        if bound_alike && let Some((namespace, map)) = self.sources(plugin).first() {
            return last_manager(&*self.config_maps.get(namespace, map)?);
        }
        last_manager(plugin)
    }

    /// The active set and its record with these changes.
    pub(super) fn put_together(&self, active: &ActiveSet, pending: &[Pending]) -> (ActiveSet, ActiveRecord) {
        // Without an evaluator, the rules report that they can't be evaluated.
        let evaluator = self.loader.evaluator().ok();
        let (set, mut record) = put_together(active, &self.record, pending, self.pacer.in_use(), evaluator.as_ref(), &now());
        let number = Some(self.number(&record.digest));
        record.number = number;
        for pending in pending {
            record.set_origin(&pending.key(), Origin { set: number, by: pending.by.clone() });
        }
        (set, record)
    }

    /// The number of a set: its own, or the next.
    pub(super) fn number(&self, digest: &str) -> i64 {
        let known = self.sets.get(&sets::name(digest)).and_then(|set| set.spec.number);
        let recorded = self.record.number.filter(|_| self.record.digest == digest);
        let highest = || self.sets.values().filter_map(|set| set.spec.number).chain(self.record.number).max().unwrap_or_default();
        known.or(recorded).unwrap_or_else(|| highest() + 1)
    }

    /// Whether a plugin's or rule's new state will be known in a moment.
    fn is_on_its_way(&self, key: &ChangeKey, now: Instant) -> bool {
        let tried_again = |work: &PluginProgress| work.retry.is_some() && work.tries <= MAX_TRANSIENT_FAILURES;
        match key {
            ChangeKey::Plugin(name) => self.works.get(name).is_some_and(|work| work.is_awaited(now) || work.stores() || tried_again(work)),
            ChangeKey::Rule(name) => self.rule_works.get(name).is_some_and(RuleProgress::is_on_its_way),
        }
    }

    /// Whether all of these have the state that their objects request.
    pub(super) fn is_settled(&self, keys: &ChangeKeys) -> bool {
        let now = Instant::now();
        !keys.iter().any(|key| self.is_on_its_way(key, now))
    }

    /// The groups with a member whose new state isn't known yet.
    fn unsettled_groups(&self) -> BTreeSet<String> {
        let now = Instant::now();
        let plugins = self.plugins.iter().map(|(name, plugin)| (ChangeKey::Plugin(name.clone()), group(plugin)));
        let rules = self.rules.iter().map(|(name, rule)| (ChangeKey::Rule(name.clone()), group(rule)));
        plugins.chain(rules).filter(|(key, group)| group.is_some() && self.is_on_its_way(key, now)).filter_map(|(_, group)| group).collect()
    }

    /// Clears `proposes_by` once this leader knows the pending changes.
    fn learn_what_waits(&mut self) {
        let now = Instant::now();
        let all = self.works.keys().map(|name| ChangeKey::Plugin(name.clone()));
        let mut all = all.chain(self.rule_works.keys().map(|name| ChangeKey::Rule(name.clone())));
        if self.proposes_by.is_some_and(|by| by <= now) || !all.any(|key| self.is_on_its_way(&key, now)) {
            self.proposes_by = None;
        }
    }

    /// Creates candidates from the pending changes, keeps existing ones, and activates those that may become active.
    pub(super) async fn propose(&mut self) {
        self.learn_what_waits();
        // When a set becomes active, the other candidates are rebuilt over it. Overlapping ones add a candidate.
        for _ in 0..=2 * MAX_CANDIDATES {
            if !self.update_candidates().await {
                self.try_again();
                return;
            }
            self.judge();
            self.split_batch();
            if !self.promote_next().await && self.meetings.is_some() {
                return;
            }
        }
    }

    /// The changes of each candidate, except for combined ones.
    fn wanted_candidates(&self) -> Vec<(ChangeKeys, Vec<Pending>)> {
        let unsettled = self.unsettled_groups();
        let pending = self.pending().into_iter().filter(|pending| pending.group.as_ref().is_none_or(|group| !unsettled.contains(group)));
        let mut wanted: Vec<(ChangeKeys, Vec<Pending>)> = grouped(pending.collect()).into_iter().map(with_keys).collect();
        // A change that is being rechecked stays as it was.
        let known: ChangeKeys = wanted.iter().flat_map(|(keys, _)| keys.iter().cloned()).collect();
        let stay = self
            .candidates
            .iter()
            .filter(|(keys, candidate)| candidate.kind == CandidateKind::Change && known.is_disjoint(keys) && !self.is_settled(keys));
        wanted.extend(stay.map(|(keys, candidate)| (keys.clone(), candidate.pending.clone())));
        // Existing candidates come first; the others follow as there is space.
        wanted.sort_by_cached_key(|(keys, _)| !self.candidates.contains_key(keys));
        wanted.truncate(MAX_CANDIDATES);
        wanted
    }

    /// The combined candidates: changes of the same fields, and batches.
    fn joint_candidates(&mut self, wanted: &[(ChangeKeys, Vec<Pending>)]) -> Vec<((ChangeKeys, Vec<Pending>), CandidateKind)> {
        let place = |keys: &ChangeKeys| wanted.iter().position(|(wanted, _)| wanted == keys);
        let pairs: Vec<(usize, usize)> =
            self.meetings().iter().filter_map(|Meeting { between: [one, other], .. }| Some((place(one)?, place(other)?))).collect();
        let joined = |places: BTreeSet<usize>| {
            with_keys(places.into_iter().filter_map(|place| wanted.get(place)).flat_map(|(_, pending)| pending.iter().cloned()).collect())
        };
        let mut joint: Vec<_> = connected(&pairs).into_iter().map(|places| (joined(places), CandidateKind::Overlap)).collect();
        if let Some(batch) = self.batch() {
            let places = wanted.iter().enumerate().filter(|(_, (keys, _))| keys.is_subset(&batch)).map(|(place, _)| place).collect();
            joint.push((joined(places), CandidateKind::Batch));
        }
        joint
    }

    /// The candidates that wait for an approval and change the same fields.
    pub(super) fn meetings(&mut self) -> &[Meeting] {
        if self.meetings.is_none() {
            let waiting: Vec<(&ChangeKeys, &FieldSet)> = self
                .candidates
                .iter()
                .filter(|(_, candidate)| {
                    candidate.kind == CandidateKind::Change && matches!(candidate.verdict, Some(PromotionDecision::Approval(_)))
                })
                .filter_map(|(keys, candidate)| Some((keys, candidate.report.as_ref()?.fields.as_ref()?)))
                .collect();
            let pairs = waiting.iter().enumerate().flat_map(|(place, one)| waiting[place + 1..].iter().map(move |other| (one, other)));
            let meeting = |((one, fields), (other, others)): (&(&ChangeKeys, &FieldSet), &(&ChangeKeys, &FieldSet))| {
                let overlap = fields.overlap(others)?;
                Some(Meeting { between: [(*one).clone(), (*other).clone()], overlap })
            };
            self.meetings = Some(pairs.filter_map(meeting).collect());
        }
        self.meetings.as_deref().unwrap_or_default()
    }

    /// Brings the candidates in line with the pending changes. Returns whether all writes succeeded.
    async fn update_candidates(&mut self) -> bool {
        let wanted = self.wanted_candidates();
        let joint = self.joint_candidates(&wanted);
        let known: ChangeKeys = wanted.iter().flat_map(|(keys, _)| keys.iter().cloned()).collect();
        let all: Vec<_> = wanted.into_iter().map(|wanted| (wanted, CandidateKind::Change)).chain(joint).collect();
        let gone = self.candidates.keys().filter(|keys| !all.iter().any(|((wanted, _), _)| wanted == *keys));
        for keys in gone.cloned().collect::<Vec<_>>() {
            let kind = self.candidates.get(&keys).map(|candidate| candidate.kind);
            let why = if kind == Some(CandidateKind::Overlap) {
                "Its changes no longer overlap: each is its own candidate, or active."
            } else if kind == Some(CandidateKind::Batch) {
                "Its changes become active with others, or one after the other."
            } else if keys.is_subset(&known) {
                "Its changes are now grouped differently: see the other candidates."
            } else {
                "Its changes were reverted, or can no longer be loaded."
            };
            self.abandon(&keys, why, None);
        }
        for ((keys, pending), kind) in all {
            if !self.update_candidate(keys, pending, kind).await {
                return false;
            }
        }
        true
    }

    /// Creates or keeps one candidate, and records on the one it replaces why it was abandoned.
    async fn update_candidate(&mut self, keys: ChangeKeys, pending: Vec<Pending>, kind: CandidateKind) -> bool {
        let active = self.policies.active();
        let (set, record) = self.put_together(&active, &pending);
        let against = active.digest().to_string();
        let mut next = Candidate::new(Arc::new(set), record, pending, against.clone(), kind);
        if let Some(candidate) = self.candidates.get_mut(&keys) {
            let same = candidate.set.digest() == next.set.digest();
            let rebased = candidate.against != against;
            if same && !rebased && self.sets.contains_key(&candidate.name()) {
                // Its limits may have changed.
                candidate.pending = next.pending;
                candidate.kind = kind;
                candidate.record = next.record;
                return true;
            }
            let why = if rebased {
                let (against, next) = (sets::name(&against), next.name());
                format!("Another set became active: {against}. Its changes are compared with that set: see {next}.")
            } else if same {
                "Its object was deleted and is being recreated.".to_owned()
            } else {
                format!("A newer candidate replaced it: {}.", next.name())
            };
            if rebased && changes_alike(&candidate.pending, &next.pending) {
                next.since = candidate.since;
                next.rebased = true;
                next.former = self.former(&keys);
            }
            self.abandon(&keys, &why, Some(next.name()));
        }
        self.nominate(keys, next).await
    }

    /// The candidate that was approved, or may be approved while its successor is compared: the approval covers the successor if that makes
    /// no further changes.
    fn former(&self, keys: &ChangeKeys) -> Option<Former> {
        let candidate = self.candidates.get(keys)?;
        let earlier = candidate.former.clone();
        if earlier.as_ref().is_some_and(|former| self.is_approved(&former.digest)) {
            return earlier;
        }
        let fields = candidate.report.as_ref().and_then(|report| report.fields.clone());
        let scores = candidate.report.as_ref().and_then(|report| report.radius().scores);
        fields.map(|fields| Former { digest: candidate.digest(), fields: Arc::new(fields), scores }).or(earlier)
    }

    /// Creates the object of a candidate, and compares it with the active set unless that is done.
    async fn nominate(&mut self, keys: ChangeKeys, mut candidate: Candidate) -> bool {
        let (digest, name, against) = (candidate.digest(), candidate.name(), candidate.against.clone());
        let goes_on = |set: &PolicySet| {
            set.status
                .as_ref()
                .is_some_and(|status| status.phase == Some(PolicySetPhase::Candidate) && status.against.as_ref() == Some(&against))
        };
        // Another host may have made it a candidate already.
        let goes_on = self.sets.get(&name).is_some_and(goes_on);
        if !self.make_set(&candidate.record).await || !(goes_on || self.forget_approval(&name).await) {
            return false;
        }
        if goes_on {
            candidate.report = reports::read(&self.client, &self.options.namespace, &name)
                .await
                .filter(|report| report.set == digest && report.against == candidate.against && report.fields.is_some());
            candidate.batches_until = Some(patience());
        }
        let active = self.policies.active();
        let changes: Vec<String> = candidate.pending.iter().map(|pending| describe(&active, pending)).collect();
        let mut facts = SetFacts {
            anew: !goes_on,
            against: Some(candidate.against.clone()),
            summary: Some(summary(&candidate.pending, &changes)),
            changes: Some(changes),
            ..SetFacts::default()
        };
        if candidate.report.is_none() {
            facts.radius = Some(BlastRadius::default());
            facts.shadowed = Some(false);
            candidate.comparison = Some(self.compare(&active, &candidate.set));
        }
        if !goes_on {
            self.policies.count_transition("nominated");
            tracing::info!(set = digest, "a policy set is a candidate: {}", facts.summary.as_deref().unwrap_or_default());
            let note = format!("{}. It is compared with {}.", facts.summary.clone().unwrap_or_default(), sets::name(&candidate.against));
            self.note(&name, EventType::Normal, "Nominated", note);
        }
        self.facts.insert(name, facts);
        self.candidates.insert(keys, candidate);
        self.meetings = None;
        true
    }

    /// Removes an earlier approval, which was for a comparison with another set.
    async fn forget_approval(&mut self, name: &str) -> bool {
        let api = Api::<PolicySet>::all(self.client.clone());
        let forgotten = async {
            // The watch may not have reported it yet.
            let there = api.get(name).await?;
            if !there.annotations().contains_key(APPROVED) {
                return Ok(there);
            }
            let patch = json!({"metadata": {"resourceVersion": there.resource_version(), "annotations": {APPROVED: null}}});
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
        };
        if !self.leadership.held() {
            return false;
        }
        match forgotten.await {
            Ok(set) => {
                self.sets.answer(set);
                true
            }
            Err(error) => {
                tracing::warn!(set = name, error = sentence(&error), "a previous approval can't be removed; trying again");
                false
            }
        }
    }
}

/// The group label of an object.
fn group(object: &impl ResourceExt) -> Option<String> {
    object.labels().get(UPDATE_GROUP).filter(|group| !group.is_empty()).cloned()
}

fn with_keys(pending: Vec<Pending>) -> (ChangeKeys, Vec<Pending>) {
    (pending.iter().map(Pending::key).collect(), pending)
}

/// Whether two candidates request the same changes, regardless of the set under them.
fn changes_alike(one: &[Pending], other: &[Pending]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.key() == other.key() && one.wanted.is_same(&other.wanted))
}

/// The strategy for the removal of a plugin. A plugin with the strategy Shadow would otherwise stay forever, because no object could change
/// that.
fn removal_strategy(strategy: UpdateStrategy) -> UpdateStrategy {
    if strategy.type_ == UpdateStrategyType::Shadow { UpdateStrategy::default() } else { strategy }
}

/// The last field manager of an object, except for its status.
fn last_manager(object: &impl ResourceExt) -> Option<String> {
    let hands = object.managed_fields().iter().filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    hands.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.clone()
}
