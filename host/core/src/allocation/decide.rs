//! The decision itself: first for the models with a reservation, then for those that wait, the best first.

use super::{
    Activity, Entry, Features, Held, Ledger, Model, Node, NodeScorer, Phase, Refusal, Scorer, SleepReason, Stays, Step,
    amounts::Amounts,
    graph::Graph,
    room::Room,
    victims::{Candidate, choose},
};
use crate::key::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};

/// How soon to recheck while a model waits: its score grows with its age, and other models become idle.
const RECHECK: u64 = 30;

/// A decision in progress. Models and nodes are identified by their indices.
pub(super) struct Decision<'a> {
    pub(super) models: Vec<(&'a ObjectKey, &'a Model)>,
    pub(super) graph: Graph,
    pub(super) room: Room<'a>,
    pub(super) now: u64,
    /// The phase of each model with a reservation, after the steps.
    pub(super) phases: Vec<Option<Phase>>,
    /// Whether each model is requested, or a dependency of a requested one.
    pub(super) wanted: Vec<bool>,
    pub(super) scores: Vec<Option<f64>>,
    /// Scores the nodes for a model.
    pub(super) choose: &'a mut NodeScorer<'a>,
    /// The nodes that the policies exclude for each model, as far as they were queried.
    pub(super) excluded: Vec<BTreeSet<usize>>,
    /// Whether the policies have not yet scored the nodes for a model.
    pub(super) undecided: Vec<bool>,
    pub(super) entries: Vec<Option<Entry>>,
    pub(super) steps: Vec<Step>,
    /// Models that must move and have dependants with a reservation.
    moving: Vec<usize>,
    next: Option<u64>,
}

/// Decides which models get a reservation, and on which node.
pub fn allocate(
    nodes: &BTreeMap<String, Node>,
    models: &BTreeMap<ObjectKey, Model>,
    now: u64,
    score: &mut Scorer<'_>,
    choose: &mut NodeScorer<'_>,
) -> Ledger {
    let models: Vec<_> = models.iter().collect();
    let mut decision = Decision {
        graph: Graph::new(&models),
        room: Room::new(nodes, &models),
        now,
        phases: models.iter().map(|(_, model)| model.held.as_ref().map(|held| held.phase.clone())).collect(),
        wanted: vec![false; models.len()],
        scores: vec![None; models.len()],
        choose,
        excluded: vec![BTreeSet::new(); models.len()],
        undecided: vec![false; models.len()],
        entries: vec![None; models.len()],
        steps: Vec::new(),
        moving: Vec::new(),
        next: None,
        models,
    };
    decision.refuse();
    decision.note_wanted();
    decision.move_on();
    decision.score(score);
    decision.relieve_nodes();
    decision.admit();
    decision.finish()
}

