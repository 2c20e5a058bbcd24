//! The members of a gang, and in which order they are placed.

use crate::placement::{
    Cluster, Pod,
    resources::{CPU, MEMORY},
};
use std::cmp::{Ordering, Reverse};

/// The members of a gang, without those that are leaving.
#[derive(Debug, Default)]
pub(super) struct Members<'c> {
    /// How many are wanted. Where members disagree, the largest counts: with fewer the gang could be incomplete.
    pub(super) size: usize,
    smallest: usize,
    /// Those whose objects have a node.
    pub(super) bound: Vec<&'c Pod>,
    /// Those that the scheduler is about to bind.
    pub(super) assumed: Vec<&'c Pod>,
    /// The others, in the order in which they are placed.
    pub(super) unbound: Vec<&'c Pod>,
}

impl<'c> Members<'c> {
    /// The members that the cluster contains, and a pod that the scheduler asks about: what was assumed of it has come to nothing, and the
    /// cluster may not contain it yet.
    pub(super) fn find(cluster: &'c Cluster, namespace: &str, gang: &str, asked: Option<&'c Pod>) -> Self {
        let mut members = Self::default();
        // A pod with the name of the one that is asked about is its predecessor.
        let is_current = |pod: &&Pod| asked.is_none_or(|asked| asked.name != pod.name || asked.uid == pod.uid);
        // What the scheduler that asks never places would be waited for in vain, with room held for it.
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

    /// How many there are.
    pub(super) fn number(&self) -> usize {
        self.bound.len() + self.assumed.len() + self.unbound.len()
    }

    /// How many are yet to be bound.
    pub(super) fn missing(&self) -> usize {
        self.size.saturating_sub(self.bound.len())
    }

    /// How many are yet to get a node.
    pub(super) fn unplaced(&self) -> usize {
        self.missing().saturating_sub(self.assumed.len())
    }

    /// Whether some have nodes, and others wait for theirs. Members that don't exist yet are waited for as long as it takes.
    pub(super) fn are_half(&self) -> bool {
        !self.bound.is_empty() && self.missing() > 0 && !self.unbound.is_empty()
    }

    /// Whether a pod is one of them.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.all().any(|pod| pod.uid == uid)
    }

    /// How many of how many exist.
    pub(super) fn existence(&self) -> String {
        let Self { size, smallest, .. } = self;
        let exist = format!("{} of {size} members exist", self.number());
        if smallest == size { exist } else { format!("{exist}; members specify sizes from {smallest} to {size}; the largest is used") }
    }
}

/// Whether a pod is a member for whose gang nodes are reserved, isn't leaving, and may be placed.
fn counts(pod: &Pod) -> bool {
    !pod.is_leaving && !pod.is_gated && pod.gang.as_ref().is_some_and(|gang| !gang.native)
}

/// Whether a pod is the one that the others of its gang start after.
pub(super) fn leads(pod: &Pod) -> bool {
    pod.gang.as_ref().is_some_and(|gang| gang.leads)
}

/// The leader first, so that the others can go near to it; then what needs most, since it fits on the fewest nodes.
fn order(a: &Pod, b: &Pod) -> Ordering {
    let needs = |pod: &Pod| (pod.accelerator().map_or(0, |(_, number)| number), pod.requests.get(MEMORY), pod.requests.get(CPU));
    let key = |pod: &Pod| Reverse((leads(pod), needs(pod)));
    key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
}
