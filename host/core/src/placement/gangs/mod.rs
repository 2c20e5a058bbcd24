//! Gangs: pods that are of use only together. Their nodes are reserved for all of them at once, or for none.
//!
//! What is reserved is known to this process alone and is no promise of Kubernetes: another scheduler may take the room, and a restart
//! forgets it. Either way the members that have nodes keep them, and the rest is tried again. If that doesn't succeed in time, the gang
//! starts again from scratch.

mod members;
mod trial;
mod watched;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use super::{Cluster, NodeState, Pod, PodKey, Resources, fit::misfit_by_rules};
use members::Members;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use trial::{Failure, Trial};
use watched::{Failed, Hold, Watched};

/// Orders the nodes for one member by the policies, best first, without those that they exclude. It gets the cluster with what the
/// members before it take, the member, the nodes that it fits on, and what other gangs hold of a node.
pub type Place<'p> = dyn FnMut(&Cluster, &Pod, &[&str], &dyn Fn(&str) -> Option<Resources>) -> Vec<String> + 'p;

/// What is to become of a pod that the scheduler asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in no gang, or in one that nothing is reserved for: its own rules and the policies decide.
    Free,
    /// This node, and no other: it is reserved for the pod.
    Node(String),
    /// It waits, and why.
    Wait(String),
}

/// A gang that has been placed in part for too long: its placed members are to be deleted, so that others get their room and it starts
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub gang: String,
    /// How many members it has when it is whole.
    pub size: usize,
    /// The namespaces, names and uids of its members that have nodes.
    pub placed: Vec<(String, String, String)>,
    /// One of them that nothing would create again: none is to be deleted then.
    pub irreplaceable: Option<String>,
}

/// What the scheduler asks: a pod, and when.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "closures have none")]
pub struct Question<'q> {
    /// The cluster. It must be complete, since pods that it doesn't contain take nothing.
    pub cluster: &'q Cluster,
    /// The pod.
    pub pod: &'q Pod,
    /// Seconds since 1970.
    pub now: u64,
    /// How long nodes are reserved, in seconds; with 0 none is.
    pub timeout: u64,
    /// Whether the scheduler could choose a node for the pod.
    pub offered: &'q dyn Fn(&str) -> bool,
    /// Whether the answer is due. What was found until then is kept for the next question about the gang.
    pub is_late: &'q dyn Fn() -> bool,
}

/// What is held for the members of gangs: which node each goes to, and until when. A copy is cheap.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    /// By namespace and name.
    gangs: BTreeMap<Arc<PodKey>, Arc<Watched>>,
    /// The members that something of a node is held for, each with the key of its gang.
    by_node: Arc<BTreeMap<String, BTreeSet<(PodKey, String)>>>,
    /// The gangs whose members are created only once the leader is Ready.
    leader_first: BTreeSet<PodKey>,
    /// Grows whenever something that was held may be free again, or policies may decide otherwise.
    released: u64,
    /// The same, without what became free because a member was bound: that, a scheduler sees.
    freed: u64,
    /// As it was last given, in seconds.
    timeout: u64,
    /// Whether `expire` returned gangs when it last looked.
    returns_overdue: bool,
    /// The version of the cluster in which `expire` last looked at all gangs.
    expired: Option<u64>,
}

impl Reservations {
    /// What is to become of a pod.
    ///
    /// Nothing is reserved before all members exist, and then for all of them: the first gang that asks and fits as a whole gets the nodes,
    /// and none waits with a part of what it needs. Of a gang that has been whole, those that exist are all: members may have ended.
    pub fn decide(&mut self, question: Question<'_>, place: &mut Place<'_>) -> Verdict {
        let Question { cluster, pod, now, timeout, .. } = question;
        let Some(gang) = pod.gang.as_ref().filter(|gang| !gang.native && timeout > 0) else { return Verdict::Free };
        self.timeout = timeout;
        let mut members = Members::find(cluster, &pod.namespace, &gang.name, Some(pod));
        let key = (pod.namespace.clone(), gang.name.clone());
        self.settle(&key, &members, now);
        if let Some(bound) = members.bound.iter().find(|member| member.uid == pod.uid) {
            return Verdict::Node(bound.node.clone());
        }
        let comes_first = gang.leads && self.leader_first.contains(&key);
        if (members.missing() == 0 || comes_first) && !pod.is_leaving {
            return Verdict::Free;
        }
        let watched = self.watched(&key);
        watched.limit_size(&mut members);
        if !std::mem::replace(&mut watched.is_asked, true) {
            // However long it has been placed in part, this is the first chance to place the rest.
            watched.half_since = watched.half_since.map(|_| now);
        }
        let waits = |reason: String| Verdict::Wait(format!("the gang {} waits: {reason}", gang.name));
        if let Some(obstacle) = watched.obstacle(&members, question) {
            watched.found.clear();
            return waits(obstacle);
        }
        self.find_node(&key, &members, question, place).map_or_else(waits, Verdict::Node)
    }

