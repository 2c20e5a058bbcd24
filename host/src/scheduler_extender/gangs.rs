//! The gangs of a scheduler's calls, and their progress.

use pointsman_core::placement::{Cluster, Pod, PodKey, gangs::Verdict};
use std::{
    collections::BTreeMap,
    mem,
    time::{Duration, Instant},
};

/// The interval of checks whether the LeaderWorkerSet of a waiting leader creates its workers only once the leader is Ready.
const STARTUP_INTERVAL: Duration = Duration::from_secs(30);

/// The prefix of the name of a LeaderWorkerSet's gang, before the set's name and the group's number.
const SET_PREFIX: &str = "lws/";

/// The namespace and the name of a gang.
pub(super) type GangKey = (String, String);

/// The last response for a gang's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GangAnswer {
    Reserved,
    Waits,
}

/// A gang that a scheduler has called about.
#[derive(Clone, Copy, Debug)]
struct AskedGang {
    answer: GangAnswer,
    /// Whether all of its members existed at the last check.
    was_complete: bool,
    /// When its LeaderWorkerSet was last read.
    startup_read: Option<Instant>,
}

impl AskedGang {
    fn new(answer: GangAnswer) -> Self {
        Self { answer, was_complete: false, startup_read: None }
    }
}

/// A gang of which only the leader exists, and waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoneLeader {
    pub(super) gang: GangKey,
    /// The name of its LeaderWorkerSet.
    pub(super) set: String,
    /// The name of the leader.
    pub(super) pod: String,
}

/// The gangs that a scheduler has called about.
#[derive(Debug, Default)]
pub(super) struct AskedGangs(BTreeMap<GangKey, AskedGang>);

impl AskedGangs {
    /// Records the response for a member.
    pub(super) fn note(&mut self, pod: &Pod, verdict: &Verdict) {
        let answer = match verdict {
            Verdict::Free => return,
            Verdict::Node(_) => GangAnswer::Reserved,
            Verdict::Wait(_) => GangAnswer::Waits,
        };
        if let Some(gang) = &pod.gang {
            let key = (pod.namespace.clone(), gang.name.clone());
            self.0.entry(key).or_insert(AskedGang::new(answer)).answer = answer;
        }
    }

    /// Records that no pod is preempted for a member, whose gang may be new.
    pub(super) fn note_waiting(&mut self, pod: &Pod) {
        if let Some(gang) = &pod.gang {
            self.0.entry((pod.namespace.clone(), gang.name.clone())).or_insert(AskedGang::new(GangAnswer::Waits));
        }
    }

    /// For each waiting gang whose last member now exists, the name of a member without a node.
    pub(super) fn completed(&mut self, cluster: &Cluster) -> Vec<PodKey> {
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

    /// The gangs of which only the leader exists, each at intervals: their LeaderWorkerSet may create the workers only once the leader is
    /// Ready.
    pub(super) fn lone_leaders(&mut self, cluster: &Cluster, now: Instant) -> Vec<LoneLeader> {
        let mut alone = Vec::new();
        for ((namespace, name), asked) in &mut self.0 {
            let is_due = asked.startup_read.is_none_or(|at| now.duration_since(at) >= STARTUP_INTERVAL);
            let set = name.strip_prefix(SET_PREFIX).and_then(|rest| rest.rsplit_once('/')).map(|(set, _)| set);
            let (Some(set), true, GangAnswer::Waits) = (set, is_due, asked.answer) else { continue };
            let mut members = cluster.gang(namespace, name).filter(|pod| !pod.is_leaving);
            let leads = |pod: &&Pod| pod.node.is_empty() && pod.gang.as_ref().is_some_and(|gang| gang.leads);
            if let (Some(leader), None) = (members.next().filter(leads), members.next()) {
                asked.startup_read = Some(now);
                alone.push(LoneLeader { gang: (namespace.clone(), name.clone()), set: set.to_owned(), pod: leader.name.clone() });
            }
        }
        alone
    }

    /// Removes the gangs without members.
    pub(super) fn tidy(&mut self, cluster: &Cluster) {
        self.0.retain(|(namespace, name), _| cluster.gang(namespace, name).next().is_some());
    }

    /// The number of gangs by progress.
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

/// The progress of a gang.
#[derive(Default)]
struct Progress {
    /// The number of members it needs; 0 if none of them states it.
    size: usize,
    members: usize,
    /// The number of members with a node.
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
    // Kubernetes' own gangs don't state their size.
    placed > 0 && placed >= size && (size > 0 || placed == members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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

    #[test]
    fn how_a_leader_that_waits_alone_starts_is_read_once_in_a_while() {
        let member = |index: &str| {
            let labels = json!({
                "leaderworkerset.sigs.k8s.io/name": "chat", "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/worker-index": index,
            });
            let annotations = json!({"leaderworkerset.sigs.k8s.io/size": "2"});
            let metadata =
                json!({"name": format!("chat-{index}"), "namespace": "ml", "uid": index, "labels": labels, "annotations": annotations});
            Pod::from_value(&json!({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}})).unwrap()
        };
        let (mut gangs, mut cluster, now) = (AskedGangs::default(), Cluster::default(), Instant::now());
        cluster.put_pod(member("0"));
        gangs.note(&member("0"), &Verdict::Wait("it waits".to_owned()));
        let alone = gangs.lone_leaders(&cluster, now);
        assert_eq!((alone[0].set.as_str(), alone[0].pod.as_str(), alone.len()), ("chat", "chat-0", 1));
        assert!(gangs.lone_leaders(&cluster, now).is_empty());
        assert_eq!(gangs.lone_leaders(&cluster, now + STARTUP_INTERVAL), alone);
        cluster.put_pod(member("1"));
        assert!(gangs.lone_leaders(&cluster, now + 2 * STARTUP_INTERVAL).is_empty());
    }
}
