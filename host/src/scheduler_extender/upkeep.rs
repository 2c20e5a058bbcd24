//! The writes to the cluster: they make a scheduler retry pods without a node, and let gangs that can't be completed start again. They run
//! in a task of their own, so that an unresponsive API server delays nothing else.

use super::{Extender, PodReference, gangs::LoneLeader, unix_now};
use crate::{
    permissions,
    problem::{is_forbidden, sentence},
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{self, ObjectReference},
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, Preconditions},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use pointsman_core::placement::{
    Pod, PodKey, Settings,
    gangs::{Overdue, is_half},
};
use pointsman_sandbox::sync::locked;
use serde_json::json;
use std::{
    collections::BTreeSet,
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval, timeout},
};

/// The interval of checks for due errands.
const TIDY_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of queued errands.
const MAX_ERRANDS: usize = 64;

/// Gangs start again only if a scheduler has called within this time, or is the leader by its Lease: this extender doesn't know another
/// extender's reservations.
const LEADS_WITHIN: Duration = Duration::from_mins(15);

/// The annotation of a pod that the scheduler should retry, with the time.
const ASKED_AGAIN: &str = "pointsman.dev/asked-again";

/// The timeout of a request to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The reasons of events.
const DISSOLVED: &str = "GangDissolved";
const ABANDONED: &str = "PlacedWithoutPolicies";

/// The event's note for a pod whose scheduler didn't wait for the response.
const ABANDONED_NOTE: &str = "The scheduler didn't wait for the extender's answer and may place the pod without policies: raise \
                              `httpTimeout` in its configuration, or check the latency in pointsman_extender_call_duration_seconds.";

/// A write to the cluster, or a read.
enum Errand {
    /// Make a scheduler retry a pod.
    Wake(PodKey),
    /// Read how the LeaderWorkerSet of a gang starts.
    ReadStartup(LoneLeader),
    /// Report that a pod may be placed without policies.
    ReportAbandoned(PodReference),
    /// Delete the placed members of a gang; they had this many seconds.
    Dissolve(Overdue, u64),
}

/// Writes to the cluster.
pub struct Writer {
    client: Client,
    /// The namespace of the Lease of the scheduler in `deploy/scheduler`.
    namespace: String,
    identity: String,
    recorder: Recorder,
    complained: AtomicBool,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates a writer with this client; `identity` is the reporter of events, and `namespace` has the scheduler's Lease.
    pub fn new(client: Client, namespace: String, identity: String) -> Self {
        let reporter = Reporter { controller: "pointsman-scheduler-extender".to_owned(), instance: Some(identity.clone()) };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { recorder, client, namespace, identity, complained: AtomicBool::default() }
    }

    /// Whether the scheduler in this pod is the leader: the Lease's holder starts with the pod's name.
    async fn leads(&self) -> bool {
        let api = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        let Ok(Ok(lease)) = timeout(CALL_TIMEOUT, api.get(permissions::SCHEDULER_ACCOUNT)).await else { return false };
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        holder.split_once('_').is_some_and(|(pod, _)| pod == self.identity)
    }

    /// Deletes the placed members of a gang while it is incomplete. Returns whether any was deleted.
    async fn dissolve(&self, gang: &Overdue, timeout: u64, is_half: impl Fn() -> bool) -> bool {
        let Overdue { namespace, gang: name, size, placed, irreplaceable } = gang;
        let words =
            format!("{} of the {size} members of the gang {name} had nodes for {timeout} s, and the others found none", placed.len());
        if let Some(pod) = irreplaceable {
            tracing::warn!(namespace, "{words}: nothing is deleted, because no controller would recreate {pod}");
            return false;
        }
        tracing::info!(namespace, "{words}: those with nodes are deleted, so that the gang starts over");
        let note = format!("{words}: this pod is deleted, so that all of them start over.");
        let mut is_dissolved = false;
        for (namespace, pod, uid) in placed {
            // A gang that has become complete or Ready meanwhile isn't stopped; after the first deletion, the gang is incomplete until all
            // are deleted.
            if !is_dissolved && !is_half() {
                tracing::info!(namespace, "the gang {name} has become complete or Ready, and stays");
                return false;
            }
            is_dissolved |= self.delete(namespace, pod, uid, &note).await;
        }
        is_dissolved
    }

