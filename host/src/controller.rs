//! Connects the parts: a change touches subjects, which are queued, planned from a snapshot and applied. Only on the leader.

mod reconcile_spans;
mod reports;

use crate::{
    allocator::{self, Settled},
    apply::{Applier, ApplyError, INVALID},
    catalogue_status,
    keeper::sets::name as set_name,
    leader::{Leadership, fence::fenced},
    liveness::Liveness,
    memory_usage,
    metrics::Reconciles,
    model_status::{self, InspectImage, ModelReports},
    pace::{Observation, Pacer, RECHECK_INTERVAL, REPORT_INTERVAL, RestartPermission},
    pool_user_status,
    queue::Queue,
    watch::{self, Extents, Shared, apis::Apis},
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Client,
    runtime::events::{Recorder, Reporter},
};
use pointsman_core::{
    allocation::{Entry, Phase},
    claims::Claims,
    condition::READY,
    contest::ForeignStatusWriters,
    decide::Policies,
    kinds::{self, Kind},
    plan::{Decided, NotOurs, Object, Plan, Status},
    planning,
    pods::{AllocatedPods, PodImpact, restarts},
    resource::DEPLOYMENT,
    settings::Settings,
    spans,
    status::{APPLIED, Applied, RESTARTING, ready, settle},
    subject_labels::{labels_to_withdraw, labels_to_write},
    world::{ObjectKey, OwnedObject, Snapshot, Touched},
};
use pointsman_sandbox::{digest::Digest, sync::locked};
use reconcile_spans::ReconcileSpans;
use serde_json::Map;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::watch as channel,
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{Instrument, field::Empty};

/// The default number of subjects that are reconciled at once.
pub const WORKERS: usize = 8;

/// The delay during which reports of objects and pods are gathered: a rollout causes many, and each would write a status.
const REPORT_DELAY: Duration = Duration::from_millis(200);

/// The number of consecutive transient failures after which the status reports the failure.
const FAILURES_BEFORE_REPORT: u32 = 5;

/// The inputs of [`run`].
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct Inputs {
    /// The cluster.
    pub client: Client,
    /// The namespace of the hosts.
    pub namespace: String,
    /// The kinds that the cluster serves.
    pub apis: channel::Receiver<Apis>,
    /// The active policies.
    pub policies: Arc<Policies>,
    /// The reason why the policies aren't active, or none.
    pub obstacle: channel::Receiver<Option<String>>,
    /// Counts up when another policy set becomes active, or when all subjects must be reconciled again.
    pub changes: channel::Receiver<u64>,
    /// Whether this host is the leader.
    pub leadership: Leadership,
    /// This host's name in events.
    pub identity: String,
    /// The world. This task fills it; others read it.
    pub shared: Shared,
    /// Limits the restarts of pods.
    pub pacer: Arc<Pacer>,
    /// The administrator's settings.
    pub settings: Settings,
    /// The source of the measured memory of models, if any, and the interval.
    pub memory_usage: Option<(memory_usage::Source, Duration)>,
    /// The place of the model agents' reports, if any.
    pub model_reports: Option<ModelReports>,
    /// The subjects that this host serves.
    pub claims: Claims,
    /// Whether subjects get the labels for `kubectl get --selector`.
    pub subject_labels: bool,
    /// The number of subjects that are reconciled at once.
    pub workers: usize,
    /// The counts of reconciles.
    pub reconciles: Arc<Reconciles>,
    /// The work in progress.
    pub liveness: Liveness,
    /// Receives the kinds that aren't listed yet. Nothing is written before all are listed.
    pub unlisted: channel::Sender<Option<String>>,
}

struct Controller {
    shared: Shared,
    queue: Queue<ObjectKey>,
    applier: Applier,
    policies: Arc<Policies>,
    pacer: Arc<Pacer>,
    settings: Settings,
    claims: Claims,
    subject_labels: bool,
    strays: Mutex<ForeignStatusWriters>,
    recorder: Recorder,
    leadership: Leadership,
    reconciles: Arc<Reconciles>,
    liveness: Liveness,
    settled: Arc<Settled>,
}

