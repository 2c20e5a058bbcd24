//! Predicts placements: places pods one by one, as a scheduler with this extender would.

use super::{
    Cluster, Nodes, Pod, Resources, Settings,
    fit::{Fit, Misfit, summary},
    gangs::{Question, Reservations, Verdict},
    question::score,
};
use crate::decide::Pinned;
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

/// The predicted placement of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predicted {
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The nodes with the highest rank, by name: the scheduler's own plugins choose among them.
    pub best: Vec<String>,
    /// Why there are none.
    pub reason: Option<String>,
}

/// The labels of an unknown namespace.
static UNKNOWN: BTreeMap<String, String> = BTreeMap::new();

/// Places pods without a node, by priority and then by age; gangs as a whole. Each gets the first of its best nodes, and its requests there
/// are counted for the next pods. `namespaces` contains the labels of each namespace.
///
/// Other parts of the scheduler aren't predicted: preemption, the scores of its own plugins, and volumes.
pub fn simulate(
    cluster: Cluster,
    settings: &Settings,
    policies: &Pinned<'_>,
    namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    pods: Vec<Pod>,
    now: u64,
) -> Vec<Predicted> {
    let mut pods: Vec<Arc<Pod>> = pods.into_iter().map(|pod| Arc::new(identified(pod))).collect();
    pods.sort_by(|one, other| order(one).cmp(&order(other)));
    let mut simulation = Simulation { cluster, settings, policies, namespaces, reservations: Reservations::default(), now };
    // All members must exist before a gang is placed.
    for pod in &pods {
        simulation.cluster.put_pod(Arc::clone(pod));
    }
    pods.iter().map(|pod| simulation.place(pod)).collect()
}

/// The order of placement: by priority, then by age.
fn order(pod: &Pod) -> (Reverse<i32>, u64, &str, &str) {
    (Reverse(pod.priority), pod.created, &pod.namespace, &pod.name)
}

/// Gives a planned pod without a UID one, because gangs identify their members by UID.
fn identified(mut pod: Pod) -> Pod {
    if pod.uid.is_empty() {
        pod.uid = format!("{}/{}", pod.namespace, pod.name);
    }
    pod
}

struct Simulation<'s> {
    cluster: Cluster,
    settings: &'s Settings,
    policies: &'s Pinned<'s>,
    namespaces: &'s BTreeMap<String, BTreeMap<String, String>>,
    reservations: Reservations,
    now: u64,
}

