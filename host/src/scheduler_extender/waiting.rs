//! Pods for which no node was left. A scheduler retries them only after an event of the cluster; the end of a reservation or another policy
//! set is no such event.

use pointsman_core::placement::{Cluster, Pod, PodKey};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

/// The maximum number of recorded pods. A scheduler retries the others after five minutes.
const MAX_WAITING: usize = 4096;

/// Before all keys.
static NOTHING: PodKey = (String::new(), String::new());

/// The recorded pods.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pods: BTreeMap<PodKey, Since>,
    /// The last pod that was due: those after it come next, so that none is skipped while others become due again and again.
    last: Option<PodKey>,
}

/// The state when no node was left.
#[derive(Debug)]
struct Since {
    uid: String,
    /// [`Reservations::freed`](pointsman_core::placement::gangs::Reservations::freed); none if the search for a node continues.
    freed: Option<u64>,
}

impl Waiting {
    /// Records that no node was left for a pod.
    pub(super) fn note(&mut self, pod: &Pod, freed: Option<u64>) {
        let key = pod.key();
        if self.pods.len() < MAX_WAITING || self.pods.contains_key(&key) {
            self.pods.insert(key, Since { uid: pod.uid.clone(), freed });
        }
    }

    /// Records that there was a node.
    pub(super) fn forget(&mut self, pod: &Pod) {
        self.pods.remove(&pod.key());
    }

    /// At most `most` pods that may find a node now and didn't before. Only one of each gang, because the others follow it.
    pub(super) fn due(&mut self, cluster: &Cluster, freed: u64, most: usize) -> Vec<PodKey> {
        let known = |key: &PodKey, since: &Since| cluster.pod(&key.0, &key.1).filter(|pod| pod.uid == since.uid && pod.node.is_empty());
        self.pods.retain(|key, since| known(key, since).is_some());
        let start = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let end = self.last.as_ref().map_or(Bound::Excluded(&NOTHING), Bound::Included);
        let ordered = self.pods.range::<PodKey, _>((start, Bound::Unbounded)).chain(self.pods.range::<PodKey, _>((Bound::Unbounded, end)));
        let next: Vec<PodKey> = ordered.filter(|(_, since)| since.freed != Some(freed)).map(|(key, _)| key.clone()).collect();
        let (mut due, mut gangs) = (Vec::new(), BTreeSet::new());
        for key in next {
            if due.len() >= most {
                break;
            }
            if let Some(since) = self.pods.get_mut(&key) {
                since.freed = Some(freed);
            }
            self.last = Some(key.clone());
            let gang = cluster.pod(&key.0, &key.1).and_then(|pod| pod.gang.as_ref());
            if gang.is_none_or(|gang| gangs.insert((key.0.clone(), gang.name.clone()))) {
                due.push(key);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::placement::Gang;

    fn pod(name: &str, gang: Option<&str>) -> Pod {
        let gang = gang.map(|name| Gang { name: name.to_owned(), size: 2, leads: false, native: false });
        Pod { uid: name.to_owned(), namespace: "ml".to_owned(), name: name.to_owned(), gang, ..Pod::default() }
    }

    #[test]
    fn pods_are_due_once_something_is_free_and_one_of_each_gang() {
        let (mut waiting, mut cluster) = (Waiting::default(), Cluster::default());
        for pod in [pod("a", None), pod("b", None), pod("g1", Some("g")), pod("g2", Some("g"))] {
            waiting.note(&pod, Some(1));
            cluster.put_pod(pod);
        }
        assert!(waiting.due(&cluster, 1, 10).is_empty());
        let names = |due: Vec<PodKey>| due.into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(waiting.due(&cluster, 2, 1)), ["a"]);
        assert_eq!(names(waiting.due(&cluster, 2, 10)), ["b", "g1"], "the others come later, and none is lost");
        assert!(waiting.due(&cluster, 2, 10).is_empty());
        // A continuing search is due at once; a pod that is gone or has a node never again.
        waiting.note(&pod("g2", Some("g")), None);
        assert_eq!(names(waiting.due(&cluster, 2, 10)), ["g2"]);
        cluster.put_pod(Pod { node: "n".to_owned(), ..pod("a", None) });
        cluster.remove_pod("ml", "b");
        waiting.forget(&pod("g1", Some("g")));
        assert_eq!(names(waiting.due(&cluster, 3, 10)), ["g2"]);
        assert_eq!(waiting.pods.len(), 1);
    }
}
