//! Tries to place all remaining members of a gang, on a copy of the cluster.

use super::{Place, members::leads};
use crate::placement::{
    Cluster, NodeState, Pod, Resources,
    fit::{Fit, Misfit, misfit_by_rules, summary},
};
use std::{collections::BTreeMap, sync::Arc};

/// The maximum number of orders that are tried. A member that finds no node goes first in the next order.
const MAX_ORDERS: usize = 3;

/// The inputs of a trial.
pub(super) struct Trial<'t> {
    /// The cluster, in which none of these members has a node.
    pub(super) base: &'t Cluster,
    /// The members without a node, in order.
    pub(super) unbound: &'t [&'t Pod],
    /// The number of members with a node.
    pub(super) placed: usize,
    pub(super) size: usize,
    /// The reservations of other gangs, by node.
    pub(super) others: &'t BTreeMap<String, Resources>,
    /// Whether the scheduler permits a node for a member.
    pub(super) may: &'t dyn Fn(&Pod, &str) -> bool,
    /// The members' nodes that an earlier trial found before its answer was due. Policies aren't called about these again.
    pub(super) found: Option<&'t BTreeMap<String, String>>,
    /// Whether the answer is due.
    pub(super) is_late: &'t dyn Fn() -> bool,
}

/// The failure to place a member.
pub(super) struct Failure {
    /// The message.
    pub(super) sentence: String,
    /// Whether the failure lasts until the cluster changes: no node was omitted because the scheduler doesn't offer it.
    pub(super) lasts: bool,
    /// The nodes that were found, if the answer was due before the end.
    pub(super) found: BTreeMap<String, String>,
}

/// Members with identical rules and requests.
struct Group<'t> {
    /// One of them.
    model: &'t Pod,
    number: usize,
    /// The nodes on which at least one of them fits, apart from rules that involve other pods.
    nodes: Vec<&'t str>,
    /// The maximum number of them that fit.
    room: usize,
    /// The number of other nodes, by misfit.
    misfits: BTreeMap<Misfit, usize>,
}

#[derive(Clone, Copy)]
struct Member<'g> {
    pod: &'g Pod,
    group: &'g Group<'g>,
}

/// The member at which an order failed.
struct Stuck {
    /// The position of the member in the order.
    at: usize,
    placed: Vec<(String, String)>,
    /// The reason; none if the answer is due.
    reason: Option<String>,
}

