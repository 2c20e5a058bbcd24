//! The inputs of the keeper's objects, and when it checks them again.

use super::{Keeper, PROPOSING_PATIENCE, RETRY_INTERVAL, plugin::PluginProgress, record};
use crate::source::{self, config_map::ConfigMapKey};
use pointsman_crds::policy::plugin::PolicyPlugin;
use std::collections::BTreeSet;
use tokio::time::Instant;

impl Keeper {
    pub(super) fn requeue_all(&mut self) {
        for work in self.works.values_mut() {
            work.dirty = true;
            work.attempted = None;
        }
        for work in self.rule_works.values_mut() {
            work.dirty = true;
            work.tried = None;
        }
        self.proposes_by = Some(Instant::now() + PROPOSING_PATIENCE);
    }

    /// Requeues the PolicyPlugins with bytes in a ConfigMap, and the rules with parameters in it.
    pub(super) fn look_at_users(&mut self, place: &ConfigMapKey) {
        let users = self.plugins.iter().filter(|(_, plugin)| self.sources(plugin).contains(place));
        let users: Vec<String> = users.map(|(name, _)| name.clone()).collect();
        for name in users {
            self.works.entry(name).or_default().dirty = true;
        }
        let users = self.rules.iter().filter(|(_, rule)| self.params_of(rule).as_ref() == Some(place));
        let users: Vec<String> = users.map(|(name, _)| name.clone()).collect();
        for name in users {
            self.rule_works.entry(name).or_default().dirty = true;
        }
    }

    pub(super) fn look_at_files(&mut self) {
        for (name, plugin) in self.plugins.iter() {
            if source::find(self.options.sources, &plugin.spec.source).is_ok_and(source::Source::is_in_directory) {
                self.works.entry(name.clone()).or_default().dirty = true;
            }
        }
    }

    /// The ConfigMaps that are needed now.
    pub(super) fn places(&self) -> BTreeSet<ConfigMapKey> {
        let sources = self.plugins.values().flat_map(|plugin| self.sources(plugin));
        let params = self.rules.values().filter_map(|rule| self.params_of(rule));
        // Only the leader reads sources.
        sources.chain(params).filter(|_| self.leading).chain([self.record_place()]).collect()
    }

    pub(super) fn record_place(&self) -> ConfigMapKey {
        (self.options.namespace.clone(), record::NAME.to_owned())
    }

    /// The ConfigMaps with a PolicyPlugin's bytes.
    pub(super) fn sources(&self, plugin: &PolicyPlugin) -> BTreeSet<ConfigMapKey> {
        let source = &plugin.spec.source;
        let found = source::find(self.options.sources, source);
        found.map(|found| found.config_maps(source, &self.options.source_settings())).unwrap_or_default()
    }

    /// The time of the next event without an input: a retry, the end of a quarantine, or the end of a wait for a source. Events that were
    /// due by `looked_at` are handled. Comparing with the present instead would miss those that become due during a reconcile.
    pub(super) fn wakes_at(&self, looked_at: Instant) -> Option<Instant> {
        let quarantines =
            self.works.values().flat_map(|work| work.quarantine.iter().chain(work.namespaces.values()).map(|(until, _)| *until));
        let retries = self.works.values().filter_map(|work| work.retry);
        let patience = self.works.values().filter_map(|work| work.read_by);
        let rules = self.rule_works.values().filter_map(|work| work.retry);
        let failing = self.works.keys().filter_map(|name| self.failing_until(name));
        let slow = self.works.values().filter_map(PluginProgress::slow_at);
        quarantines
            .chain(patience)
            .chain(slow)
            .chain(failing)
            .chain(self.overdue_at())
            .chain(self.batches_until())
            .chain(self.proposes_by)
            .filter(|until| *until > looked_at)
            .chain(self.again)
            .chain(retries)
            .chain(rules)
            .min()
    }

    pub(super) fn retry(&mut self) {
        let now = Instant::now();
        if self.again.take_if(|again| *again <= now).is_some() {
            self.unloadable.clear();
            self.restored.take_if(|restored| restored.outcome.is_err());
        }
        for work in self.works.values_mut() {
            work.dirty |= work.retry.take_if(|retry| *retry <= now).is_some();
        }
        for work in self.rule_works.values_mut() {
            work.dirty |= work.retry.take_if(|retry| *retry <= now).is_some();
        }
    }

    pub(super) fn try_again(&mut self) {
        self.again.get_or_insert_with(|| Instant::now() + RETRY_INTERVAL);
    }
}