    /// The node that is reserved for a member, if need be by a trial.
    fn find_node(&mut self, key: &PodKey, members: &Members<'_>, question: Question<'_>, place: &mut Place<'_>) -> Result<String, String> {
        let Question { cluster, pod, now, offered, .. } = question;
        let (version, until) = (cluster.version(), now.saturating_add(self.timeout));
        let comes_after = || format!("its {} members take precedence over this pod", members.size);
        let fits = self.is_reserved(key, members) && self.still_fits(key, members, question);
        let released = self.released;
        let watched = self.watched(key);
        if members.unplaced() == 0 {
            watched.found.clear();
            return Err(comes_after());
        }
        let mut refused = None;
        if fits {
            watched.fits_in = Some(version);
            let node = watched.hold(pod).map(|hold| hold.node.clone()).ok_or_else(comes_after)?;
            if offered(&node) {
                return Ok(node);
            }
            watched.refused.entry(pod.name.clone()).or_default().insert(node.clone(), until);
            refused = Some(node);
        } else if let Some(failed) = watched.failed.as_ref().filter(|failed| (failed.version, failed.released) == (version, released)) {
            return Err(failed.sentence.clone());
        }
        // Its own room is free for the trial.
        let before = std::mem::take(&mut watched.holds);
        let tried = self.attempt(key, question, place);
        let watched = self.watched(key);
        match (tried, refused) {
            (Ok(mut holds), refused) => {
                // A scheduler that offers other nodes each time doesn't hold them for longer.
                let until = if refused.is_some() { watched.until } else { until };
                // If the scheduler fails to bind a member, it asks again.
                for pod in &members.assumed {
                    if let Some(hold) = before.get(&pod.name).filter(|hold| hold.uid == pod.uid && hold.node == pod.node) {
                        holds.insert(pod.name.clone(), hold.clone());
                    }
                }
                (watched.holds, watched.until, watched.fits_in, watched.failed) = (holds, until, Some(version), None);
                watched.found.clear();
                let node = watched.holds.get(&pod.name).map(|hold| hold.node.clone());
                self.replaced(&before);
                node.ok_or_else(comes_after)
            }
            (Err(_), Some(node)) => {
                // The others can still be bound, and the scheduler may offer the node later.
                watched.holds = before;
                watched.found.clear();
                Err(format!("the scheduler doesn't offer the node {node}, which is reserved for this member"))
            }
            (Err(Failure { sentence, lasts, found }), None) => {
                watched.found = found;
                self.replaced(&before);
                let failed = Failed { version, released: self.released, sentence: sentence.clone() };
                self.watched(key).failed = lasts.then_some(failed);
                Err(sentence)
            }
        }
    }

    /// Tries to place all members that are yet to get a node; nothing is held for them meanwhile.
    fn attempt(&self, key: &PodKey, question: Question<'_>, place: &mut Place<'_>) -> Result<BTreeMap<String, Hold>, Failure> {
        let Question { cluster, pod, offered, is_late, .. } = question;
        let mut base = cluster.clone();
        base.forget(&pod.namespace, &pod.name);
        if base.pod(&pod.namespace, &pod.name).is_none_or(|known| known.uid != pod.uid) {
            base.put_pod(pod.clone());
        }
        let mut members = Members::find(&base, &key.0, &key.1, None);
        let watched = self.gangs.get(key);
        if let Some(watched) = watched {
            watched.limit_size(&mut members);
        }
        let (refused, found) = (watched.map(|watched| &watched.refused), watched.map(|watched| &watched.found));
        let is_refused =
            |member: &str, node: &str| refused.and_then(|refused| refused.get(member)).is_some_and(|nodes| nodes.contains_key(node));
        let may = |member: &Pod, node: &str| if member.uid == pod.uid { offered(node) } else { !is_refused(&member.name, node) };
        let others = self.by_node.keys().map(|node| (node.clone(), self.sum(cluster, node, |_, _| true)));
        let others: BTreeMap<String, Resources> = others.collect();
        let (placed, size) = (members.bound.len() + members.assumed.len(), members.size);
        let trial = Trial { base: &base, unbound: &members.unbound, placed, size, others: &others, may: &may, found, is_late };
        let nodes: BTreeMap<String, String> = trial.run(place)?.into_iter().collect();
        let hold = |member: &&Pod| {
            let node = nodes.get(&member.name)?.clone();
            Some((member.name.clone(), Hold { uid: member.uid.clone(), node, requests: member.requests.clone() }))
        };
        Ok(members.unbound.iter().filter_map(hold).collect())
    }