/// The time that tasks get to end. No more writes go out, and another host should become the leader within a second: a longer plan is
/// dropped.
const END_PATIENCE: Duration = Duration::from_millis(500);

/// Runs until `stop`. When it returns, its tasks have ended.
pub async fn run(inputs: Inputs, stop: impl Future<Output = ()>) {
    let Inputs {
        client,
        namespace,
        apis,
        policies,
        changes,
        obstacle,
        leadership,
        identity,
        shared,
        pacer,
        settings,
        memory_usage,
        model_reports,
        claims,
        subject_labels,
        workers,
        reconciles,
        liveness,
        unlisted,
    } = inputs;
    let own_pod = InspectImage::OfPod { namespace: namespace.clone(), name: identity.clone() };
    let reporter = Reporter { controller: "pointsman".to_owned(), instance: Some(identity) };
    let extents = Extents { namespaces: claims.namespaces.clone(), config_namespace: settings.config_namespace.clone() };
    let writing = fenced(client.clone(), leadership.clone());
    let controller = Arc::new(Controller {
        queue: Queue::default(),
        applier: Applier::new(writing.clone(), shared.clone()),
        recorder: Recorder::new(writing, reporter),
        shared: shared.clone(),
        pacer,
        policies,
        settings,
        claims,
        subject_labels,
        strays: Mutex::default(),
        leadership,
        reconciles,
        liveness,
        settled: Arc::default(),
    });
    let listed = unlisted.subscribe();
    let allocator = allocator::Inputs {
        client: client.clone(),
        leadership: controller.leadership.clone(),
        shared: shared.clone(),
        claims: controller.claims.clone(),
        policies: Arc::clone(&controller.policies),
        changes: changes.clone(),
        namespace,
        settled: Arc::clone(&controller.settled),
        obstacles: [listed.clone(), obstacle.clone()],
    };
    let mut tasks = JoinSet::new();
    if let Some((source, interval)) = memory_usage {
        let (leadership, claims) = (controller.leadership.clone(), controller.claims.clone());
        tasks.spawn(memory_usage::run(memory_usage::Inputs {
            client: client.clone(),
            leadership,
            shared: shared.clone(),
            claims,
            source,
            interval,
        }));
    }
    if let Some(ModelReports { namespace, inspect_image }) = model_reports {
        let (leadership, claims) = (controller.leadership.clone(), controller.claims.clone());
        let listed = listed.clone();
        let (client, shared) = (client.clone(), shared.clone());
        let image = inspect_image.map_or(own_pod, InspectImage::Given);
        let policies = Arc::clone(&controller.policies);
        tasks.spawn(model_status::run(model_status::Inputs { client, leadership, shared, claims, policies, namespace, image, listed }));
    }
    let obstacles = [listed.clone(), obstacle.clone()];
    controller.write_statuses(&mut tasks, &client, &apis, &changes, obstacles);
    tasks.spawn(allocator::run(allocator));
    tasks.spawn(watch::keep(client, extents, apis, shared, unlisted));
    tasks.spawn(Arc::clone(&controller).enqueue_changes(changes, obstacle, listed));
    for _ in 0..workers.max(1) {
        tasks.spawn(Arc::clone(&controller).worker());
    }
    // None of them ends by itself. If one does, this host is incomplete, and another one should become the leader.
    tokio::select! {
        () = stop => {}
        _ = tasks.join_next() => {}
    }
    if timeout(END_PATIENCE, tasks.shutdown()).await.is_err() {
        tracing::warn!("a subject is still being planned: its plan is dropped");
    }
}