impl<'a> Decision<'a> {
    pub(super) fn model(&self, at: usize) -> &'a Model {
        self.models[at].1
    }

    pub(super) fn key(&self, at: usize) -> &'a ObjectKey {
        self.models[at].0
    }

    /// Schedules a recheck at a time, unless it is past.
    pub(super) fn recheck_at(&mut self, at: u64) {
        if at > self.now {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
    }

    /// Records a step that changes a model's reservation.
    pub(super) fn step(&mut self, at: usize, held: Option<Held>, with: usize) {
        self.phases[at] = held.as_ref().map(|held| held.phase.clone());
        self.steps.push(Step { model: self.key(at).clone(), held, with: self.key(with).clone() });
    }

    /// Starts to drain a model that has a reservation.
    pub(super) fn drain(&mut self, at: usize, reason: SleepReason, with: usize) {
        let Some(held) = &self.model(at).held else { return };
        if let Some(node) = self.room.find(&held.node) {
            self.room.give_back(node, held.amounts, false);
        }
        self.step(at, Some(Held { phase: Phase::Draining(reason), ..held.clone() }), with);
    }

    /// Refuses the models that can't run as they are. Models with a reservation keep it.
    fn refuse(&mut self) {
        for at in 0..self.models.len() {
            let model = self.model(at);
            if model.external || model.off || model.held.is_some() {
                continue;
            }
            let refusal = self.graph.refused[at].clone().or_else(|| self.room.refusal(at, model));
            self.entries[at] = refusal.map(Entry::Refused);
        }
    }

    /// Whether a model itself is requested, not only as a dependency.
    pub(super) fn is_asked_for(&self, at: usize) -> bool {
        let model = self.model(at);
        let Model { external, off, activity, .. } = model;
        if *external || *off || self.entries[at].is_some() {
            return false;
        }
        let recently = activity.last_request.is_some_and(|last| self.now.saturating_sub(last) < model.cooldown);
        // A model that has never run is started, so that its creator sees whether it works. A model that no gateway has ever seen may get
        // requests all the time: if its node disappears, it gets another.
        activity.waiting > 0 || activity.in_flight > 0 || recently || !activity.ran || activity.last_request.is_none()
    }

    fn note_wanted(&mut self) {
        for at in (0..self.models.len()).filter(|&at| self.is_asked_for(at)).collect::<Vec<_>>() {
            let needed = self.graph.with_needs(at);
            // Without all its dependencies the model can't run, so it has no use for the others.
            if needed.iter().any(|&needed| matches!(self.entries[needed], Some(Entry::Refused(_)))) {
                continue;
            }
            for needed in needed {
                self.wanted[needed] |= !self.model(needed).external;
            }
        }
    }

    /// Whether a dependant of a model still has a reservation or is to get one.
    fn is_needed(&self, at: usize) -> bool {
        self.graph.needed_by[at].iter().any(|&dependant| self.wanted[dependant] || self.phases[dependant].is_some())
    }

    /// Why a model keeps its reservation even if others need the memory; none if it may be put to sleep.
    pub(super) fn stays(&self, at: usize) -> Option<Stays> {
        if self.phases[at] != Some(Phase::Admitted) {
            return Some(Stays::Leaving);
        }
        let model = self.model(at);
        let Activity { in_flight, waiting, ready_since, .. } = &model.activity;
        let Some(ready) = ready_since else { return Some(Stays::Starting) };
        if *in_flight > 0 || *waiting > 0 {
            Some(Stays::Busy)
        } else if self.now.saturating_sub(*ready) < model.residency {
            Some(Stays::Resident)
        } else if model.activity.is_seen() {
            None
        } else {
            Some(Stays::Unseen)
        }
    }

    /// Advances the models that have a reservation.
    fn move_on(&mut self) {
        for at in 0..self.models.len() {
            let model = self.model(at);
            let Some(held) = &model.held else {
                self.recover(at);
                continue;
            };
            let next = |phase: Phase| Some(Held { phase, ..held.clone() });
            let node = self.room.find(&held.node);
            match (&held.phase, node) {
                // Without a node, no request can be in flight.
                (Phase::Admitted | Phase::Draining(_), None) => self.step(at, next(Phase::Stopping), at),
                (Phase::Admitted, Some(node)) => self.keep(at, held, node),
                (Phase::Draining(reason), Some(node)) if self.comes_back(at, reason) => {
                    self.room.take(node, held.amounts, false);
                    self.step(at, next(Phase::Admitted), at);
                }
                (Phase::Draining(_), Some(_)) => {
                    let is_last = self.graph.needed_by[at].iter().all(|&dependant| self.phases[dependant].is_none());
                    if model.activity.drained && is_last {
                        self.step(at, next(Phase::Stopping), at);
                    }
                }
                (Phase::Stopping, _) => {
                    if model.activity.scaled_to_zero && model.pods.is_empty() {
                        self.step(at, None, at);
                        if let Some(node) = node {
                            self.room.free[node] += held.amounts;
                        }
                    }
                }
            }
        }
        self.move_with_dependants();
    }

    /// Whether a model has an admitted dependant.
    fn has_dependant(&self, at: usize) -> bool {
        self.graph.needed_by[at].iter().any(|&other| self.phases[other] == Some(Phase::Admitted))
    }

    /// Drains the models that must move, together with all their dependants: otherwise a dependant would keep its dependency where it is.
    /// Those that are requested are admitted again together.
    fn move_with_dependants(&mut self) {
        for at in std::mem::take(&mut self.moving) {
            let models: Vec<usize> =
                self.graph.with_dependants(at).into_iter().filter(|&at| self.phases[at] == Some(Phase::Admitted)).collect();
            // A step that is already recorded for one of them comes first.
            let is_written = |at: usize| self.steps.iter().any(|step| step.model == *self.key(at));
            if self.phases[at] != Some(Phase::Admitted) || models.iter().any(|&at| is_written(at)) {
                continue;
            }
            for other in models {
                self.drain(other, SleepReason::Misplaced, at);
            }
        }
    }

    /// Whether a draining model is admitted again: it is requested again, or has an admitted dependant.
    fn comes_back(&self, at: usize, reason: &SleepReason) -> bool {
        match reason {
            SleepReason::Off => false,
            SleepReason::Idle => self.wanted[at] || self.has_dependant(at),
            _ => self.has_dependant(at),
        }
    }

    /// Restores the reservation of a model that runs without one, because the record was lost.
    fn recover(&mut self, at: usize) {
        let model = self.model(at);
        let Some((name, amounts)) = model.pods.first().filter(|_| !model.external && !model.activity.scaled_to_zero) else { return };
        let Some(node) = self.room.find(name) else { return };
        // If the model now needs more, the reservation grows later, as for any other model.
        let held = Held { node: name.clone(), amounts: *amounts, ..Held::default() };
        self.room.later[node] -= held.amounts;
        self.room.placed[node].push(at);
        self.entries[at] = None;
        self.step(at, Some(held), at);
    }

    /// Decides whether an admitted model keeps its reservation.
    fn keep(&mut self, at: usize, held: &Held, node: usize) {
        let model = self.model(at);
        // It can't serve without its dependency, and the dependency stops only after its dependants.
        if model.off || model.external || matches!(self.graph.refused[at], Some(Refusal::DependencyOff(_))) {
            return self.drain(at, SleepReason::Off, at);
        }
        let is_here = self.room.pools[self.room.pool_of[at]].contains(&node);
        let grows = !model.needs.fit(held.amounts);
        let target = self.target(held, node, model);
        let more = target - held.amounts.max(self.room.pods(node, model));
        if is_here && target != held.amounts && more.max(Amounts::default()).fit(self.room.free[node].min(self.room.later[node])) {
            self.room.take(node, more, true);
            return self.step(at, Some(Held { amounts: target, ..held.clone() }), at);
        }
        // It moves only if another node has the capacity: a change of its spec must not stop a running model for nothing.
        if (!is_here || grows) && self.best_node(at, true).is_some_and(|elsewhere| elsewhere != node) {
            if self.has_dependant(at) {
                return self.moving.push(at);
            }
            return self.drain(at, SleepReason::Misplaced, at);
        }
        let Activity { ready_since, last_request, .. } = &model.activity;
        let Some((ready, last)) = ready_since.zip(*last_request) else { return };
        let ends = (last + model.cooldown).max(ready + model.residency);
        if ends > self.now {
            self.recheck_at(ends);
        } else if self.stays(at).is_none() && !self.wanted[at] && !self.is_needed(at) {
            self.drain(at, SleepReason::Idle, at);
        }
    }

    /// The amounts to reserve for an admitted model: its needs, and at least what its pod takes until another pod replaces it. While it has
    /// no pod, a pod with its previous needs may still appear, so the reservation doesn't shrink.
    fn target(&self, held: &Held, node: usize, model: &Model) -> Amounts {
        let pods = self.room.pods(node, model);
        model.needs.max(if pods == Amounts::default() { held.amounts } else { pods })
    }

    /// Scores the waiting models and those that may be put to sleep.
    fn score(&mut self, score: &mut Scorer<'_>) {
        let waits = |at: &usize| self.phases[*at].is_none() && self.is_asked_for(*at);
        if !(0..self.models.len()).any(|at| waits(&at)) {
            return;
        }
        let scored: Vec<usize> =
            (0..self.models.len()).filter(|at| waits(at) || self.phases[*at].is_some() && self.stays(*at).is_none()).collect();
        let pressures: Vec<f64> = (0..self.room.pools.len()).map(|pool| self.room.pressure(pool)).collect();
        let rows: Vec<(&ObjectKey, Features)> =
            scored.iter().map(|&at| (self.key(at), self.features(at, pressures[self.room.pool_of[at]]))).collect();
        let scores = score(&rows);
        for (at, score) in scored.into_iter().zip(scores) {
            self.scores[at] = score;
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "scores need no more digits")]
    fn features(&self, at: usize, pool_pressure: f64) -> Features {
        let model = self.model(at);
        let activity = &model.activity;
        let is_resident = self.phases[at].is_some();
        let since = if is_resident { activity.ready_since } else { activity.waiting_since.or(activity.last_request) };
        let since = since.unwrap_or(model.created);
        let dependants = self.graph.needed_by[at].iter().filter(|&&other| self.wanted[other] || self.phases[other].is_some()).count();
        Features {
            priority: model.priority,
            memory_bytes: model.needs.memory as f64,
            idle_seconds: if is_resident { activity.idle(self.now) as f64 } else { f64::NAN },
            waiting_requests: activity.waiting as f64,
            wakes_per_hour: f64::from(activity.wakes),
            load_seconds: activity.start_seconds.unwrap_or(f64::NAN),
            dependants: dependants as f64,
            pool_pressure,
            age_seconds: self.now.saturating_sub(since) as f64,
            requests_per_second: activity.requests_per_second.unwrap_or(f64::NAN),
            resident: f64::from(u8::from(is_resident)),
        }
    }

    /// Puts models to sleep on nodes that are overcommitted: the node has shrunk, or other pods have arrived.
    fn relieve_nodes(&mut self) {
        for node in 0..self.room.nodes.len() {
            let later = self.room.later[node];
            let lacks = Amounts::default() - later.min(Amounts::default());
            if lacks == Amounts::default() || self.room.placed[node].is_empty() {
                continue;
            }
            let found = choose(lacks, Amounts::default(), self.candidates(node, |_| true));
            for at in found.into_iter().flat_map(|found| found.models) {
                self.drain(at, SleepReason::Overcommitted, at);
            }
            self.recheck_at(self.now + RECHECK);
        }
    }

    /// The models on a node that may be put to sleep, each with its dependants.
    pub(super) fn candidates(&self, node: usize, may_go: impl Fn(usize) -> bool) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for &at in &self.room.placed[node] {
            // A shortcut for the common case: in a full pool, every model is checked for each waiting one.
            if self.graph.needed_by[at].is_empty() {
                if self.stays(at).is_none() && may_go(at) {
                    let frees = self.model(at).held.as_ref().map(|held| held.amounts).unwrap_or_default();
                    candidates.push(Candidate { models: vec![at], frees, score: self.scores[at].unwrap_or_default() });
                }
                continue;
            }
            let models: Vec<usize> = self.graph.with_dependants(at).into_iter().filter(|&at| self.phases[at].is_some()).collect();
            if models.iter().any(|&at| self.stays(at).is_some() || !may_go(at)) {
                continue;
            }
            let held = models.iter().filter_map(|&at| self.model(at).held.as_ref());
            let here = held.filter(|held| self.room.find(&held.node) == Some(node));
            let frees = here.fold(Amounts::default(), |sum, held| sum + held.amounts);
            let score = models.iter().filter_map(|&at| self.scores[at]).fold(0.0, f64::max);
            candidates.push(Candidate { models, frees, score });
        }
        candidates
    }

    fn finish(mut self) -> Ledger {
        for at in 0..self.models.len() {
            let entry = self.entry(at);
            if matches!(entry, Entry::Waiting(_)) {
                self.recheck_at(self.now + RECHECK);
            }
            self.entries[at] = Some(entry);
        }
        let entries = self.models.iter().zip(self.entries).filter_map(|((key, _), entry)| Some(((*key).clone(), entry?))).collect();
        Ledger { entries, steps: self.steps, next: self.next }
    }

    fn entry(&self, at: usize) -> Entry {
        let model = self.model(at);
        if let Some(held) = &model.held {
            let needs = &self.graph.needs[at];
            let is_ready = |needed: &usize| self.model(*needed).external || self.model(*needed).activity.ready_since.is_some();
            let starts_after = needs.iter().filter(|needed| !is_ready(needed)).map(|&needed| self.key(needed).clone()).collect();
            let unseen = self.stays(at) == Some(Stays::Unseen);
            return Entry::Placed { held: held.clone(), unseen, starts_after };
        }
        match &self.entries[at] {
            Some(entry) => entry.clone(),
            None if model.external => Entry::External,
            None if self.wanted[at] => {
                let wanted_by = self.graph.needed_by[at].iter().find(|&&other| self.wanted[other]).map(|&other| self.key(other).clone());
                Entry::Waiting(super::Waiting { wanted_by, ..super::Waiting::default() })
            }
            None => Entry::Asleep,
        }
    }

    /// Refuses a model because of a dependency.
    pub(super) fn refuse_for(&mut self, at: usize, needed: usize) {
        let path = [at, needed].map(|at| self.model(at).name.clone()).to_vec();
        self.entries[at] = Some(Entry::Refused(Refusal::DependencyOff(path)));
    }
}