    /// What is held of a node for others than this pod.
    pub fn held(&self, cluster: &Cluster, node: &str, but: &Pod) -> Option<Resources> {
        self.by_node.get(node)?;
        let held = self.sum(cluster, node, |gang, member| gang.0 != but.namespace || member != but.name);
        (!held.is_empty()).then_some(held)
    }

    /// Whether a pod that takes its requests of a node would break a reservation: the gang's namespace and name. What is held for members of a
    /// lower priority doesn't keep it off.
    pub fn broken_by(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Option<PodKey> {
        self.by_node.get(node)?;
        let is_before = |gang: &PodKey, member: &str| {
            let is_itself = gang.0 == pod.namespace && member == pod.name;
            !is_itself && cluster.pod(&gang.0, member).is_none_or(|member| member.priority >= pod.priority)
        };
        let held = self.sum(cluster, node, is_before);
        let state = cluster.node(node)?;
        let is_counted = state.pods.contains(&pod.key());
        let left = |resource: &str| {
            let requested = if is_counted { 0 } else { pod.requests.get(resource) };
            state.free_amount(resource).saturating_sub(requested)
        };
        let is_short = |(resource, amount): &(&str, i64)| pod.requests.get(resource) > 0 && *amount > left(resource);
        let (resource, _) = held.iter().find(is_short)?;
        let holders = self.holders(cluster, node).filter(|(gang, member, _)| is_before(gang, member));
        let mut gangs = holders.filter(|(_, _, hold)| hold.requests.get(resource) > 0).map(|(gang, _, _)| gang.clone());
        gangs.next()
    }

    /// Where the members of a gang are to go that aren't bound yet: their names, each with its node.
    pub fn places(&self, namespace: &str, gang: &str) -> impl Iterator<Item = (&str, &str)> + use<'_> {
        let watched = self.gangs.get(&(namespace.to_owned(), gang.to_owned()));
        watched.into_iter().flat_map(|watched| &watched.holds).map(|(name, hold)| (name.as_str(), hold.node.as_str()))
    }

    /// Drops what is over: what is held for members that are bound, for gangs that are gone, and what was held for too long. Returns the
    /// gangs that have been placed in part for longer than the timeout. A gang that has been whole once isn't among them, nor one with a
    /// Ready member, which may have been whole before this process started. Without `is_ours` none is. With it,
    /// a gang of which it holds for a placed member is returned although no scheduler has asked about it: a scheduler doesn't ask about a pod
    /// that fits nowhere.
    ///
    /// It also notes which gangs are whole: call it often. If nothing has changed, it costs nothing.
    pub fn expire(&mut self, cluster: &Cluster, now: u64, timeout: u64, is_ours: Option<&dyn Fn(&Pod) -> bool>) -> Vec<Overdue> {
        if timeout == 0 {
            if self.gangs.is_empty() {
                return Vec::new();
            }
            *self = Self { released: self.released + 1, freed: self.freed + 1, ..Self::default() };
            return Vec::new();
        }
        (self.timeout, self.returns_overdue) = (timeout, is_ours.is_some());
        if self.expired == Some(cluster.version()) && self.next_expiry().is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.expired = Some(cluster.version());
        let known = self.gangs.keys().map(|key| PodKey::clone(key));
        let present = cluster.gangs().map(|(namespace, gang)| (namespace.to_owned(), gang.to_owned()));
        let keys: BTreeSet<PodKey> = present.chain(known).collect();
        let mut overdue = Vec::new();
        for key in keys {
            let members = Members::find(cluster, &key.0, &key.1, None);
            self.settle(&key, &members, now);
            let Some(is_ours) = is_ours else { continue };
            let is_unasked_half = |watched: &Arc<Watched>| watched.half_since.is_some() && !watched.is_asked;
            if self.gangs.get(&key).is_some_and(is_unasked_half) && members.bound.iter().any(|pod| is_ours(pod)) {
                self.watched(&key).is_asked = true;
            }
            let is_overdue = |watched: &Arc<Watched>| watched.overdue_at(timeout).is_some_and(|at| at <= now);
            if self.gangs.get(&key).is_some_and(is_overdue) {
                let watched = self.watched(&key);
                // If the deletion fails, it is tried again after as long.
                (watched.half_since, watched.dissolved_at) = (Some(now), Some(now));
                let placed = members.bound.iter().map(|pod| (pod.namespace.clone(), pod.name.clone(), pod.uid.clone())).collect();
                let irreplaceable = members.bound.iter().find(|pod| !pod.has_controller).map(|pod| pod.name.clone());
                if irreplaceable.is_some() {
                    watched.dissolved_at = None;
                } else if !std::mem::take(&mut watched.holds).is_empty() {
                    self.free();
                }
                overdue.push(Overdue { namespace: key.0, gang: key.1, size: members.size, placed, irreplaceable });
            }
        }
        overdue
    }

