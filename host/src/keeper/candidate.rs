//! The candidate: the set that is to decide next, from the first word of it until it does or is abandoned. Only on the leader.

use super::{
    Keeper, TaskResult,
    changes::{describe, summary},
    now,
    pending::{Pending, PromotionDecision, WantedState, put_together, usual, verdict},
    plugin::PluginProgress,
    record::ActiveRecord,
    reports,
    rules::RuleProgress,
    sets::{self, APPROVED, Approved, SetFacts},
};
use crate::{comparison::Progress, problem::sentence};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::events::EventType,
};
use pointsman_core::{compare::Report, decide::set::ActiveSet, rules::shipped};
use pointsman_crds::policy::{
    plugin::{PolicyPoint, UpdateStrategy, UpdateStrategyType},
    set::{BlastRadius, PolicySet, PolicySetPhase, PolicySetPlugin},
};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};
use tokio::{task::JoinHandle, time::Instant};

/// For so many tries of a plugin that can't be loaded for a passing reason the candidate stays as it is.
const MAX_TRANSIENT_FAILURES: u32 = 3;

/// A set that is to decide next.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) set: Arc<ActiveSet>,
    /// What is written when it gets active.
    record: ActiveRecord,
    pub(super) pending: Vec<Pending>,
    /// The digest of the set that it is compared with.
    against: String,
    progress: Option<Progress>,
    pub(super) report: Option<Report>,
    /// Why it isn't active, once that is known.
    pub(super) verdict: Option<PromotionDecision>,
    comparison: Option<Comparison>,
}

/// A comparison that is made beside the keeper. It ends when nobody wants it any more.
#[derive(Debug)]
pub(super) struct Comparison {
    /// The digest of the set that is compared.
    pub(super) set: String,
    task: JoinHandle<()>,
}

impl Drop for Comparison {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Candidate {
    pub(super) fn digest(&self) -> String {
        self.set.digest().to_string()
    }

    pub(super) fn name(&self) -> String {
        sets::name(&self.digest())
    }
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
        put_together(active, &self.record, pending, self.pacer.in_use(), evaluator.as_ref(), &now())
    }

    /// What waits, without what is being changed again and again where others wait too: of that the version stays that the candidate has. None
    /// where only such is on its way.
    fn settled_pending(&mut self, churning: &BTreeSet<String>, on_its_way: bool) -> Option<Vec<Pending>> {
        let churns = |pending: &Pending| churning.iter().any(|name| pending.is_plugin(name));
        let all = self.pending();
        if all.iter().all(churns) {
            return (!on_its_way).then_some(all);
        }
        let joined = self.candidate.iter().flat_map(|candidate| &candidate.pending).filter(|pending| churns(pending)).cloned();
        let joined: Vec<Pending> = joined.collect();
        let now = Instant::now();
        for (name, work) in self.works.iter_mut().filter(|(name, _)| !churning.contains(*name)) {
            if all.iter().any(|pending| pending.is_plugin(name)) {
                work.churn.joined(now);
            }
        }
        Some(all.into_iter().filter(|pending| !churns(pending)).chain(joined).collect())
    }

