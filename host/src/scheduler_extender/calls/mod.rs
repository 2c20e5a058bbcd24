//! Handles a scheduler's calls. Each result is a pure function of the known state (`filter`, `preempt`); this module takes the state from
//! the extender, and stores what the next calls need.

mod filter;
pub(super) mod kept;
mod preempt;

use super::{
    Deciding, Extender, PodReference, Reserving,
    cache::Cache,
    server::Verb,
    unix_now,
    wire::{ExtenderArgs, ExtenderFilterResult, ExtenderPreemptionArgs, ExtenderPreemptionResult, HostPriority, NodeName},
};
use filter::{Filtered, ScoredNodes};
use pointsman_core::{
    decide::{Pinned, Standing, Undecided},
    placement::{
        Cluster, Nodes, Pod, Resources, Settings,
        gangs::{self, Place, Reservations, Verdict},
        question::{self, Scored},
        rank,
    },
};
use pointsman_sandbox::sync::locked;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long nodes are searched for a gang before a call gets a response. A scheduler whose timeout expires would place the member without
/// its gang: the shipped configuration waits twice as long.
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// The error for a scheduler that sends whole nodes.
const NOT_CAPABLE: &str = "the extender needs `nodeCacheCapable: true` in the scheduler's configuration";

/// Why a call can't be parsed.
#[derive(Debug)]
pub(super) struct Refused(pub(super) String);

/// The resources of a node that are reserved for others.
type Reserved<'r> = dyn Fn(&str) -> Option<Resources> + 'r;

/// Scores nodes for a pod with the active policies.
type Score<'s> = dyn Fn(&Cluster, &Pod, &Nodes<'_>, &Reserved<'_>) -> Result<Scored, Undecided> + 's;

/// The inputs of a call.
struct Question<'q> {
    cluster: &'q Cluster,
    settings: &'q Settings,
    pod: &'q Pod,
    is_in_scope: bool,
    /// Seconds since 1970.
    now: u64,
    /// Whether the response is due.
    is_late: &'q dyn Fn() -> bool,
    score: &'q Score<'q>,
}

/// The state when a call arrives.
struct Scene {
    cache: Arc<Cache>,
    cluster: Cluster,
    pod: Arc<Pod>,
    namespace_labels: Arc<BTreeMap<String, String>>,
    is_in_scope: bool,
    started: Instant,
}

/// Whether a pod is placed with its gang.
fn is_member(pod: &Pod, is_in_scope: bool) -> bool {
    is_in_scope && pod.gang.is_some()
}

impl Question<'_> {
    /// Whether the pod is placed with its gang.
    fn is_of_gang(&self) -> bool {
        is_member(self.pod, self.is_in_scope)
    }

    /// The verdict on a member of a gang in a cluster, and why policies failed, if they did: nodes are then taken by name. `offered`
    /// returns whether the scheduler offers a node.
    fn gang_verdict(
        &self,
        cluster: &Cluster,
        reservations: &mut Reservations,
        offered: &dyn Fn(&str) -> bool,
    ) -> (Verdict, Option<Undecided>) {
        let mut undecided = None;
        let mut place: Box<Place<'_>> =
            Box::new(|trial, member, nodes, reserved| match (self.score)(trial, member, &Nodes::named(trial, nodes), reserved) {
                Ok(scored) => scored.order(nodes),
                Err(why) => {
                    undecided = Some(why);
                    nodes.iter().map(|node| (*node).to_owned()).collect()
                }
            });
        let Self { pod, now, is_late, .. } = *self;
        let question = gangs::Question { cluster, pod, now, timeout: self.settings.gang_timeout_seconds, offered, is_late };
        let verdict = reservations.decide(question, &mut *place);
        drop(place);
        (verdict, undecided)
    }
}

impl Scene {
    /// Counts the pod on a node. Drops the shared state first: as long as it is shared, a change copies a part of it.
    fn assume(&mut self, node: &str) {
        self.cluster = Cluster::default();
        self.cache.watched.lock().assume(self.pod.key(), node);
    }

    /// Whether the pod is placed with its gang.
    fn is_of_gang(&self) -> bool {
        is_member(&self.pod, self.is_in_scope)
    }

    /// Reads the current state.
    fn refresh(&mut self) {
        self.cluster = self.cache.watched.lock().cluster.clone();
    }

    /// Runs a function with the inputs of the call.
    fn ask<T>(&self, policies: &Pinned<'_>, ask: impl FnOnce(&Question<'_>) -> T) -> T {
        let Self { cache, cluster, pod, namespace_labels, is_in_scope, started } = self;
        let settings = &*cache.settings;
        let score: Box<Score<'_>> =
            Box::new(|cluster, pod, nodes, reserved| question::score(policies, cluster, settings, pod, nodes, namespace_labels, reserved));
        let is_late = || started.elapsed() > SEARCH_TIME;
        ask(&Question { cluster, settings, pod, is_in_scope: *is_in_scope, now: unix_now(), is_late: &is_late, score: &*score })
    }
}

