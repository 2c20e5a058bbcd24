//! The leader's writes when a set becomes active: revisions, the set's object, and the record, in this order. The record is authoritative;
//! the next leader continues from it.

use super::{
    Keeper, binding,
    candidate::Candidate,
    now,
    pending::{ChangeKey, lacks_previous},
    record::{self, ActiveRecord, MAX_RECORD_BYTES, Origin, RecordedRule},
    sets,
};
use crate::problem::{Problem, sentence};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
    runtime::events::EventType,
};
use pointsman_core::decide::{member::Member, set::ActiveSet};
use pointsman_crds::policy::{plugin::PolicyPlugin, set::PolicySet};
use pointsman_sandbox::{builtin::BUILTINS, digest::Digest};
use serde::Serialize;
use std::{collections::BTreeSet, sync::Arc};
use tokio::time::Instant;

/// The field manager of our statuses of policies.
pub(super) const FIELD_MANAGER: &str = "pointsman/policyplugin";

impl Keeper {
    /// Handles a version that is loaded and stored: from now on it may become active, regardless of its source.
    pub(super) fn take_loaded(&mut self, name: &str, member: &Arc<Member>) {
        let active = self.policies.active();
        let same = active.member(name).is_some_and(|active| active.bound == member.bound && active.missing().is_none());
        // A recorded plugin whose revision couldn't be loaded is active as soon as its source supplies the bytes.
        let missed = active.member(name).is_some_and(|active| active.bound == member.bound && active.missing().is_some());
        if let Some(work) = self.works.get_mut(name) {
            work.newest = Some(member.bound.digest.clone());
            work.ready = (!same && !missed).then(|| Arc::clone(member));
        }
        if missed {
            let others = active.members().iter().filter(|other| other.name() != name).cloned();
            let mended = ActiveSet::new(others.chain([Arc::clone(member)]).collect()).ruled(active.rules().clone());
            self.policies.activate(Arc::new(mended));
            if lacks_previous(&self.policies.active(), &self.record) {
                self.in_force = None;
            }
        }
        self.to_prune.insert(name.to_owned());
    }