    /// Whether a LeaderWorkerSet creates its workers only once the leader is Ready, if it can be read.
    async fn is_leader_first(&self, namespace: &str, set: &str) -> bool {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"));
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        match timeout(CALL_TIMEOUT, api.get_opt(set)).await {
            Ok(Ok(found)) => found.is_some_and(|set| set.data["spec"]["startupPolicy"] == "LeaderReady"),
            Ok(Err(error)) => {
                let remedy = remedy(&error);
                tracing::warn!(namespace, set, error = sentence(&error), "how the LeaderWorkerSet starts can't be read{remedy}");
                false
            }
            Err(_) => false,
        }
    }

    /// Makes the scheduler retry a pod: it retries only after an event of the cluster, and a change in this process is none.
    async fn wake(&self, (namespace, pod): &PodKey) {
        let patch = json!({"metadata": {"annotations": {ASKED_AGAIN: unix_now().to_string()}}});
        let api = Api::<v1::Pod>::namespaced(self.client.clone(), namespace);
        let patched = timeout(CALL_TIMEOUT, api.patch_metadata(pod, &PatchParams::default(), &Patch::Merge(patch))).await;
        match patched {
            Ok(Ok(_)) => {}
            // It is gone.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    namespace,
                    pod,
                    error = sentence(&error),
                    "the pod can't be annotated, so the scheduler asks about it later"
                );
            }
            Err(_) => tracing::warn!(namespace, pod, "the pod can't be annotated, so the scheduler asks about it later: no answer in time"),
        }
    }

    async fn delete(&self, namespace: &str, pod: &str, uid: &str, note: &str) -> bool {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let api = Api::<v1::Pod>::namespaced(self.client.clone(), namespace);
        match timeout(CALL_TIMEOUT, api.delete(pod, &params)).await {
            Ok(Ok(_)) => {}
            // It is gone, or another pod has its name.
            Ok(Err(kube::Error::Api(status))) if [404, 409].contains(&status.code) => return false,
            Ok(Err(error)) => {
                if !self.complained.swap(true, Ordering::Relaxed) {
                    let remedy = remedy(&error);
                    tracing::warn!(namespace, pod, error = sentence(&error), "a member of a gang can't be deleted{remedy}");
                }
                return false;
            }
            Err(_) => return false,
        }
        self.complained.store(false, Ordering::Relaxed);
        self.report((namespace, pod, uid), DISSOLVED, note).await;
        true
    }

    /// Writes an event for a pod.
    async fn report(&self, (namespace, pod, uid): (&str, &str, &str), reason: &str, note: &str) {
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(pod.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let (reason, action) = (reason.to_owned(), "Scheduling".to_owned());
        let event = Event { type_: EventType::Warning, reason, note: Some(note.to_owned()), action, secondary: None };
        if let Ok(Err(error)) = timeout(CALL_TIMEOUT, self.recorder.publish(&event, &reference)).await {
            tracing::warn!(namespace, pod, error = sentence(&error), "an event could not be written");
        }
    }
}

/// The remedy for an error.
fn remedy(error: &kube::Error) -> String {
    if is_forbidden(error) { format!(": apply deploy/{}", permissions::SCHEDULER) } else { String::new() }
}

impl Extender {
    /// Drops what has expired, and runs due errands. It never ends by itself.
    pub async fn tidy(self: Arc<Self>, writer: Writer) {
        let (errands, waiting) = mpsc::channel(MAX_ERRANDS);
        tokio::join!(Arc::clone(&self).look(errands), self.run_errands(writer, waiting));
    }

