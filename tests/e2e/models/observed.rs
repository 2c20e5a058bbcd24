//! The state of a cluster at one moment and its invariants, computed here only from the API's objects.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, VersionMatch},
};
use pointsman_core::allocation::{ObjectName, records::Reservations};
use std::collections::{BTreeMap, BTreeSet};

const GIB: i64 = 1 << 30;

/// An amount of memory as these tests write it, in GiB: `60Gi`, or bytes in a reservation.
fn gib(text: &str) -> i64 {
    text.strip_suffix("Gi").unwrap_or_else(|| panic!("{text} is written otherwise")).parse().unwrap()
}

/// All objects at one resource version.
pub(super) struct Moment {
    pub(super) places: BTreeMap<String, Reservations>,
    pods: Vec<Pod>,
    pub(super) nodes: BTreeMap<String, Node>,
}

impl Moment {
    /// The nodes are those with this label.
    pub(super) async fn now(client: &Client, pool: &str) -> Self {
        loop {
            let (places, version) = super::reservations(client).await;
            let at = ListParams::default().at(&version).matching(VersionMatch::Exact);
            let pods = Api::<Pod>::all(client.clone()).list(&at).await;
            let nodes = Api::<Node>::all(client.clone()).list(&at.labels(&format!("inference-pool={pool}"))).await;
            // The resource version may have been compacted.
            let (Ok(pods), Ok(nodes)) = (pods, nodes) else { continue };
            let nodes = nodes.into_iter().map(|node| (node.name_any(), node)).collect();
            return Self { places, pods: pods.items, nodes };
        }
    }

    /// The memory of a pod in GiB.
    fn memory(pod: &Pod) -> i64 {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref()?.get("memory"));
        requests.map(|memory| gib(&memory.0)).sum()
    }

    /// The pods of a node that haven't terminated, each with its model.
    fn pods<'m>(&'m self, node: &'m str) -> impl Iterator<Item = (Option<ObjectName>, &'m Pod)> {
        let here = self.pods.iter().filter(move |pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node));
        let ended = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        here.filter(move |pod| !ended(pod)).map(|pod| {
            let is_model = pod.labels().get("pointsman.dev/subject-kind").is_some_and(|kind| kind == "InferenceModel");
            let name = pod.labels().get("app.kubernetes.io/name").filter(|_| is_model);
            (name.map(|name| ObjectName(format!("{}/{name}", pod.namespace().unwrap_or_default()))), pod)
        })
    }

    /// The memory of a node for models in GiB.
    pub(super) fn capacity(&self, node: &str) -> i64 {
        let Some(found) = self.nodes.get(node) else { return 0 };
        let allocatable = gib(&found.status.as_ref().unwrap().allocatable.as_ref().unwrap()["memory"].0);
        let others: i64 = self.pods(node).filter(|(model, _)| model.is_none()).map(|(_, pod)| Self::memory(pod)).sum();
        let budget = found.annotations().get("pointsman.dev/memory-budget").map(|budget| gib(budget));
        (allocatable - others).min(budget.unwrap_or(i64::MAX))
    }

    /// The memory of models on a node in GiB: the reservation of each, or its pods' memory if that is more.
    pub(super) fn taken(&self, node: &str) -> i64 {
        let mut taken: BTreeMap<ObjectName, i64> = BTreeMap::new();
        for (model, pod) in self.pods(node) {
            if let Some(model) = model {
                *taken.entry(model).or_default() += Self::memory(pod);
            }
        }
        for (model, place) in self.places.get(node).into_iter().flatten() {
            let pods = taken.entry(model.clone()).or_default();
            *pods = (*pods).max(place.amounts.memory / GIB);
        }
        taken.values().sum()
    }

    /// The memory per model and pod on a node in GiB, for a message.
    fn holders(&self, node: &str) -> Vec<String> {
        let pods = self.pods(node).map(|(model, pod)| {
            let deleted = pod.metadata.deletion_timestamp.is_some();
            format!(
                "the pod {} of {model:?} takes {}{}",
                pod.name_any(),
                Self::memory(pod),
                if deleted { ", and is being deleted" } else { "" }
            )
        });
        let places = self.places.get(node).into_iter().flatten();
        let places = places.map(|(model, place)| format!("{model:?} has reserved {}: {:?}", place.amounts.memory / GIB, place.phase));
        pods.chain(places).collect()
    }

    /// The Ready pods of models on all nodes, with the times in seconds since 1970 when they became Ready.
    pub(super) fn ready_pods(&self) -> BTreeSet<(ObjectName, i64)> {
        let mut ready = BTreeSet::new();
        for node in self.nodes.keys() {
            for (model, pod) in self.pods(node) {
                let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let since = conditions
                    .filter(|condition| condition.type_ == "Ready" && condition.status == "True")
                    .find_map(|condition| condition.last_transition_time.as_ref());
                ready.extend(model.zip(since.map(|since| since.0.as_second())));
            }
        }
        ready
    }
}

/// Checks the nodes of a pool: the memory of a node's models must never grow beyond the node's memory for models.
#[derive(Default)]
pub(super) struct Watchdog {
    /// The last memory of models on each node, and the node's most recent capacities: a recent decision may be based on one of them.
    before: BTreeMap<String, (i64, Vec<i64>)>,
    pub(super) moments: usize,
}

impl Watchdog {
    /// The number of previous capacities that are considered.
    const KEPT: usize = 20;

    /// Records the nodes' capacities between two checks: a capacity may change back before the next check, and a decision may be based on
    /// it.
    pub(super) fn note_capacities(&mut self, moment: &Moment) {
        for node in moment.nodes.keys() {
            let capacity = moment.capacity(node);
            let (_, capacities) = self.before.entry(node.clone()).or_default();
            if !capacities.contains(&capacity) {
                capacities.push(capacity);
            }
        }
    }

    pub(super) fn check(&mut self, moment: &Moment) {
        self.moments += 1;
        for node in moment.nodes.keys() {
            let (taken, capacity) = (moment.taken(node), moment.capacity(node));
            let (before, capacities) = self.before.entry(node.clone()).or_default();
            let most = capacities.iter().copied().chain([capacity]).max().unwrap();
            assert!(
                taken <= most || taken <= *before,
                "models have {taken} GiB of {node}, before {before}; it has {capacities:?}, {capacity}: {:#?}",
                moment.holders(node)
            );
            *before = taken;
            capacities.push(capacity);
            let surplus = capacities.len().saturating_sub(Self::KEPT);
            capacities.drain(..surplus);
        }
    }
}
