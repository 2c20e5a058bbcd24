//! Candidates: sets that may become active next, from their creation until they are active or abandoned. Only on the leader.

use super::{
    Keeper, TaskResult,
    batch::patience,
    now,
    pending::{ChangeKeys, Pending, PromotionDecision, verdict},
    propose::Meeting,
    record::ActiveRecord,
    reports,
    sets::{self, APPROVED, Approved, NOT_COVERED},
};
use crate::{comparison::Progress, problem::sentence};
use kube::{ResourceExt, runtime::events::EventType};
use pointsman_core::{
    compare::{FieldSet, Report},
    decide::set::ActiveSet,
};
use pointsman_crds::policy::{
    plugin::UpdateStrategyType,
    set::{BlastRadius, ReplayedScores},
};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

/// How long the comparison of a candidate may restart because other sets become active. After that, the candidate goes first.
const OVERDUE: Duration = Duration::from_secs(30);

/// How long it does. A comparison that takes longer doesn't block the others.
const MAX_OVERDUE: Duration = Duration::from_mins(5);

/// The composition of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CandidateKind {
    /// One change, or those of a group.
    Change,
    /// Changes of the same fields, each of which is also a candidate of its own.
    Overlap,
    /// Changes that may become active without an approval, together.
    Batch,
}

/// A set that may become active next.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) set: Arc<ActiveSet>,
    /// The record that is written when it becomes active.
    pub(super) record: ActiveRecord,
    pub(super) pending: Vec<Pending>,
    /// The digest of the set that it is compared with.
    pub(super) against: String,
    pub(super) kind: CandidateKind,
    /// Since when its changes wait, regardless of the set under them.
    pub(super) since: Instant,
    /// Whether it was rebuilt because another set became active.
    pub(super) rebased: bool,
    /// The same candidate over the previous active set.
    pub(super) former: Option<Former>,
    progress: Option<Progress>,
    pub(super) report: Option<Report>,
    /// Until when it waits, after its comparison, for others that may become active at the same time.
    pub(super) batches_until: Option<Instant>,
    /// The decision on its activation, once known.
    pub(super) verdict: Option<PromotionDecision>,
    pub(super) comparison: Option<Comparison>,
}

/// A candidate over the previous active set: somebody may approve it at the moment when another set becomes active.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub(super) digest: String,
    pub(super) fields: Arc<FieldSet>,
    pub(super) scores: Option<ReplayedScores>,
}

impl Former {
    /// Whether an approval of the previous candidate covers this report.
    fn covers(&self, report: &Report) -> bool {
        let unanswered = |scores: Option<&ReplayedScores>| scores.map_or(0, |scores| scores.failed);
        report.fields.as_ref().is_some_and(|fields| fields.is_within(&self.fields))
            && unanswered(report.radius().scores.as_ref()) <= unanswered(self.scores.as_ref())
    }
}

/// A comparison in a task of its own. Dropping it cancels the task.
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
    pub(super) fn new(set: Arc<ActiveSet>, record: ActiveRecord, pending: Vec<Pending>, against: String, kind: CandidateKind) -> Self {
        Self {
            set,
            record,
            pending,
            against,
            kind,
            since: Instant::now(),
            rebased: false,
            former: None,
            progress: None,
            report: None,
            batches_until: None,
            verdict: None,
            comparison: None,
        }
    }

    pub(super) fn digest(&self) -> String {
        self.set.digest().to_string()
    }

    pub(super) fn name(&self) -> String {
        sets::name(&self.digest())
    }

    /// Whether one of its changes has the strategy Shadow.
    pub(super) fn is_only_tried(&self) -> bool {
        self.pending.iter().any(|pending| pending.strategy.type_ == UpdateStrategyType::Shadow)
    }

    /// Whether its comparison has restarted for too long because other sets became active.
    fn is_overdue(&self, now: Instant) -> bool {
        let waits = now.duration_since(self.since);
        self.rebased && self.comparison.is_some() && waits > OVERDUE && waits < MAX_OVERDUE
    }
}

impl Keeper {
    /// Compares two sets in a separate task.
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

    /// Records the progress of a comparison.
    pub(super) fn compares(&mut self, set: &str, progress: Progress) {
        if let Some(candidate) = self.candidates.values_mut().find(|candidate| candidate.digest() == set) {
            candidate.progress = Some(progress);
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let radius = BlastRadius { evaluated: number(progress.0), subjects: number(progress.1), ..BlastRadius::default() };
            self.facts.entry(sets::name(set)).or_default().radius = Some(radius);
        }
    }