    async fn look(self: Arc<Self>, errands: Sender<Errand>) {
        let mut ticks = interval(TIDY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Unlisted objects would seem deleted.
            if self.obstacle().is_some() {
                continue;
            }
            let (extender, room) = (Arc::clone(&self), errands.capacity());
            // This takes long while nodes are searched for a gang.
            let found = spawn_blocking(move || extender.errands(room)).await.unwrap_or_default();
            for errand in found {
                if errands.send(errand).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn run_errands(self: Arc<Self>, writer: Writer, mut errands: Receiver<Errand>) {
        while let Some(errand) = errands.recv().await {
            match errand {
                Errand::Wake(pod) => writer.wake(&pod).await,
                Errand::ReportAbandoned(PodReference { namespace, name, uid }) => {
                    writer.report((&namespace, &name, &uid), ABANDONED, ABANDONED_NOTE).await;
                }
                Errand::ReadStartup(LoneLeader { gang: (namespace, gang), set, pod }) => {
                    if writer.is_leader_first(&namespace, &set).await {
                        let (extender, key) = (Arc::clone(&self), (namespace.clone(), gang));
                        let change = move || extender.change_reservations(|reservations| reservations.put_leader_first(&key.0, &key.1));
                        _ = spawn_blocking(change).await;
                        writer.wake(&(namespace, pod)).await;
                    }
                }
                Errand::Dissolve(gang, timeout) => {
                    let is_asked = locked(&self.deciding).last_asked.is_some_and(|at| at.elapsed() < LEADS_WITHIN);
                    if !is_asked && !writer.leads().await {
                        continue;
                    }
                    let is_half = || is_half(&self.cache.load().watched.lock().cluster, &gang.namespace, &gang.gang);
                    if writer.dissolve(&gang, timeout, is_half).await {
                        self.counts.dissolved();
                    }
                }
            }
        }
    }

    /// The errands that are due now, with at most `room` retries of pods without a node.
    fn errands(&self, room: usize) -> Vec<Errand> {
        let cache = self.cache.load_full();
        let cluster = {
            let mut seen = cache.watched.lock();
            seen.tidy(Instant::now());
            seen.cluster.clone()
        };
        let timeout = cache.settings.gang_timeout_seconds;
        let schedulers = {
            let deciding = locked(&self.deciding);
            deciding.dissolves.then(|| deciding.schedulers.clone())
        };
        let set = *self.policies().active().digest();
        let mut overdue = Vec::new();
        let freed = self.change_reserving(|reserving| {
            reserving.note_set(set);
            let is_ours = |pod: &Pod| is_ours(pod, schedulers.as_ref(), &cache.settings);
            let is_ours = schedulers.is_some().then_some(&is_ours as &dyn Fn(&Pod) -> bool);
            overdue = reserving.reservations.expire(&cluster, unix_now(), timeout, is_ours);
            reserving.reservations.freed()
        });
        let mut deciding = locked(&self.deciding);
        deciding.gangs.tidy(&cluster);
        let mut errands: Vec<Errand> = overdue.into_iter().map(|gang| Errand::Dissolve(gang, timeout)).collect();
        errands.extend(mem::take(&mut deciding.abandoned).into_iter().map(Errand::ReportAbandoned));
        errands.extend(deciding.gangs.lone_leaders(&cluster, std::time::Instant::now()).into_iter().map(Errand::ReadStartup));
        errands.extend(deciding.gangs.completed(&cluster).into_iter().map(Errand::Wake));
        errands.extend(deciding.waiting.due(&cluster, freed, room).into_iter().map(Errand::Wake));
        errands
    }
}

/// Whether a pod is placed by a scheduler that calls this extender. After a restart of the extender, the shipped scheduler doesn't call
/// about pods that fit nowhere, and just the gangs with such pods must start again.
fn is_ours(pod: &Pod, schedulers: Option<&BTreeSet<String>>, settings: &Settings) -> bool {
    let is_asking =
        pod.scheduler == permissions::SCHEDULER_PROFILE || schedulers.is_some_and(|schedulers| schedulers.contains(&pod.scheduler));
    is_asking && pod.is_in_scope(settings)
}
