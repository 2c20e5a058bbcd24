//! What the leader writes: revisions, the record of what decides, and what is told of PolicyPlugins.

use super::{
    Keeper, WRITE_WITHIN, binding, now,
    record::{self, ActiveRecord},
    status::{Known, status},
    work::problem,
};
use crate::{
    policy::{cut, digest::Digest, member::Member, set::ActiveSet},
    sentence,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use pointsman_crds::policy::plugin::{PluginFailurePolicy, PolicyPlugin, PolicyPluginStatus};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};
use tokio::time::{Instant, timeout};

/// What is said when a write takes too long.
const NO_ANSWER: &str = "the API server doesn't answer in time";

/// Bytes of an event's note that the API server takes.
const LONGEST_NOTE: usize = 1024;

/// The field manager of what we say of PolicyPlugins.
const MANAGER: &str = "pointsman/policyplugin";

impl Keeper {
    /// Makes a loaded plugin part of what decides: kept, written into the record, active, in this order.
    pub(super) async fn promote(&mut self, name: &str, key: Digest, member: Arc<Member>, bytes: &[u8]) {
        let active = self.policies.active();
        let current = active.member(name);
        let version = member.bound.version.clone().unwrap_or_default();
        let Ok(digest) = member.bound.digest.parse::<Digest>() else { return };
        let kept = match timeout(WRITE_WITHIN, self.revisions.keep(name, &version, &digest, bytes)).await {
            Ok(kept) => kept.map_err(|error| error.to_string()),
            Err(_) => Err(NO_ANSWER.to_owned()),
        };
        if let Err(error) = kept {
            self.failed_outside(name, key, problem("RevisionNotKept", &error));
            return;
        }
        if current.is_some_and(|current| current.bound == member.bound && current.missing().is_none())
            && self.record.plugins.contains_key(name)
        {
            return;
        }
        let mut record = self.record.clone();
        // The first record of all is of a set that was active without one.
        for unrecorded in active.members().iter().filter(|member| !self.record.plugins.contains_key(member.name())) {
            record.promote(unrecorded.bound.clone(), None, now());
        }
        let signature = self.plugins.get(name).and_then(|plugin| plugin.spec.signature.clone());
        record.promote(member.bound.clone(), signature, now());
        let previous = current.filter(|current| current.bound.digest != member.bound.digest).map(|current| Arc::new(current.after(None)));
        let previous = previous.or_else(|| current.and_then(|current| current.previous.clone()));
        let member = Arc::new(member.after(previous.filter(|previous| previous.missing().is_none())));
        let lacks_previous = member.previous.is_none()
            && member.bound.failure_policy == PluginFailurePolicy::Previous
            && record.plugins.get(name).is_some_and(|recorded| recorded.previous.is_some());
        let mut members: Vec<_> = active.members().iter().filter(|member| member.name() != name).cloned().collect();
        members.push(member);
        let set = ActiveSet::new(members);
        record.digest = set.digest().to_string();
        if let Err(error) = self.write_record(record).await {
            self.failed_outside(name, key, problem("RecordNotWritten", &sentence(&error)));
            return;
        }
        tracing::info!(plugin = name, %digest, version, set = %set.digest(), "the plugin is active");
        self.policies.activate(set);
        if lacks_previous {
            // Adopting the record anew loads it.
            self.in_force = None;
        }
        // However little has changed, it is another chance.
        if let Some(work) = self.works.get_mut(name) {
            work.failure = None;
            work.quarantine = None;
        }
        self.prune(name).await;
    }

    /// Takes plugins out of the set whose PolicyPlugins are gone.
    pub(super) async fn remove_gone(&mut self) {
        let gone: Vec<String> = self.record.plugins.keys().filter(|name| !self.plugins.contains_key(*name)).cloned().collect();
        if gone.is_empty() || self.missing_builtins().next().is_some() {
            return;
        }
        let mut record = self.record.clone();
        record.plugins.retain(|name, _| !gone.contains(name));
        let active = self.policies.active();
        let members = active.members().iter().filter(|member| !gone.iter().any(|name| name == member.name())).cloned().collect();
        let set = ActiveSet::new(members);
        record.digest = set.digest().to_string();
        if let Err(error) = self.write_record(record).await {
            tracing::warn!(error = sentence(&error), "a removed PolicyPlugin can't be taken out of the record; trying again");
            self.try_again();
            return;
        }
        tracing::info!(removed = gone.join(", "), set = %set.digest(), "plugins are no longer active");
        self.policies.activate(set);
        for name in &gone {
            self.prune(name).await;
        }
    }