impl Extender {
    /// The response to a call, as JSON. Blocks while policies decide. Once the call is abandoned, nobody waits for the response.
    pub(super) fn answer(&self, verb: Verb, body: &[u8], is_abandoned: &AtomicBool) -> Result<Vec<u8>, Refused> {
        let answer = match verb {
            Verb::Filter => written(&self.filter(read(body)?)),
            Verb::Prioritize => written(&self.prioritize(read(body)?)),
            // Without a response, the scheduler's own choice of victims applies.
            Verb::Preempt => return written(&self.preempt(read(body)?)),
        };
        if is_abandoned.load(Ordering::Relaxed) {
            let ExtenderArgs { pod, .. } = read(body)?;
            if Pod::from_value(&pod).is_some_and(|pod| pod.is_in_scope(&self.cache.load().settings)) {
                locked(&self.deciding).note_abandoned(PodReference::from_object(&pod));
            }
        }
        answer
    }

    fn scene(&self, object: &Value) -> Option<Scene> {
        let (cache, started) = (self.cache.load_full(), Instant::now());
        // A pod that has ended isn't placed.
        let pod = Arc::new(Pod::from_value(object)?);
        let is_in_scope = pod.is_in_scope(&cache.settings);
        let (cluster, namespace_labels) = {
            let mut seen = cache.watched.lock();
            if is_in_scope {
                seen.learn(&pod);
            }
            (seen.cluster.clone(), seen.namespace_labels(&pod.namespace))
        };
        Some(Scene { cache, cluster, pod, namespace_labels, is_in_scope, started })
    }

