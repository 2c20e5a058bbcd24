//! Simulates the memory of models: on nodes that files describe, or in a cluster's current state.

use super::{
    live::{Source, each_page},
    offline::files::{self, Document},
    output,
};
use crate::problem::sentence;
use anyhow::{Result, bail};
use k8s_openapi::{api::core::v1, jiff::Timestamp};
use kube::Api;
use pointsman_core::{
    allocation::{
        Entry, Node, NodeScorer, ObjectName, Phase, Scorer, allocate,
        amounts::Amounts,
        cluster::{Cluster, Inputs, ModelObject},
        forecast,
        inputs::PodUsage,
        memory_text,
        records::{self, GATEWAY_ACTIVITY, GatewayActivity, NODE, RESERVATIONS, Reservations},
    },
    decide::{Policies, Standing},
    key::ObjectKey,
    memory_admission::{assumed, model_objects, score},
    model_placement::{ClusterView, NodePolicies},
    resource::INFERENCE_MODEL,
    world::World,
};
use serde::Serialize;
use serde_json::Value;
use std::{collections::BTreeMap, path::PathBuf};

/// Nodes with their pods, from files or a cluster, and a cluster's reservations and gateways.
#[derive(Debug, Default)]
pub(super) struct Machines {
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<(String, String), PodUsage>,
    /// The same nodes and pods, for policies.
    view: ClusterView,
    /// The reservations on the nodes.
    places: BTreeMap<String, Reservations>,
    gateways: Vec<GatewayActivity>,
    /// The problems with them.
    notes: Vec<String>,
}

impl Machines {
    /// Reads files with nodes, and optionally with pods; none without files.
    pub(super) fn from_files(paths: &[PathBuf]) -> Result<Option<Self>> {
        let documents = files::read(paths)?;
        (!paths.is_empty()).then(|| Self::from_documents(&documents)).transpose()
    }

    /// Creates them from the content of such files.
    pub(super) fn from_documents(documents: &[Document]) -> Result<Self> {
        let mut machines = Self::default();
        for Document { place, object } in documents {
            let text = || Value::Object(object.clone()).to_string();
            match object.get("kind").and_then(Value::as_str) {
                Some("Node") => machines.put_node(&text()),
                Some("Pod") => machines.put_pod(&text()),
                // They affect the nodes of pods, not memory.
                Some("Namespace" | "ConfigMap") => {}
                kind => bail!(
                    "{place}: --nodes takes Nodes, Pods, Namespaces and the ConfigMaps of model agents, and this is {}: write them with \
                     `kubectl get nodes,pods -A -o yaml`",
                    kind.unwrap_or("not a Kubernetes object")
                ),
            }
        }
        Ok(machines)
    }

    /// Reads those of a cluster.
    async fn read(source: &Source, host_namespace: &str) -> kube::Result<Self> {
        let mut machines = Self::default();
        let client = &source.client;
        each_page(&Api::<v1::Node>::all(client.clone()), "", |node| machines.put_node(&text(&node))).await?;
        each_page(&Api::<v1::Pod>::all(client.clone()), "", |pod| machines.put_pod(&text(&pod))).await?;
        let maps: Api<v1::ConfigMap> = Api::namespaced(client.clone(), host_namespace);
        each_page(&maps, RESERVATIONS, |map| {
            let data = map.data.unwrap_or_default();
            let reserved = records::reservations(&data).and_then(Result::ok);
            machines.places.extend(data.get(NODE).cloned().zip(reserved));
        })
        .await?;
        each_page(&maps, GATEWAY_ACTIVITY, |map| machines.gateways.extend(map.data.as_ref().map(records::activity))).await?;
        Ok(machines)
    }

    /// The inputs of an allocation of these models.
    fn inputs(&self, objects: &BTreeMap<ObjectKey, ModelObject>, now: u64) -> Inputs {
        let (histories, settled) = (BTreeMap::new(), BTreeMap::new());
        let cluster = Cluster {
            nodes: &self.nodes,
            pods: &self.pods,
            gateways: self.gateways.iter().collect(),
            places: self.places.iter().map(|(node, places)| (node.as_str(), places)).collect(),
            histories: &histories,
            settled: &settled,
        };
        cluster.inputs(objects, now)
    }