impl Trial<'_> {
    /// The node of each placed member: as many as are missing.
    pub(super) fn run(&self, place: &mut Place<'_>) -> Result<Vec<(String, String)>, Failure> {
        let groups = self.groups();
        let placeable = self.placed + groups.iter().map(|group| group.room.min(group.number)).sum::<usize>();
        if placeable < self.size
            && let Some(group) = groups.iter().find(|group| group.room < group.number)
        {
            let alike = self.unbound.iter().filter(|pod| is_alike(group.model, pod));
            let name = alike.map(|pod| pod.name.as_str()).nth(group.room).unwrap_or_default();
            let sentence = self.sentence(placeable, name, &summary(&self.misfits_when_full(group)));
            return Err(Failure { sentence, lasts: true, found: BTreeMap::new() });
        }
        let member = |pod| groups.iter().find(|group| is_alike(group.model, pod)).map(|group| Member { pod, group });
        let mut order: Vec<Member<'_>> = self.unbound.iter().copied().filter_map(member).collect();
        let mut barred = false;
        let mut farthest: Option<(usize, String)> = None;
        for _ in 0..MAX_ORDERS {
            let stuck = match self.attempt(&order, place, &mut barred) {
                Ok(placed) => return Ok(placed),
                Err(stuck) => stuck,
            };
            let Some(member) = order.get(stuck.at).copied() else { break };
            let number = stuck.placed.len();
            let Some(reason) = stuck.reason else {
                // After one failed order, the remaining search isn't worth another question.
                if farthest.is_some() {
                    break;
                }
                let sentence = format!("nodes are found for {} of {}, and the search continues", self.placed + number, self.size);
                return Err(Failure { sentence, lasts: false, found: stuck.placed.into_iter().collect() });
            };
            if farthest.as_ref().is_none_or(|(placed, _)| *placed < number) {
                farthest = Some((number, self.sentence(self.placed + number, &member.pod.name, &reason)));
            }
            // If only identical members precede it, moving it to the front changes nothing.
            if order.iter().take(stuck.at).all(|before| std::ptr::eq(before.group, member.group)) {
                break;
            }
            order.remove(stuck.at);
            order.insert(0, member);
        }
        let sentence = farthest.map(|(_, sentence)| sentence).unwrap_or_default();
        Err(Failure { sentence, lasts: !barred, found: BTreeMap::new() })
    }

    fn sentence(&self, placeable: usize, member: &str, reason: &str) -> String {
        format!("{placeable} of {} fit; member {member} finds no node: {reason}", self.size)
    }

    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for pod in self.unbound {
            if let Some(group) = groups.iter_mut().find(|group| is_alike(group.model, pod)) {
                group.number += 1;
            } else {
                groups.push(self.group(pod));
            }
        }
        groups
    }

    fn group<'s>(&'s self, model: &'s Pod) -> Group<'s> {
        let mut group = Group { model, number: 1, nodes: Vec::new(), room: 0, misfits: BTreeMap::new() };
        for (name, state) in self.base.nodes() {
            if let Some(misfit) = misfit_by_rules(model, name, &state.node).or_else(|| self.lacking(model, name, state)) {
                *group.misfits.entry(misfit).or_default() += 1;
            } else {
                group.nodes.push(name);
                group.room = group.room.saturating_add(self.room(model, name, state));
            }
        }
        group
    }

    /// The amount of one resource on a node that is free for the gang.
    fn free(&self, node: &str, state: &NodeState, resource: &str) -> i64 {
        let held = self.others.get(node).map_or(0, |held| held.get(resource));
        state.free_amount(resource).saturating_sub(held)
    }

    fn lacking(&self, pod: &Pod, name: &str, state: &NodeState) -> Option<Misfit> {
        let lacks = |(resource, amount): &(&str, i64)| *amount > 0 && *amount > self.free(name, state, resource);
        pod.requests.iter().find(lacks).map(|(resource, _)| Misfit::Resource(resource.to_owned()))
    }

    /// The number of pods like this one that fit on a node, and the scarcest resource.
    fn scarcest<'p>(&self, pod: &'p Pod, name: &str, state: &NodeState) -> Option<(i64, &'p str)> {
        let requests = pod.requests.iter().filter(|(_, amount)| *amount > 0);
        requests.map(|(resource, amount)| (self.free(name, state, resource) / amount, resource)).min()
    }

    fn room(&self, pod: &Pod, name: &str, state: &NodeState) -> usize {
        let most = self.scarcest(pod, name, state).map_or(i64::MAX, |(most, _)| most);
        let most = if pod.host_ports.is_empty() { most } else { most.min(1) };
        usize::try_from(most).unwrap_or_default()
    }

    /// The misfits of one more member, once the nodes are full.
    fn misfits_when_full(&self, group: &Group<'_>) -> BTreeMap<Misfit, usize> {
        let mut misfits = group.misfits.clone();
        for (name, state) in group.nodes.iter().filter_map(|name| Some((*name, self.base.node(name)?))) {
            let scarcest = self.scarcest(group.model, name, state).filter(|_| group.model.host_ports.is_empty());
            let misfit = scarcest.map_or(Misfit::Ports, |(_, resource)| Misfit::Resource(resource.to_owned()));
            *misfits.entry(misfit).or_default() += 1;
        }
        misfits
    }

    /// Places the members in order. Surplus members are omitted, first those that find no node.
    fn attempt(&self, order: &[Member<'_>], place: &mut Place<'_>, barred: &mut bool) -> Result<Vec<(String, String)>, Stuck> {
        // Assumed members may repel each other too.
        let repelling: Vec<&Pod> = self.base.pods().filter(|pod| pod.rules.repels()).collect();
        let missing = self.size.saturating_sub(self.placed);
        let mut spare = order.len().saturating_sub(missing);
        let mut trial = self.base.clone();
        let mut placed = Vec::new();
        for (at, member) in order.iter().enumerate() {
            if placed.len() == missing {
                break;
            }
            if let Some(node) = self.known_node(&trial, *member, &repelling) {
                trial.assume(&member.pod.namespace, &member.pod.name, node);
                placed.push((member.pod.name.clone(), node.to_owned()));
                continue;
            }
            // Each answer finds a node for at least one more member.
            if is_new(&placed, self.found) && (self.is_late)() {
                return Err(Stuck { at, placed, reason: None });
            }
            match self.find_node(&trial, *member, &repelling, place, barred) {
                Ok(node) => {
                    trial.assume(&member.pod.namespace, &member.pod.name, &node);
                    placed.push((member.pod.name.clone(), node));
                }
                Err(_) if spare > 0 && !leads(member.pod) => spare -= 1,
                Err(reason) => return Err(Stuck { at, placed, reason: Some(reason) }),
            }
        }
        Ok(placed)
    }

    /// The node that an earlier trial found for a member, if it still fits.
    fn known_node<'s>(&'s self, trial: &Cluster, member: Member<'_>, repelling: &[&Pod]) -> Option<&'s str> {
        let Member { pod, group } = member;
        let name = self.found?.get(&pod.name)?.as_str();
        // The nodes are sorted by name.
        group.nodes.binary_search(&name).ok()?;
        let state = trial.node(name).filter(|state| self.lacking(pod, name, state).is_none() && (self.may)(pod, name))?;
        let fit = Fit::beside(trial, pod, repelling.iter().filter_map(|other| trial.pod(&other.namespace, &other.name)));
        fit.misfit_around(name, &state.node).is_none().then_some(name)
    }

    /// The best node for a member, or why there is none.
    fn find_node(
        &self,
        trial: &Cluster,
        member: Member<'_>,
        repelling: &[&Pod],
        place: &mut Place<'_>,
        barred: &mut bool,
    ) -> Result<String, String> {
        let Member { pod, group } = member;
        let fit = Fit::beside(trial, pod, repelling.iter().filter_map(|other| trial.pod(&other.namespace, &other.name)));
        let mut misfits = group.misfits.clone();
        let mut candidates: Vec<&str> = Vec::new();
        let mut not_offered = 0_usize;
        for (name, state) in group.nodes.iter().filter_map(|name| Some((*name, trial.node(name)?))) {
            match self.lacking(pod, name, state).or_else(|| fit.misfit_around(name, &state.node)) {
                Some(misfit) => *misfits.entry(misfit).or_default() += 1,
                None if (self.may)(pod, name) => candidates.push(name),
                None => not_offered += 1,
            }
        }
        *barred |= not_offered > 0;
        if candidates.is_empty() {
            return Err(match not_offered {
                0 => summary(&misfits),
                1 => "the scheduler doesn't offer the node that fits".to_owned(),
                nodes => format!("the scheduler offers none of the {nodes} nodes that fit"),
            });
        }
        let held = |node: &str| self.others.get(node).cloned();
        let ordered = place(trial, pod, &candidates, &held);
        let best = ordered.into_iter().find(|node| candidates.contains(&node.as_str()));
        best.ok_or_else(|| match candidates.len() {
            1 => "policies exclude the node that fits".to_owned(),
            nodes => format!("policies exclude all {nodes} nodes that fit"),
        })
    }
}

/// Whether one of these nodes wasn't known before.
fn is_new(placed: &[(String, String)], found: Option<&BTreeMap<String, String>>) -> bool {
    placed.iter().any(|(name, node)| found.and_then(|found| found.get(name)) != Some(node))
}

/// Whether two members fit on the same nodes, apart from rules that involve other pods.
fn is_alike(a: &Pod, b: &Pod) -> bool {
    a.requests == b.requests && a.host_ports == b.host_ports && (Arc::ptr_eq(&a.rules, &b.rules) || a.rules == b.rules)
}
