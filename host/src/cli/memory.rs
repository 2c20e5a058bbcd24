//! Which models would have memory: by nodes that files describe, or as a cluster is.

use super::{live::Source, offline::files::Document};
use anyhow::{Result, bail};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node as NodeObject, Pod},
    jiff::Timestamp,
};
use kube::{Api, ResourceExt, api::ListParams};
use pointsman_core::{
    allocation::{
        Entry, Node, ObjectName, Phase, allocate,
        amounts::Amounts,
        cluster::Cluster,
        forecast,
        inputs::PodUsage,
        memory_text,
        records::{ACTIVITY, GATEWAY_ACTIVITY, GatewayActivity, NODE, PLACES, RESERVATIONS, Reservations},
    },
    decide::{Policies, Standing, Undecided},
    key::ObjectKey,
    memory_admission::{assumed, model_objects, score},
    resource::INFERENCE_MODEL,
    world::World,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// How many objects are listed at once.
const PAGE: u32 = 500;

/// Nodes with their pods, as files or a cluster have them.
#[derive(Debug, Default)]
pub(super) struct Machines {
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<(String, String), PodUsage>,
    /// What is wrong with them.
    notes: Vec<String>,
}

impl Machines {
    /// Reads files with nodes, and with pods if they are to count.
    pub(super) fn from_documents(documents: Vec<Document>) -> Result<Self> {
        let mut machines = Self::default();
        for Document { place, object } in documents {
            let text = Value::Object(object.clone()).to_string();
            match object.get("kind").and_then(Value::as_str) {
                Some("Node") => machines.put_node(&text),
                Some("Pod") => machines.put_pod(&text),
                kind => bail!(
                    "{place}: --nodes takes Nodes and Pods, and this is {}: write them with `kubectl get nodes,pods -A -o yaml`",
                    kind.unwrap_or("no Kubernetes object")
                ),
            }
        }
        Ok(machines)
    }

    fn put_node(&mut self, text: &str) {
        let (name, node, problem) = Node::from_object(text);
        self.notes.extend(problem.map(|problem| format!("node {name}: the annotation {problem}")));
        self.nodes.insert(name, node);
    }

    fn put_pod(&mut self, text: &str) {
        let metadata = serde_json::from_str::<Value>(text).unwrap_or_default()["metadata"].take();
        let word = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        self.pods.extend(PodUsage::from_object(text).map(|pod| ((word("namespace"), word("name")), pod)));
    }
}

/// Gives the models of a world their entries: by simulation on these machines, or without any as if each had a place. Says who has one
/// where, and who hasn't and why.
pub(super) fn simulate(world: &mut World, policies: &Policies, machines: Option<&Machines>) -> Vec<String> {
    let objects = model_objects(world);
    let Some(Machines { nodes, pods, notes }) = machines else {
        world.set_allocated(&assumed(&objects));
        return Vec::new();
    };
    let now = Timestamp::now().as_second().unsigned_abs();
    let (histories, settled) = (BTreeMap::new(), BTreeMap::new());
    let cluster = Cluster { nodes, pods, gateways: BTreeMap::new(), places: BTreeMap::new(), histories: &histories, settled: &settled };
    let inputs = cluster.inputs(&objects, now);
    let (policies, mut failed) = (policies.pin(Standing::Running), None);
    let entries = forecast(&inputs.nodes, &inputs.models, now, &mut |rows| score(&policies, rows, &mut failed));
    let mut notes = notes.clone();
    notes.extend(failed.as_ref().map(unranked));
    notes.extend(entries.iter().map(|(key, entry)| entry_text(key, entry, inputs.models[key].needs)));
    world.set_allocated(&entries);
    notes
}

fn unranked(why: &Undecided) -> String {
    format!("the policies at scheduling-scoring can't rank models, so none sleeps for another: {why}")
}

/// What is so of one model, in a line.
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

/// Gives the models of a cluster the entries that its leader would give them now. What may not be read is said instead.
pub(super) async fn observe(source: &Source, world: &mut World, policies: &Policies, host_namespace: &str) -> Result<()> {
    if world.keys(&INFERENCE_MODEL).is_empty() {
        return Ok(());
    }
    match read(source, host_namespace).await {
        Ok((machines, places, gateways)) => {
            let now = Timestamp::now().as_second().unsigned_abs();
            let (histories, settled) = (BTreeMap::new(), BTreeMap::new());
            let Machines { nodes, pods, notes } = &machines;
            let cluster = Cluster { nodes, pods, gateways, places, histories: &histories, settled: &settled };
            let inputs = cluster.inputs(&model_objects(world), now);
            let (policies, mut failed) = (policies.pin(Standing::Running), None);
            let ledger = allocate(&inputs.nodes, &inputs.models, now, &mut |rows| score(&policies, rows, &mut failed));
            for note in notes.iter().cloned().chain(failed.as_ref().map(unranked)) {
                eprintln!("{note}");
            }
            world.set_allocated(&ledger.entries);
        }
        Err(error) => world.set_unallocated(Some(crate::problem::sentence(&error))),
    }
    Ok(())
}

type Read = (Machines, BTreeMap<String, Reservations>, BTreeMap<String, GatewayActivity>);

async fn read(source: &Source, host_namespace: &str) -> kube::Result<Read> {
    let client = &source.client;
    let mut machines = Machines::default();
    for node in all(Api::<NodeObject>::all(client.clone()), "").await? {
        machines.put_node(&text(&node));
    }
    for pod in all(Api::<Pod>::all(client.clone()), "").await? {
        machines.put_pod(&text(&pod));
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), host_namespace);
    let data = |map: ConfigMap, key: &str| map.data.and_then(|mut data| data.remove(key));
    let mut places = BTreeMap::new();
    for map in all(maps.clone(), RESERVATIONS).await? {
        let node = data(map.clone(), NODE);
        let reserved = data(map, PLACES).and_then(|text| serde_json::from_str(&text).ok());
        places.extend(node.zip(reserved));
    }
    let gateways = all(maps, GATEWAY_ACTIVITY).await?.into_iter().filter_map(|map| {
        let name = map.name_any();
        Some((name, serde_json::from_str(&data(map, ACTIVITY)?).ok()?))
    });
    Ok((machines, places, gateways.collect()))
}

fn text(object: &impl Serialize) -> String {
    serde_json::to_string(object).unwrap_or_default()
}

/// All objects of a kind, page by page.
async fn all<K>(api: Api<K>, labels: &str) -> kube::Result<Vec<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + for<'de> serde::Deserialize<'de>,
{
    let mut parameters = ListParams::default().labels(labels).limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        objects.extend(page.items);
        match page.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => parameters.continue_token = Some(more),
            None => return Ok(objects),
        }
    }
}