    /// Allocates memory to these models, and returns notes for users.
    fn decide(
        &self,
        objects: &BTreeMap<ObjectKey, ModelObject>,
        policies: &Policies,
        decide: impl FnOnce(&Inputs, u64, &mut Scorer<'_>, &mut NodeScorer<'_>) -> BTreeMap<ObjectKey, Entry>,
    ) -> (Inputs, BTreeMap<ObjectKey, Entry>, Vec<String>) {
        let now = Timestamp::now().as_second().unsigned_abs();
        let inputs = self.inputs(objects, now);
        let (running, new) = (policies.pin(Standing::Running), policies.pin(Standing::New));
        let (mut unranked, mut nodes) = (None, NodePolicies::new(&new, &self.view, objects, &|| false));
        let entries = decide(&inputs, now, &mut |rows| score(&running, rows, &mut unranked), &mut |choice| nodes.score(choice));
        let unranked =
            unranked.map(|why| format!("the policies at scheduling-scoring can't rank models, so none sleeps for another: {why}"));
        let unchosen = nodes
            .failed
            .map(|why| format!("the policies at scheduling-scoring can't choose nodes for models, so those without a place wait: {why}"));
        let notes = self.notes.iter().cloned().chain(unranked).chain(unchosen).collect();
        (inputs, entries, notes)
    }

    fn put_node(&mut self, text: &str) {
        let (name, node, problem) = Node::from_object(text);
        self.notes.extend(problem.map(|problem| format!("node {name}: the annotation {problem}")));
        self.view.put_node(&name, text);
        self.nodes.insert(name, node);
    }

    fn put_pod(&mut self, text: &str) {
        let metadata = serde_json::from_str::<Value>(text).unwrap_or_default()["metadata"].take();
        let word = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let key = (word("namespace"), word("name"));
        if let Some(pod) = PodUsage::from_object(text) {
            self.view.put_pod(&key, text, pod.model.as_ref());
            self.pods.insert(key, pod);
        }
    }
}

/// The final entries of models.
fn settled(inputs: &Inputs, now: u64, score: &mut Scorer<'_>, choose: &mut NodeScorer<'_>) -> BTreeMap<ObjectKey, Entry> {
    forecast(&inputs.nodes, &inputs.models, now, score, choose)
}

/// The current entries of models.
fn current(inputs: &Inputs, now: u64, score: &mut Scorer<'_>, choose: &mut NodeScorer<'_>) -> BTreeMap<ObjectKey, Entry> {
    allocate(&inputs.nodes, &inputs.models, now, score, choose).entries
}

/// Sets the entries of a world's models: by simulation on these machines, or without any as if each had memory. Returns the node of each
/// model, or why it has none.
pub(super) fn simulate(world: &mut World, policies: &Policies, machines: Option<&Machines>) -> Vec<String> {
    let objects = model_objects(world);
    let Some(machines) = machines else {
        world.set_allocated(&assumed(&objects));
        return Vec::new();
    };
    let (inputs, entries, mut notes) = machines.decide(&objects, policies, settled);
    notes.extend(entries.iter().map(|(key, entry)| entry_text(key, entry, inputs.models[key].needs)));
    world.set_allocated(&entries);
    notes
}

/// The entry of one model, in a line.
fn entry_text(key: &ObjectKey, entry: &Entry, needs: Amounts) -> String {
    let name = ObjectName::new(key);
    match entry {
        Entry::External => format!("{name}: external, so no node is needed"),
        Entry::Assumed => format!("{name}: no nodes are known"),
        Entry::Asleep => format!("{name}: asleep"),
        Entry::Placed { held, .. } if held.phase == Phase::Admitted => {
            format!("{name}: on the node {}, with {}", held.node, memory_text(held.amounts.memory))
        }
        Entry::Placed { held, .. } => format!("{name}: leaves the node {}", held.node),
        Entry::Waiting(waiting) => format!("{name}: waits. {}", waiting.sentence(needs)),
        Entry::Refused(refusal) => format!("{name}: can't run. {}", refusal.sentence(needs)),
    }
}

/// Sets the entries of a cluster's models that its leader would compute now. Unreadable inputs are reported instead.
pub(super) async fn observe(source: &Source, world: &mut World, policies: &Policies, host_namespace: &str) {
    fill(source, world, policies, host_namespace, current).await;
}

/// Sets the entries that models will have once the leader has written its next steps.
pub(super) async fn foresee(source: &Source, world: &mut World, policies: &Policies, host_namespace: &str) {
    fill(source, world, policies, host_namespace, settled).await;
}

async fn fill(
    source: &Source,
    world: &mut World,
    policies: &Policies,
    host_namespace: &str,
    decide: impl FnOnce(&Inputs, u64, &mut Scorer<'_>, &mut NodeScorer<'_>) -> BTreeMap<ObjectKey, Entry>,
) {
    if world.keys(&INFERENCE_MODEL).is_empty() {
        return;
    }
    match Machines::read(source, host_namespace).await {
        Ok(machines) => {
            let (_, entries, notes) = machines.decide(&model_objects(world), policies, decide);
            for note in notes {
                output::note(note);
            }
            world.set_allocated(&entries);
        }
        Err(error) => world.set_unallocated(Some(sentence(&error))),
    }
}

fn text(object: &impl Serialize) -> String {
    serde_json::to_string(object).unwrap_or_default()
}
