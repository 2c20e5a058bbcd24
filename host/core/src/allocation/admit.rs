//! Admits waiting models, the best first: on memory that is free now, on memory that is about to be free, or on the memory of models that
//! are worth less.

use super::{
    Blocker, Entry, HYSTERESIS, Held, ObjectName, Phase, SleepReason, Stays, Waiting,
    amounts::Amounts,
    decide::Decision,
    victims::{Victims, choose},
};
use std::{cmp::Reverse, collections::BTreeMap};

/// The maximum number of blockers that are listed.
const MAX_BLOCKERS: usize = 3;

/// The maximum number of nodes excluded by policies that are listed.
const MAX_EXCLUDED: usize = 3;

/// A requested model and those of its dependencies that have no reservation either: all are admitted together.
#[derive(Debug)]
struct Unit {
    root: usize,
    score: f64,
    /// The root and all its transitive dependencies.
    needs: Vec<usize>,
    /// The members without a reservation, the largest first.
    members: Vec<usize>,
}

/// The nodes chosen for the members of a unit, and the victims that must sleep for them. It can be undone.
#[derive(Debug, Default)]
struct Trial {
    places: Vec<(usize, usize)>,
    victims: Vec<usize>,
}

impl Decision<'_> {
    pub(super) fn admit(&mut self) {
        // The needs for which no capacity was found, by pool and tolerations: until another model goes to sleep, no model with the same or
        // larger needs fits.
        let mut blocked: BTreeMap<(usize, &[String]), Vec<Amounts>> = BTreeMap::new();
        for unit in self.units() {
            let Unit { root, ref members, .. } = unit;
            // An earlier unit may have put a dependency to sleep.
            let is_leaving = |at: usize| self.phases[at].as_ref().is_some_and(|phase| *phase != Phase::Admitted);
            if unit.needs.iter().copied().any(is_leaving) {
                self.wait_for_dependency(&unit);
                continue;
            }
            let alone = (members.len() == 1).then(|| {
                let model = self.model(members[0]);
                ((self.room.pool_of[members[0]], &model.tolerations[..]), model.needs)
            });
            let is_hopeless =
                alone.is_some_and(|(nodes, needs)| blocked.get(&nodes).is_some_and(|known| known.iter().any(|known| known.fit(needs))));
            let found = if is_hopeless { None } else { self.find(&unit) };
            match found {
                Some((trial, true)) => {
                    for (at, node) in trial.places {
                        let name = self.room.nodes[node].0.clone();
                        self.entries[at] =
                            Some(Entry::Waiting(Waiting { node: Some(name.clone()), is_coming: true, ..Waiting::default() }));
                        self.step(at, Some(Held { node: name, amounts: self.model(at).needs, ..Held::default() }), root);
                    }
                }
                Some((trial, false)) => {
                    for &at in &trial.victims {
                        // `go` has already released its memory, so that the other members of the unit see it as free.
                        let held = self.model(at).held.clone().unwrap_or_default();
                        let phase = Phase::Draining(SleepReason::Evicted(ObjectName::new(self.key(root))));
                        self.step(at, Some(Held { phase, ..held }), root);
                    }
                    if !trial.victims.is_empty() {
                        blocked.clear();
                    }
                    for (at, node) in trial.places {
                        self.entries[at] = Some(Entry::Waiting(self.waiting(at, Some(node), &unit, true)));
                    }
                }
                None => {
                    // The nodes that policies exclude for one model don't apply to another.
                    if let Some((nodes, needs)) =
                        alone.filter(|_| members.iter().all(|&at| self.excluded[at].is_empty() && !self.undecided[at]))
                    {
                        blocked.entry(nodes).or_default().push(needs);
                    }
                    for &at in members {
                        if at == root || self.entries[at].is_none() {
                            self.entries[at] = Some(Entry::Waiting(self.waiting(at, None, &unit, false)));
                        }
                    }
                }
            }
            if self.phases[root].is_none() && !members.contains(&root) {
                self.wait_for_dependency(&unit);
            }
        }
    }

    /// The waiting units, in the order in which they are admitted.
    fn units(&mut self) -> Vec<Unit> {
        let asked: Vec<usize> = (0..self.models.len()).filter(|&at| self.phases[at].is_none() && self.is_asked_for(at)).collect();
        let mut units = Vec::new();
        for root in asked {
            // Models that the policies exclude come last.
            let score = self.scores[root].unwrap_or(f64::NEG_INFINITY);
            let needs = self.graph.with_needs(root);
            let needed: Vec<usize> = needs.iter().copied().filter(|&at| !self.model(at).external).collect();
            if let Some(&refused) = needed.iter().find(|&&at| matches!(self.entries[at], Some(Entry::Refused(_)))) {
                self.refuse_for(root, refused);
                continue;
            }
            let mut members: Vec<usize> = needed.iter().copied().filter(|&at| self.phases[at].is_none()).collect();
            members.sort_by_key(|&at| (Reverse(self.model(at).needs.memory), at));
            units.push(Unit { root, score, needs, members });
        }
        let order = |unit: &Unit| (self.model(unit.root).created, unit.root);
        units.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| order(a).cmp(&order(b))));
        units
    }

    /// Waits for a dependency that is on its way out and comes back afterwards.
    fn wait_for_dependency(&mut self, unit: &Unit) {
        let is_absent = |at: &usize| *at != unit.root && !self.model(*at).external && self.phases[*at] != Some(Phase::Admitted);
        let dependency = unit.needs.iter().copied().find(is_absent).map(|at| self.key(at).clone());
        self.entries[unit.root] = Some(Entry::Waiting(Waiting { dependency, ..Waiting::default() }));
    }

    /// Finds capacity for the whole unit, and reports whether it is free now.
    fn find(&mut self, unit: &Unit) -> Option<(Trial, bool)> {
        // An earlier unit may have admitted some members.
        let members: Vec<usize> = unit.members.iter().copied().filter(|&at| self.phases[at].is_none()).collect();
        self.place(&members, None).map(|trial| (trial, true)).or_else(|| Some((self.place(&members, Some(unit))?, false)))
    }

    /// Reserves capacity for all members or for none. With a unit, the capacity need not be free yet, and other models may be put to sleep
    /// for it.
    fn place(&mut self, members: &[usize], unit: Option<&Unit>) -> Option<Trial> {
        let mut trial = Trial::default();
        for &at in members {
            let model = self.model(at);
            let node = self.best_node(at, unit.is_none()).or_else(|| self.make_room(at, unit?, &mut trial));
            let Some(node) = node else {
                self.undo(&trial, unit.is_none());
                return None;
            };
            self.room.take(node, model.needs, unit.is_none());
            trial.places.push((at, node));
        }
        Some(trial)
    }

    fn undo(&mut self, trial: &Trial, now: bool) {
        for &(at, node) in &trial.places {
            let needs = self.model(at).needs;
            self.room.give_back(node, needs, now);
        }
        for &at in &trial.victims {
            self.go(at, false);
        }
    }

    /// Releases the capacity of a victim, or takes it again.
    fn go(&mut self, at: usize, goes: bool) {
        let Some(held) = &self.model(at).held else { return };
        let Some(node) = self.room.find(&held.node) else { return };
        if goes {
            self.phases[at] = Some(Phase::Draining(SleepReason::Idle));
            self.room.give_back(node, held.amounts, false);
        } else {
            self.phases[at] = Some(Phase::Admitted);
            self.room.take(node, held.amounts, false);
        }
    }

    /// Puts the smallest set of models that are worth less to sleep, on a node that the policies don't exclude.
    fn make_room(&mut self, at: usize, unit: &Unit, trial: &mut Trial) -> Option<usize> {
        let model = self.model(at);
        let mut found: BTreeMap<usize, Victims> = BTreeMap::new();
        for &node in &self.room.pools[self.room.pool_of[at]] {
            if !self.room.takes(node, model) || self.room.placed[node].is_empty() {
                continue;
            }
            let candidates = self.candidates(node, |victim| self.is_worth_less(victim, unit));
            if let Some(victims) = choose(model.needs, self.room.later[node], candidates) {
                found.insert(node, victims);
            }
        }
        let mut best: Option<(Victims, usize)> = None;
        let freed: BTreeMap<usize, Amounts> = found.iter().map(|(&node, victims)| (node, victims.frees)).collect();
        for (node, _) in self.score_nodes(at, found.keys().copied().collect(), false, &freed) {
            let victims = found.remove(&node);
            if let Some(victims) = victims.filter(|victims| best.as_ref().is_none_or(|(best, _)| victims.is_better(best))) {
                best = Some((victims, node));
            }
        }
        let (victims, node) = best?;
        for victim in victims.models {
            self.go(victim, true);
            trial.victims.push(victim);
        }
        Some(node)
    }

    fn is_worth_less(&self, victim: usize, unit: &Unit) -> bool {
        // No model goes to sleep for one without a score: if the policies fail, all models keep their reservations.
        unit.score.is_finite() && self.scores[victim].is_none_or(|score| score + HYSTERESIS < unit.score) && !unit.needs.contains(&victim)
    }

    /// Why a model waits, seen from the node where it fits once others have stopped, or from the node with the most free memory.
    fn waiting(&self, at: usize, node: Option<usize>, unit: &Unit, is_coming: bool) -> Waiting {
        let model = self.model(at);
        let excluded = &self.excluded[at];
        let is_open = |&node: &usize| self.room.takes(node, model) && !excluded.contains(&node);
        let open = self.room.pools[self.room.pool_of[at]].iter().copied().filter(is_open);
        let could = |node: &usize| model.needs.fit(self.room.capacity[*node]);
        let node = node.or_else(|| open.filter(could).max_by_key(|&node| (self.room.later[node].memory, Reverse(node))));
        let wanted_by = (unit.root != at).then(|| self.key(unit.root).clone());
        let excluded = excluded.iter().take(MAX_EXCLUDED).map(|&node| self.room.nodes[node].0.clone()).collect();
        let is_undecided = self.undecided[at];
        let Some(node) = node else { return Waiting { wanted_by, excluded, is_undecided, ..Waiting::default() } };
        let mut blockers: Vec<Blocker> = self.room.placed[node].iter().map(|&other| self.blocker(other, unit)).collect();
        blockers.sort_by(|a, b| (a.stays, Reverse(a.idle), &a.model).cmp(&(b.stays, Reverse(b.idle), &b.model)));
        blockers.truncate(MAX_BLOCKERS);
        Waiting {
            node: Some(self.room.nodes[node].0.clone()),
            free: self.room.free[node],
            blockers,
            is_coming,
            dependency: None,
            wanted_by,
            excluded,
            is_undecided,
        }
    }

    fn blocker(&self, at: usize, unit: &Unit) -> Blocker {
        let model = self.model(at);
        let worth = if self.is_worth_less(at, unit) {
            Stays::NotEnough
        } else if unit.score.is_finite() {
            Stays::RanksHigher
        } else {
            Stays::Unranked
        };
        let needed = self.graph.needed_by[at].iter().any(|&other| self.phases[other].is_some() && self.stays(other).is_some());
        let stays = self.stays(at).unwrap_or(if needed { Stays::Needed } else { worth });
        Blocker { model: self.key(at).clone(), memory: model.needs.memory, idle: model.activity.idle(self.now), stays }
    }
}
