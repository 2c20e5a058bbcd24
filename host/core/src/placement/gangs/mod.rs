//! Gangs: pods that are only useful together. Nodes are reserved for all of them at once, or for none.
//!
//! The reservations exist only in this process and aren't guaranteed by Kubernetes: another scheduler may use the resources, and a restart
//! loses the reservations. In both cases, the members with nodes keep them, and the rest is tried again. If that doesn't succeed in time,
//! the gang restarts from scratch.

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

/// Orders the nodes for one member by the policies, the best first, without excluded ones. The arguments are the cluster with the members
/// that are already placed, the member, the nodes on which it fits, and the reservations of other gangs per node.
pub type Place<'p> = dyn FnMut(&Cluster, &Pod, &[&str], &dyn Fn(&str) -> Option<Resources>) -> Vec<String> + 'p;

/// The verdict for a pod that the scheduler asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No reservation applies: only its own rules and the policies determine the node.
    Free,
    /// Only this node, which is reserved for the pod.
    Node(String),
    /// It waits, for this reason.
    Wait(String),
}

/// A gang that has been partly placed for too long: its placed members must be deleted, so that others get their resources and the gang
/// restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub gang: String,
    /// The number of members of the complete gang.
    pub size: usize,
    /// The namespaces, names and uids of its members that have nodes.
    pub placed: Vec<(String, String, String)>,
    /// A member that nothing would recreate: if there is one, no member may be deleted.
    pub irreplaceable: Option<String>,
}

/// The scheduler's question about a pod.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "closures have none")]
pub struct Question<'q> {
    /// The cluster. It must be complete, because missing pods would not be counted.
    pub cluster: &'q Cluster,
    /// The pod.
    pub pod: &'q Pod,
    /// The time, in seconds since 1970.
    pub now: u64,
    /// The duration of reservations, in seconds; 0 disables them.
    pub timeout: u64,
    /// Whether the scheduler could choose a node for the pod.
    pub offered: &'q dyn Fn(&str) -> bool,
    /// Whether the answer is due. The partial result is stored for the next question about the gang.
    pub is_late: &'q dyn Fn() -> bool,
}

/// The reservations for members of gangs: the node of each, and their expiry. A copy is cheap.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    /// By namespace and name.
    gangs: BTreeMap<Arc<PodKey>, Arc<Watched>>,
    /// The members with a reservation on each node, each with the key of its gang.
    by_node: Arc<BTreeMap<String, BTreeSet<(PodKey, String)>>>,
    /// The gangs whose members are created only after the leader is Ready.
    leader_first: BTreeSet<PodKey>,
    /// Increases whenever resources may have become free or policies may decide differently.
    released: u64,
    /// Like `released`, but ignores resources that became free because a member was bound: a scheduler sees these itself.
    freed: u64,
    /// The latest duration of reservations, in seconds.
    timeout: u64,
    /// Whether the last call of `expire` could return gangs.
    returns_overdue: bool,
    /// The version of the cluster in the last full run of `expire`.
    expired: Option<u64>,
}

