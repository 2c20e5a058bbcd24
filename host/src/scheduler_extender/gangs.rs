//! Gangs that a scheduler has asked about: how far they are, and the end of those that can't become whole.

use super::{Deciding, Extender, unix_now};
use crate::{
    permissions,
    problem::{is_forbidden, sentence},
};
use k8s_openapi::api::core::v1::{self, ObjectReference};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use pointsman_core::placement::{
    Cluster, Pod, PodKey, Settings,
    gangs::{Overdue, Verdict},
};
use pointsman_sandbox::{digest::Digest, sync::locked};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// How often it is looked what is over.
const TIDY_INTERVAL: Duration = Duration::from_secs(1);

/// The scheduler that `deploy/scheduler` installs. After a restart of the extender it doesn't ask about pods that fit nowhere, and gangs of
/// which some pods fit nowhere are those that start over.
const PROFILE: &str = "pointsman";

/// How many further schedulers are noted.
const MAX_SCHEDULERS: usize = 64;

/// The annotation of a pod that the scheduler is to ask about again: when that was.
const ASKED_AGAIN: &str = "pointsman.dev/asked-again";

/// How long a call of the API server may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason of events.
const DISSOLVED: &str = "GangDissolved";

/// The namespace and the name of a gang.
type GangKey = (String, String);

/// What the members of a gang were answered with last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GangAnswer {
    Reserved,
    Waits,
}

/// A gang that a scheduler has asked about.
#[derive(Clone, Copy, Debug)]
struct AskedGang {
    answer: GangAnswer,
    /// Whether all of its members were there when it was looked at last.
    was_complete: bool,
}

/// The gangs that a scheduler has asked about.
#[derive(Debug, Default)]
pub(super) struct AskedGangs(BTreeMap<GangKey, AskedGang>);

impl AskedGangs {
    /// Takes what a member was answered with.
    pub(super) fn note(&mut self, pod: &Pod, verdict: &Verdict) {
        let answer = match verdict {
            Verdict::Free => return,
            Verdict::Node(_) => GangAnswer::Reserved,
            Verdict::Wait(_) => GangAnswer::Waits,
        };
        if let Some(gang) = &pod.gang {
            let key = (pod.namespace.clone(), gang.name.clone());
            self.0.entry(key).or_insert(AskedGang { answer, was_complete: false }).answer = answer;
        }
    }

    /// Of each gang that waits and whose last member is there now, the name of a member without a node.
    fn completed(&mut self, cluster: &Cluster) -> Vec<PodKey> {
        let mut completed = Vec::new();
        for ((namespace, name), asked) in &mut self.0 {
            let counts = |pod: &&Pod| !pod.is_leaving && !pod.is_gated;
            let Progress { size, members, .. } = Progress::new(cluster.gang(namespace, name).filter(counts));
            let is_complete = members >= size;
            let was_complete = mem::replace(&mut asked.was_complete, is_complete);
            if is_complete && !was_complete && asked.answer == GangAnswer::Waits {
                completed.extend(cluster.gang(namespace, name).filter(counts).find(|pod| pod.node.is_empty()).map(Pod::key));
            }
        }
        completed
    }

    /// Forgets those that have no members any more.
    fn tidy(&mut self, cluster: &Cluster) {
        self.0.retain(|(namespace, name), _| cluster.gang(namespace, name).next().is_some());
    }

    /// How many are how far.
    pub(super) fn counts(&self, cluster: &Cluster) -> [(&'static str, u64); 3] {
        let [mut waiting, mut reserved, mut whole] = [0; 3];
        for ((namespace, name), asked) in &self.0 {
            if is_whole(cluster, namespace, name) {
                whole += 1;
            } else if asked.answer == GangAnswer::Reserved {
                reserved += 1;
            } else {
                waiting += 1;
            }
        }
        [("waiting", waiting), ("reserved", reserved), ("whole", whole)]
    }
}

/// How far a gang is.
#[derive(Default)]
struct Progress {
    /// How many members it wants; 0 if none of them says so.
    size: usize,
    members: usize,
    /// How many of them have a node.
    placed: usize,
}

impl Progress {
    fn new<'p>(members: impl Iterator<Item = &'p Pod>) -> Self {
        members.fold(Self::default(), |Self { size, members, placed }, pod| Self {
            size: pod.gang.as_ref().map_or(size, |gang| gang.size.max(size)),
            members: members + 1,
            placed: placed + usize::from(!pod.node.is_empty()),
        })
    }
}

