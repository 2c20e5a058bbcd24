//! Selects the nodes on which other pods may be preempted for a pod.

use super::{
    super::{gangs::is_whole, wire::MetaVictims},
    Question,
};
use pointsman_core::{
    decide::Undecided,
    placement::{
        Cluster, Nodes, Pod,
        gangs::{Reservations, Verdict},
    },
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// How long a pod may take to terminate beyond its grace period, in seconds. A stuck pod frees no resources.
const LEAVES_WITHIN: u64 = 60;

/// The nodes on which the pod could run after the preemption; if possible, only those where no gang is broken. Also returns why policies
/// failed, if they did.
pub(super) fn preempt(
    question: &Question<'_>,
    reservations: &Reservations,
    offered: &BTreeSet<String>,
    mut victims: BTreeMap<String, MetaVictims>,
) -> (BTreeMap<String, MetaVictims>, Option<Undecided>) {
    let (trial, breaking) = without(question.cluster, &victims);
    let undecided = if question.is_of_gang() {
        if needs_nobody(question, reservations, offered) {
            return (BTreeMap::new(), None);
        }
        let (verdict, undecided) = question.gang_verdict(&trial, &mut attempt(reservations), &|node| victims.contains_key(node));
        match verdict {
            Verdict::Free => usable(question, &trial, reservations, &mut victims),
            Verdict::Node(node) => {
                victims.retain(|name, _| *name == node);
                undecided
            }
            Verdict::Wait(_) => {
                victims.clear();
                undecided
            }
        }
    } else {
        usable(question, &trial, reservations, &mut victims)
    };
    if victims.keys().any(|node| !breaking.contains(node)) {
        victims.retain(|node, _| !breaking.contains(node));
    }
    (victims, undecided)
}

/// Whether the gang fits once the terminating pods are gone: otherwise each further member would preempt pods again, although those
/// preempted for the first make enough room. `offered` has the nodes that the scheduler last offered for the pod; of other nodes, only
/// those with a terminating pod are used.
fn needs_nobody(question: &Question<'_>, reservations: &Reservations, offered: &BTreeSet<String>) -> bool {
    let mut trial = question.cluster.clone();
    let mut left: BTreeSet<&str> = BTreeSet::new();
    let leaves = |pod: &&Pod| pod.is_leaving && !pod.node.is_empty() && question.now < pod.leaves_at.saturating_add(LEAVES_WITHIN);
    for pod in question.cluster.pods().filter(leaves) {
        left.insert(&pod.node);
        trial.remove_pod(&pod.namespace, &pod.name);
    }
    let may = |node: &str| left.contains(node) || offered.contains(node);
    matches!(question.gang_verdict(&trial, &mut attempt(reservations), &may), (Verdict::Node(_), _))
}

/// A trial reserves nothing, and earlier failures don't apply to the changed cluster.
fn attempt(reservations: &Reservations) -> Reservations {
    let mut attempt = reservations.clone();
    attempt.retry();
    attempt
}

/// The cluster without all victims, and the nodes whose victims are of a complete gang. It doesn't matter for a node that the victims of
/// others are also gone.
fn without(cluster: &Cluster, victims: &BTreeMap<String, MetaVictims>) -> (Cluster, BTreeSet<String>) {
    let (mut trial, mut breaking) = (cluster.clone(), BTreeSet::new());
    for (node, victims) in victims {
        let uids: HashSet<&str> = victims.uids().collect();
        for pod in cluster.pods_on(node).filter(|pod| uids.contains(pod.uid.as_str())) {
            if pod.gang.as_ref().is_some_and(|gang| is_whole(cluster, &pod.namespace, &gang.name)) {
                breaking.insert(node.clone());
            }
            trial.remove_pod(&pod.namespace, &pod.name);
        }
    }
    (trial, breaking)
}

/// Removes the nodes that are reserved for a gang, and those that a policy excludes. Returns why policies failed, if they did.
fn usable(
    question: &Question<'_>,
    trial: &Cluster,
    reservations: &Reservations,
    victims: &mut BTreeMap<String, MetaVictims>,
) -> Option<Undecided> {
    let pod = question.pod;
    victims.retain(|node, _| reservations.broken_by(trial, pod, node).is_none());
    let known: Vec<&str> = victims.keys().map(String::as_str).filter(|node| trial.node(node).is_some()).collect();
    if !question.is_in_scope || known.is_empty() {
        return None;
    }
    match (question.score)(trial, pod, &Nodes::named(trial, &known), &|node| reservations.held(trial, node, pod)) {
        Err(why) => Some(why),
        Ok(scored) => {
            let excluded: HashSet<String> = scored.excluded(&known).map(str::to_owned).collect();
            victims.retain(|node, _| !excluded.contains(node));
            None
        }
    }
}