impl Controller {
    /// Starts the tasks that write the statuses of objects other than subjects.
    fn write_statuses(
        &self,
        tasks: &mut JoinSet<()>,
        client: &Client,
        apis: &channel::Receiver<Apis>,
        changes: &channel::Receiver<u64>,
        obstacles: [channel::Receiver<Option<String>>; 2],
    ) {
        let (leadership, claims) = (|| self.leadership.clone(), || self.claims.clone());
        tasks.spawn(catalogue_status::run(catalogue_status::Inputs {
            client: client.clone(),
            leadership: leadership(),
            shared: self.shared.clone(),
            claims: claims(),
            policies: Arc::clone(&self.policies),
            changes: changes.clone(),
            obstacles,
        }));
        let (client, apis) = (client.clone(), apis.clone());
        tasks.spawn(pool_user_status::run(pool_user_status::Inputs { client, leadership: leadership(), claims: claims(), apis }));
    }

    /// Queues the subjects that changes touch: only while this host is the leader, after everything was listed and the policies are active.
    async fn enqueue_changes(
        self: Arc<Self>,
        mut sets: channel::Receiver<u64>,
        mut obstacle: channel::Receiver<Option<String>>,
        mut listed: channel::Receiver<Option<String>>,
    ) {
        let mut leadership = self.leadership.clone();
        let mut news = self.shared.news();
        let mut turns = self.pacer.progress();
        loop {
            self.pacer.reset();
            leadership.acquired().await;
            self.pacer.reset();
            if listed.wait_for(Option::is_none).await.is_err() || obstacle.wait_for(Option::is_none).await.is_err() {
                return;
            }
            // Another host may have written since.
            let all = self.all();
            self.queue.add(all);
            self.pacer.begin_new_set();
            self.start_next_restarts();
            loop {
                let (Touched { now, soon }, seen) = self.shared.take_touched();
                self.queue.add_seen(now, seen);
                for key in soon {
                    self.queue.add_soon(key, REPORT_DELAY, seen);
                }
                self.reconciles.depth(self.queue.depth());
                tokio::select! {
                    changed = news.changed() => if changed.is_err() { return },
                    // The fallback for a failed plugin may also have changed.
                    changed = sets.changed() => {
                        if changed.is_err() { return }
                        let all = self.all();
                        self.queue.add(all);
                        self.pacer.begin_new_set();
                        self.start_next_restarts();
                    }
                    // An administrator may have resumed the others' restarts.
                    _ = turns.changed() => self.start_next_restarts(),
                    () = sleep(REPORT_INTERVAL), if self.pacer.has_unpublished_progress() => self.start_next_restarts(),
                    () = leadership.lost() => break,
                }
            }
        }
    }

    /// All subjects, touched or not.
    fn all(&self) -> BTreeSet<ObjectKey> {
        self.shared.lock().touch_all();
        let (touched, _) = self.shared.take_touched();
        touched.now
    }

    async fn worker(self: Arc<Self>) {
        loop {
            let (key, since) = self.queue.next().await;
            if self.leadership.held() {
                let work = self.liveness.begin(format!("reconciling the {key}"));
                let spans = ReconcileSpans::begin(&key, since);
                let (log, trace) = (spans.log.clone(), spans.trace.clone());
                self.reconcile(&key, &spans).instrument(trace).instrument(log).await;
                drop(work);
            }
            self.queue.done(&key);
            self.reconciles.depth(self.queue.depth());
            self.start_next_restarts();
        }
    }

    /// Queues the subjects that may restart their pods now.
    fn start_next_restarts(&self) {
        let next = self.pacer.start_next(self.queue.idle());
        if !next.is_empty() {
            self.queue.add(next);
        }
    }

