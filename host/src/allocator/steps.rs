//! Converts the steps of a ledger into ordered writes per node.

use pointsman_core::{
    allocation::{
        Held, ObjectName, Phase, Step,
        cluster::Stray,
        records::{Reservation, Reservations},
    },
    key::ObjectKey,
};
use std::collections::{BTreeMap, BTreeSet};

/// The writes to several nodes that don't depend on each other.
pub(super) type Batch = BTreeMap<String, Reservations>;

/// The writes, one batch after the other.
///
/// A model with dependencies on other nodes is in the second batch: if only its dependencies are found, the host has ended in between.
pub(super) fn batches(
    places: &BTreeMap<&str, &Reservations>,
    held: impl Fn(&ObjectKey) -> Option<Held>,
    steps: &[Step],
    strays: &[Stray],
    mut since: impl FnMut() -> u64,
) -> [Batch; 2] {
    // The new reservations of the nodes that change.
    let mut after = Batch::new();
    let known = |node: &str| places.get(node).map(|places| (*places).clone()).unwrap_or_default();
    for (node, name) in strays {
        after.entry(node.clone()).or_insert_with(|| known(node)).remove(name);
    }
    let admitted = |step: &&Step| held(&step.model).is_none() && step.held.is_some();
    // The nodes of each admitted unit.
    let mut nodes: BTreeMap<&ObjectKey, BTreeSet<&str>> = BTreeMap::new();
    for step in steps.iter().filter(admitted) {
        nodes.entry(&step.with).or_default().extend(step.held.as_ref().map(|held| held.node.as_str()));
    }
    let mut last: Vec<(String, ObjectName, Reservation)> = Vec::new();
    for step in steps {
        let name = ObjectName::new(&step.model);
        let before = held(&step.model);
        let Some(now) = &step.held else {
            if let Some(Held { node, .. }) = before {
                after.entry(node.clone()).or_insert_with(|| known(&node)).remove(&name);
            }
            continue;
        };
        let former = before.as_ref().and_then(|before| places.get(before.node.as_str())?.get(&name));
        let is_as_far = before.as_ref().is_some_and(|before| before.phase == now.phase);
        let reservation = Reservation {
            amounts: now.amounts,
            phase: now.phase.clone(),
            since: former.filter(|_| is_as_far).map_or_else(&mut since, |former| former.since),
            root: match former {
                Some(former) => former.root.clone(),
                None => (step.with != step.model).then(|| ObjectName::new(&step.with)),
            },
        };
        let is_root = before.is_none() && step.with == step.model;
        if is_root && nodes.get(&step.model).is_some_and(|nodes| nodes.len() > 1) {
            last.push((now.node.clone(), name, reservation));
        } else {
            after.entry(now.node.clone()).or_insert_with(|| known(&now.node)).insert(name, reservation);
        }
    }
    let mut second = Batch::new();
    for (node, name, reservation) in last {
        let first = || after.get(&node).cloned().unwrap_or_else(|| known(&node));
        second.entry(node.clone()).or_insert_with(first).insert(name, reservation);
    }
    after.retain(|node, now| places.get(node.as_str()).map_or(!now.is_empty(), |before| *before != now));
    [after, second]
}

/// Removes the admissions of models whose previous reservation is released in the same batch, with their whole units: no model has two
/// reservations at a time. They follow in the next round.
pub(super) fn without_moves(steps: Vec<Step>) -> Vec<Step> {
    let released: BTreeSet<ObjectKey> = steps.iter().filter(|step| step.held.is_none()).map(|step| step.model.clone()).collect();
    let is_admission = |step: &Step| step.held.as_ref().is_some_and(|held| held.phase == Phase::Admitted);
    let moves = steps.iter().filter(|step| is_admission(step) && released.contains(&step.model));
    let units: BTreeSet<ObjectKey> = moves.map(|step| step.with.clone()).collect();
    steps.into_iter().filter(|step| !(is_admission(step) && units.contains(&step.with))).collect()
}

/// Removes the steps that would take memory on a node where a release is delayed, with their whole units: they would get the memory of the
/// unreleased model.
pub(super) fn without_room(held: impl Fn(&ObjectKey) -> Option<Held>, steps: Vec<Step>, unreleased: &BTreeSet<String>) -> Vec<Step> {
    let takes = |step: &Step| {
        step.held.as_ref().is_some_and(|now| {
            let before = held(&step.model);
            let grows = before.as_ref().is_none_or(|before| !now.amounts.fit(before.amounts));
            now.phase == Phase::Admitted && grows && unreleased.contains(&now.node)
        })
    };
    let units: BTreeSet<ObjectKey> = steps.iter().filter(|step| takes(step)).map(|step| step.with.clone()).collect();
    let is_admission = |step: &Step| step.held.is_some() && held(&step.model).is_none();
    let lacks_room = |step: &Step| takes(step) || is_admission(step) && units.contains(&step.with);
    steps.into_iter().filter(|step| !lacks_room(step)).collect()
}

/// The models that the steps admit.
pub(super) fn admissions(held: impl Fn(&ObjectKey) -> Option<Held>, steps: &[Step]) -> Vec<&ObjectKey> {
    steps.iter().filter(|step| step.held.is_some() && held(&step.model).is_none()).map(|step| &step.model).collect()
}

