//! Selects the nodes that may run a pod, out of those that fit it.

use super::{
    super::wire::{ExtenderFilterResult, MAX_PRIORITY, NodeName},
    Question,
    kept::Kept,
};
use pointsman_core::{
    decide::Undecided,
    placement::{
        NodeNames, Nodes, PodKey,
        gangs::{Reservations, Verdict},
        question::Scored,
    },
};
use std::collections::{BTreeMap, HashSet};

/// The result of a call.
pub(super) struct Filtered<'a> {
    pub(super) result: ExtenderFilterResult<'a>,
    /// The verdict on a member of a gang.
    pub(super) verdict: Option<Verdict>,
    /// The scored nodes.
    pub(super) scored: Option<ScoredNodes>,
    /// Why they weren't scored.
    pub(super) undecided: Option<Undecided>,
}

/// Nodes with their scores.
pub(super) struct ScoredNodes {
    pub(super) names: NodeNames,
    /// The positions of the nodes among all names, in the order of the scores.
    pub(super) places: Vec<usize>,
    /// The nodes that were also offered, but aren't known yet.
    unknown: Vec<String>,
    pub(super) scored: Scored,
}

impl ScoredNodes {
    /// The nodes, in the order of the scores.
    fn nodes(&self) -> impl Iterator<Item = &str> {
        self.names.at(&self.places)
    }

    /// The scores, for the next calls.
    pub(super) fn keep(&self, uid: String) -> Kept {
        let scores = self.places.iter().copied().zip(self.scored.scores.iter().copied());
        Kept::new(uid, self.names.clone(), scores, self.unknown.clone())
    }
}

impl<'a> Filtered<'a> {
    fn new(result: ExtenderFilterResult<'a>) -> Self {
        Self { result, verdict: None, scored: None, undecided: None }
    }
}

/// Filters nodes for a pod that is in no gang.
pub(super) fn filter<'a>(question: &Question<'_>, reservations: &Reservations, names: Vec<NodeName<'a>>) -> Filtered<'a> {
    if question.is_in_scope {
        return scored(question, reservations, names);
    }
    let (names, failed) = unbroken(question, reservations, names);
    Filtered::new(ExtenderFilterResult::passing_without(names, failed))
}

/// Filters nodes for a member of a gang.
pub(super) fn filter_member<'a>(question: &Question<'_>, reservations: &mut Reservations, names: Vec<NodeName<'a>>) -> Filtered<'a> {
    let offered: HashSet<&str> = names.iter().map(|name| &**name).collect();
    let (verdict, undecided) = question.gang_verdict(question.cluster, reservations, &|node| offered.contains(node));
    let is_offered = matches!(&verdict, Verdict::Node(node) if offered.contains(node.as_str()));
    let filtered = match &verdict {
        Verdict::Free => scored(question, reservations, names),
        Verdict::Wait(why) => Filtered::new(ExtenderFilterResult::none(&names, why)),
        // Every node is scored, so that the choice can be explained.
        Verdict::Node(node) if is_offered => {
            let mut filtered = scored(question, reservations, names);
            filtered.result = ExtenderFilterResult::passing(vec![node.clone().into()]);
            if let Some(nodes) = &mut filtered.scored {
                nodes.scored.ranks = nodes.nodes().map(|name| if name == node { MAX_PRIORITY } else { 0 }).collect();
            }
            filtered
        }
        Verdict::Node(node) => Filtered::new(ExtenderFilterResult::none(
            &names,
            &format!("the node {node} is reserved for it, but the scheduler doesn't offer it"),
        )),
    };
    Filtered { verdict: Some(verdict), undecided: filtered.undecided.or(undecided), ..filtered }
}

/// Scores the nodes that violate no reservation with the policies. If the policies fail, all of these pass; so does a node that isn't known
/// here yet, behind all others.
pub(super) fn scored<'a>(question: &Question<'_>, reservations: &Reservations, names: Vec<NodeName<'a>>) -> Filtered<'a> {
    let Question { cluster, pod, .. } = *question;
    let (mut names, mut failed) = unbroken(question, reservations, names);
    let (mut places, mut unknown) = (Vec::with_capacity(names.len()), Vec::new());
    for name in &names {
        match cluster.names().find(name).filter(|at| cluster.node_at(*at).is_some()) {
            Some(place) => places.push(place),
            None => unknown.push(name.to_string()),
        }
    }
    if places.is_empty() {
        return Filtered::new(ExtenderFilterResult::passing_without(names, failed));
    }
    let nodes = Nodes::at(cluster, &places);
    let (scored, undecided) = match (question.score)(cluster, pod, &nodes, &|node| reservations.held(cluster, node, pod)) {
        Err(why) => (None, Some(why)),
        Ok(scored) => {
            let excluded: HashSet<&str> = scored.excluded(nodes.names()).collect();
            if !excluded.is_empty() {
                let why = excluded_by(&scored);
                failed.extend(excluded.iter().map(|node| ((*node).to_owned(), why.clone())));
                names.retain(|name| !excluded.contains(&**name));
            }
            (Some(ScoredNodes { names: cluster.names().clone(), places, unknown, scored }), None)
        }
    };
    let result = ExtenderFilterResult::passing_without(names, failed);
    Filtered { result, verdict: None, scored, undecided }
}

/// The reason for a node that a policy has excluded.
fn excluded_by(scored: &Scored) -> String {
    let plugins: Vec<&str> = scored.plugins.iter().map(|plugin| plugin.plugin.as_str()).collect();
    match plugins.as_slice() {
        [only] => format!("the policy {only} excludes the node"),
        _ => format!("one of the policies {} excludes the node", plugins.join(", ")),
    }
}

/// The nodes on which the pod takes no resources that are reserved for a gang, and the reasons for the others.
fn unbroken<'a>(
    question: &Question<'_>,
    reservations: &Reservations,
    mut names: Vec<NodeName<'a>>,
) -> (Vec<NodeName<'a>>, BTreeMap<String, String>) {
    let mut failed = BTreeMap::new();
    names.retain(|name| match reservations.broken_by(question.cluster, question.pod, name) {
        None => true,
        Some(gang) => {
            failed.insert(name.to_string(), reserved_for(&gang, &question.pod.namespace));
            false
        }
    });
    (names, failed)
}

/// The reason for a node whose free resources a gang needs. The name of another namespace's gang isn't shown.
fn reserved_for((namespace, gang): &PodKey, own: &str) -> String {
    if namespace == own {
        format!("the free resources of the node are reserved for the gang {gang}")
    } else {
        "the free resources of the node are reserved for a gang of another namespace".to_owned()
    }
}