    async fn reconcile(&self, key: &ObjectKey, spans: &ReconcileSpans) {
        let started = Timestamp::now();
        let snapshot = tracing::debug_span!(target: spans::TARGET, "snapshot")
            .in_scope(|| self.shared.lock().snapshot(key, started.as_second().unsigned_abs()));
        if snapshot.is_none() {
            self.applier.forget(key);
            locked(&self.strays).forget(key);
        }
        let theirs = snapshot.as_ref().and_then(planning::theirs);
        let claimed = self.claims.contains(key) && !matches!(theirs, Some(NotOurs::LeftAlone(_)));
        let (Some(snapshot), Some(kind), true) = (snapshot, kinds::find(key.resource), claimed) else {
            self.queue.reset_failures(key);
            self.pacer.forget(key);
            self.policies.tally().forget(key);
            spans.result("Ignored");
            return;
        };
        // The garbage collector deletes its objects without a plan. A subject with reserved memory returns that first.
        if snapshot.subject.deleting && snapshot.allocated.is_none() {
            self.pacer.forget(key);
            self.policies.tally().forget(key);
            spans.result("Deleting");
            return;
        }
        // With incomplete inputs, the choice could differ. Once the rest is listed, all subjects are reconciled again.
        if !snapshot.is_complete() && !matches!(theirs, Some(NotOurs::Contested(_))) {
            self.pacer.forget(key);
            spans.result("Incomplete");
            return;
        }
        let mut again = None;
        let contest = match theirs {
            Some(NotOurs::Contested(contest)) => Some(contest),
            _ => locked(&self.strays).record(&snapshot.subject),
        };
        let mut contested = contest.is_some();
        let outcome = if let Some(contest) = contest {
            self.pacer.forget(key);
            self.policies.tally().forget(key);
            self.report_contest(&snapshot.subject, contest).await
        } else {
            let (plan, instead, set) = tokio::task::block_in_place(|| self.plan(kind, &snapshot, spans));
            spans.trace.record("set", set);
            self.policies.tally().note(key, plan.rule_results.clone());
            again = plan.recheck_after;
            match self.carry_out(&snapshot, plan, instead, spans).await {
                Err(ApplyError::Contested(contest)) => {
                    contested = true;
                    self.pacer.forget(key);
                    self.policies.tally().forget(key);
                    again = contest.recheck_after();
                    self.report_contest(&snapshot.subject, contest).await
                }
                outcome => outcome,
            }
        };
        let well = !matches!(outcome, Err(ApplyError::Passing(..) | ApplyError::Refused { .. } | ApplyError::Contested(_)));
        self.reconciles.done(key.resource.kind, well, Timestamp::now().duration_since(started).as_secs_f64());
        spans.outcome(contested, &outcome);
        match outcome {
            Ok(()) => {
                self.queue.reset_failures(key);
                if self.pacer.has_turn(key) {
                    self.queue.add_after(key.clone(), RECHECK_INTERVAL);
                }
                if let Some(again) = again {
                    self.queue.add_after(key.clone(), again);
                }
            }
            Err(ApplyError::NotLeading) => {}
            // That happens with several writers, because the watch may be a little late.
            Err(ApplyError::Outdated) => self.queue.retry(key.clone()),
            Err(error) => {
                if let ApplyError::Refused { reason: INVALID, message } = &error {
                    self.pacer.reject(key, message.trim_end_matches('.'));
                }
                tracing::warn!(subject = %key, "{error}; trying again");
                self.queue.retry(key.clone());
            }
        }
    }