    /// Drops what was held for too long. Other than `expire`, it is cheap enough for each question.
    pub fn drop_late(&mut self, now: u64) {
        let is_late = |watched: &Arc<Watched>| !watched.holds.is_empty() && watched.until <= now;
        if !self.gangs.values().any(is_late) {
            return;
        }
        for watched in self.gangs.values_mut().filter(|watched| is_late(watched)) {
            Arc::make_mut(watched).holds.clear();
        }
        self.free();
    }

    /// Places the leader of a gang by itself, since its other members are created only once it is Ready.
    pub fn put_leader_first(&mut self, namespace: &str, gang: &str) {
        self.leader_first.insert((namespace.to_owned(), gang.to_owned()));
    }

    /// Whether the search for the nodes of a gang took too long for one answer: another question goes on with it.
    pub fn is_searching(&self, namespace: &str, gang: &str) -> bool {
        self.gangs.get(&(namespace.to_owned(), gang.to_owned())).is_some_and(|watched| !watched.found.is_empty())
    }

    /// Grows whenever pods may find a node that found none, although nothing in the cluster has changed.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// When `expire` has something to do even if the cluster doesn't change.
    pub fn next_expiry(&self) -> Option<u64> {
        let ends = |watched: &Arc<Watched>| {
            let held = (!watched.holds.is_empty()).then_some(watched.until);
            held.into_iter().chain(watched.overdue_at(self.timeout).filter(|_| self.returns_overdue))
        };
        self.gangs.values().flat_map(ends).min()
    }

    /// Tries gangs again that have found no nodes, and checks what is reserved again: the policies, the settings or the whole cluster are
    /// others.
    pub fn retry(&mut self) {
        self.released += 1;
        self.freed += 1;
        self.expired = None;
        let is_known = |watched: &Arc<Watched>| watched.fits_in.is_some() || !watched.found.is_empty();
        for watched in self.gangs.values_mut().filter(|watched| is_known(watched)) {
            let watched = Arc::make_mut(watched);
            watched.fits_in = None;
            watched.found.clear();
        }
    }

    fn watched(&mut self, key: &PodKey) -> &mut Watched {
        Arc::make_mut(self.gangs.entry(Arc::new(key.clone())).or_default())
    }

    /// Notes how far a gang is, and drops what is over.
    fn settle(&mut self, key: &PodKey, members: &Members<'_>, now: u64) {
        if members.number() == 0 {
            self.leader_first.remove(key);
            if self.gangs.remove(key).is_some_and(|watched| !watched.holds.is_empty()) {
                self.free();
            }
            return;
        }
        let watched = self.watched(key);
        watched.observe(members, now);
        let number = watched.holds.len();
        for pod in &members.bound {
            if watched.holds.get(&pod.name).is_some_and(|hold| hold.uid == pod.uid) {
                watched.holds.remove(&pod.name);
            }
        }
        let left = watched.holds.len();
        if left > 0 && (now >= watched.until || members.missing() == 0) {
            watched.holds.clear();
            self.free();
        } else if left < number {
            self.released += 1;
            self.reindex();
        }
    }

