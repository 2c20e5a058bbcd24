//! An administrator's annotations on PolicySets: to hold a set regardless of the PolicyPlugins, and to pause restarts of pods. Also loads
//! the sets that subjects may still be on, on a host that has become the leader.

use super::{
    Keeper, TaskResult,
    load_record::members_of,
    now,
    pending::ChangeKey,
    promote::FIELD_MANAGER,
    record::{ActiveRecord, Origin, RecordedRule},
    sets::{self, HOLD, PAUSED, SetFacts},
};
use crate::problem::sentence;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::events::EventType,
};
use pointsman_core::{decide::set::ActiveSet, rules::rule::Rule};
use pointsman_crds::policy::{
    plugin::PolicyPlugin,
    set::{PolicySet, PolicySetOrigin},
};
use serde_json::json;
use std::sync::Arc;

/// The result of loading a stored set.
#[derive(Clone, Debug)]
pub(super) struct LoadedSet {
    /// The requested digest.
    pub(super) digest: String,
    pub(super) outcome: Result<Arc<ActiveSet>, String>,
}

impl Keeper {
    /// The set that must stay active until its annotation is removed.
    pub(super) fn held(&self) -> Option<&PolicySet> {
        self.sets.values().find(|set| set.annotations().get(HOLD) == Some(&set.spec.digest))
    }

    /// Activates the held set, unless it is active. Returns whether a set is held.
    pub(super) async fn hold(&mut self) -> bool {
        let Some(held) = self.held() else { return false };
        let (name, digest) = (held.name_any(), held.spec.digest.clone());
        self.proposes_by = None;
        self.abandon_all(&format!("{name} is held: run `pointsman policy resume` to release it."));
        if digest != self.record.digest {
            self.reactivate(&digest).await;
        }
        true
    }

    /// Activates a set that was active before: the loaded one, or one that is loaded from stored revisions.
    pub(super) async fn reactivate(&mut self, digest: &str) {
        let formers = self.policies.previous_sets();
        let known = formers.iter().find(|set| set.digest().to_string() == digest).cloned();
        let restored = self.restored.as_ref().filter(|restored| restored.digest == digest).map(|restored| restored.outcome.clone());
        match (known, restored) {
            (Some(set), _) | (None, Some(Ok(set))) => {
                self.restored = None;
                self.go_back(set).await;
            }
            // The message stays until the next attempt.
            (None, Some(Err(why))) => {
                self.try_again();
                let name = sets::name(digest);
                let message = format!("It can't be reactivated: {why}.");
                if self.complained.as_ref() != Some(&message) {
                    self.complained = Some(message.clone());
                    tracing::error!(set = digest, "a set can't be reactivated: {why}");
                    self.facts.entry(name.clone()).or_default().message = Some(message.clone());
                    self.note(&name, EventType::Warning, "NotRestored", message);
                }
            }
            (None, None) => self.restore(digest),
        }
    }

    /// Records and activates a previous set.
    async fn go_back(&mut self, set: Arc<ActiveSet>) {
        let former = self.policies.active();
        let mut record = ActiveRecord { plugins: self.record.plugins.clone(), ..self.record.clone() };
        record.plugins.retain(|name, _| set.member(name).is_some());
        for member in set.members() {
            let known = self.record.plugins.get(member.name());
            let said = known.and_then(|known| known.strategy.clone());
            let signature = known.and_then(|known| known.signature_of(&member.bound.digest));
            record.promote(member.bound.clone(), signature, said, now());
        }
        let of_rule = |rule: &Arc<Rule>| {
            let strategy = self.record.rules.get(rule.name()).and_then(|known| known.strategy.clone());
            (rule.name().to_owned(), RecordedRule { active: rule.bound.clone(), strategy, origin: Origin::default() })
        };
        record.rules = set.rules().all().iter().map(of_rule).collect();
        record.set_active(set.digest().to_string(), self.pacer.in_use(), now());
        record.number = Some(self.number(&record.digest));
        let origins = self.sets.get(&sets::name(&record.digest)).map(|set| set.spec.origins.clone()).unwrap_or_default();
        for PolicySetOrigin { kind, name, set, by } in origins {
            let key = if kind == PolicyPlugin::kind(&()) { ChangeKey::Plugin(name) } else { ChangeKey::Rule(name) };
            record.set_origin(&key, Origin { set, by });
        }
        let name = sets::name(&record.digest);
        let paused = self.sets.get(&name).is_some_and(|set| set.annotations().contains_key(PAUSED));
        if !self.make_set(&record).await || paused && !self.write_pause(&name, None).await {
            self.try_again();
            return;
        }
        if let Err(error) = self.write_record(record).await {
            tracing::warn!(set = %set.digest(), error = sentence(&error), "the previous set can't be recorded; trying again");
            self.try_again();
            return;
        }
        let back = format!("back from {}", sets::name(&former.digest().to_string()));
        let facts = SetFacts {
            anew: true,
            against: Some(former.digest().to_string()),
            summary: Some(back.clone()),
            changes: Some(vec![back]),
            ..SetFacts::default()
        };
        self.facts.insert(sets::name(&set.digest().to_string()), facts);
        let changed: Vec<String> = self.works.keys().cloned().collect();
        // The failure or the pause belongs to the set that is replaced.
        self.pacer.expect_new_set();
        self.pacer.clear_failure();
        self.pause_read = None;
        self.activate(&former, &set, &changed, true);
        // The PolicyPlugins now differ from the active set.
        self.requeue_all();
    }