    /// Plans a subject. Returns the plan, a result for its condition Applied other than "applied as planned", and the name of the policy
    /// set. If its pods would restart while the restart is queued, the plan is one that keeps them.
    fn plan(&self, kind: &dyn Kind, snapshot: &Snapshot, spans: &ReconcileSpans) -> (Plan, Option<Applied>, String) {
        let key = &snapshot.subject.key;
        let set = set_name(&self.policies.active().digest().to_string());
        spans.log.record("set", &set);
        let plan = self.plan_by(&self.policies, kind, snapshot);
        if !self.pacer.paces() {
            return (plan, None, set);
        }
        let pace = tracing::debug_span!(target: spans::TARGET, "pace", permission = Empty);
        let _within = pace.enter();
        let insisted = |object: &Object, live: &OwnedObject| self.applier.was_mutated_by_server(key, object, live);
        if let Some(pods) = AllocatedPods::find(snapshot, &plan) {
            self.pacer.forget(key);
            let changes = plan.objects.as_ref().is_some_and(|objects| restarts(snapshot, objects, &plan, insisted));
            let formers = self.policies.previous_sets();
            // While a set is known to be bad, a starting pod is planned under the previous set.
            let former = formers.first().filter(|_| self.pacer.paused_reason().is_some());
            return match (pods, former) {
                (AllocatedPods::Unchanged, _) if changes => (Plan { objects: None, ..plan }, None, set),
                (AllocatedPods::Starting, Some(former)) if changes => {
                    let made = self.plan_by(&self.policies.with_set(Arc::clone(former)), kind, snapshot);
                    (made, None, set_name(&former.digest().to_string()))
                }
                _ => (plan, None, set),
            };
        }
        let work = PodImpact::assess(snapshot, &plan, insisted);
        let status = snapshot.subject.status();
        let told = |type_: &str| status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == type_);
        let was_ready = told(READY).is_some_and(|told| told["status"] == "True");
        let asks = kind.has_pending_request(snapshot, &status);
        let seen = Observation {
            work: &work,
            ready: ready(&plan.status.conditions).status,
            was_ready,
            has_turn: told(APPLIED).is_some_and(|told| told["reason"] == RESTARTING),
            generation: snapshot.subject.generation,
            own_edit: snapshot.subject.generation > status["observedGeneration"].as_i64() || asks,
        };
        let may = self.pacer.admit(key, seen);
        pace.record("permission", may.name());
        match may {
            RestartPermission::GoOn => return (plan, None, set),
            // A previous set would choose again, and its choice would be final.
            RestartPermission::AsAsked if asks => return (plan, None, set),
            RestartPermission::Restart(told) => return (plan, told.then_some(Applied::InTurn), set),
            RestartPermission::Wait | RestartPermission::AsAsked => {}
        }
        // The subject is on the newest set under which its pods stay.
        let formers = self.policies.previous_sets();
        for former in formers.iter() {
            let kept = self.plan_by(&self.policies.with_set(Arc::clone(former)), kind, snapshot);
            if kept.objects.as_ref().is_some_and(|objects| !restarts(snapshot, objects, &kept, insisted)) {
                self.pacer.enqueue(key, was_ready, &work);
                let on = set_name(&former.digest().to_string());
                spans.log.record("set", &on);
                let message = format!("The objects follow {on}. Under {set} the pods restart; the restart is queued.");
                return (kept, Some(Applied::Waits(message)), on);
            }
        }
        if may == RestartPermission::AsAsked {
            // While a set is known to be bad, a requested restart is planned under the previous set.
            let former = formers.first().filter(|_| self.pacer.paused_reason().is_some());
            let Some(former) = former else { return (plan, None, set) };
            let asked = self.plan_by(&self.policies.with_set(Arc::clone(former)), kind, snapshot);
            return (asked, None, set_name(&former.digest().to_string()));
        }
        let message =
            format!("Existing objects are unchanged. Under {set} and the current inputs the pods restart; the restart is queued.");
        // The runtime and the revisions in the status are those of the running pods.
        let status = Status { fields: Map::new(), ..plan.status };
        (Plan { objects: None, status, ..plan }, Some(Applied::Waits(message)), set)
    }

    fn plan_by(&self, policies: &Policies, kind: &dyn Kind, snapshot: &Snapshot) -> Plan {
        let set = || set_name(&policies.active().digest().to_string());
        let span = tracing::debug_span!(target: spans::TARGET, "plan", set = set());
        span.in_scope(|| planning::plan(kind, snapshot.clone(), policies, &self.settings))
    }

    /// Applies the plan and writes the status.
    async fn carry_out(&self, snapshot: &Snapshot, plan: Plan, instead: Option<Applied>, spans: &ReconcileSpans) -> Result<(), ApplyError> {
        let subject = &snapshot.subject;
        let Plan { objects, retained: keeps, status, reads, decisions, creates, expired, .. } = plan;
        let decided = Digest::of_all(decisions.iter().map(Decided::inputs)).short();
        spans.log.record("decisions", &decided);
        spans.trace.record("decisions", &decided);
        // Recorded before the first await: changes from now on requeue the subject.
        self.shared.change(|world| world.read(&subject.key, snapshot.revision, reads));
        let stopping = snapshot.allocated.as_deref().and_then(|entry| match entry {
            Entry::Placed { held, .. } if held.phase == Phase::Stopping => Some(held),
            _ => None,
        });
        if expired {
            return self.applier.delete_subject(subject).await;
        }
        let applied = match &objects {
            // Others wait for its memory: whatever prevents a plan of its objects, it must return the memory.
            None if stopping.is_some() => self.scale_to_zero(snapshot).await.map(|()| Applied::Held),
            None => Ok(Applied::Held),
            Some(objects) => {
                let span = tracing::debug_span!(target: spans::TARGET, "apply");
                self.applier.apply(snapshot, objects, &keeps).instrument(span).await.map(|()| Applied::Done)
            }
        };
        let applied = match applied {
            Ok(applied) => self.applier.create(&creates).await.map(|()| applied),
            failed => failed,
        };
        if let Some(held) = stopping {
            // If the API server rejects its objects, it must return its memory, as if a rule had rejected them.
            if matches!(applied, Err(ApplyError::Refused { .. })) {
                self.scale_to_zero(snapshot).await?;
            }
            if matches!(applied, Ok(_) | Err(ApplyError::Refused { .. })) {
                self.settled.note(&subject.key, held.since);
            }
        }
        let (applied, failed) = match applied {
            Ok(applied) => (instead.unwrap_or(applied), None),
            Err(ApplyError::Refused { reason, message }) => {
                (Applied::Failed(reason.to_owned(), message.clone()), Some(ApplyError::Refused { reason, message }))
            }
            // The failure may last, so the status reports it.
            Err(ApplyError::Passing(object, why)) if self.queue.failures(&subject.key) >= FAILURES_BEFORE_REPORT => {
                let message = format!("Writing the {object} failed and is retried: {why}.");
                (Applied::Failed("Retrying".to_owned(), message), Some(ApplyError::Passing(object, why)))
            }
            Err(error) => return Err(error),
        };
        // If other subjects wait for their objects, these come first: the status would change once they have them.
        if snapshot.children.is_empty()
            && failed.is_none()
            && objects.as_ref().is_some_and(|objects| !objects.is_empty())
            && self.queue.depth() > 0
        {
            self.queue.add_after(subject.key.clone(), REPORT_DELAY);
            return Ok(());
        }
        let before = subject.status();
        let (after, turned) = settle(&before, subject.key.resource.noun(), status, &applied, subject.generation, Timestamp::now());
        if self.applier.status(subject, &before, &after).await? {
            self.emit_events(subject, turned).await;
        }
        let labels = match &objects {
            _ if !self.subject_labels => labels_to_withdraw(subject),
            Some(objects) if failed.is_none() => labels_to_write(subject, objects),
            _ => None,
        };
        if let Some(labels) = labels {
            self.applier.label(subject, &labels).await?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Scales a model's Deployment to zero, regardless of what prevents a plan of its objects.
    async fn scale_to_zero(&self, snapshot: &Snapshot) -> Result<(), ApplyError> {
        let key = &snapshot.subject.key;
        match snapshot.child(&DEPLOYMENT, &key.name).filter(|workload| workload.observed.replicas != Some(0)) {
            Some(workload) => self.applier.scale_to_zero(key, workload).await,
            None => Ok(()),
        }
    }
}
