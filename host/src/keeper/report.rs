//! The leader's reports: the statuses of PolicyPlugins and PolicySets, and events for transitions.

use super::{
    Keeper,
    candidate::Candidate,
    now,
    promote::FIELD_MANAGER,
    sets::{self, name as set_name},
    status::{PluginState, Waiting, status},
};
use crate::{
    keeper::pending::{Pending, PromotionDecision},
    problem::sentence,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use pointsman_crds::policy::{
    plugin::{PolicyPlugin, PolicyPluginStatus},
    set::{PolicySet, PolicySetPhase},
};
use pointsman_sandbox::text::cut;
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;

/// The API server's limit for an event's note, in bytes.
const LONGEST_NOTE: usize = 1024;

/// How long a plugin that has failed isn't Ready.
const FAILING: Duration = Duration::from_mins(5);

impl Keeper {
    /// Writes the changed statuses of PolicyPlugins.
    pub(super) async fn tell(&mut self) {
        let names: Vec<String> = self.plugins.keys().cloned().collect();
        let now_instant = Instant::now();
        for name in names {
            let (Some(plugin), Some(work)) = (self.plugins.get(&name), self.works.get(&name)) else { continue };
            let active = self.policies.active();
            let known = PluginState {
                waiting: self.waiting(&name),
                missing: active.member(&name).and_then(|member| member.missing()),
                recorded: self.record.plugins.get(&name),
                problem: work.attempted.as_ref().and_then(|(_, problem)| problem.as_ref()),
                loading: work.running || work.stores(),
                storing: work.slow_bytes(now_instant),
                quarantine: work.quarantine.as_ref().filter(|(until, _)| *until > now_instant).map(|(_, error)| error),
                namespaces: work.namespaces.iter().filter(|(_, (until, _))| *until > now_instant).map(|(name, _)| name.as_str()).collect(),
                failure: work.failure.as_ref(),
                failing: self.failing_until(&name).is_some(),
            };
            let after = status(plugin, &known, &now());
            // Work in progress is reported once it is done.
            let on_its_way = (known.loading && known.storing.is_none() || work.pending) && plugin.status.is_some();
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
            match api.patch_status(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&patch)).await {
                Ok(told) => {
                    // The response may have a newer spec than the watch has brought.
                    let newer = told.metadata.generation != after.observed_generation;
                    self.works.entry(name.clone()).or_default().dirty |= newer;
                    self.plugins.answer(told);
                    for event in events {
                        self.publish(event, &reference);
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

    /// Until when a plugin is reported as failing: with occasional failures, it isn't Ready in between.
    pub(super) fn failing_until(&self, name: &str) -> Option<Instant> {
        let fault = self.policies.active().member(name)?.health.last_fault()?;
        let until = fault.checked_add(FAILING)?;
        (until > std::time::Instant::now()).then(|| Instant::from_std(until))
    }

    /// The reason why the newest version of a plugin waits, if it does.
    fn waiting(&self, name: &str) -> Option<Waiting> {
        let bound = &self.works.get(name)?.ready.as_ref()?.bound;
        let (reason, message) = self.waits(|pending| pending.is_plugin(name));
        Some(Waiting { digest: bound.digest.clone(), version: bound.version.clone(), reason, message })
    }

    /// The reason why the newest version of a plugin or rule waits.
    pub(super) fn waits(&self, is: impl Fn(&Pending) -> bool) -> (&'static str, String) {
        let candidates = self.candidates.values().filter(|candidate| candidate.pending.iter().any(&is));
        let candidate = candidates.min_by_key(|candidate| candidate.kind);
        match candidate {
            None if self.held().is_some() => (
                "Held",
                "The newest version isn't active, because a previous policy set is held: run `pointsman policy resume` to release it."
                    .to_owned(),
            ),
            None => (
                "UpdateQueued",
                "The newest version is queued: it waits for the rest of its update group, or for its comparison.".to_owned(),
            ),
            Some(candidate) => {
                let set = candidate.name();
                match &candidate.verdict {
                    None | Some(PromotionDecision::Promote) => (
                        "UpdateIsTried",
                        format!("The newest version is being compared with the active one on the live subjects: see the PolicySet {set}."),
                    ),
                    Some(PromotionDecision::Approval(why)) => {
                        ("ApprovalNeeded", format!("The newest version needs an approval of the PolicySet {set}, because {why}."))
                    }
                    Some(PromotionDecision::Never) => {
                        let message = format!(
                            "The newest version is never activated, because its strategy is Shadow: the PolicySet {set} reports what it \
                             would change."
                        );
                        ("OnlyTried", message)
                    }
                }
            }
        }
    }

    /// Writes the changed statuses of PolicySets.
    pub(super) async fn tell_sets(&mut self) {
        // Before the pending changes are known, another host's candidate might be reported as abandoned.
        if self.proposes_by.is_some() {
            return;
        }
        let active = set_name(&self.record.digest);
        let candidates: BTreeSet<String> = self.candidates.values().map(Candidate::name).collect();
        let mut names: Vec<String> = self.sets.keys().cloned().collect();
        // Candidates first: clients that wait for a replaced set check its replacement next.
        names.sort_by_key(|name| !candidates.contains(name));
        for name in names {
            let Some(set) = self.sets.get(&name) else { continue };
            let decided = set.status.as_ref().is_some_and(|status| status.promoted_at.is_some());
            let phase = if name == active {
                PolicySetPhase::Active
            } else if candidates.contains(&name) {
                PolicySetPhase::Candidate
            } else if decided || self.record.formers.iter().any(|former| set_name(former) == name) {
                PolicySetPhase::Previous
            } else {
                PolicySetPhase::Abandoned
            };
            let mut facts = self.facts.get(&name).cloned().unwrap_or_default();
            if phase == PolicySetPhase::Active {
                facts.pace = Some(self.pacer.progress().borrow().clone());
            }
            let given_up = phase == PolicySetPhase::Abandoned && set.status.as_ref().is_none_or(|status| status.phase != Some(phase));
            if given_up && facts.message.is_none() {
                facts.message = Some("Another host nominated it, and its changes are no longer requested.".to_owned());
            }
            let after = sets::status(set, phase, self.record.since.as_ref(), &facts, &now());
            if set.status.as_ref() == Some(&after) {
                self.facts.remove(&name);
                continue;
            }
            if !self.leadership.held() {
                return;
            }
            let patch = json!({
                "apiVersion": PolicySet::api_version(&()), "kind": PolicySet::kind(&()), "metadata": {"name": name}, "status": after,
            });
            let api = Api::<PolicySet>::all(self.client.clone());
            match api.patch_status(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&patch)).await {
                Ok(told) => {
                    self.facts.remove(&name);
                    self.sets.answer(told);
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => self.sets.remove(&name),
                Err(error) => {
                    tracing::warn!(set = name, error = sentence(&error), "the status can't be written; trying again");
                    self.try_again();
                }
            }
        }
    }

    /// Emits an event for a transition of a set.
    pub(super) fn note(&self, set: &str, type_: EventType, reason: &str, note: String) {
        let Some(set) = self.sets.get(set) else { return };
        let event = Event { action: "Promoting".to_owned(), ..event(type_, reason, note) };
        self.publish(event, &set.object_ref(&()));
    }

    fn publish(&self, event: Event, reference: &ObjectReference) {
        // One recorder would treat a second event of a kind as a repetition of the first, and keep the first one's text.
        let reporter = Reporter { controller: "pointsman".to_owned(), instance: Some(self.options.identity.clone()) };
        let recorder = Recorder::new(self.client.clone(), reporter);
        let reference = reference.clone();
        // Nothing waits for it.
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &reference).await {
                tracing::warn!(error = sentence(&error), "an event can't be written");
            }
        });
    }
}

/// The events for the transitions between two statuses. A state that lasts causes no event.
fn events(before: Option<&PolicyPluginStatus>, after: &PolicyPluginStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let condition = |status: Option<&PolicyPluginStatus>, type_: &str| {
        let found = status.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == type_));
        found.map(|condition| (condition.status.clone(), condition.reason.clone(), condition.message.clone()))
    };
    let digest = |status: Option<&PolicyPluginStatus>| status.and_then(|status| status.active.as_ref()).map(|active| active.digest.clone());
    if let Some(now) = digest(Some(after)).filter(|now| digest(before).as_ref() != Some(now)) {
        let version = after.active.as_ref().and_then(|active| active.version.clone()).unwrap_or_default();
        events.push(event(EventType::Normal, "Activated", format!("{now} (version {version}) is active.")));
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
        (Some(_), None) => events.push(event(EventType::Normal, "Released", "The plugin is no longer quarantined.".to_owned())),
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
