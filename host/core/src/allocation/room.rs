//! What is free on the nodes: now, and once those have gone that are on their way.

use super::{Model, Node, Phase, Refusal, amounts::Amounts};
use crate::key::ObjectKey;
use std::collections::{BTreeMap, HashMap};

/// The nodes with what is free on them, by their positions.
#[derive(Debug, Default)]
pub(super) struct Room<'a> {
    pub(super) nodes: Vec<(&'a String, &'a Node)>,
    by_name: HashMap<&'a str, usize>,
    /// What models may take of each in all.
    pub(super) capacity: Vec<Amounts>,
    /// What is free now.
    pub(super) free: Vec<Amounts>,
    /// What is free once those have gone that are on their way, and those have come that this is kept for.
    pub(super) later: Vec<Amounts>,
    /// The nodes that each distinct selector matches.
    pub(super) pools: Vec<Vec<usize>>,
    /// The pool of each model.
    pub(super) pool_of: Vec<usize>,
    /// The models with a place on each node.
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

    /// Takes off what a model has. Its pods count as well as its place: a place may be gone while a pod still is there.
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
            // Where it has no place to stay, it goes.
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

    /// Takes off what a model is about to have: later, and now unless others must go first.
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

    /// Whether a node takes a pod of a model that it has none of.
    pub(super) fn takes(&self, node: usize, model: &Model) -> bool {
        let node = self.nodes[node].1;
        node.closed.is_none() && node.taints.iter().all(|taint| model.tolerations.contains(taint))
    }

    /// Why no node could ever run a model, however few others there are.
    pub(super) fn refusal(&self, at: usize, model: &Model) -> Option<Refusal> {
        let pool = &self.pools[self.pool_of[at]];
        if pool.iter().any(|&node| model.needs.fit(self.capacity[node])) {
            return None;
        }
        let largest = pool.iter().copied().max_by_key(|&node| (self.capacity[node].memory, std::cmp::Reverse(node)));
        Some(largest.map_or(Refusal::NoNodes, |node| Refusal::TooLarge { node: self.nodes[node].0.clone(), capacity: self.capacity[node] }))
    }

    /// The nodes with room for a model, now or later, by name.
    pub(super) fn with_room(&self, at: usize, model: &Model, now: bool) -> Vec<usize> {
        let fits = |&node: &usize| model.needs.fit(self.left(node, now)) && self.takes(node, model);
        self.pools[self.pool_of[at]].iter().copied().filter(fits).collect()
    }

    /// What models leave of a node, now or later.
    fn left(&self, node: usize, now: bool) -> Amounts {
        if now { self.free[node].min(self.later[node]) } else { self.later[node] }
    }

    /// What models have of a node, now or later.
    pub(super) fn taken(&self, node: usize, now: bool) -> Amounts {
        self.capacity[node] - self.left(node, now)
    }

    /// Which share of a pool's memory is taken.
    pub(super) fn pressure(&self, pool: usize) -> f64 {
        let nodes = &self.pools[pool];
        let sum = |amounts: &[Amounts]| nodes.iter().map(|&node| amounts[node].memory.max(0)).sum::<i64>();
        let (capacity, later) = (sum(&self.capacity), sum(&self.later));
        #[allow(clippy::cast_precision_loss, reason = "a share needs no more digits")]
        if capacity == 0 { 1.0 } else { 1.0 - later as f64 / capacity as f64 }
    }
}
