//! Runs comparisons over all live subjects: in the background, all together in at most half of a core, and canceled when nobody waits for
//! them.

use crate::{apply::Applier, watch::Shared};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use pointsman_core::{
    claims::Claims,
    compare::{
        Effect, Report, SubjectChange,
        effect::{change, rejected},
    },
    decide::{
        Policies,
        member::Member,
        replay::{Recorded, Replayed},
        set::{ActiveSet, concerns},
    },
    kinds, planning, question,
    rules::rule::Rule,
    selector,
    settings::Settings,
    world::{ObjectKey, OwnedObject},
};
use pointsman_crds::policy::{plugin::PolicyPoint, rule::RuleStage};
use pointsman_sandbox::{cache::Cache, limits::DECISION_CACHE, point::Subject};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, watch},
    task::block_in_place,
    time::{sleep, timeout},
};

/// The length of a slice of work, which an equally long pause follows: the maximum delay of a live edit when all cores are busy.
const WORK_SLICE: Duration = Duration::from_millis(10);

/// The interval of progress reports: each of them is a write.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// The maximum number of passes over subjects that changed during the comparison. In a cluster that changes faster, the result for some
/// subjects is out of date.
const MAX_PASSES: usize = 8;

/// The maximum number of subjects whose new workloads the API server validates in a dry run.
const MAX_DRY_RUNS: usize = 20;

/// The maximum duration of the dry runs of a comparison.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(10);

/// The progress of a comparison: the number of compared subjects, and of all.
pub type Progress = (usize, usize);

/// Compares policy sets on the live subjects that the controller knows.
#[derive(Debug)]
pub struct LiveComparison {
    shared: Shared,
    claims: Claims,
    settings: Settings,
    /// For dry runs, if they are possible.
    applier: Option<Applier>,
    /// The kinds that aren't listed yet, or none.
    listed: watch::Receiver<Option<String>>,
    /// Held by the comparison that is working. Comparisons alternate by slices, so that a short one doesn't wait for a long one to end.
    turn: Mutex<()>,
}

/// The two sets. Their decisions are cached apart from the live ones: a trial must neither evict live decisions nor count against a plugin.
struct SetPair {
    before: Policies,
    after: Policies,
    /// The members that are in only one of the sets.
    differ: Vec<Arc<Member>>,
    /// The rules that are in only one of the sets.
    rules: Vec<Arc<Rule>>,
}

impl SetPair {
    fn new(before: &ActiveSet, after: &ActiveSet) -> Self {
        // Decisions that the change doesn't affect are made once, for both sets.
        let cache = Arc::new(Cache::new(DECISION_CACHE));
        let only_in = |one: &ActiveSet, other: &ActiveSet| -> Vec<Arc<Member>> {
            let known = |member: &Member| other.members().iter().any(|other| other.identity() == member.identity());
            one.members().iter().filter(|member| !known(member)).cloned().collect()
        };
        let differ = [only_in(before, after), only_in(after, before)].concat();
        let rules_only_in = |one: &ActiveSet, other: &ActiveSet| -> Vec<Arc<Rule>> {
            let known = |rule: &Rule| other.rules().all().iter().any(|other| other.identity() == rule.identity());
            one.rules().all().iter().filter(|rule| !known(rule)).cloned().collect()
        };
        let rules = [rules_only_in(before, after), rules_only_in(after, before)].concat();
        Self { before: Policies::for_comparison(before, Arc::clone(&cache)), after: Policies::for_comparison(after, cache), differ, rules }
    }

    /// Whether a member or rule that differs applies to a subject.
    fn concerns(&self, subject: &Subject) -> bool {
        // A rule over planned objects applies to those of any subject.
        let about =
            |rule: &Rule| rule.stage() == RuleStage::Output || rule.objects().is_none_or(|objects| selector::fits(objects, subject));
        self.differ.iter().any(|member| concerns(member, subject)) || self.rules.iter().any(|rule| about(rule))
    }
}

impl SetPair {
    /// Replays recorded requests under both sets, if they differ at scheduling-scoring.
    async fn replay(&self, recorded: &[Arc<Recorded>], turn: &Mutex<()>) -> Option<Replayed> {
        if recorded.is_empty() || !self.differ.iter().any(|member| member.bound.points.contains(&PolicyPoint::SchedulingScoring)) {
            return None;
        }
        let mut replayed = Replayed::default();
        for recorded in recorded {
            let _turn = turn.lock().await;
            let began = Instant::now();
            block_in_place(|| replayed.put(recorded, &self.before, &self.after));
            sleep(began.elapsed()).await;
        }
        Some(replayed)
    }
}

impl LiveComparison {
    /// Creates a comparison that shows nothing before everything is listed.
    pub fn new(shared: Shared, claims: Claims, settings: Settings, listed: watch::Receiver<Option<String>>) -> Self {
        Self { shared, claims, settings, applier: None, listed, turn: Mutex::default() }
    }

