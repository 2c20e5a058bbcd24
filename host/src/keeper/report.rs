//! The leader's reports: the statuses of PolicyPlugins and PolicySets, and events for transitions.

use super::{
    Keeper,
    candidate::Candidate,
    now,
    promote::FIELD_MANAGER,
    sets::{self, name as set_name},
    status::{PluginState, Waiting, status, wanted_version},
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
use pointsman_core::compare::{Changed, Effect, Report};
use pointsman_crds::policy::{
    plugin::{PolicyPlugin, PolicyPluginStatus},
    set::{PolicySet, PolicySetPhase},
};
use pointsman_sandbox::text::{cut, printable_line};
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
        let pinned = self.plugins.get(name).is_some_and(|plugin| plugin.spec.digest.is_some());
        let (reason, message) = self.waits(wanted_version(pinned), |pending| pending.is_plugin(name));
        Some(Waiting { digest: bound.digest.clone(), version: bound.version.clone(), points: bound.points.clone(), reason, message })
    }

    /// The reason why the requested version of a plugin or rule waits. `version` is that version in words.
    pub(super) fn waits(&self, version: &str, is: impl Fn(&Pending) -> bool) -> (&'static str, String) {
        let candidates = self.candidates.values().filter(|candidate| candidate.pending.iter().any(&is));
        let candidate = candidates.min_by_key(|candidate| candidate.kind);
        match candidate {
            None if self.held().is_some() => (
                "Held",
                format!("{version} isn't active, because a previous policy set is held: run `pointsman policy resume` to release it."),
            ),
            None => ("UpdateQueued", format!("{version} is queued: it waits for the rest of its update group, or for its comparison.")),
            Some(candidate) => {
                let set = candidate.name();
                match &candidate.verdict {
                    None | Some(PromotionDecision::Promote) => (
                        "UpdateIsTried",
                        format!("{version} is being compared with the active one on the live subjects: see the PolicySet {set}."),
                    ),
                    Some(PromotionDecision::Approval(why)) => {
                        let is_plugin = candidate.pending.iter().any(|pending| is(pending) && pending.is_plugin(&pending.name));
                        let failed = candidate.report.as_ref().and_then(first_failure).filter(|_| is_plugin);
                        ("ApprovalNeeded", sets::approval_needed(version, &set, why, failed.as_deref()))
                    }
                    Some(PromotionDecision::Never) => {
                        let message = format!(
                            "{version} is never activated, because its strategy is Shadow: the PolicySet {set} reports what it would \
                             change."
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

/// The first subject for which planning fails, and why.
fn first_failure(report: &Report) -> Option<String> {
    let Changed { kind, namespace, name, places, .. } = report.changed.iter().find(|changed| changed.effect == Effect::Failed)?;
    let why = places.first().map(|why| printable_line(why)).unwrap_or_default();
    Some(format!("{kind} {namespace}/{name}: {}", why.trim_end_matches('.')))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_subject_for_which_planning_fails_is_named_with_its_failure() {
        let report: Report = serde_json::from_value(json!({
            "set": "sha256:a", "against": "sha256:b", "at": "2026-01-01T00:00:00Z", "subjects": 2,
            "changed": [
                {"kind": "InferenceService", "namespace": "first", "name": "llama", "effect": "Restarts", "places": []},
                {"kind": "InferenceService", "namespace": "first", "name": "qwen", "effect": "Failed", "places": ["PolicyFailed: it\npanicked."]},
            ],
        }))
        .unwrap();
        assert_eq!(first_failure(&report).as_deref(), Some("InferenceService first/qwen: PolicyFailed: it panicked"));
    }
}
