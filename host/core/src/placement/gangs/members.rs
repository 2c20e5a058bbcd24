//! The members of a gang, and the order in which they are placed.

use crate::placement::{
    Cluster, Pod,
    resources::{CPU, MEMORY},
};
use std::cmp::{Ordering, Reverse};

/// The members of a gang, without those that are terminating.
#[derive(Debug, Default)]
pub(super) struct Members<'c> {
    /// The required number of members. If members disagree, the largest number applies: with a smaller one, the gang could be incomplete.
    pub(super) size: usize,
    smallest: usize,
    /// The members whose objects have a node.
    pub(super) bound: Vec<&'c Pod>,
    /// The members that the scheduler is about to bind.
    pub(super) assumed: Vec<&'c Pod>,
    /// The others, in the order in which they are placed.
    pub(super) unbound: Vec<&'c Pod>,
}

impl<'c> Members<'c> {
    /// Finds the members in the cluster, together with the pod that the scheduler asks about: its assumed node is void, and the cluster may
    /// not contain it yet.
    pub(super) fn find(cluster: &'c Cluster, namespace: &str, gang: &str, asked: Option<&'c Pod>) -> Self {
        let mut members = Self::default();
        // Another pod with the name of the asked one is its predecessor.
        let is_current = |pod: &&Pod| asked.is_none_or(|asked| asked.name != pod.name || asked.uid == pod.uid);
        // A pod that another scheduler places would never be placed by this one, and resources would be held for it in vain.
        let is_placed_by = |pod: &&Pod| !pod.node.is_empty() || asked.is_none_or(|asked| asked.scheduler == pod.scheduler);
        for pod in cluster.gang(namespace, gang).filter(is_current).filter(is_placed_by).filter(|pod| counts(pod)) {
            let is_assumed = cluster.is_assumed(&pod.namespace, &pod.name);
            let is_void = is_assumed && asked.is_some_and(|asked| asked.uid == pod.uid);
            if pod.node.is_empty() || is_void {
                members.unbound.push(pod);
            } else if is_assumed {
                members.assumed.push(pod);
            } else {
                members.bound.push(pod);
            }
        }
        if let Some(asked) = asked.filter(|asked| counts(asked)).filter(|asked| !members.contains(&asked.uid)) {
            members.unbound.push(asked);
        }
        let sizes = || members.all().filter_map(|pod| pod.gang.as_ref()).map(|gang| gang.size);
        let (smallest, size) = (sizes().min().unwrap_or_default(), sizes().max().unwrap_or_default());
        (members.smallest, members.size) = (smallest, size);
        members.unbound.sort_by(|a, b| order(a, b));
        members
    }

    fn all(&self) -> impl Iterator<Item = &'c Pod> {
        self.bound.iter().chain(&self.assumed).chain(&self.unbound).copied()
    }

    /// The number of existing members.
    pub(super) fn number(&self) -> usize {
        self.bound.len() + self.assumed.len() + self.unbound.len()
    }

    /// The number of members that aren't bound yet.
    pub(super) fn missing(&self) -> usize {
        self.size.saturating_sub(self.bound.len())
    }

    /// The number of members without a bound or assumed node.
    pub(super) fn unplaced(&self) -> usize {
        self.missing().saturating_sub(self.assumed.len())
    }

    /// Whether some have nodes and other existing ones wait for theirs. Members that don't exist yet may take any time.
    pub(super) fn are_half(&self) -> bool {
        !self.bound.is_empty() && self.missing() > 0 && !self.unbound.is_empty()
    }

    /// Whether a pod is a member.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.all().any(|pod| pod.uid == uid)
    }

    /// How many members exist, as text.
    pub(super) fn existence(&self) -> String {
        let Self { size, smallest, .. } = self;
        let exist = format!("{} of {size} members exist", self.number());
        if smallest == size { exist } else { format!("{exist}; members specify sizes from {smallest} to {size}; the largest is used") }
    }
}

/// Whether nodes are reserved for a pod's gang and the pod may be placed: it isn't terminating or gated.
fn counts(pod: &Pod) -> bool {
    !pod.is_leaving && !pod.is_gated && pod.gang.as_ref().is_some_and(|gang| !gang.native)
}

/// Whether a pod is the leader of its gang, after which the others start.
pub(super) fn leads(pod: &Pod) -> bool {
    pod.gang.as_ref().is_some_and(|gang| gang.leads)
}

/// The leader comes first, so that the others can be placed near it; then the members with the largest needs, which fit on the fewest
/// nodes.
fn order(a: &Pod, b: &Pod) -> Ordering {
    let needs = |pod: &Pod| (pod.accelerator().map_or(0, |(_, number)| number), pod.requests.get(MEMORY), pod.requests.get(CPU));
    let key = |pod: &Pod| Reverse((leads(pod), needs(pod)));
    key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
}
