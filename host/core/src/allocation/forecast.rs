//! The final outcome of allocations once every step has taken effect, for files that describe a cluster.

use super::{Entry, Held, Ledger, Model, Node, NodeScorer, Phase, Scorer, allocate};
use crate::key::ObjectKey;
use std::collections::BTreeMap;

/// The maximum number of rounds. Each step of the longest chain of dependencies takes one, and each model that sleeps for another takes
/// three.
const MAX_ROUNDS: usize = 1_000;

/// The final entries, assuming that pods start and stop at once and that gateways have no requests in flight.
pub fn forecast(
    nodes: &BTreeMap<String, Node>,
    models: &BTreeMap<ObjectKey, Model>,
    now: u64,
    score: &mut Scorer<'_>,
    choose: &mut NodeScorer<'_>,
) -> BTreeMap<ObjectKey, Entry> {
    let mut models = models.clone();
    let mut ledger = Ledger::default();
    for _ in 0..MAX_ROUNDS {
        ledger = allocate(nodes, &models, now, score, choose);
        let mut moved = !ledger.steps.is_empty();
        for step in ledger.steps {
            if let Some(model) = models.get_mut(&step.model) {
                model.held = step.held;
            }
        }
        for (key, model) in &mut models {
            let starts = matches!(ledger.entries.get(key), Some(Entry::Placed { starts_after, .. }) if starts_after.is_empty());
            match &model.held {
                Some(Held { phase: Phase::Admitted, node, amounts, .. }) if starts && model.activity.ready_since.is_none() => {
                    model.pods = vec![(node.clone(), *amounts)];
                    model.activity.ready_since = Some(now);
                    moved = true;
                }
                Some(Held { phase: Phase::Draining(_), .. }) => model.activity.drained = true,
                Some(Held { phase: Phase::Stopping, .. }) => {
                    model.pods.clear();
                    model.activity.ready_since = None;
                    model.activity.scaled_to_zero = true;
                }
                _ => {}
            }
        }
        if !moved {
            break;
        }
        ledger.steps = Vec::new();
    }
    ledger.entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        allocation::{NodeAnswer, amounts::Amounts},
        resource::INFERENCE_MODEL,
    };

    fn amounts(memory: i64) -> Amounts {
        Amounts { memory, cpu: 0, gpus: 0, pods: 1 }
    }

    #[test]
    fn models_come_to_their_nodes_with_their_dependencies_and_the_rest_waits() {
        let node = Node { allocatable: Amounts { pods: 10, ..amounts(100) }, ..Node::default() };
        let nodes = BTreeMap::from([("a".to_owned(), node.clone()), ("b".to_owned(), node)]);
        let key = |name: &str| ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: name.to_owned() };
        let model = |name: &str, memory: i64, created: u64, dependencies: &[&str]| {
            let dependencies = dependencies.iter().map(ToString::to_string).collect();
            let model = Model { name: name.to_owned(), needs: amounts(memory), dependencies, created, ..Model::default() };
            (key(name), model)
        };
        let models = BTreeMap::from([model("llama", 60, 1, &["tokens"]), model("tokens", 60, 2, &[]), model("late", 50, 3, &[])]);
        let entries = forecast(&nodes, &models, 9, &mut |rows| vec![Some(0.5); rows.len()], &mut |_| NodeAnswer::Equal);
        for name in ["llama", "tokens"] {
            assert!(matches!(&entries[&key(name)], Entry::Placed { starts_after, .. } if starts_after.is_empty()), "{entries:?}");
        }
        assert!(matches!(&entries[&key("late")], Entry::Waiting(waiting) if !waiting.blockers.is_empty()), "{entries:?}");
    }
}