    /// Notes that something is no longer held, and that others may have it.
    fn free(&mut self) {
        self.released += 1;
        self.freed += 1;
        self.reindex();
    }

    /// Notes that other nodes are held, or none.
    fn replaced(&mut self, before: &BTreeMap<String, Hold>) {
        if before.is_empty() {
            self.reindex();
        } else {
            self.free();
        }
    }

    fn reindex(&mut self) {
        let mut by_node = BTreeMap::<String, BTreeSet<(PodKey, String)>>::new();
        for (key, watched) in &self.gangs {
            for (member, hold) in &watched.holds {
                by_node.entry(hold.node.clone()).or_default().insert((PodKey::clone(key), member.clone()));
            }
        }
        self.by_node = Arc::new(by_node);
    }

    /// Whether a node is held for each member that is yet to get one. Not so if one was deleted and has a successor.
    fn is_reserved(&self, key: &PodKey, members: &Members<'_>) -> bool {
        let Some(watched) = self.gangs.get(key) else { return false };
        !watched.holds.is_empty() && members.unbound.iter().filter(|pod| watched.hold(pod).is_some()).count() >= members.unplaced()
    }

    /// Whether all that is held for a gang is still there: nodes are removed, cordoned, and taken by pods of other schedulers.
    fn still_fits(&self, key: &PodKey, members: &Members<'_>, question: Question<'_>) -> bool {
        let Question { cluster, pod, .. } = question;
        let Some(watched) = self.gangs.get(key) else { return false };
        // What is assumed was not looked at, unless the scheduler asks again.
        if watched.fits_in == Some(cluster.version()) && !cluster.is_assumed(&pod.namespace, &pod.name) {
            return true;
        }
        let held = members.unbound.iter().filter_map(|pod| Some((*pod, watched.hold(pod)?.node.as_str())));
        let held: Vec<(&Pod, &str)> = held.collect();
        let takes = |pod: &Pod, node: &str| cluster.node(node).is_some_and(|state| misfit_by_rules(pod, node, &state.node).is_none());
        let has_room = |node: &str| cluster.node(node).is_some_and(|state| self.has_room(key, cluster, node, state));
        let nodes: BTreeSet<&str> = held.iter().map(|(_, node)| *node).collect();
        held.iter().all(|(pod, node)| takes(pod, node)) && nodes.iter().all(|node| has_room(node))
    }

    /// Whether what a gang holds of a node is free, beside what others hold of it.
    fn has_room(&self, key: &PodKey, cluster: &Cluster, node: &str, state: &NodeState) -> bool {
        let ours = self.sum(cluster, node, |gang, _| gang == key);
        let mut free = state.free();
        free.subtract(&self.sum(cluster, node, |gang, _| gang != key));
        ours.lacking(&free).is_none()
    }

    /// What is held of a node for some of the members.
    fn sum(&self, cluster: &Cluster, node: &str, counts: impl Fn(&PodKey, &str) -> bool) -> Resources {
        let mut sum = Resources::default();
        for (_, _, hold) in self.holders(cluster, node).filter(|(gang, member, _)| counts(gang, member)) {
            sum.add(&hold.requests);
        }
        sum
    }

    /// The members that something of a node is held for, without those that the cluster counts on a node already.
    fn holders<'r>(&'r self, cluster: &'r Cluster, node: &str) -> impl Iterator<Item = (&'r PodKey, &'r String, &'r Hold)> + use<'r> {
        let held = self.by_node.get(node).into_iter().flatten();
        let holds = held.filter_map(move |(gang, member)| Some((gang, member, self.gangs.get(gang)?.holds.get(member)?)));
        holds.filter(move |(gang, member, hold)| {
            let is_bound = |pod: &Pod| !pod.node.is_empty() && !cluster.is_assumed(&pod.namespace, &pod.name);
            let is_counted = |pod: &Pod| pod.uid == hold.uid && (pod.node == hold.node || is_bound(pod));
            !cluster.pod(&gang.0, member).is_some_and(is_counted)
        })
    }
}

/// Whether a gang has nodes for some of its members and not for all, and none of them is Ready.
pub fn is_half(cluster: &Cluster, namespace: &str, gang: &str) -> bool {
    let members = Members::find(cluster, namespace, gang, None);
    members.are_half() && !members.bound.iter().any(|pod| pod.is_ready)
}
