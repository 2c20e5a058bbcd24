//! What is to decide next: a candidate for each change by itself, over what decides now. Changes of one group are one candidate, and changes of the same
//! fields have one more that makes them together. Only on the leader.

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

/// The label by which PolicyPlugins and ValidationRules become active together.
pub(super) const UPDATE_GROUP: &str = "policy.pointsman.dev/update-group";

/// For so many tries of a plugin that can't be loaded for a passing reason its candidate stays as it is.
const MAX_TRANSIENT_FAILURES: u32 = 3;

/// How many candidates there are at the same time. Each is compared on all subjects whenever another set becomes active.
pub(super) const MAX_CANDIDATES: usize = 32;

/// Two candidates that change the same fields.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) between: [ChangeKeys; 2],
    pub(super) overlap: Overlap,
}

impl Keeper {
    /// What isn't as the PolicyPlugins want it.
    pub(super) fn pending(&self) -> Vec<Pending> {
        let active = self.policies.active();
        let strategy = |said: Option<&UpdateStrategy>, points: &[PolicyPoint]| {
            said.or(self.options.strategy.as_ref()).cloned().unwrap_or_else(|| usual(points))
        };
        let changed = self.works.iter().filter_map(|(name, work)| {
            // What is about to be looked at again may be another thing.
            let member = work.ready.as_ref().filter(|_| !work.dirty && !work.running && !work.pending)?;
            let same = active.member(name).is_some_and(|active| active.bound == member.bound && active.missing().is_none());
            let spec = &self.plugins.get(name)?.spec;
            (!same).then(|| Pending {
                name: name.clone(),
                said: spec.strategy.clone(),
                // Who is asked no more where pods are made changes them as well.
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
        // A built-in that somebody has deleted comes back.
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

    /// The same of rules. A rule restarts nothing, and may stop everything: it is guarded by what it denies.
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
        // Those that the host brings come back.
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

    /// Whose hand was the last: on the PolicyPlugin, or on the ConfigMap that its bytes are in.
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

    /// The set and the record of it once these changes are made.
    pub(super) fn put_together(&self, active: &ActiveSet, pending: &[Pending]) -> (ActiveSet, ActiveRecord) {
        // Where there is none, rules can't be evaluated and say so.
        let evaluator = self.loader.evaluator().ok();
        let (set, mut record) = put_together(active, &self.record, pending, self.pacer.in_use(), evaluator.as_ref(), &now());
        let number = Some(self.number(&record.digest));
        record.number = number;
        for pending in pending {
            record.set_origin(&pending.key(), Origin { set: number, by: pending.by.clone() });
        }
        (set, record)
    }

    /// The number of a set: the one that it has, or the next.
    pub(super) fn number(&self, digest: &str) -> i64 {
        let known = self.sets.get(&sets::name(digest)).and_then(|set| set.spec.number);
        let recorded = self.record.number.filter(|_| self.record.digest == digest);
        let highest = || self.sets.values().filter_map(|set| set.spec.number).chain(self.record.number).max().unwrap_or_default();
        known.or(recorded).unwrap_or_else(|| highest() + 1)
    }

    /// Whether what becomes of a plugin or a rule will be known in a moment.
    fn is_on_its_way(&self, key: &ChangeKey, now: Instant) -> bool {
        let tried_again = |work: &PluginProgress| work.retry.is_some() && work.tries <= MAX_TRANSIENT_FAILURES;
        match key {
            ChangeKey::Plugin(name) => self.works.get(name).is_some_and(|work| work.is_awaited(now) || work.stores() || tried_again(work)),
            ChangeKey::Rule(name) => self.rule_works.get(name).is_some_and(RuleProgress::is_on_its_way),
        }
    }

    /// Whether all of these are what their objects ask for by now.
    pub(super) fn is_settled(&self, keys: &ChangeKeys) -> bool {
        let now = Instant::now();
        !keys.iter().any(|key| self.is_on_its_way(key, now))
    }

    /// The groups of which one is on its way.
    fn unsettled_groups(&self) -> BTreeSet<String> {
        let now = Instant::now();
        let plugins = self.plugins.iter().map(|(name, plugin)| (ChangeKey::Plugin(name.clone()), group(plugin)));
        let rules = self.rules.iter().map(|(name, rule)| (ChangeKey::Rule(name.clone()), group(rule)));
        plugins.chain(rules).filter(|(key, group)| group.is_some() && self.is_on_its_way(key, now)).filter_map(|(_, group)| group).collect()
    }

    /// Whether it is known what waits, since this host leads.
    fn learn_what_waits(&mut self) {
        let now = Instant::now();
        let all = self.works.keys().map(|name| ChangeKey::Plugin(name.clone()));
        let mut all = all.chain(self.rule_works.keys().map(|name| ChangeKey::Rule(name.clone())));
        if self.proposes_by.is_some_and(|by| by <= now) || !all.any(|key| self.is_on_its_way(&key, now)) {
            self.proposes_by = None;
        }
    }

    /// Makes candidates of what waits, or keeps those that are made of it already, and lets become active what may.
    pub(super) async fn propose(&mut self) {
        self.learn_what_waits();
        // Whatever becomes active, the others are put together anew over it. Where some meet, there is one more.
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

    /// What each candidate is to change, but for those that change something together.
    fn wanted_candidates(&self) -> Vec<(ChangeKeys, Vec<Pending>)> {
        let unsettled = self.unsettled_groups();
        let pending = self.pending().into_iter().filter(|pending| pending.group.as_ref().is_none_or(|group| !unsettled.contains(group)));
        let mut wanted: Vec<(ChangeKeys, Vec<Pending>)> = grouped(pending.collect()).into_iter().map(with_keys).collect();
        // What is being looked at again stays as it was until that is done.
        let known: ChangeKeys = wanted.iter().flat_map(|(keys, _)| keys.iter().cloned()).collect();
        let stay = self
            .candidates
            .iter()
            .filter(|(keys, candidate)| candidate.kind == CandidateKind::Change && known.is_disjoint(keys) && !self.is_settled(keys));
        wanted.extend(stay.map(|(keys, candidate)| (keys.clone(), candidate.pending.clone())));
        // Those that there are go first; the others come one after the other.
        wanted.sort_by_cached_key(|(keys, _)| !self.candidates.contains_key(keys));
        wanted.truncate(MAX_CANDIDATES);
        wanted
    }

    /// Those that make changes together: of the same fields, or those that may become active.
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

    /// Which candidates that wait for an approval change the same fields.
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

    /// Brings the candidates into line with what waits. Whether all of it could be written.
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

    /// Makes one candidate, or keeps it, and says of the former one what became of it.
    async fn update_candidate(&mut self, keys: ChangeKeys, pending: Vec<Pending>, kind: CandidateKind) -> bool {
        let active = self.policies.active();
        let (set, record) = self.put_together(&active, &pending);
        let against = active.digest().to_string();
        let mut next = Candidate::new(Arc::new(set), record, pending, against.clone(), kind);
        if let Some(candidate) = self.candidates.get_mut(&keys) {
            let same = candidate.set.digest() == next.set.digest();
            let rebased = candidate.against != against;
            if same && !rebased && self.sets.contains_key(&candidate.name()) {
                // Its bounds may be others by now.
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

    /// What was approved of a candidate, or may be while its successor is compared: an approval counts for that too, if it shows no more.
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

    /// Makes the object of a candidate, and has it compared with what decides unless that is done.
    async fn nominate(&mut self, keys: ChangeKeys, mut candidate: Candidate) -> bool {
        let (digest, name, against) = (candidate.digest(), candidate.name(), candidate.against.clone());
        let goes_on = |set: &PolicySet| {
            set.status
                .as_ref()
                .is_some_and(|status| status.phase == Some(PolicySetPhase::Candidate) && status.against.as_ref() == Some(&against))
        };
        // Another host may have nominated it already.
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
            tracing::info!(set = digest, "a policy set is nominated: {}", facts.summary.as_deref().unwrap_or_default());
            let note = format!("{}. It is compared with {}.", facts.summary.clone().unwrap_or_default(), sets::name(&candidate.against));
            self.note(&name, EventType::Normal, "Nominated", note);
        }
        self.facts.insert(name, facts);
        self.candidates.insert(keys, candidate);
        self.meetings = None;
        true
    }

    /// What was approved once was approved against another set.
    async fn forget_approval(&mut self, name: &str) -> bool {
        let api = Api::<PolicySet>::all(self.client.clone());
        let forgotten = async {
            // The watch may not have told of it yet.
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

/// The group that an object is labelled with.
fn group(object: &impl ResourceExt) -> Option<String> {
    object.labels().get(UPDATE_GROUP).filter(|group| !group.is_empty()).cloned()
}

fn with_keys(pending: Vec<Pending>) -> (ChangeKeys, Vec<Pending>) {
    (pending.iter().map(Pending::key).collect(), pending)
}

/// Whether two candidates ask for the same, whatever set it is put on.
fn changes_alike(one: &[Pending], other: &[Pending]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.key() == other.key() && one.wanted.is_same(&other.wanted))
}

/// How a plugin goes that is removed. One that was only to be tried would stay for ever, with nobody left to say otherwise.
fn removal_strategy(strategy: UpdateStrategy) -> UpdateStrategy {
    if strategy.type_ == UpdateStrategyType::Shadow { UpdateStrategy::default() } else { strategy }
}

/// Who has changed an object last, beside its status.
fn last_manager(object: &impl ResourceExt) -> Option<String> {
    let hands = object.managed_fields().iter().filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    hands.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.clone()
}
