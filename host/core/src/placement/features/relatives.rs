//! The nodes of a pod's relatives: the pods of its owner, and those of its gang.

use super::{
    super::{
        cluster::Cluster,
        pod::{Gang, Pod},
        slots::{FastMap, FastSet},
    },
    facts::{LEVELS, Position},
    nodes::{NodeRoom, Rooms, amount, count, number},
};
use std::collections::BTreeSet;

/// The distance between two nodes that share no level.
const ELSEWHERE: f64 = 5.0;

/// The distances between two nodes that share this level, but no finer one.
const DISTANCES: [f64; LEVELS] = [1.0, 2.0, 3.0, 4.0];

/// The distance between nodes that share these levels.
fn distance(shared: impl IntoIterator<Item = bool>) -> f64 {
    DISTANCES.iter().zip(shared).find_map(|(distance, is_shared)| is_shared.then_some(*distance)).unwrap_or(ELSEWHERE)
}

/// The pods of the same owner.
#[derive(Default)]
pub(super) struct Relatives {
    /// The number of pods with the same role, per node.
    replicas: FastMap<usize, i64>,
    /// The number of pods with the same role, per zone.
    in_zone: FastMap<u64, i64>,
    /// The nodes of pods with another role.
    peer_nodes: FastSet<usize>,
    /// All domains of these nodes.
    peer_domains: FastSet<u64>,
    /// Whether there is a pod with another role, even on an unknown node.
    has_peers: bool,
    /// The lowest number of replicas in a candidate's zone.
    fewest: i64,
}

/// The other members of a pod's gang.
#[derive(Default)]
pub(super) struct GangMembers {
    /// The number of members that it needs; 0 without a gang.
    size: i64,
    placed: i64,
    here: FastMap<usize, i64>,
    /// The nodes of the placed ones; none stands for an unknown node.
    nodes: BTreeSet<Option<usize>>,
    /// The positions of these nodes.
    places: BTreeSet<Position>,
    /// The accelerators that the members without a node still need, including the pod itself.
    needed: i64,
}

/// Whether to count a pod: not if it is terminating, and not the pod in question.
fn counts(other: &Pod, pod: &Pod) -> bool {
    !other.is_leaving && (&other.namespace, &other.name) != (&pod.namespace, &pod.name)
}

impl Relatives {
    pub(super) fn new(cluster: &Cluster, pod: &Pod, rooms: &Rooms<'_>) -> Self {
        let mut found = Self::default();
        let owned = pod.owner.iter().flat_map(|owner| cluster.of_owner(owner));
        for other in owned.filter(|other| counts(other, pod) && !other.node.is_empty()) {
            let at = cluster.names().find(&other.node);
            let place = at.and_then(|at| rooms.get(at)).map(|room| room.basics.place).unwrap_or_default();
            if other.role != pod.role {
                found.has_peers = true;
                found.peer_nodes.extend(at);
                found.peer_domains.extend(place.into_iter().flatten());
            } else if let Some(at) = at {
                *found.replicas.entry(at).or_default() += 1;
                if let Some(zone) = rooms.get(at).and_then(|room| room.basics.zone()) {
                    *found.in_zone.entry(zone).or_default() += 1;
                }
            }
        }
        found
    }

    /// Sets the zones of the candidates for the comparison.
    pub(super) fn set_candidate_zones(&mut self, zones: impl Iterator<Item = u64>) {
        // Without replicas, the minimum is zero.
        if !self.in_zone.is_empty() {
            self.fewest = zones.map(|zone| self.in_zone.get(&zone).copied().unwrap_or_default()).min().unwrap_or_default();
        }
    }

    /// The number of pods with the same owner and role on a node.
    pub(super) fn replicas(&self, at: usize) -> f64 {
        number(self.replicas.get(&at).copied().unwrap_or_default())
    }

    pub(super) fn zone_spread(&self, room: &NodeRoom<'_>) -> f64 {
        room.basics.zone().map_or(f64::NAN, |zone| number(self.in_zone.get(&zone).copied().unwrap_or_default() - self.fewest))
    }

    pub(super) fn peer_distance(&self, at: usize, room: &NodeRoom<'_>) -> f64 {
        if !self.has_peers {
            f64::NAN
        } else if self.peer_nodes.contains(&at) {
            0.0
        } else {
            distance(room.basics.place.iter().map(|domain| domain.is_some_and(|domain| self.peer_domains.contains(&domain))))
        }
    }
}

impl GangMembers {
    pub(super) fn new(cluster: &Cluster, pod: &Pod, kind: Option<&str>, rooms: &Rooms<'_>) -> Self {
        let Some(Gang { name, size, .. }) = &pod.gang else { return Self::default() };
        let own = amount(&pod.requests, kind);
        let mut found = Self { needed: own, ..Self::default() };
        let mut known = 1;
        for other in cluster.gang(&pod.namespace, name).filter(|other| counts(other, pod)) {
            known += 1;
            if other.node.is_empty() {
                found.needed = found.needed.saturating_add(amount(&other.requests, kind));
                continue;
            }
            found.placed += 1;
            let at = cluster.names().find(&other.node);
            if let Some(at) = at {
                *found.here.entry(at).or_default() += 1;
            }
            found.nodes.insert(at);
            found.places.insert(at.and_then(|at| rooms.get(at)).map(|room| room.basics.place).unwrap_or_default());
        }
        found.size = count(*size).max(known);
        // Members that don't exist yet are assumed to need as much as the pod.
        found.needed = found.needed.saturating_add(own.saturating_mul(found.size - known));
        found
    }

    pub(super) fn size(&self) -> f64 {
        number(self.size)
    }

    pub(super) fn placed(&self) -> f64 {
        number(self.placed)
    }

    /// The number of members on a node.
    pub(super) fn here(&self, at: usize) -> f64 {
        number(self.here.get(&at).copied().unwrap_or_default())
    }

    /// The largest distance to a placed member.
    pub(super) fn distance(&self, at: usize, room: &NodeRoom<'_>) -> f64 {
        if self.nodes.iter().eq([&Some(at)]) {
            return 0.0;
        }
        // If members are on other nodes too, the distance to the node itself is never the largest: it shares every level that it has.
        let to = |place: &Position| distance(room.basics.place.iter().zip(place).map(|(own, other)| own.is_some() && own == other));
        self.places.iter().map(to).fold(f64::NAN, f64::max)
    }

    /// The accelerators of a domain that remain free once all members are placed.
    pub(super) fn spare(&self, free: i64) -> f64 {
        if self.size == 0 { f64::NAN } else { number(free.saturating_sub(self.needed)) }
    }
}