    /// Makes a candidate of what waits, or keeps the one that is made of it already, and lets it become active if it may.
    pub(super) async fn propose(&mut self) {
        // What is still being loaded belongs to it too: the newest is what counts.
        let tried_again = |work: &PluginProgress| work.retry.is_some() && work.tries <= MAX_TRANSIENT_FAILURES;
        let on_its_way = |work: &RuleProgress| work.running || work.dirty || work.pending;
        let now = Instant::now();
        let on_its_way_too = |work: &PluginProgress| work.is_awaited(now) || tried_again(work);
        let churns = |work: &PluginProgress| work.churn.joins_at(now).is_some();
        let (churning, settled): (Vec<_>, Vec<_>) = self.works.iter().partition(|(_, work)| churns(work));
        if settled.iter().any(|(_, work)| on_its_way_too(work)) || self.rule_works.values().any(on_its_way) {
            return;
        }
        let churning_on_its_way = churning.iter().any(|(_, work)| on_its_way_too(work));
        let churning: BTreeSet<String> = churning.into_iter().map(|(name, _)| name.clone()).collect();
        let Some(all) = self.settled_pending(&churning, churning_on_its_way) else { return };
        self.proposed = true;
        let (tried, waiting): (Vec<Pending>, Vec<Pending>) =
            all.into_iter().partition(|pending| pending.strategy.type_ == UpdateStrategyType::Shadow);
        // What can become active goes first.
        let pending = if waiting.is_empty() { tried } else { waiting };
        if pending.is_empty() {
            self.abandon("What it would change was taken back, or can't be used any more.");
            return;
        }
        let active = self.policies.active();
        let (set, record) = self.put_together(&active, &pending);
        let against = active.digest().to_string();
        match &mut self.candidate {
            Some(candidate)
                if candidate.set.digest() == set.digest() && candidate.against == against && self.sets.contains_key(&candidate.name()) =>
            {
                // Its bounds may be others by now.
                candidate.pending = pending;
                candidate.record = record;
            }
            candidate => {
                let same = candidate.as_ref().is_some_and(|candidate| candidate.against == against);
                let deleted = candidate.as_ref().is_some_and(|candidate| candidate.set.digest() == set.digest());
                let why = if same && deleted {
                    "Its object was deleted: it is made anew.".to_owned()
                } else if same {
                    format!("A newer one took its place: {}.", sets::name(&set.digest().to_string()))
                } else {
                    format!("Another set got active meanwhile, {}: what it would change is compared with that.", sets::name(&against))
                };
                self.abandon(&why);
                if !self.nominate(Arc::new(set), record, pending, against).await {
                    self.try_again();
                    return;
                }
            }
        }
        self.judge().await;
    }