/// Whether all members of a gang have nodes.
pub(super) fn is_whole(cluster: &Cluster, namespace: &str, name: &str) -> bool {
    let Progress { size, members, placed } = Progress::new(cluster.gang(namespace, name).filter(|pod| !pod.is_leaving));
    // Kubernetes' own gangs don't say how large they are.
    placed > 0 && placed >= size && (size > 0 || placed == members)
}

/// Deletes the placed members of gangs that can't become whole, so that they start over.
pub struct Dissolver {
    client: Client,
    recorder: Recorder,
    complained: AtomicBool,
}

impl fmt::Debug for Dissolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dissolver").finish_non_exhaustive()
    }
}

impl Dissolver {
    /// By this client; `identity` is who reports it.
    pub fn new(client: Client, identity: String) -> Self {
        let reporter = Reporter { controller: "pointsman-scheduler-extender".to_owned(), instance: Some(identity) };
        Self { recorder: Recorder::new(client.clone(), reporter), client, complained: AtomicBool::default() }
    }

    async fn dissolve(&self, gang: &Overdue, timeout: u64, is_ready: impl Fn(&str, &str, &str) -> bool) -> bool {
        let Overdue { namespace, gang: name, size, placed } = gang;
        let number = placed.len();
        let words = format!("{number} of the {size} members of the gang {name} had nodes for {timeout} s, and the others found none");
        tracing::info!(namespace, "{words}: those with nodes are deleted, so that the gang starts over");
        let note = format!("{words}: this pod is deleted, so that all of them start over.");
        let mut is_dissolved = false;
        for (namespace, pod, uid) in placed {
            // A gang that has begun to work isn't stopped.
            if is_ready(namespace, pod, uid) {
                tracing::info!(namespace, pod, "a member has become ready meanwhile: the gang stays");
                return is_dissolved;
            }
            is_dissolved |= self.delete(namespace, pod, uid, &note).await;
        }
        is_dissolved
    }

    /// Has the scheduler ask about a pod again: nothing but an event of the cluster brings it to, and that the last member is known here is none.
    async fn wake(&self, (namespace, pod): &PodKey) {
        let patch = json!({"metadata": {"annotations": {ASKED_AGAIN: unix_now().to_string()}}});
        let api = Api::<v1::Pod>::namespaced(self.client.clone(), namespace);
        let patched = timeout(CALL_TIMEOUT, api.patch_metadata(pod, &PatchParams::default(), &Patch::Merge(patch))).await;
        match patched {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(namespace, pod, error = sentence(&error), "a member of a gang can't be annotated"),
            Err(_) => tracing::warn!(namespace, pod, "a member of a gang can't be annotated: the API server doesn't answer in time"),
        }
    }

    async fn delete(&self, namespace: &str, pod: &str, uid: &str, note: &str) -> bool {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match Api::<v1::Pod>::namespaced(self.client.clone(), namespace).delete(pod, &params).await {
            Ok(_) => {}
            // It is gone, or another one has its name.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => return false,
            Err(error) => {
                if !self.complained.swap(true, Ordering::Relaxed) {
                    let remedy = if is_forbidden(&error) { format!(": apply deploy/{}", permissions::SCHEDULER) } else { String::new() };
                    tracing::warn!(namespace, pod, error = sentence(&error), "a member of a gang can't be deleted{remedy}");
                }
                return false;
            }
        }
        self.complained.store(false, Ordering::Relaxed);
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(pod.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let (reason, action) = (DISSOLVED.to_owned(), "Scheduling".to_owned());
        let event = Event { type_: EventType::Warning, reason, note: Some(note.to_owned()), action, secondary: None };
        if let Err(error) = self.recorder.publish(&event, &reference).await {
            tracing::warn!(namespace, pod, error = sentence(&error), "an event could not be written");
        }
        true
    }
}

impl Extender {
    /// Drops what is over, and dissolves gangs whose time is up. It never ends by itself.
    pub async fn tidy(self: Arc<Self>, dissolver: Dissolver) {
        let mut ticks = interval(TIDY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // What isn't listed looks as if it were gone.
            if self.obstacle().is_some() {
                continue;
            }
            for pod in self.completed_gangs() {
                dissolver.wake(&pod).await;
            }
            let settings = Arc::clone(&self.cache.load().settings);
            let timeout = settings.gang_timeout_seconds;
            for gang in self.overdue(&settings) {
                let is_ready = |namespace: &str, name: &str, uid: &str| {
                    let cache = self.cache.load();
                    let seen = cache.watched.lock();
                    seen.cluster.pod(namespace, name).is_some_and(|pod| pod.uid == uid && pod.is_ready)
                };
                if dissolver.dissolve(&gang, timeout, is_ready).await {
                    self.counts.dissolved();
                }
            }
        }
    }