    /// Loads a set from its object and the stored revisions, in a separate task.
    pub(super) fn restore(&mut self, digest: &str) {
        let Some(set) = self.sets.get(&sets::name(digest)).cloned() else { return };
        if !self.restoring.insert(digest.to_owned()) {
            return;
        }
        let (loading, done, record) = (self.loading(), self.done.clone(), self.record.clone());
        tokio::spawn(async move {
            let rules = loading.rules(&set.spec.rules).await;
            let outcome = members_of(&set, &record, &loading).await.and_then(|members| {
                let missing = rules.all().iter().find_map(|rule| Some((rule.name(), rule.missing()?)));
                if let Some((rule, why)) = missing {
                    return Err(format!("its rule {rule} can't be evaluated: {why}"));
                }
                let restored = ActiveSet::new(members).ruled(rules);
                let same = restored.digest().to_string() == set.spec.digest;
                same.then(|| Arc::new(restored))
                    .ok_or_else(|| "its plugins have another digest: another version of the host created it".to_owned())
            });
            done.send(TaskResult::Restored(LoadedSet { digest: set.spec.digest, outcome })).ok();
        });
    }

    /// Handles a set that was loaded.
    pub(super) fn take_restored(&mut self, restored: LoadedSet) {
        self.restoring.remove(&restored.digest);
        if let Ok(set) = &restored.outcome {
            let formers = self.policies.previous_sets();
            let place = |set: &ActiveSet| self.record.formers.iter().position(|digest| *digest == set.digest().to_string());
            if place(set).is_some() && !formers.iter().any(|former| former.digest() == set.digest()) {
                let mut formers: Vec<Arc<ActiveSet>> = formers.iter().cloned().chain([Arc::clone(set)]).collect();
                formers.sort_by_key(|set| place(set));
                self.policies.set_formers(formers);
                self.reconcile_once_known();
            }
        } else if let Err(why) = &restored.outcome {
            tracing::warn!(set = restored.digest, "a previous set can't be loaded: {why}");
            self.unloadable.insert(restored.digest.clone());
            self.reconcile_once_known();
        }
        self.restored = Some(restored);
    }

    /// Has queued subjects planned again once it is known of each previous set whether it can be loaded: they were planned without these sets.
    fn reconcile_once_known(&self) {
        if self.unknown_former().is_none() {
            self.policies.request_reconcile();
        }
    }

    /// The first previous set that isn't loaded and may be loadable.
    fn unknown_former(&self) -> Option<&String> {
        let loaded = self.policies.previous_sets();
        let is_known = |digest: &String| loaded.iter().any(|set| set.digest().to_string() == *digest) || self.unloadable.contains(digest);
        self.record.formers.iter().find(|digest| !is_known(digest))
    }

    /// Loads the sets that subjects may still be on, one after the other.
    pub(super) fn load_formers(&mut self) {
        if !self.pacer.in_use() {
            return;
        }
        if let Some(digest) = self.unknown_former().cloned() {
            if self.sets.contains_key(&sets::name(&digest)) {
                self.restore(&digest);
            } else {
                self.unloadable.insert(digest);
                self.reconcile_once_known();
            }
        }
    }

    /// Pauses or resumes restarts according to the active set's annotation; if a restart has failed, writes the annotation.
    pub(super) async fn apply_pause(&mut self) {
        let name = sets::name(&self.record.digest);
        let Some(active) = self.sets.get(&name) else { return };
        let (uid, mut here) = (active.uid(), active.annotations().get(PAUSED).cloned());
        // A set that replaces a paused one is also paused: only an administrator or a rollback ends a pause.
        if self.pause_read.is_some() && self.pause_read != uid {
            let why = self.pacer.paused_reason();
            if here != why {
                if !self.write_pause(&name, why.as_deref()).await {
                    return;
                }
                here = why;
            }
        }
        self.pause_read = uid;
        self.pacer.pause(here.clone());
        if let Some(why) = self.pacer.failure_reason().filter(|_| here.is_none())
            && self.write_pause(&name, Some(&why)).await
        {
            self.pacer.pause(Some(why.clone()));
            self.policies.count_transition("stopped");
            tracing::warn!(set = name, "the rollout is paused: {why}");
            let note = format!(
                "{why}. The rollout is paused: run `pointsman policy resume` to continue, or `pointsman policy rollback` to go back."
            );
            self.note(&name, EventType::Warning, "Stopped", note);
        }
    }

    /// Copies the pause to a set that is about to become active: another host may become the leader in a moment.
    pub(super) async fn copy_pause(&mut self, digest: &str) -> bool {
        let name = sets::name(digest);
        let (why, Some(set)) = (self.pacer.paused_reason(), self.sets.get(&name)) else { return true };
        set.annotations().get(PAUSED) == why.as_ref() || self.write_pause(&name, why.as_deref()).await
    }

    async fn write_pause(&mut self, name: &str, why: Option<&str>) -> bool {
        if !self.leadership.held() {
            return false;
        }
        let patch = json!({"metadata": {"annotations": {PAUSED: why}}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match Api::<PolicySet>::all(self.client.clone()).patch(name, &params, &Patch::Merge(&patch)).await {
            Ok(set) => {
                self.sets.answer(set);
                true
            }
            Err(error) => {
                tracing::warn!(set = name, error = sentence(&error), "the pause of the rollout can't be written; trying again");
                self.try_again();
                false
            }
        }
    }
}