    /// Writes the record, unless somebody else has written it since we read it.
    async fn write_record(&mut self, mut record: ActiveRecord) -> kube::Result<()> {
        // What was done since we last looked may have taken long.
        if !self.leadership.held() {
            return Err(kube::Error::Service("this host no longer leads".into()));
        }
        env!("CARGO_PKG_VERSION").clone_into(&mut record.host);
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), &self.options.namespace);
        let wanted = record.to_config_map(&self.options.namespace, self.record_version.clone()).map_err(kube::Error::SerdeError)?;
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let written = match &self.record_version {
            Some(_) => timeout(WRITE_WITHIN, api.replace(record::NAME, &parameters, &wanted)).await,
            None => timeout(WRITE_WITHIN, api.create(&parameters, &wanted)).await,
        };
        let written = written.map_err(|_| kube::Error::Service(NO_ANSWER.into()))??;
        self.record_version = written.resource_version();
        self.in_force = Some(record.digest.clone());
        self.record = record;
        Ok(())
    }

    async fn prune(&self, name: &str) {
        let in_use: BTreeSet<Digest> = self.record.digests(name).filter_map(|digest| digest.parse().ok()).collect();
        let limit = self.plugins.get(name).map_or(0, |plugin| usize::try_from(plugin.spec.revision_history_limit).unwrap_or_default());
        // Another leader's revisions may be newer than the record that we know.
        if !self.leadership.held() {
            return;
        }
        match timeout(WRITE_WITHIN, self.revisions.prune(name, &in_use, limit)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(plugin = name, error = sentence(&error), "old revisions can't be deleted"),
            Err(_) => tracing::warn!(plugin = name, error = NO_ANSWER, "old revisions can't be deleted"),
        }
    }

    /// Makes the PolicyPlugins of the built-ins that aren't there.
    pub(super) async fn make_builtins(&mut self) {
        let api = Api::<PolicyPlugin>::all(self.client.clone());
        let missing: Vec<_> = self.missing_builtins().collect();
        for builtin in missing {
            if !self.leadership.held() {
                return;
            }
            let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            match api.create(&parameters, &binding::of_builtin(builtin)).await {
                Ok(made) => {
                    self.works.entry(made.name_any()).or_default().dirty = true;
                    self.plugins.insert(made.name_any(), made);
                }
                // Somebody was faster; the watch will tell.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => {
                    tracing::warn!(
                        plugin = builtin.name,
                        error = sentence(&error),
                        "the built-in's PolicyPlugin can't be made; trying again"
                    );
                    self.try_again();
                }
            }
        }
    }

    /// Writes what has changed about the PolicyPlugins.
    pub(super) async fn tell(&mut self) {
        let names: Vec<String> = self.plugins.keys().cloned().collect();
        let now_instant = Instant::now();
        for name in names {
            let (Some(plugin), Some(work)) = (self.plugins.get(&name), self.works.get(&name)) else { continue };
            let active = self.policies.active();
            let known = Known {
                missing: active.member(&name).and_then(|member| member.missing()),
                recorded: self.record.plugins.get(&name),
                problem: work.attempted.as_ref().and_then(|(_, problem)| problem.as_ref()),
                loading: work.running,
                quarantine: work.quarantine.as_ref().filter(|(until, _)| *until > now_instant).map(|(_, error)| error),
                failure: work.failure.as_ref(),
            };
            let after = status(plugin, &known, &now());
            // What is only on its way is told once it has arrived.
            let on_its_way = (known.loading || work.pending) && plugin.status.is_some();
            if on_its_way || plugin.status.as_ref() == Some(&after) {
                continue;
            }
            let events = events(plugin.status.as_ref(), &after);
            let reference = plugin.object_ref(&());
            let patch = json!({
                "apiVersion": PolicyPlugin::api_version(&()), "kind": PolicyPlugin::kind(&()),
                "metadata": {"name": name}, "status": after,
            });
            if !self.leadership.held() {
                return;
            }
            let api = Api::<PolicyPlugin>::all(self.client.clone());
            match api.patch_status(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&patch)).await {
                Ok(told) => {
                    // The answer may tell of a newer spec than the watch has told so far.
                    let newer = told.metadata.generation != after.observed_generation;
                    self.works.entry(name.clone()).or_default().dirty |= newer;
                    self.plugins.insert(name, told);
                    for event in events {
                        // One recorder would take a second event of a kind for the first, and tell that one's words.
                        let reporter = Reporter { controller: "pointsman".to_owned(), instance: Some(self.options.identity.clone()) };
                        if let Err(error) = Recorder::new(self.client.clone(), reporter).publish(&event, &reference).await {
                            tracing::warn!(error = sentence(&error), "an event can't be written");
                        }
                    }
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(plugin = name, error = sentence(&error), "the status can't be written; trying again");
                    self.try_again();
                }
            }
        }
    }
}

/// The transitions between two statuses: what is so for long is no event.
fn events(before: Option<&PolicyPluginStatus>, after: &PolicyPluginStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let condition = |status: Option<&PolicyPluginStatus>, type_: &str| {
        let found = status.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == type_));
        found.map(|condition| (condition.status.clone(), condition.reason.clone(), condition.message.clone()))
    };
    let digest = |status: Option<&PolicyPluginStatus>| status.and_then(|status| status.active.as_ref()).map(|active| active.digest.clone());
    if let Some(now) = digest(Some(after)).filter(|now| digest(before).as_ref() != Some(now)) {
        let version = after.active.as_ref().and_then(|active| active.version.clone()).unwrap_or_default();
        events.push(event(EventType::Normal, "Activated", format!("{now} (version {version}) decides now.")));
    }
    let loaded = condition(Some(after), "Loaded");
    if let Some((status, reason, message)) = loaded.clone().filter(|_| loaded != condition(before, "Loaded"))
        && status == "False"
    {
        events.push(event(EventType::Warning, &reason, message));
    }
    let quarantined = |status| condition(status, "Quarantined").filter(|(status, ..)| status == "True");
    match (quarantined(before), quarantined(Some(after))) {
        (None, Some((_, _, message))) => events.push(event(EventType::Warning, "Quarantined", message)),
        (Some(_), None) => events.push(event(EventType::Normal, "Released", "The plugin is asked again.".to_owned())),
        _ => {}
    }
    let failure = |status: Option<&PolicyPluginStatus>| status.and_then(|status| status.last_error.clone());
    if let Some(failed) = failure(Some(after)).filter(|failed| failure(before).as_ref() != Some(failed))
        && events.is_empty()
    {
        events.push(event(EventType::Warning, &failed.reason, failed.message));
    }
    events
}

fn event(type_: EventType, reason: &str, mut note: String) -> Event {
    cut(&mut note, LONGEST_NOTE);
    Event { type_, reason: reason.to_owned(), note: Some(note), action: "Deciding".to_owned(), secondary: None }
}