    fn completed_gangs(&self) -> Vec<PodKey> {
        let cluster = self.cache.load().watched.lock().cluster.clone();
        locked(&self.deciding).gangs.completed(&cluster)
    }

    fn overdue(&self, settings: &Settings) -> Vec<Overdue> {
        let cluster = {
            let cache = self.cache.load();
            let mut seen = cache.watched.lock();
            seen.tidy(Instant::now());
            seen.cluster.clone()
        };
        let mut deciding = locked(&self.deciding);
        deciding.gangs.tidy(&cluster);
        deciding.expire(&cluster, settings);
        mem::take(&mut deciding.overdue)
    }
}

impl Deciding {
    /// Has gangs that have found no nodes tried again if another policy set decides.
    pub(super) fn note_set(&mut self, set: Digest) {
        if self.set.replace(set).is_some_and(|before| before != set) {
            self.reservations.retry();
        }
    }

    /// Notes which scheduler asks. Anybody can write a name into a pod, and no cluster has many.
    pub(super) fn note_scheduler(&mut self, pod: &Pod) {
        if self.schedulers.len() < MAX_SCHEDULERS && !self.schedulers.contains(&pod.scheduler) {
            self.schedulers.insert(pod.scheduler.clone());
        }
    }

    /// Drops reservations that are over, and notes which gangs are to be dissolved.
    pub(super) fn expire(&mut self, cluster: &Cluster, settings: &Settings) {
        let Self { reservations, schedulers, dissolves, .. } = self;
        let is_asking = |scheduler: &str| scheduler == PROFILE || schedulers.contains(scheduler);
        let is_ours = |pod: &Pod| is_asking(&pod.scheduler) && pod.is_in_scope(settings);
        let is_ours = dissolves.then_some(&is_ours as &dyn Fn(&Pod) -> bool);
        let overdue = reservations.expire(cluster, unix_now(), settings.gang_timeout_seconds, is_ours);
        self.overdue.extend(overdue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str) -> Pod {
        let pod = json!({
            "metadata": {"name": name, "namespace": "chat", "uid": name, "labels": {"pointsman.dev/gang": "g", "pointsman.dev/gang-size": "2"}},
            "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        });
        Pod::from_value(&pod).unwrap()
    }

    #[test]
    fn a_gang_that_waits_is_asked_about_again_once_when_its_last_member_comes() {
        let mut gangs = AskedGangs::default();
        let mut cluster = Cluster::default();
        cluster.put_pod(pod("a", ""));
        gangs.note(&pod("a", ""), &Verdict::Wait("it waits".to_owned()));
        assert!(gangs.completed(&cluster).is_empty());
        cluster.put_pod(pod("b", ""));
        assert_eq!(gangs.completed(&cluster).len(), 1);
        gangs.note(&pod("a", ""), &Verdict::Wait("it waits".to_owned()));
        assert!(gangs.completed(&cluster).is_empty());
        cluster.remove_pod("chat", "b");
        assert!(gangs.completed(&cluster).is_empty());
        cluster.put_pod(pod("b", ""));
        gangs.note(&pod("a", ""), &Verdict::Node("n1".to_owned()));
        assert!(gangs.completed(&cluster).is_empty());
    }

    #[test]
    fn gangs_are_counted_by_how_far_they_are() {
        let mut gangs = AskedGangs::default();
        let mut cluster = Cluster::default();
        cluster.put_pod(pod("a", "n1"));
        cluster.put_pod(pod("b", ""));
        gangs.note(&pod("b", ""), &Verdict::Free);
        assert_eq!(gangs.counts(&cluster), [("waiting", 0), ("reserved", 0), ("whole", 0)]);
        gangs.note(&pod("b", ""), &Verdict::Wait("it waits".to_owned()));
        assert_eq!(gangs.counts(&cluster), [("waiting", 1), ("reserved", 0), ("whole", 0)]);
        gangs.note(&pod("b", ""), &Verdict::Node("n1".to_owned()));
        assert_eq!(gangs.counts(&cluster), [("waiting", 0), ("reserved", 1), ("whole", 0)]);
        cluster.put_pod(pod("b", "n1"));
        assert_eq!(gangs.counts(&cluster), [("waiting", 0), ("reserved", 0), ("whole", 1)]);
        cluster.remove_pod("chat", "a");
        gangs.tidy(&cluster);
        assert_eq!(gangs.counts(&cluster), [("waiting", 0), ("reserved", 1), ("whole", 0)]);
        cluster.remove_pod("chat", "b");
        gangs.tidy(&cluster);
        assert!(gangs.0.is_empty());
    }
}