    /// Has the API server validate changed workloads.
    #[must_use]
    pub fn with_dry_runs(self, applier: Applier) -> Self {
        Self { applier: Some(applier), ..self }
    }

    /// The reason why nothing can be compared yet, if any.
    pub fn obstacle(&self) -> Option<String> {
        self.listed.borrow().clone()
    }

    /// Compares the plans of all live subjects under both sets, and replays recorded requests, which no snapshot has. Dropping the future
    /// cancels it.
    pub async fn compare(&self, before: &ActiveSet, after: &ActiveSet, recorded: &[Arc<Recorded>], progress: impl Fn(Progress)) -> Report {
        let mut listed = self.listed.clone();
        // The sender lives as long as the host.
        listed.wait_for(Option::is_none).await.ok();
        let pair = SetPair::new(before, after);
        let follower = self.shared.lock().subscribe();
        let mut found = BTreeMap::new();
        let mut next: BTreeSet<ObjectKey> = self.shared.lock().subjects().map(|subject| subject.key.clone()).collect();
        let all = next.len();
        let mut turn = self.turn.lock().await;
        let (mut began, mut told) = (Instant::now(), Instant::now());
        for pass in 0..MAX_PASSES {
            for (done, key) in next.iter().enumerate() {
                match block_in_place(|| self.compare_subject(key, &pair)) {
                    Some(change) => found.insert(key.clone(), change),
                    None => found.remove(key),
                };
                let worked = began.elapsed();
                if worked >= WORK_SLICE {
                    sleep(worked).await;
                    drop(turn);
                    turn = self.turn.lock().await;
                    began = Instant::now();
                    if pass == 0 && told.elapsed() >= REPORT_INTERVAL {
                        told = began;
                        progress((done + 1, all));
                    }
                }
            }
            next = self.shared.lock().followed(&follower);
            if next.is_empty() {
                break;
            }
        }
        drop(turn);
        timeout(DRY_RUN_TIMEOUT, self.dry_run(&pair, &mut found)).await.ok();
        let replayed = pair.replay(recorded, &self.turn).await;
        let digests = (after.digest().to_string(), before.digest().to_string());
        let at = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH);
        Report { replayed, ..Report::summarize(digests, Time(at), found.len(), found) }
    }

    /// Has the API server validate the new workloads of subjects whose pods would restart: only it knows all rules about pods, and its
    /// admission plugins. Of many subjects, a sample spread over all of them must do. If it rejects one, the subject's planning has failed.
    async fn dry_run(&self, pair: &SetPair, found: &mut BTreeMap<ObjectKey, SubjectChange>) {
        let Some(applier) = &self.applier else { return };
        let restarting: Vec<ObjectKey> =
            found.iter().filter(|(_, change)| change.effect == Effect::Restarts).map(|(key, _)| key.clone()).collect();
        let step = restarting.len().div_ceil(MAX_DRY_RUNS).max(1);
        for key in restarting.iter().step_by(step) {
            let snapshot = self.shared.lock().snapshot(key, Timestamp::now().as_second().unsigned_abs());
            let (Some(snapshot), Some(kind)) = (snapshot, kinds::find(key.resource)) else { continue };
            let plan = block_in_place(|| planning::plan(kind, snapshot.clone(), &pair.after, &self.settings));
            for object in plan.objects.iter().flatten().filter(|object| !object.key.resource.pods().is_empty()) {
                let differs = |live: &OwnedObject| !live.settled(&object.body, object.fingerprint);
                if !snapshot.child(object.key.resource, &object.key.name).is_some_and(|live| differs(live)) {
                    continue;
                }
                if let (Some(why), Some(change)) = (applier.dry_run(key, object).await, found.get_mut(key)) {
                    rejected(change, &why);
                    break;
                }
            }
        }
    }

    /// Compares the plans of one subject; none if this host doesn't serve it.
    fn compare_subject(&self, key: &ObjectKey, pair: &SetPair) -> Option<SubjectChange> {
        let snapshot = self.shared.lock().snapshot(key, Timestamp::now().as_second().unsigned_abs())?;
        let kind = kinds::find(key.resource)?;
        let ours = self.claims.contains(key) && planning::theirs(&snapshot).is_none() && !snapshot.subject.deleting;
        if !ours || !snapshot.is_complete() {
            return None;
        }
        let subject = question::subject(&snapshot);
        if !pair.concerns(&subject) {
            return Some(SubjectChange::default());
        }
        let plan = |policies| planning::plan(kind, snapshot.clone(), policies, &self.settings);
        Some(change(&snapshot, &plan(&pair.before), &plan(&pair.after)))
    }
}