    /// Without a record, records the active set: the built-ins in a new cluster, or the set that stayed active when the record was lost.
    pub(super) async fn record_first(&mut self) -> bool {
        if !self.record.plugins.is_empty() {
            return true;
        }
        let active = self.policies.active();
        if let Some(lost) = self.lost.take_if(|lost| Some(&lost.digest) == self.in_force.as_ref()) {
            return match self.write_record(lost.clone()).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(error = sentence(&error), "the record of the active policy set can't be written; trying again");
                    self.lost = Some(lost);
                    self.try_again();
                    false
                }
            };
        }
        for member in active.members() {
            let brought = BUILTINS.iter().find(|builtin| Digest::hash(builtin.bytes).to_string() == member.bound.digest);
            let (Some(builtin), Ok(digest)) = (brought, member.bound.digest.parse()) else { continue };
            let version = member.bound.version.clone().unwrap_or_default();
            if let Err(error) = self.revisions.keep(member.name(), &version, &digest, builtin.bytes).await {
                tracing::warn!(plugin = member.name(), %error, "the built-in's revision can't be stored; trying again");
                self.try_again();
                return false;
            }
        }
        let digest = active.digest().to_string();
        let mut record = ActiveRecord { number: Some(self.number(&digest)), digest, since: Some(now()), ..ActiveRecord::default() };
        for member in active.members() {
            let said = self.plugins.get(member.name()).and_then(|plugin| plugin.spec.strategy.clone());
            record.promote(member.bound.clone(), None, said, now());
            record.set_origin(&ChangeKey::Plugin(member.name().to_owned()), Origin { set: record.number, by: None });
        }
        for rule in active.rules().all() {
            let strategy = self.rules.get(rule.name()).and_then(|rule| rule.spec.strategy.clone());
            record.rules.insert(
                rule.name().to_owned(),
                RecordedRule { active: rule.bound.clone(), strategy, origin: Origin { set: record.number, by: None } },
            );
        }
        if !self.make_set(&record).await {
            self.try_again();
            return false;
        }
        if let Err(error) = self.write_record(record).await {
            tracing::warn!(error = sentence(&error), "the record of the active policy set can't be written; trying again");
            self.try_again();
            return false;
        }
        true
    }

    /// Updates the record without a new set: the PolicyPlugins' strategies, which are needed after their deletion, another signature for
    /// the same bytes, and the version of a newer host.
    pub(super) async fn record_update_policies(&mut self) {
        let mut record = self.record.clone();
        for (name, recorded) in &mut record.plugins {
            let (Some(plugin), Some(work)) = (self.plugins.get(name), self.works.get(name)) else { continue };
            recorded.strategy.clone_from(&plugin.spec.strategy);
            let newest_is_active = !work.running
                && work.unkept.is_none()
                && work.newest.as_ref() == Some(&recorded.active.digest)
                && matches!(work.attempted, Some((_, None)));
            if newest_is_active && plugin.spec.source.builtin.is_none() {
                recorded.signature.clone_from(&plugin.spec.signature);
            }
        }
        for (name, recorded) in &mut record.rules {
            if let Some(rule) = self.rules.get(name) {
                recorded.strategy.clone_from(&rule.spec.strategy);
            }
        }
        let newer = record::newer(&self.options.version, &record.host);
        if (newer || record != self.record)
            && let Err(error) = self.write_record(record).await
        {
            tracing::warn!(error = sentence(&error), "the record of the active policy set can't be written; trying again");
            self.try_again();
        }
    }

    /// Activates a recorded set in place of the previous one.
    pub(super) fn activate(&mut self, former: &Arc<ActiveSet>, set: &Arc<ActiveSet>, changed: &[String], compare: bool) {
        let another = former.digest() != set.digest();
        for (name, work) in &mut self.rule_works {
            work.ready.take_if(|ready| set.rules().find(name).is_some_and(|counts| counts.bound == ready.bound));
        }
        // Subjects that aren't on the new set stay on theirs.
        let is = |set: &ActiveSet, digest: &String| set.digest().to_string() == *digest;
        let known: Vec<_> = [Arc::clone(former)].into_iter().chain(self.policies.previous_sets().iter().cloned()).collect();
        let formers = self.record.formers.iter().filter_map(|digest| known.iter().find(|set| is(set, digest)).cloned());
        self.policies.set_formers(formers.collect());
        if another {
            self.pacer.expect_new_set();
        }
        self.policies.activate(Arc::clone(set));
        if lacks_previous(set, &self.record) {
            // Loading the record again supplies it.
            self.in_force = None;
        }
        for name in changed {
            // Even the smallest change resets failures.
            if let Some(work) = self.works.get_mut(name) {
                work.failure = None;
                work.quarantine = None;
                work.namespaces.clear();
                work.ready = None;
            }
        }
        if another {
            let digest = set.digest().to_string();
            tracing::info!(set = digest, plugins = changed.join(", "), "the policy set is active");
            self.policies.count_transition("promoted");
            let name = sets::name(&digest);
            let summary = self.facts.get(&name).and_then(|facts| facts.summary.clone());
            let summary = summary.or_else(|| self.sets.get(&name)?.status.as_ref()?.summary.clone());
            let note = summary.map(|summary| format!("{summary}. ")).unwrap_or_default();
            self.note(&name, EventType::Normal, "Promoted", format!("{note}It is active."));
            if compare {
                self.follow_up = Some(self.compare(former, set));
            }
        }
        self.to_prune.extend(changed.iter().cloned());
    }

    /// Creates the PolicySet of a record, unless it exists.
    pub(super) async fn make_set(&mut self, record: &ActiveRecord) -> bool {
        let name = sets::name(&record.digest);
        if self.sets.contains_key(&name) {
            return true;
        }
        if !self.leadership.held() {
            return false;
        }
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let api = Api::<PolicySet>::all(self.client.clone());
        match api.create(&parameters, &sets::from_record(record, &self.options.version)).await {
            Ok(made) => {
                self.sets.answer(made);
                true
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = api.get_opt(&name).await.ok().flatten();
                there.map(|set| self.sets.answer(set)).is_some()
            }
            Err(error) => {
                tracing::warn!(set = name, error = sentence(&error), "the PolicySet can't be created; trying again");
                false
            }
        }
    }

    /// Creates the active set's object again if it was deleted, and deletes the sets that are no longer needed.
    pub(super) async fn prune_sets(&mut self) {
        let record = self.record.clone();
        if !self.make_set(&record).await {
            self.try_again();
        }
        let mut in_use: BTreeSet<String> = record.formers.iter().chain([&record.digest]).map(|digest| sets::name(digest)).collect();
        in_use.extend(self.held().map(ResourceExt::name_any));
        in_use.extend(self.candidates.values().map(Candidate::name));
        for name in sets::superfluous(&self.sets, &in_use) {
            if !self.leadership.held() {
                return;
            }
            let deleted = Api::<PolicySet>::all(self.client.clone()).delete(&name, &DeleteParams::default()).await;
            match deleted {
                Err(error) if !matches!(&error, kube::Error::Api(status) if status.is_not_found()) => {
                    tracing::warn!(set = name, error = sentence(&error), "an old PolicySet can't be deleted");
                    return;
                }
                _ => self.sets.remove(&name),
            }
        }
    }

    /// The problem of a configuration that would, with all pending changes, make the record too large. The record is one object: no change
    /// could become active any more.
    pub(super) fn outgrows_record(&self, name: &str, has: &str, bound: &impl Serialize) -> Option<Problem> {
        fn size(bound: &impl Serialize) -> usize {
            serde_json::to_string(bound).map_or(usize::MAX, |text| text.len())
        }
        let plugins = self.works.iter().filter(|(other, _)| *other != name).filter_map(|(_, work)| Some(size(&work.ready.as_ref()?.bound)));
        let rules =
            self.rule_works.iter().filter(|(other, _)| *other != name).filter_map(|(_, work)| Some(size(&work.ready.as_ref()?.bound)));
        let own = size(bound);
        let all = plugins.chain(rules).chain([own]).fold(self.record.size(), usize::saturating_add);
        (all > MAX_RECORD_BYTES).then(|| Problem {
            reason: "TooLarge".to_owned(),
            message: format!(
                "{has} {own} bytes, and all plugins' and rules' configurations, active and pending, would have {all}; the limit is \
                 {MAX_RECORD_BYTES}. Shorten this or another configuration."
            ),
        })
    }

    /// Writes the record, unless another host has written it since we read it.
    pub(super) async fn write_record(&mut self, mut record: ActiveRecord) -> kube::Result<()> {
        if record::newer(&self.options.version, &record.host) {
            record.host.clone_from(&self.options.version);
        }
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.options.namespace);
        let wanted = record.to_config_map(&self.options.namespace, self.record_version.clone()).map_err(kube::Error::SerdeError)?;
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let written = match &self.record_version {
            Some(_) => api.replace(record::NAME, &parameters, &wanted).await?,
            None => api.create(&parameters, &wanted).await?,
        };
        self.record_version = written.resource_version();
        self.record_answered = Some(Instant::now());
        self.in_force = Some(record.digest.clone());
        self.record = record;
        Ok(())
    }

    pub(super) async fn prune(&self, name: &str) {
        let ready = self.works.get(name).and_then(|work| work.ready.as_ref()).map(|member| member.bound.digest.as_str());
        // A rollback needs it.
        let held = self.held().into_iter();
        let former = self.record.formers.iter().filter_map(|digest| self.sets.get(&sets::name(digest))).chain(held);
        let former = former.flat_map(|set| &set.spec.plugins).filter(|plugin| plugin.name == name);
        // A candidate may contain a previous version of a plugin that changes all the time.
        let candidates = self.candidates.values().filter_map(|candidate| Some(candidate.set.member(name)?.bound.digest.as_str()));
        let unkept = self.works.get(name).and_then(|work| work.unkept.as_ref()).map(|unkept| unkept.member.bound.digest.as_str());
        let in_use =
            self.record.digests(name).chain(ready).chain(unkept).chain(candidates).chain(former.map(|plugin| plugin.digest.as_str()));
        let in_use: BTreeSet<Digest> = in_use.filter_map(|digest| digest.parse().ok()).collect();
        let limit = self.plugins.get(name).map_or(0, |plugin| usize::try_from(plugin.spec.revision_history_limit).unwrap_or_default());
        // The revisions of another leader may be newer than our record.
        if !self.leadership.held() {
            return;
        }
        if let Err(error) = self.revisions.prune(name, &in_use, limit).await {
            tracing::warn!(plugin = name, error = sentence(&error), "old revisions can't be deleted");
        }
    }

    /// Finds leftover revisions once after becoming the leader: those of deleted plugins and incomplete ones are deleted.
    pub(super) async fn find_leftovers(&mut self) {
        if self.found_leftovers {
            return;
        }
        match self.revisions.plugins().await {
            Ok(plugins) => {
                let may = |name: &String| self.plugins.contains_key(name) || !self.record.plugins.contains_key(name);
                self.to_prune.extend(plugins.into_iter().filter(may));
                self.found_leftovers = true;
            }
            Err(error) => {
                tracing::warn!(%error, "the revisions can't be listed; trying again");
                self.try_again();
            }
        }
    }

    /// Creates the missing PolicyPlugins of the built-ins.
    pub(super) async fn make_builtins(&mut self) {
        let api = Api::<PolicyPlugin>::all(self.client.clone());
        let missing: Vec<_> = self.missing_builtins().collect();
        for builtin in missing {
            if !self.leadership.held() {
                return;
            }
            let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            match api.create(&parameters, &binding::of_builtin(builtin)).await {
                Ok(made) => {
                    self.works.entry(made.name_any()).or_default().dirty = true;
                    self.plugins.answer(made);
                }
                // Another host has created it; the watch reports it.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => {
                    tracing::warn!(
                        plugin = builtin.name,
                        error = sentence(&error),
                        "the built-in's PolicyPlugin can't be created; trying again"
                    );
                    self.try_again();
                }
            }
        }
    }
}
