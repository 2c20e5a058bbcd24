//! The events that the keeper handles: from watches, from its tasks, and on the health of active plugins.

use super::{
    Keeper, TaskResult,
    watch::{Event, KeeperEvent},
};
use crate::problem::Problem;
use kube::ResourceExt;
use pointsman_core::decide::{
    PluginHealthEvent,
    health::{HealthChange, QuarantineScope},
};
use tokio::time::Instant;

impl Keeper {
    pub(super) fn handle_event(&mut self, seen: KeeperEvent) {
        match seen {
            KeeperEvent::Plugin(Event::Now(plugin, listed)) => {
                let (name, generation) = (plugin.name_any(), plugin.metadata.generation);
                let Ok(before) = self.plugins.see(*plugin, listed) else { return };
                // Our own writes of its status need no recheck.
                if before.is_none_or(|before| before.metadata.generation != generation) {
                    self.works.entry(name).or_default().dirty = true;
                }
            }
            KeeperEvent::Plugin(Event::Gone(name)) => {
                self.plugins.remove(&name);
                self.works.remove(&name);
                // An active plugin's revisions are pruned once it is no longer active.
                if !self.record.plugins.contains_key(&name) {
                    self.to_prune.insert(name);
                }
            }
            KeeperEvent::Plugin(Event::All(names, listed)) => {
                self.plugins.retain_listed(&names, listed);
                self.works.retain(|name, _| self.plugins.contains_key(name));
                self.known.plugins = true;
            }
            KeeperEvent::Rule(Event::Now(rule, listed)) => self.see_rule(*rule, listed),
            KeeperEvent::Rule(Event::Gone(name)) => {
                self.rules.remove(&name);
                self.rule_works.remove(&name);
            }
            KeeperEvent::Rule(Event::All(names, listed)) => {
                self.rules.retain_listed(&names, listed);
                self.rule_works.retain(|name, _| self.rules.contains_key(name));
                self.known.rules = true;
            }
            KeeperEvent::Set(Event::Now(set, listed)) => drop(self.sets.see(*set, listed)),
            KeeperEvent::Set(Event::Gone(name)) => self.sets.remove(&name),
            KeeperEvent::Set(Event::All(names, listed)) => {
                self.sets.retain_listed(&names, listed);
                self.known.sets = true;
            }
            KeeperEvent::ConfigMap(place, state, listed) => {
                if place == self.record_place() {
                    self.see_record(state.as_deref(), listed);
                    self.config_maps.take(&place, state);
                } else if self.config_maps.take(&place, state) {
                    self.look_at_users(&place);
                }
            }
            KeeperEvent::Unreadable(place, error) => {
                if self.config_maps.fail(&place, error) {
                    self.look_at_users(&place);
                }
            }
        }
    }

    pub(super) fn handle_done(&mut self, done: TaskResult) {
        match done {
            TaskResult::HasRead(plugin, task) => {
                if let Some(work) = self.works.get_mut(&plugin).filter(|work| work.task == task) {
                    work.read_by = None;
                }
            }
            TaskResult::Tried(plugin, task, tried) => {
                if let Some(work) = self.works.get_mut(&plugin).filter(|work| work.task == task) {
                    work.take(*tried);
                }
            }
            TaskResult::Kept(plugin, kept) => self.take_kept(&plugin, kept),
            TaskResult::Ruled(ruled) => self.ruled(*ruled),
            TaskResult::Adopted(adopted) => self.adopted(*adopted),
            TaskResult::Compares(set, progress) => self.compares(&set, progress),
            TaskResult::Compared(report) => self.compared(*report),
            TaskResult::Restored(restored) => self.take_restored(restored),
        }
    }

    pub(super) fn handle_decision_event(&mut self, news: PluginHealthEvent) {
        let active = self.policies.active();
        // The failures of a previous version no longer matter.
        if active.member(&news.plugin).is_none_or(|member| member.bound.digest != news.digest) {
            return;
        }
        let Some(work) = self.works.get_mut(&news.plugin) else { return };
        let plugin = &news.plugin;
        match news.turn {
            HealthChange::Failed(error) => {
                tracing::warn!(plugin, digest = news.digest, reason = error.reason(), "the plugin gave no answer: {error}");
                work.failure = Some(Problem { reason: error.reason().to_owned(), message: format!("{error}.") });
            }
            HealthChange::Quarantined(scope, pause, error) => {
                let namespace = scope.namespace();
                let seconds = pause.as_secs();
                tracing::warn!(plugin, digest = news.digest, namespace, seconds, "the plugin is quarantined: {error}");
                work.failure = Some(Problem { reason: error.reason().to_owned(), message: format!("{error}.") });
                let (now, until) = (Instant::now(), Instant::now() + pause);
                match scope {
                    QuarantineScope::All => work.quarantine = Some((until, error)),
                    QuarantineScope::Namespace(namespace) => {
                        work.namespaces.retain(|_, (until, _)| *until > now);
                        work.namespaces.insert(namespace, (until, error));
                    }
                }
            }
            HealthChange::Recovered(scope) => {
                tracing::info!(plugin, namespace = scope.namespace(), "the plugin is no longer quarantined");
                match scope {
                    QuarantineScope::All => work.quarantine = None,
                    QuarantineScope::Namespace(namespace) => drop(work.namespaces.remove(&namespace)),
                }
                work.failure = None;
            }
        }
    }
}