/// Whether a step ends the pods of a model that gateways may still send requests to.
pub(super) fn stops(held: impl Fn(&ObjectKey) -> Option<Held>, step: &Step) -> bool {
    let was_draining = held(&step.model).is_some_and(|held| matches!(held.phase, Phase::Draining(_)));
    was_draining && step.held.as_ref().is_some_and(|held| held.phase == Phase::Stopping)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_core::{
        allocation::{SleepReason, amounts::Amounts},
        resource::INFERENCE_MODEL,
    };

    fn key(name: &str) -> ObjectKey {
        ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: name.to_owned() }
    }

    fn name(name: &str) -> ObjectName {
        ObjectName(format!("ml/{name}"))
    }

    fn place(node: &str, phase: Phase) -> Held {
        Held { node: node.to_owned(), amounts: Amounts::default(), phase, since: 0 }
    }

    fn step(model: &str, held: Option<Held>, with: &str) -> Step {
        Step { model: key(model), held, with: key(with) }
    }

    #[test]
    fn a_model_is_written_after_its_dependencies_on_other_nodes() {
        let steps = [
            step("llama", Some(place("a", Phase::Admitted)), "llama"),
            step("tokens", Some(place("b", Phase::Admitted)), "llama"),
            step("alone", Some(place("a", Phase::Admitted)), "alone"),
            step("here", Some(place("c", Phase::Admitted)), "pair"),
            step("pair", Some(place("c", Phase::Admitted)), "pair"),
        ];
        let [first, second] = batches(&BTreeMap::new(), |_| None, &steps, &[], || 5);
        let names = |batch: &Batch| {
            batch
                .iter()
                .map(|(node, places)| (node.clone(), places.keys().map(|name| name.0.clone()).collect::<Vec<_>>()))
                .collect::<Vec<_>>()
        };
        let on = |node: &str, names: &[&str]| (node.to_owned(), names.iter().map(|name| format!("ml/{name}")).collect::<Vec<_>>());
        assert_eq!(names(&first), [on("a", &["alone"]), on("b", &["tokens"]), on("c", &["here", "pair"])]);
        assert_eq!(names(&second), [on("a", &["alone", "llama"])]);
        assert_eq!((&first["b"][&name("tokens")].root, &second["a"][&name("llama")].root), (&Some(name("llama")), &None));
    }

    #[test]
    fn a_model_that_moves_gives_its_place_back_before_it_has_another_and_its_unit_waits_with_it() {
        let steps = vec![
            step("moves", None, "moves"),
            step("moves", Some(place("b", Phase::Admitted)), "root"),
            step("root", Some(place("c", Phase::Admitted)), "root"),
            step("other", Some(place("c", Phase::Admitted)), "other"),
            step("victim", Some(place("c", Phase::Draining(SleepReason::Idle))), "root"),
        ];
        let left: Vec<String> = without_moves(steps).into_iter().map(|step| step.model.name).collect();
        assert_eq!(left, ["moves", "other", "victim"]);
    }

    #[test]
    fn nobody_gets_memory_of_a_place_that_is_not_given_back_yet() {
        let known = [("stops", "a", Phase::Stopping), ("grows", "a", Phase::Admitted), ("drains", "a", Phase::Admitted)];
        let held = |key: &ObjectKey| known.iter().find(|(name, ..)| *name == key.name).map(|(_, node, phase)| place(node, phase.clone()));
        let larger = Held { amounts: Amounts { memory: 9, ..Amounts::default() }, ..place("a", Phase::Admitted) };
        let steps = vec![
            step("grows", Some(larger), "grows"),
            step("drains", Some(place("a", Phase::Draining(SleepReason::Idle))), "drains"),
            step("comes", Some(place("a", Phase::Admitted)), "comes"),
            step("needed", Some(place("b", Phase::Admitted)), "root"),
            step("root", Some(place("a", Phase::Admitted)), "root"),
            step("other", Some(place("b", Phase::Admitted)), "other"),
        ];
        let left = |unreleased: &[&str]| -> Vec<String> {
            let unreleased = unreleased.iter().map(|node| (*node).to_owned()).collect();
            without_room(held, steps.clone(), &unreleased).into_iter().map(|step| step.model.name).collect()
        };
        assert_eq!(left(&["a"]), ["drains", "other"]);
        assert_eq!(left(&["c"]), ["grows", "drains", "comes", "needed", "root", "other"]);
    }

    #[test]
    fn a_place_keeps_its_time_until_it_is_further_and_strays_go() {
        let reservation = |phase: Phase| Reservation { phase, since: 3, root: Some(name("root")), ..Reservation::default() };
        let known = [("grows", Phase::Admitted), ("sleeps", Phase::Admitted), ("goes", Phase::Stopping), ("stray", Phase::Admitted)];
        let places: Reservations = known.iter().map(|(model, phase)| (name(model), reservation(phase.clone()))).collect();
        let places = BTreeMap::from([("a", &places)]);
        let held = |key: &ObjectKey| known.iter().find(|(name, _)| *name == key.name).map(|(_, phase)| place("a", phase.clone()));
        let larger = Held { amounts: Amounts { memory: 9, ..Amounts::default() }, ..place("a", Phase::Admitted) };
        let steps = [
            step("grows", Some(larger), "grows"),
            step("sleeps", Some(place("a", Phase::Draining(SleepReason::Idle))), "sleeps"),
            step("goes", None, "goes"),
        ];
        let [first, second] = batches(&places, held, &steps, &[("a".to_owned(), name("stray"))], || 8);
        let places = &first["a"];
        assert_eq!((places.len(), second.len()), (2, 0));
        assert_eq!((places[&name("grows")].since, places[&name("grows")].amounts.memory), (3, 9));
        assert_eq!((places[&name("sleeps")].since, &places[&name("sleeps")].root), (8, &Some(name("root"))));
        assert_eq!(batches(&BTreeMap::new(), held, &[], &[], || 8), [Batch::new(), Batch::new()], "what is as it was isn't written");
        assert!(stops(|_| Some(place("a", Phase::Draining(SleepReason::Off))), &step("x", Some(place("a", Phase::Stopping)), "x")));
        assert!(!stops(held, &steps[1]) && admissions(held, &steps).is_empty());
    }
}