    /// Pins the policies for one pod. It is new and runs nowhere, so fallbacks may replace a failed plugin.
    fn pin(&self) -> Pinned<'_> {
        self.policies().pin(Standing::New)
    }

    fn filter<'a>(&self, args: ExtenderArgs<'a>) -> ExtenderFilterResult<'a> {
        let Some(names) = args.node_names else {
            let error = if args.nodes.is_some() { NOT_CAPABLE.to_owned() } else { String::new() };
            return ExtenderFilterResult { error, ..ExtenderFilterResult::default() };
        };
        let Some(mut scene) = self.scene(&args.pod) else { return ExtenderFilterResult::passing(names) };
        self.counts.asked(scene.is_in_scope);
        locked(&self.deciding).note_scheduler(&scene.pod);
        let pinned = self.pin();
        let (filtered, freed) = if scene.is_of_gang() {
            self.change_reserving(|reserving| {
                scene.refresh();
                reserving.note_set(*pinned.set().digest());
                scene.ask(&pinned, |question| filter_member(question, reserving, names))
            })
        } else {
            let reserved = self.reserved.load();
            (scene.ask(&pinned, |question| filter::filter(question, &reserved, names)), Some(reserved.freed()))
        };
        let Filtered { result, verdict, scored, undecided } = filtered;
        self.note_gang(&scene.pod, verdict.as_ref());
        self.note_waiting(&scene, &result, freed);
        self.note_outcome(&scene.pod, undecided.as_ref(), scored.is_some());
        if scene.is_in_scope {
            let passing = result.node_names.as_deref().unwrap_or_default();
            if let [only] = passing {
                // The scheduler requests no ranks then.
                scene.assume(only);
            }
            self.keep(&scene, scored.as_ref());
            self.record(&pinned, &scene, scored, &result.failed_and_unresolvable_nodes);
        }
        result
    }

    fn prioritize<'a>(&self, args: ExtenderArgs<'a>) -> Vec<HostPriority<'a>> {
        let names = args.node_names.unwrap_or_default();
        let ranks = self.scene(&args.pod).filter(|scene| scene.is_in_scope).map(|mut scene| self.ranks(&mut scene, &names));
        let ranks = ranks.unwrap_or_default().into_iter().chain(std::iter::repeat(0));
        names.into_iter().zip(ranks).map(|(host, score)| HostPriority { host, score }).collect()
    }

    fn ranks(&self, scene: &mut Scene, offered: &[NodeName<'_>]) -> Vec<i64> {
        let ties = scene.cache.settings.ties;
        let names: Vec<&str> = offered.iter().map(|name| &**name).collect();
        let known = locked(&self.deciding).kept.ranks(&scene.pod.uid, &names, ties);
        let ranks = known.unwrap_or_else(|| {
            let (pinned, reserved) = (self.pin(), self.reserved.load());
            let filtered = scene.ask(&pinned, |question| filter::scored(question, &reserved, offered.to_vec()));
            self.note_outcome(&scene.pod, filtered.undecided.as_ref(), filtered.scored.is_some());
            let kept = filtered.scored.as_ref().map(|scored| scored.keep(scene.pod.uid.clone()));
            self.record(&pinned, scene, filtered.scored, &filtered.result.failed_and_unresolvable_nodes);
            let scores = kept.map(|kept| kept.scores(&names).collect::<Vec<_>>());
            scores.map_or_else(Vec::new, |scores| rank::ranks(&names, &scores, ties))
        });
        if let Some(best) = best(&names, &ranks) {
            scene.assume(best);
        }
        ranks
    }

    fn preempt(&self, mut args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult {
        let victims = args.victims();
        let Some(scene) = self.scene(&args.pod) else {
            return ExtenderPreemptionResult { node_name_to_meta_victims: victims };
        };
        let (pinned, reserved) = (self.pin(), self.reserved.load());
        let offered = locked(&self.deciding).offers.nodes(&scene.pod.uid);
        let (left, undecided) = scene.ask(&pinned, |question| preempt::preempt(question, &reserved, &offered, victims));
        if scene.is_of_gang() && left.is_empty() {
            // The scheduler may never have called filter.
            locked(&self.deciding).gangs.note_waiting(&scene.pod);
        }
        if undecided.is_some() {
            self.note_outcome(&scene.pod, undecided.as_ref(), false);
        }
        ExtenderPreemptionResult { node_name_to_meta_victims: left }
    }

    /// Stores the scores of nodes for the next call.
    fn keep(&self, scene: &Scene, scored: Option<&ScoredNodes>) {
        let uid = &scene.pod.uid;
        // Before the lock: there may be thousands.
        let kept = scored.map(|scored| scored.keep(uid.clone()));
        let mut deciding = locked(&self.deciding);
        match kept {
            None => deciding.kept.forget(uid),
            Some(kept) => deciding.kept.put(kept),
        }
    }

    fn record(&self, policies: &Pinned<'_>, scene: &Scene, scored: Option<ScoredNodes>, failed: &BTreeMap<String, String>) {
        let Some(ScoredNodes { names, places, scored, .. }) = scored else { return };
        let nodes: Vec<&str> = names.at(&places).collect();
        let mut placement = scored.into_placement(policies, &scene.cache.settings, &scene.pod, &nodes, unix_now());
        placement.excluded.extend(failed.iter().map(|(node, why)| (node.clone(), why.clone())));
        locked(&self.placements).put(placement);
    }

    /// Records whether a pod waits for resources that may become free here: all nodes that were offered for it have failed.
    fn note_waiting(&self, scene: &Scene, result: &ExtenderFilterResult<'_>, freed: Option<u64>) {
        let Deciding { waiting, offers, .. } = &mut *locked(&self.deciding);
        let failed = &result.failed_and_unresolvable_nodes;
        if failed.is_empty() || result.node_names.as_ref().is_none_or(|names| !names.is_empty()) {
            return waiting.forget(&scene.pod);
        }
        waiting.note(&scene.pod, freed);
        if scene.is_of_gang() {
            offers.put(&scene.pod.uid, failed.keys().cloned().collect());
        }
    }

    /// Records the verdict on a member of a gang, or why a pod is in none; logs the same reason once.
    fn note_gang(&self, pod: &Pod, verdict: Option<&Verdict>) {
        let mut deciding = locked(&self.deciding);
        if let Some(verdict) = verdict {
            deciding.gangs.note(pod, verdict);
        }
        if let Some(problem) = pod.gang_problem.as_ref().filter(|problem| **problem != deciding.gang_complaint) {
            tracing::warn!(namespace = pod.namespace, pod = pod.name, "the pod is placed by itself: {problem}");
            deciding.gang_complaint.clone_from(problem);
        }
    }

    /// Counts and logs that policies failed; logs the same reason once.
    fn note_outcome(&self, pod: &Pod, undecided: Option<&Undecided>, is_answered: bool) {
        let mut deciding = locked(&self.deciding);
        let Deciding { complaint, .. } = &mut *deciding;
        let Some(why) = undecided else {
            if is_answered {
                complaint.clear();
            }
            return;
        };
        self.counts.undecided(why.reason());
        let why = why.to_string();
        if *complaint != why {
            tracing::warn!(namespace = pod.namespace, pod = pod.name, "no policy is active, so all fitting nodes score the same: {why}");
            *complaint = why;
        }
    }
}

/// Filters nodes for a member of a gang. Also returns [`Reservations::freed`] at this time; none while the search for its nodes continues.
fn filter_member<'a>(question: &Question<'_>, reserving: &mut Reserving, names: Vec<NodeName<'a>>) -> (Filtered<'a>, Option<u64>) {
    let Reserving { reservations, .. } = reserving;
    reservations.drop_late(question.now);
    let filtered = filter::filter_member(question, reservations, names);
    let gang = question.pod.gang.as_ref();
    let is_searching = gang.is_some_and(|gang| reservations.is_searching(&question.pod.namespace, &gang.name));
    (filtered, (!is_searching).then(|| reservations.freed()))
}

/// The node that ranks above all others, if there is one.
fn best<'n>(names: &[&'n str], ranks: &[i64]) -> Option<&'n str> {
    let highest = ranks.iter().copied().max().filter(|highest| *highest > 0)?;
    let mut highest = names.iter().zip(ranks).filter(|(_, rank)| **rank == highest).map(|(name, _)| *name);
    let first = highest.next();
    first.filter(|_| highest.next().is_none())
}

fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| Refused(format!("it isn't a scheduler's call: {error}")))
}

fn written(answer: &impl Serialize) -> Result<Vec<u8>, Refused> {
    serde_json::to_vec(answer).map_err(|error| Refused(error.to_string()))
}

#[cfg(test)]
mod tests;