impl Simulation<'_> {
    fn place(&mut self, pod: &Pod) -> Predicted {
        let found = if pod.node.is_empty() { self.find(pod) } else { Ok(vec![pod.node.clone()]) };
        let (best, reason) = match found {
            Ok(best) => (best, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        if let Some(node) = best.first() {
            // Bound, not only assumed, so that nothing is reserved for it any longer.
            self.cluster.put_pod(Pod { node: node.clone(), ..pod.clone() });
        }
        Predicted { namespace: pod.namespace.clone(), name: pod.name.clone(), best, reason }
    }

    /// The best nodes for a pod, or why there is none.
    fn find(&mut self, pod: &Pod) -> Result<Vec<String>, String> {
        let Self { cluster, settings, policies, namespaces, reservations, now } = self;
        if !pod.is_in_scope(settings) {
            return self.find_alone(pod);
        }
        let (timeout, labels) = (settings.gang_timeout_seconds, namespaces.get(&pod.namespace).unwrap_or(&UNKNOWN));
        reservations.expire(cluster, *now, timeout, None);
        let mut failed = None;
        let question = Question { cluster, pod, now: *now, timeout, offered: &|_| true, is_late: &|| false };
        let verdict = reservations.decide(question, &mut |trial, member, nodes, held| {
            let scored = score(policies, trial, settings, member, &Nodes::named(trial, nodes), labels, held);
            let nothing = |undecided| {
                failed = Some(undecided);
                Vec::new()
            };
            scored.map_or_else(nothing, |scored| scored.order(nodes))
        });
        match verdict {
            Verdict::Node(node) => Ok(vec![node]),
            Verdict::Wait(reason) => Err(failed.map_or(reason, |undecided| undecided.to_string())),
            Verdict::Free => self.find_alone(pod),
        }
    }

    /// The best nodes for a pod without reservations, or why there are none.
    fn find_alone(&self, pod: &Pod) -> Result<Vec<String>, String> {
        let Self { cluster, settings, policies, namespaces, reservations, .. } = self;
        let held = |node: &str| -> Option<Resources> { reservations.held(cluster, node, pod) };
        let fit = Fit::new(cluster, pod);
        let (mut nodes, mut misfits) = (Vec::<&str>::new(), BTreeMap::<Misfit, usize>::new());
        for (name, state) in cluster.nodes() {
            let mut free = state.free();
            if let Some(held) = held(name) {
                free.subtract(&held);
            }
            match fit.misfit(name, state, &free) {
                Some(misfit) => *misfits.entry(misfit).or_default() += 1,
                None => nodes.push(name),
            }
        }
        if nodes.is_empty() {
            return Err(summary(&misfits));
        }
        let labels = namespaces.get(&pod.namespace).unwrap_or(&UNKNOWN);
        let scored = score(policies, cluster, settings, pod, &Nodes::named(cluster, &nodes), labels, &held)
            .map_err(|undecided| undecided.to_string())?;
        let best = scored.best(&nodes);
        if best.is_empty() {
            return Err(match nodes.len() {
                1 => "policies exclude the node that fits".to_owned(),
                number => format!("policies exclude all {number} nodes that fit"),
            });
        }
        Ok(best.into_iter().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::{Policies, Standing, Unheard, set::ActiveSet},
        placement::{
            Gang, Ties,
            question::tests::{indifferent, nodes, pod},
        },
    };

    fn run(cluster: &Cluster, settings: &Settings, pods: Vec<Pod>) -> Vec<(String, Result<Vec<String>, String>)> {
        let policies = indifferent();
        let predicted = simulate(cluster.clone(), settings, &policies.pin(Standing::New), &BTreeMap::new(), pods, 0);
        predicted.into_iter().map(|predicted| (predicted.name, predicted.reason.map_or(Ok(predicted.best), Err))).collect()
    }

    fn names(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(ToString::to_string).collect()
    }

    fn member(name: &str, gpus: i64, size: usize) -> Pod {
        let gang = Gang { name: "g".into(), size, leads: false, native: false };
        Pod { gang: Some(gang), uid: String::new(), ..pod(name, gpus) }
    }

    #[test]
    fn pods_are_placed_by_priority_and_age_and_count_for_those_after_them() {
        let low = Pod { priority: -1, created: 1, ..pod("low", 8) };
        let young = Pod { created: 3, ..pod("young", 8) };
        let old = Pod { created: 2, ..pod("old", 8) };
        let predicted = run(&nodes(&["a", "b"]), &Settings::default(), vec![low, young, old]);
        let order: Vec<&str> = predicted.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(order, ["old", "young", "low"]);
        assert_eq!((&predicted[0].1, &predicted[1].1), (&Ok(names(&["a"])), &Ok(names(&["b"]))));
        assert!(predicted[2].1.as_ref().is_err_and(|reason| reason.contains("nvidia.com/gpu")), "{predicted:?}");
    }

    #[test]
    fn where_the_scheduler_decides_all_of_the_best_are_named() {
        let settings = Settings { ties: Ties::Scheduler, ..Settings::default() };
        let predicted = run(&nodes(&["b", "a"]), &settings, vec![pod("x", 8), pod("y", 8)]);
        assert_eq!(predicted, [("x".to_owned(), Ok(names(&["a", "b"]))), ("y".to_owned(), Ok(names(&["b"])))]);
    }

    #[test]
    fn a_gang_is_placed_whole_or_not_at_all() {
        let cluster = nodes(&["a", "b"]);
        let pods = vec![member("1", 8, 2), member("2", 8, 2), Pod { priority: -1, ..pod("alone", 1) }];
        let predicted = run(&cluster, &Settings::default(), pods);
        let nodes: Vec<_> = predicted.iter().take(2).map(|(_, found)| found.clone().unwrap()).collect();
        assert_eq!(nodes, [["a"], ["b"]]);
        assert!(predicted[2].1.is_err());
        let pods = vec![member("1", 8, 3), member("2", 8, 3), member("3", 8, 3), Pod { priority: -1, ..pod("alone", 8) }];
        let predicted = run(&cluster, &Settings::default(), pods);
        assert!(
            predicted.iter().take(3).all(|(_, found)| found.as_ref().is_err_and(|why| why.contains("the gang g waits"))),
            "{predicted:?}"
        );
        assert_eq!(predicted[3].1, Ok(names(&["a"])));
    }

    #[test]
    fn a_gang_keeps_its_room_from_what_is_placed_between_its_members() {
        let between = Pod { created: 1, ..pod("between", 8) };
        let second = Pod { created: 2, ..member("2", 8, 2) };
        let predicted = run(&nodes(&["a", "b"]), &Settings::default(), vec![member("1", 8, 2), between, second]);
        let found: Vec<bool> = predicted.iter().map(|(_, found)| found.is_ok()).collect();
        assert_eq!(found, [true, false, true], "{predicted:?}");
    }

    #[test]
    fn without_an_answer_nothing_is_predicted_except_for_pods_that_nobody_is_asked_about() {
        let policies = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
        let pods = vec![pod("x", 1), Pod { owner: None, ..pod("y", 1) }, member("z", 1, 1)];
        let predicted = simulate(nodes(&["a"]), &Settings::default(), &policies.pin(Standing::New), &BTreeMap::new(), pods, 0);
        assert!(predicted[0].reason.as_ref().is_some_and(|reason| reason.contains("no plugin answers")), "{predicted:?}");
        assert_eq!((&predicted[1].best[..], &predicted[1].reason), (&["a".to_owned()][..], &None));
        assert!(predicted[2].best.is_empty());
    }
}
