//! The free capacity of the nodes: now, and after the models that are stopping have stopped.

use super::{Model, Node, Phase, Refusal, amounts::Amounts};
use crate::key::ObjectKey;
use std::collections::{BTreeMap, HashMap};

/// The nodes with their free capacity, by index.
#[derive(Debug, Default)]
pub(super) struct Room<'a> {
    pub(super) nodes: Vec<(&'a String, &'a Node)>,
    by_name: HashMap<&'a str, usize>,
    /// The total that models may take on each node.
    pub(super) capacity: Vec<Amounts>,
    /// The capacity that is free now.
    pub(super) free: Vec<Amounts>,
    /// The capacity that is free after stopping models have stopped and the models it is held for have started.
    pub(super) later: Vec<Amounts>,
    /// The nodes that each distinct selector matches.
    pub(super) pools: Vec<Vec<usize>>,
    /// The pool of each model, as an index into `pools`.
    pub(super) pool_of: Vec<usize>,
    /// The models with a reservation on each node.
    pub(super) placed: Vec<Vec<usize>>,
}

impl<'a> Room<'a> {
    pub(super) fn new(nodes: &'a BTreeMap<String, Node>, models: &[(&'a ObjectKey, &'a Model)]) -> Self {
        let nodes: Vec<_> = nodes.iter().collect();
        let by_name = nodes.iter().enumerate().map(|(at, (name, _))| (name.as_str(), at)).collect();
        let capacity: Vec<Amounts> = nodes.iter().map(|(_, node)| node.capacity()).collect();
        let mut room = Self {
            by_name,
            free: capacity.clone(),
            later: capacity.clone(),
            capacity,
            placed: vec![Vec::new(); nodes.len()],
            nodes,
            ..Self::default()
        };
        let mut known: HashMap<&BTreeMap<String, String>, usize> = HashMap::new();
        for (at, (_, model)) in models.iter().enumerate() {
            let pool = *known.entry(&model.selector).or_insert_with(|| {
                room.pools.push(room.matched(&model.selector));
                room.pools.len() - 1
            });
            room.pool_of.push(pool);
            room.occupy(at, model);
        }
        room
    }

    fn matched(&self, selector: &BTreeMap<String, String>) -> Vec<usize> {
        let matches = |node: &Node| selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        self.nodes.iter().enumerate().filter(|(_, (_, node))| matches(node)).map(|(at, _)| at).collect()
    }

    /// Subtracts what a model takes. Its pods count in addition to its reservation, because a pod can outlive its reservation.
    fn occupy(&mut self, at: usize, model: &Model) {
        let mut pods: BTreeMap<usize, Amounts> = BTreeMap::new();
        for (node, amounts) in &model.pods {
            if let Some(node) = self.find(node) {
                *pods.entry(node).or_default() += *amounts;
            }
        }
        let held = model.held.as_ref().and_then(|held| Some((self.find(&held.node)?, held)));
        for (&node, &amounts) in &pods {
            let beside = held.filter(|(place, _)| *place == node).map_or(Amounts::default(), |(_, held)| held.amounts);
            self.free[node] -= amounts.max(beside) - beside;
            // A pod without an admitted reservation on this node will stop.
            self.later[node] -= if held.is_some_and(|(place, held)| place == node && held.phase == Phase::Admitted) {
                amounts.max(beside) - beside
            } else {
                Amounts::default()
            };
        }
        if let Some((node, held)) = held {
            self.free[node] -= held.amounts;
            self.placed[node].push(at);
            if held.phase == Phase::Admitted {
                self.later[node] -= held.amounts;
            }
        }
    }

    /// What a model's pods take on a node.
    pub(super) fn pods(&self, node: usize, model: &Model) -> Amounts {
        let here = model.pods.iter().filter(|(name, _)| self.find(name) == Some(node));
        here.fold(Amounts::default(), |sum, (_, amounts)| sum + *amounts)
    }

    /// Subtracts what a model is about to take: from `later`, and from `free` unless other models must stop first.
    pub(super) fn take(&mut self, node: usize, amounts: Amounts, now: bool) {
        if now {
            self.free[node] -= amounts;
        }
        self.later[node] -= amounts;
    }

    /// Undoes `take`.
    pub(super) fn give_back(&mut self, node: usize, amounts: Amounts, now: bool) {
        self.take(node, Amounts::default() - amounts, now);
    }

    pub(super) fn find(&self, node: &str) -> Option<usize> {
        self.by_name.get(node).copied()
    }

    /// Whether a node accepts a new pod of a model.
    pub(super) fn takes(&self, node: usize, model: &Model) -> bool {
        let node = self.nodes[node].1;
        node.closed.is_none() && node.taints.iter().all(|taint| model.tolerations.contains(taint))
    }

    /// Why no node could run a model, even if it were empty.
    pub(super) fn refusal(&self, at: usize, model: &Model) -> Option<Refusal> {
        let pool = &self.pools[self.pool_of[at]];
        if pool.iter().any(|&node| model.needs.fit(self.capacity[node])) {
            return None;
        }
        let largest = pool.iter().copied().max_by_key(|&node| (self.capacity[node].memory, std::cmp::Reverse(node)));
        Some(largest.map_or(Refusal::NoNodes, |node| Refusal::TooLarge { node: self.nodes[node].0.clone(), capacity: self.capacity[node] }))
    }

    /// The nodes with capacity for a model, now or later, by name.
    pub(super) fn with_room(&self, at: usize, model: &Model, now: bool) -> Vec<usize> {
        let fits = |&node: &usize| model.needs.fit(self.left(node, now)) && self.takes(node, model);
        self.pools[self.pool_of[at]].iter().copied().filter(fits).collect()
    }

    /// The capacity that is left on a node, now or later.
    fn left(&self, node: usize, now: bool) -> Amounts {
        if now { self.free[node].min(self.later[node]) } else { self.later[node] }
    }

    /// What models take on a node, now or later.
    pub(super) fn taken(&self, node: usize, now: bool) -> Amounts {
        self.capacity[node] - self.left(node, now)
    }

    /// The share of a pool's memory that is taken.
    pub(super) fn pressure(&self, pool: usize) -> f64 {
        let nodes = &self.pools[pool];
        let sum = |amounts: &[Amounts]| nodes.iter().map(|&node| amounts[node].memory.max(0)).sum::<i64>();
        let (capacity, later) = (sum(&self.capacity), sum(&self.later));
        #[allow(clippy::cast_precision_loss, reason = "a share needs no more digits")]
        if capacity == 0 { 1.0 } else { 1.0 - later as f64 / capacity as f64 }
    }
}