impl Reservations {
    /// Decides on a pod.
    ///
    /// Nothing is reserved before all members exist, and then for all of them: the first gang that asks and fits completely gets the nodes,
    /// and no gang waits with only a part of its resources. If a gang has been complete, its existing members are all it needs: others may
    /// have ended.
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
            // The time starts now, because the rest couldn't be placed before.
            watched.half_since = watched.half_since.map(|_| now);
        }
        let waits = |reason: String| Verdict::Wait(format!("the gang {} waits: {reason}", gang.name));
        if let Some(obstacle) = watched.obstacle(&members, question) {
            watched.found.clear();
            return waits(obstacle);
        }
        self.find_node(&key, &members, question, place).map_or_else(waits, Verdict::Node)
    }

    /// The node that is reserved for a member, found by a trial if necessary.
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
        // The gang's own reservations are free for the trial.
        let before = std::mem::take(&mut watched.holds);
        let tried = self.attempt(key, question, place);
        let watched = self.watched(key);
        match (tried, refused) {
            (Ok(mut holds), refused) => {
                // A scheduler that offers different nodes each time doesn't extend the reservation.
                let until = if refused.is_some() { watched.until } else { until };
                // They are retained in case the scheduler fails to bind a member and asks again.
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
                // The other members can still be bound, and the scheduler may offer the node later.
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

    /// Tries to place all members without a node, as if nothing were reserved for them.
    fn attempt(&self, key: &PodKey, question: Question<'_>, place: &mut Place<'_>) -> Result<BTreeMap<String, Hold>, Failure> {
        let Question { cluster, pod, offered, is_late, .. } = question;
        let mut base = cluster.clone();
        base.forget(&pod.namespace, &pod.name);
        if base.pod(&pod.namespace, &pod.name).is_none_or(|known| known.uid != pod.uid) {
            base.put_pod(pod.clone());
        }
        let mut members = Members::find(&base, &key.0, &key.1, Some(pod));
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

    /// The resources that are reserved on a node for pods other than this one.
    pub fn held(&self, cluster: &Cluster, node: &str, but: &Pod) -> Option<Resources> {
        self.by_node.get(node)?;
        let held = self.sum(cluster, node, |gang, member| gang.0 != but.namespace || member != but.name);
        (!held.is_empty()).then_some(held)
    }

    /// The gang (namespace and name) whose reservation a pod with its requests would break on a node; none if it breaks none. Reservations
    /// for members with a lower priority are ignored.
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

    /// The reserved nodes of a gang's unbound members: the name of each member with its node.
    pub fn places(&self, namespace: &str, gang: &str) -> impl Iterator<Item = (&str, &str)> + use<'_> {
        let watched = self.gangs.get(&(namespace.to_owned(), gang.to_owned()));
        watched.into_iter().flat_map(|watched| &watched.holds).map(|(name, hold)| (name.as_str(), hold.node.as_str()))
    }

    /// Removes obsolete reservations: those of bound members and of deleted gangs, and expired ones. Returns the gangs that have been
    /// partly placed for longer than the timeout. It never returns a gang that has been complete, or one with a Ready member, which may
    /// have been complete before this process started. Without `is_ours`, it returns none. With it, it also returns gangs that no scheduler
    /// has asked about, if `is_ours` is true for a placed member: a scheduler doesn't ask about a pod that fits nowhere.
    ///
    /// It also records which gangs are complete, so call it often. If nothing has changed, it costs nothing.
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
                // If the deletion fails, the gang is returned again after the same time.
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

    /// Removes expired reservations. Unlike `expire`, it is cheap enough for each question.
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

    /// Places the leader of a gang on its own, because the other members are created only after it is Ready.
    pub fn put_leader_first(&mut self, namespace: &str, gang: &str) {
        self.leader_first.insert((namespace.to_owned(), gang.to_owned()));
    }

    /// Whether the search for a gang's nodes took too long for one answer and continues with the next question.
    pub fn is_searching(&self, namespace: &str, gang: &str) -> bool {
        self.gangs.get(&(namespace.to_owned(), gang.to_owned())).is_some_and(|watched| !watched.found.is_empty())
    }

    /// Increases whenever pods that found no node may find one although the cluster hasn't changed.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// The next time at which `expire` must run even if the cluster doesn't change.
    pub fn next_expiry(&self) -> Option<u64> {
        let ends = |watched: &Arc<Watched>| {
            let held = (!watched.holds.is_empty()).then_some(watched.until);
            held.into_iter().chain(watched.overdue_at(self.timeout).filter(|_| self.returns_overdue))
        };
        self.gangs.values().flat_map(ends).min()
    }

    /// Retries gangs that found no nodes, and rechecks reservations, because the policies, the settings or the whole cluster have changed.
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

    /// Records the state of a gang, and removes obsolete reservations.
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

    /// Records that reserved resources have become available to others.
    fn free(&mut self) {
        self.released += 1;
        self.freed += 1;
        self.reindex();
    }

    /// Records that the reservations of a gang were replaced.
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

    /// Whether every member without a node has a reservation. False if a member was deleted and has a successor.
    fn is_reserved(&self, key: &PodKey, members: &Members<'_>) -> bool {
        let Some(watched) = self.gangs.get(key) else { return false };
        !watched.holds.is_empty() && members.unbound.iter().filter(|pod| watched.hold(pod).is_some()).count() >= members.unplaced()
    }

    /// Whether a gang's reservations still fit: nodes may be removed, cordoned, or used by pods of other schedulers.
    fn still_fits(&self, key: &PodKey, members: &Members<'_>, question: Question<'_>) -> bool {
        let Question { cluster, pod, .. } = question;
        let Some(watched) = self.gangs.get(key) else { return false };
        // The check skips assumed members, so it is repeated if the scheduler asks about one again.
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

    /// Whether the resources that a gang reserves on a node are free, in addition to the reservations of others.
    fn has_room(&self, key: &PodKey, cluster: &Cluster, node: &str, state: &NodeState) -> bool {
        let ours = self.sum(cluster, node, |gang, _| gang == key);
        let mut free = state.free();
        free.subtract(&self.sum(cluster, node, |gang, _| gang != key));
        ours.lacking(&free).is_none()
    }

    /// The total reservation on a node for the matching members.
    fn sum(&self, cluster: &Cluster, node: &str, counts: impl Fn(&PodKey, &str) -> bool) -> Resources {
        let mut sum = Resources::default();
        for (_, _, hold) in self.holders(cluster, node).filter(|(gang, member, _)| counts(gang, member)) {
            sum.add(&hold.requests);
        }
        sum
    }

    /// The members with a reservation on a node, without those that the cluster already counts on a node.
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

/// Whether some members of a gang have nodes, others don't, and none is Ready.
pub fn is_half(cluster: &Cluster, namespace: &str, gang: &str) -> bool {
    let members = Members::find(cluster, namespace, gang, None);
    members.are_half() && !members.bound.iter().any(|pod| pod.is_ready)
}
