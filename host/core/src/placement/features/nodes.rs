//! The free resources of each node and each domain: one pass over the cluster's nodes for all rows of a question.

use super::{
    super::{
        cluster::{Cluster, NodeState},
        pod::Pod,
        resources::Resources,
        settings::Settings,
        slots::FastMap,
        usage::Usage,
    },
    facts::{LEVELS, NodeBasics, NodeFacts, word},
};
use std::borrow::Cow;

/// A node of the cluster, without the pod in question and minus the reservations of gangs.
pub(super) struct NodeRoom<'c> {
    pub(super) state: &'c NodeState,
    pub(super) basics: &'c NodeBasics,
    /// The other facts of the node, behind one more pointer than the basics.
    pub(super) facts: &'c NodeFacts,
    pub(super) free_cpu: i64,
    pub(super) free_memory: i64,
    /// Its accelerators of the requested kind.
    pub(super) accelerators: i64,
    pub(super) free_accelerators: i64,
    /// Whether it has any, and none of any kind is taken.
    pub(super) is_whole: bool,
    /// Whether the pod in question is already counted on it.
    pub(super) has_pod: bool,
}

/// The nodes of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Domain {
    pub(super) accelerators: i64,
    pub(super) taken: i64,
    /// The free ones on nodes that aren't cordoned.
    pub(super) free: i64,
    /// The number of nodes that aren't cordoned and from which nothing is taken.
    pub(super) whole_nodes: i64,
}

/// All nodes of the cluster.
pub(super) struct Rooms<'c> {
    /// By index in the cluster; none if the node is unknown.
    nodes: Vec<Option<NodeRoom<'c>>>,
    domains: FastMap<u64, Domain>,
    /// The share of the cluster's accelerators of this kind that is taken.
    pub(super) pressure: f64,
}

/// An amount as a float.
#[allow(clippy::cast_precision_loss, reason = "bytes beyond 2^53 need no more digits")]
pub(super) fn number(amount: i64) -> f64 {
    amount as f64
}

/// A number of items as an integer.
pub(super) fn count(things: usize) -> i64 {
    i64::try_from(things).unwrap_or(i64::MAX)
}

/// A part's share of a whole; 0 if the whole is 0.
pub(super) fn share(part: i64, whole: i64) -> f64 {
    if whole > 0 { number(part) / number(whole) } else { 0.0 }
}

/// The amount of accelerators of this kind, or of all kinds if the pod requests none.
pub(super) fn amount(resources: &Resources, kind: Option<&str>) -> i64 {
    kind.map_or_else(|| resources.accelerators(), |kind| resources.get(kind))
}

impl NodeRoom<'_> {
    /// The number of free accelerators that are certainly linked to each other: the minimum on the fullest island for any distribution. The
    /// last island may be smaller.
    pub(super) fn adjacent(&self) -> f64 {
        let Some(island) = self.basics.island else { return f64::NAN };
        let free = self.free_accelerators.clamp(0, self.accelerators.max(0));
        let (islands, rest) = (self.accelerators / island, self.accelerators % island);
        let evenly = |free: i64, islands: i64| if islands > 0 { free / islands + i64::from(free % islands > 0) } else { 0 };
        let in_each = evenly(free, islands + i64::from(rest > 0));
        // The last island can't hold that many, so the others hold more.
        number(if rest > 0 && in_each > rest { evenly(free - rest, islands) } else { in_each })
    }
}

impl<'c> Rooms<'c> {
    pub(super) fn new(
        cluster: &'c Cluster,
        settings: &Settings,
        pod: &Pod,
        kind: Option<&str>,
        reserved: &dyn Fn(&str) -> Option<Resources>,
    ) -> Self {
        let own = cluster.pod(&pod.namespace, &pod.name).filter(|known| !known.node.is_empty());
        let own_place = own.and_then(|own| cluster.names().find(&own.node));
        let kind = kind.map(word);
        let mut all = Domain::default();
        let places = 0..cluster.names().len();
        let nodes = places.map(|at| {
            let (name, state) = cluster.names().get(at).zip(cluster.node_at(at))?;
            let own = own.filter(|_| own_place == Some(at));
            let room = NodeRoom::new(state, settings, own, kind, reserved(name).as_ref());
            all.add(&room);
            Some(room)
        });
        let mut rooms = Self { nodes: nodes.collect(), domains: FastMap::default(), pressure: 0.0 };
        rooms.pressure = share(all.taken, all.accelerators);
        rooms.add_domains();
        rooms
    }

    /// Sums up the nodes at the levels that are some node's finest. A domain contains all nodes with its label, including those that are
    /// also in a finer one.
    fn add_domains(&mut self) {
        let mut is_finest = [false; LEVELS];
        for level in self.nodes.iter().flatten().filter_map(|room| room.basics.place.iter().position(Option::is_some)) {
            is_finest[level] = true;
        }
        for room in self.nodes.iter().flatten() {
            let domains = room.basics.place.iter().zip(is_finest).filter_map(|(domain, is_finest)| domain.filter(|_| is_finest));
            for domain in domains {
                self.domains.entry(domain).or_default().add(room);
            }
        }
    }

    /// The node at an index of the cluster.
    pub(super) fn get(&self, at: usize) -> Option<&NodeRoom<'c>> {
        self.nodes.get(at)?.as_ref()
    }

    pub(super) fn domain(&self, room: &NodeRoom<'_>) -> Option<Domain> {
        self.domains.get(&room.basics.domain()?).copied()
    }
}

impl<'c> NodeRoom<'c> {
    /// The node without the pod in question and minus the reservations for others. `kind` is the word for the kind of accelerators.
    fn new(state: &'c NodeState, settings: &Settings, own: Option<&Pod>, kind: Option<u64>, held: Option<&Resources>) -> Self {
        let kept = Usage::for_state(state, settings);
        let usage = if held.is_none() && own.is_none() {
            Cow::Borrowed(kept)
        } else {
            Cow::Owned(Usage::new(&kept.facts, |resource| {
                let held = held.map_or(0, |held| held.get(resource));
                let own = own.map_or(0, |own| own.requests.get(resource));
                state.taken.get(resource).saturating_add(held).saturating_sub(own)
            }))
        };
        let (mut accelerators, mut taken_accelerators, mut is_whole) = (0_i64, 0_i64, true);
        for own in &usage.accelerators {
            is_whole &= own.taken <= 0;
            if kind.is_none_or(|kind| kind == own.kind) {
                accelerators = accelerators.saturating_add(own.amount);
                taken_accelerators = taken_accelerators.saturating_add(own.taken);
            }
        }
        let basics = &kept.basics;
        Self {
            state,
            basics,
            facts: &kept.facts,
            free_cpu: basics.cpu.saturating_sub(usage.cpu),
            free_memory: basics.memory.saturating_sub(usage.memory),
            accelerators,
            free_accelerators: accelerators.saturating_sub(taken_accelerators),
            is_whole: is_whole && accelerators > 0,
            has_pod: own.is_some(),
        }
    }
}

impl Domain {
    fn add(&mut self, room: &NodeRoom<'_>) {
        let free = room.free_accelerators.clamp(0, room.accelerators);
        self.accelerators = self.accelerators.saturating_add(room.accelerators);
        self.taken = self.taken.saturating_add(room.accelerators - free);
        if !room.basics.is_cordoned {
            self.free = self.free.saturating_add(free);
            self.whole_nodes += i64::from(room.is_whole);
        }
    }
}