    /// Records the result of a comparison.
    pub(super) fn compared(&mut self, report: Report) {
        let name = sets::name(&report.set);
        let of_candidate = |candidate: &&mut Candidate| candidate.digest() == report.set && candidate.against == report.against;
        if let Some(candidate) = self.candidates.values_mut().find(of_candidate) {
            candidate.comparison = None;
            candidate.report = Some(report.clone());
            candidate.batches_until = Some(patience());
            self.meetings = None;
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
        // Its loss does no harm: the status has the most important parts, and a host that starts compares again.
        if let Some(set) = self.sets.get(&name).cloned() {
            // A long report takes long to compress, and nothing waits for it.
            let (client, namespace) = (self.client.clone(), self.options.namespace.clone());
            tokio::spawn(async move {
                if let Err(error) = reports::keep(&client, &namespace, &set, report).await {
                    tracing::warn!(set = name, error, "the report can't be stored");
                }
            });
        }
    }

    /// Whether a set is approved.
    pub(super) fn is_approved(&self, digest: &str) -> bool {
        let approval = self.sets.get(&sets::name(digest)).and_then(|set| set.annotations().get(APPROVED));
        approval.is_some_and(|approved| approved == digest)
    }

    /// Determines for each candidate whether it may become active, and what it waits for.
    pub(super) fn judge(&mut self) {
        self.meetings();
        let keys: Vec<ChangeKeys> = self.candidates.keys().cloned().collect();
        for keys in keys {
            self.judge_one(&keys);
        }
    }

    fn judge_one(&mut self, keys: &ChangeKeys) {
        let met = self.meeting_message(keys);
        let Some(candidate) = self.candidates.get(keys) else { return };
        let (digest, name) = (candidate.digest(), candidate.name());
        let mut facts = self.facts.get(&name).cloned().unwrap_or_default();
        let Some(report) = &candidate.report else {
            facts.message = Some(match self.stage.obstacle() {
                None => "It is being compared with the active set on the live subjects.".to_owned(),
                Some(why) => format!("It is compared with the active set once the live subjects are known: {why}."),
            });
            self.facts.insert(name, facts);
            return;
        };
        let radius = report.radius();
        let mut verdict = verdict(candidate.pending.iter().map(|pending| &pending.strategy), &radius);
        if candidate.kind == CandidateKind::Overlap && verdict == PromotionDecision::Promote {
            verdict = PromotionDecision::Approval("each of its changes needs one".to_owned());
        }
        let former = candidate.former.as_ref().filter(|former| self.is_approved(&former.digest));
        let approved = self.is_approved(&digest) || former.is_some_and(|former| former.covers(report));
        facts.radius = Some(radius);
        facts.shadowed = Some(true);
        let mut news = None;
        match &verdict {
            PromotionDecision::Promote => {
                facts.approved = Some(Approved::NotNeeded);
                if self.waits_for_overdue() {
                    facts.message =
                        Some("It becomes active after another candidate, whose comparison had to restart several times.".to_owned());
                }
            }
            PromotionDecision::Approval(_) if approved => facts.approved = Some(Approved::Given),
            PromotionDecision::Approval(why) => {
                let told = self.sets.get(&name).and_then(|set| set.status.as_ref()?.message.clone());
                let again = former.map(|former| {
                    format!(" {NOT_COVERED}{} doesn't cover it: it changes more than that candidate did.", sets::name(&former.digest))
                });
                let message = format!(
                    "It needs an approval, because {why}: {}.{}{}",
                    sets::review_and_approve(&name),
                    again.unwrap_or_default(),
                    met.unwrap_or_default()
                );
                facts.approved = Some(Approved::Awaited);
                facts.message = Some(message.clone());
                news = (candidate.verdict.as_ref() != Some(&verdict) && told.as_ref() != Some(&message)).then_some(message);
            }
            PromotionDecision::Never => {
                facts.approved = Some(Approved::NeverActive);
                facts.message = Some("It is never activated: a plugin that it changes has the strategy Shadow.".to_owned());
            }
        }
        self.facts.insert(name.clone(), facts);
        if let Some(candidate) = self.candidates.get_mut(keys)
            && candidate.verdict.as_ref() != Some(&verdict)
        {
            candidate.verdict = Some(verdict);
            self.meetings = None;
        }
        if let Some(message) = news {
            self.policies.count_transition("waiting");
            self.note(&name, EventType::Warning, "ApprovalNeeded", message);
        }
    }

    /// The other candidates that change the same fields, as text.
    fn meeting_message(&self, keys: &ChangeKeys) -> Option<String> {
        let met = self.meetings.iter().flatten().filter_map(|Meeting { between: [one, other], overlap }| match () {
            () if one == keys => Some((other, overlap)),
            () if other == keys => Some((one, overlap)),
            () => None,
        });
        let met: Vec<_> = met.collect();
        let (other, overlap) = met.first()?;
        let names = |keys: &ChangeKeys| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let others = met.iter().map(|(other, _)| names(other)).collect::<Vec<_>>().join(", ");
        let joint = self
            .candidates
            .iter()
            .find(|(joint, candidate)| candidate.kind == CandidateKind::Overlap && joint.is_superset(keys) && joint.is_superset(other));
        let joint = joint.map(|(_, joint)| format!("; {} combines these changes", joint.name())).unwrap_or_default();
        Some(format!(" It changes the same fields as {others} (in {}, {}){joint}.", overlap.subject, overlap.field))
    }

    /// Activates the next candidate that may become active. Returns whether there was one.
    pub(super) async fn promote_next(&mut self) -> bool {
        let overdue = self.waits_for_overdue();
        let active = self.policies.active().digest().to_string();
        let may = |keys: &ChangeKeys, candidate: &Candidate| match &candidate.verdict {
            None => !candidate.is_only_tried() && self.is_approved(&candidate.digest()),
            Some(PromotionDecision::Never) => false,
            // Without an approval, only in the state that its objects request now, and after overdue candidates.
            Some(PromotionDecision::Promote) => {
                self.is_approved(&candidate.digest()) || !overdue && self.is_settled(keys) && !self.waits_for_batch(keys, candidate)
            }
            Some(PromotionDecision::Approval(_)) => {
                self.facts.get(&candidate.name()).is_some_and(|facts| facts.approved == Some(Approved::Given))
            }
        };
        let current = self.candidates.iter().filter(|(_, candidate)| candidate.against == active);
        let next = current
            .filter(|(keys, candidate)| may(keys, candidate))
            .min_by_key(|(_, candidate)| (candidate.kind != CandidateKind::Batch, candidate.since));
        let Some(keys) = next.map(|(keys, _)| keys.clone()) else { return false };
        self.promote(&keys).await
    }

    async fn promote(&mut self, keys: &ChangeKeys) -> bool {
        let Some(candidate) = self.candidates.get(keys) else { return false };
        let (set, mut record, former) = (Arc::clone(&candidate.set), candidate.record.clone(), self.policies.active());
        record.since = Some(now());
        let plugins = candidate.pending.iter().filter(|pending| pending.is_plugin(&pending.name));
        let names: Vec<String> = plugins.map(|pending| pending.name.clone()).collect();
        let compared = candidate.report.is_some();
        if !compared {
            self.facts.entry(candidate.name()).or_default().approved = Some(Approved::Given);
        }
        if !self.copy_pause(&set.digest().to_string()).await {
            self.try_again();
            return false;
        }
        if let Err(error) = self.write_record(record).await {
            tracing::warn!(set = %set.digest(), error = sentence(&error), "the candidate can't be activated; trying again");
            self.try_again();
            return false;
        }
        self.candidates.remove(keys);
        (self.meetings, self.unbatchable) = (None, None);
        // If it combines changes, they are active with it.
        let parts: Vec<ChangeKeys> = self.candidates.keys().filter(|part| part.is_subset(keys)).cloned().collect();
        let name = sets::name(&set.digest().to_string());
        for part in parts {
            self.abandon(&part, &format!("It became active together with other changes: {name}."), Some(name.clone()));
        }
        self.activate(&former, &set, &names, !compared);
        true
    }

    /// Whether a candidate waits for an approval.
    pub(super) fn awaits_approval(&self) -> bool {
        self.candidates.values().any(|candidate| matches!(candidate.verdict, Some(PromotionDecision::Approval(_))))
    }

    /// Whether candidates that may become active wait for the comparison of an overdue one.
    fn waits_for_overdue(&self) -> bool {
        let now = Instant::now();
        self.stage.obstacle().is_none() && self.candidates.values().any(|candidate| candidate.is_overdue(now))
    }

    /// The times at which a candidate becomes overdue, or no longer is.
    pub(super) fn overdue_at(&self) -> impl Iterator<Item = Instant> {
        let compared = self.candidates.values().filter(|candidate| candidate.rebased && candidate.comparison.is_some());
        compared.flat_map(|candidate| [candidate.since + OVERDUE, candidate.since + MAX_OVERDUE])
    }

    /// Abandons all candidates.
    pub(super) fn abandon_all(&mut self, why: &str) {
        for keys in self.candidates.keys().cloned().collect::<Vec<_>>() {
            self.abandon(&keys, why, None);
        }
    }

    /// Abandons a candidate. Another set may replace it.
    pub(super) fn abandon(&mut self, keys: &ChangeKeys, why: &str, replaced_by: Option<String>) {
        let Some(candidate) = self.candidates.remove(keys) else { return };
        self.meetings = None;
        let name = candidate.name();
        tracing::info!(set = %candidate.set.digest(), "the candidate is abandoned: {why}");
        self.policies.count_transition("abandoned");
        let facts = self.facts.entry(name.clone()).or_default();
        facts.message = Some(why.to_owned());
        facts.replaced_by = replaced_by.filter(|next| *next != name);
        self.note(&name, EventType::Normal, "Abandoned", why.to_owned());
    }
}
