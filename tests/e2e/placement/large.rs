//! The placements of 500 pods on 200 nodes by the default policy, and with an extender that dies halfway.

use super::{Figures, GPU, Places, SETTINGS, Space, cluster, gang, half_placed, is_refused, nodes, pod, replicas, with_model};
use k8s_openapi::api::core::v1::Pod;
use pointsman_tests::{ExtenderAddress, SchedulerExtender, eventually, is_full};
use serde_json::Value;
use std::collections::BTreeMap;

/// The sizes of a round of gangs, each with the accelerators per member.
const GANGS: [(usize, u32); 8] = [(2, 8), (2, 8), (3, 4), (4, 2), (4, 2), (6, 1), (8, 1), (16, 1)];

/// The number of rounds.
const ROUNDS: usize = 5;

/// A typical workload: replicas, small pods and a model that some nodes have, with a round of gangs after each fifth of them.
fn workload() -> Vec<Value> {
    let mut pods: Vec<Value> = Vec::new();
    for round in 0..ROUNDS {
        for at in (0..4).map(|at| 4 * round + at) {
            pods.extend(replicas(&format!("chat-{at}"), 3, 1));
            pods.extend((0..4).map(|twin| pod(&format!("single-{at}-{twin}"), 1)));
            pods.push(pod(&format!("double-{at}"), 2));
            pods.extend((0..4).map(|twin| pod(&format!("router-{at}-{twin}"), 0)));
        }
        pods.extend((0..2).map(|twin| with_model(pod(&format!("llama-{round}-{twin}"), 4))));
        for (at, (size, gpus)) in GANGS.into_iter().enumerate() {
            pods.extend(gang(&format!("gang{size}x{round}x{at}"), size, gpus));
        }
    }
    pods
}

/// The number of members of a gang, by its name; 0 if it isn't a gang.
fn size(name: &str) -> usize {
    name.strip_prefix("gang").and_then(|rest| rest.split('x').next()?.parse().ok()).unwrap_or_default()
}

/// The number of gangs whose members are all placed, and the number of those placed in part.
fn gangs(places: &Places) -> (usize, usize) {
    let half = half_placed(places, |gang| size(gang).max(1)).len();
    let mut placed: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in places.iter().filter(|(name, node)| name.starts_with("gang") && !node.is_empty()) {
        *placed.entry(name.rsplit_once('-').unwrap().0).or_default() += 1;
    }
    (placed.into_iter().filter(|(name, placed)| *placed == size(name)).count(), half)
}

/// Waits until each pod has a node, or the scheduler has found none for it.
async fn all_decided(space: &Space<'_>, number: usize) -> Places {
    eventually("the scheduler has decided about all pods", async || {
        let pods = space.list().await;
        let is_decided = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) || is_refused(pod);
        (pods.len() == number && pods.iter().all(is_decided)).then_some(())
    })
    .await;
    space.places().await
}

/// The free accelerators on each node.
fn free(places: &Places, workload: &[Value]) -> BTreeMap<String, u32> {
    let list: Value = serde_json::from_str(&nodes()).unwrap();
    let capacity = |node: &Value| node["capacity"][GPU].as_str().map_or(0, |gpus| gpus.parse().unwrap());
    let mut free: BTreeMap<String, u32> =
        list["nodes"].as_array().unwrap().iter().map(|node| (node["name"].as_str().unwrap().to_owned(), capacity(node))).collect();
    for pod in workload {
        let node = &places[pod["metadata"]["name"].as_str().unwrap()];
        if !node.is_empty() {
            *free.get_mut(node).unwrap() -= requested(pod);
        }
    }
    free
}

fn requested(pod: &Value) -> u32 {
    pod["spec"]["containers"][0]["resources"]["requests"][GPU].as_str().map_or(0, |gpus| gpus.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rule_of_the_default_policy_shows_on_two_hundred_nodes() {
    if !is_full() {
        return;
    }
    let address = ExtenderAddress::free();
    let cluster = cluster(&address, &[]);
    let space = Space(cluster.namespace("large").await);
    let workload = workload();
    println!("{} pods with {} gangs on {} nodes", workload.len(), GANGS.len() * ROUNDS, nodes().matches("\"capacity\"").count());
    space.create(&workload).await;
    let places = all_decided(&space, workload.len()).await;
    let (alone, alone_gangs) = (Figures::of_places(&places), gangs(&places));
    println!("without the extender: {alone:?}, gangs whole and in part {alone_gangs:?}");
    space.clear().await;

    let extender = SchedulerExtender::start(&cluster, &address, SETTINGS, &[]).await;
    space.create(&workload).await;
    let places = space.all_placed(workload.len()).await;
    let (figures, whole_gangs) = (Figures::of_places(&places), gangs(&places));
    println!("with it:              {figures:?}, gangs whole and in part {whole_gangs:?}");
    assert_eq!(whole_gangs, (GANGS.len() * ROUNDS, 0));
    assert!(figures.free_nodes > alone.free_nodes && figures.gangs_in_one_domain > alone.gangs_in_one_domain, "{figures:?} {alone:?}");
    // The scheduler's own plugins consider the model too.
    assert!(figures.zones > alone.zones && figures.local >= alone.local, "{figures:?} {alone:?}");
    space.clear().await;

    // The extender dies after half of the pods are created.
    let (first, rest) = workload.split_at(workload.len() / 2);
    space.create(first).await;
    extender.kill();
    space.create(rest).await;
    let places = all_decided(&space, workload.len()).await;
    let free = free(&places, &workload);
    let most = free.values().copied().max().unwrap_or_default();
    for pod in &workload {
        let name = pod["metadata"]["name"].as_str().unwrap();
        assert!(!places[name].is_empty() || requested(pod) > most, "{name} has no node, and {free:?} are free");
    }
    println!("with an extender that dies: gangs whole and in part {:?}", gangs(&places));
}