    /// Makes the object of a candidate, and has it compared with what decides unless that is done.
    async fn nominate(&mut self, set: Arc<ActiveSet>, record: ActiveRecord, pending: Vec<Pending>, against: String) -> bool {
        let digest = set.digest().to_string();
        let name = sets::name(&digest);
        let goes_on = |set: &PolicySet| {
            set.status
                .as_ref()
                .is_some_and(|status| status.phase == Some(PolicySetPhase::Candidate) && status.against.as_ref() == Some(&against))
        };
        // Another host may have nominated it already.
        let goes_on = self.sets.get(&name).is_some_and(goes_on);
        if !self.make_set(&record).await || !(goes_on || self.forget_approval(&name).await) {
            return false;
        }
        let mut candidate = Candidate { set, record, pending, against, progress: None, report: None, verdict: None, comparison: None };
        if goes_on {
            candidate.report = reports::read(&self.client, &self.options.namespace, &name)
                .await
                .filter(|report| report.set == digest && report.against == candidate.against);
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
        self.candidate = Some(candidate);
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
                tracing::warn!(set = name, error = sentence(&error), "a former approval can't be taken away; trying again");
                false
            }
        }
    }

    /// Compares two sets beside the keeper.
    pub(super) fn compare(&self, before: &Arc<ActiveSet>, after: &Arc<ActiveSet>) -> Comparison {
        let (before, after, stage, done) = (Arc::clone(before), Arc::clone(after), Arc::clone(&self.stage), self.done.clone());
        let (digest, recorded) = (after.digest().to_string(), self.policies.recorded());
        let task = tokio::spawn(async move {
            let progress = |progress| _ = done.send(TaskResult::Compares(after.digest().to_string(), progress));
            let report = stage.compare(&before, &after, &recorded, progress).await;
            done.send(TaskResult::Compared(Box::new(report))).ok();
        });
        Comparison { set: digest, task }
    }

    /// Takes how far a comparison has come.
    pub(super) fn compares(&mut self, set: &str, progress: Progress) {
        if let Some(candidate) = self.candidate.as_mut().filter(|candidate| candidate.digest() == set) {
            candidate.progress = Some(progress);
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let radius = BlastRadius { evaluated: number(progress.0), subjects: number(progress.1), ..BlastRadius::default() };
            self.facts.entry(sets::name(set)).or_default().radius = Some(radius);
        }
    }

    /// Takes what has come of a comparison.
    pub(super) fn compared(&mut self, report: Report) {
        let name = sets::name(&report.set);
        let of_candidate = |candidate: &&mut Candidate| candidate.digest() == report.set && candidate.against == report.against;
        if let Some(candidate) = self.candidate.as_mut().filter(of_candidate) {
            candidate.comparison = None;
            candidate.report = Some(report.clone());
        } else if self.follow_up.take_if(|follow_up| follow_up.set == report.set).is_none() {
            return;
        }
        let facts = self.facts.entry(name.clone()).or_default();
        facts.radius = Some(report.radius());
        facts.against = Some(report.against.clone());
        facts.shadowed = Some(true);
        if !self.leadership.held() {
            return;
        }
        // Without it nothing is wrong: the status tells the most of it, and a host that starts compares anew.
        if let Some(set) = self.sets.get(&name).cloned() {
            // A long one takes long to pack, and nothing waits for it.
            let (client, namespace) = (self.client.clone(), self.options.namespace.clone());
            tokio::spawn(async move {
                if let Err(error) = reports::keep(&client, &namespace, &set, report).await {
                    tracing::warn!(set = name, error, "the report can't be kept");
                }
            });
        }
    }

    /// Lets the candidate become active if it may.
    async fn judge(&mut self) {
        let Some(candidate) = &mut self.candidate else { return };
        let (digest, name) = (candidate.digest(), candidate.name());
        let only_tried = candidate.pending.iter().any(|pending| pending.strategy.type_ == UpdateStrategyType::Shadow);
        let approved = !only_tried && self.sets.get(&name).and_then(|set| set.annotations().get(APPROVED)) == Some(&digest);
        let facts = self.facts.entry(name.clone()).or_default();
        let Some(report) = candidate.report.as_ref().map(Report::radius) else {
            if approved {
                facts.approved = Some(Approved::Given);
                self.promote_candidate().await;
            } else {
                facts.message = Some(match self.stage.obstacle() {
                    None => "It is being compared with the active set on the live subjects.".to_owned(),
                    Some(why) => format!("It is compared with the active set on the live subjects as soon as these are known: {why}."),
                });
            }
            return;
        };
        facts.radius = Some(report.clone());
        facts.shadowed = Some(true);
        let verdict = verdict(candidate.pending.iter().map(|pending| &pending.strategy), &report);
        let new = candidate.verdict.as_ref() != Some(&verdict);
        candidate.verdict = Some(verdict.clone());
        match verdict {
            PromotionDecision::Promote => {
                facts.approved = Some(Approved::NotNeeded);
                self.promote_candidate().await;
            }
            PromotionDecision::Approval(_) if approved => {
                facts.approved = Some(Approved::Given);
                self.promote_candidate().await;
            }
            PromotionDecision::Approval(why) => {
                let told = self.sets.get(&name).and_then(|set| set.status.as_ref()?.message.clone());
                let message = format!(
                    "It waits for an approval, because {why}: `pointsman policy approve {name}`, after `pointsman policy history {name}`."
                );
                facts.approved = Some(Approved::Awaited);
                facts.message = Some(message.clone());
                if new && told.as_ref() != Some(&message) {
                    self.policies.count_transition("waiting");
                    self.note(&name, EventType::Warning, "ApprovalNeeded", message);
                }
            }
            PromotionDecision::Never => {
                facts.approved = Some(Approved::NeverActive);
                facts.message =
                    Some("It is only tried, and never gets active: a plugin that it changes has the strategy Shadow.".to_owned());
            }
        }
    }

    /// Whether the candidate waits for somebody who approves of it.
    pub(super) fn awaits_approval(&self) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| matches!(candidate.verdict, Some(PromotionDecision::Approval(_))))
    }

    async fn promote_candidate(&mut self) {
        let Some(candidate) = &self.candidate else { return };
        let (set, mut record, former) = (Arc::clone(&candidate.set), candidate.record.clone(), self.policies.active());
        record.since = Some(now());
        let plugins = candidate.pending.iter().filter(|pending| pending.is_plugin(&pending.name));
        let names: Vec<String> = plugins.map(|pending| pending.name.clone()).collect();
        let compared = candidate.report.is_some();
        if !self.copy_pause(&set.digest().to_string()).await {
            self.try_again();
            return;
        }
        if let Err(error) = self.write_record(record).await {
            tracing::warn!(set = %set.digest(), error = sentence(&error), "the candidate can't be made the active set; trying again");
            self.try_again();
            return;
        }
        self.candidate = None;
        self.activate(&former, &set, &names, !compared);
    }

    /// Gives the candidate up.
    pub(super) fn abandon(&mut self, why: &str) {
        let Some(candidate) = self.candidate.take() else { return };
        let name = candidate.name();
        tracing::info!(set = %candidate.set.digest(), "the candidate is abandoned: {why}");
        self.policies.count_transition("abandoned");
        self.facts.entry(name.clone()).or_default().message = Some(why.to_owned());
        self.note(&name, EventType::Normal, "Abandoned", why.to_owned());
    }
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
