//! Pods placed by the real kube-scheduler, which calls the extender: the effects of the default policy, gangs, a scheduler without its
//! extender, and predictions.

mod large;
mod native_gangs;
mod prediction;
mod swap;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use pointsman_core::subject_kind::SUBJECT_KIND;
use pointsman_harness::{Behaviour, Options};
use pointsman_tests::{ExtenderAddress, SchedulerExtender, TestCluster, TestNamespace, eventually, is_full};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, process,
    sync::atomic::{AtomicU32, Ordering},
};

/// The label of nodes that have the model.
const MODEL: &str = "models.ome.io/clusterbasemodel.llama";

/// The resource of accelerators.
const GPU: &str = "nvidia.com/gpu";

/// The number of RDMA domains. Each has its own zone.
const DOMAINS: usize = 4;

/// Six kinds of node: the name, the accelerators of a node, and the number of such nodes per domain, which `scale` multiplies.
const SHAPES: [(&str, u32, usize); 6] = [("h100", 8, 2), ("a100", 8, 1), ("h100-half", 4, 1), ("l40", 2, 2), ("l4", 1, 1), ("cpu", 0, 1)];

/// A short timeout, so that gangs that can't be placed whole start over during the test.
const SETTINGS: &str = "pods: {matchLabels: {placed: by-policies}}\ngangTimeoutSeconds: 5\n";

/// Gangs that are placed in part start over.
const DISSOLVE: [&str; 1] = ["--dissolve-gangs"];

/// The size of the cluster relative to the smallest one.
fn scale() -> usize {
    if is_full() { 6 } else { 1 }
}

/// The nodes in the format of the harness. Every other H100 node of each domain has the model.
fn nodes() -> String {
    let mut nodes = Vec::new();
    for domain in 0..DOMAINS {
        for (shape, gpus, number) in SHAPES {
            // With `--full`, there are two hundred nodes in total.
            let further = if is_full() && shape == "cpu" { 2 } else { 0 };
            for at in 0..number * scale() + further {
                let mut labels = json!({
                    "topology.kubernetes.io/zone": format!("zone-{domain}"),
                    "pointsman.dev/rdma-domain": format!("domain-{domain}"),
                    // The default policy ignores prices.
                    "pointsman.dev/price": (DOMAINS - domain).to_string(),
                    "shape": shape,
                });
                if shape == "h100" && at.is_multiple_of(2) {
                    labels[MODEL] = "Ready".into();
                }
                let mut capacity = json!({"cpu": "96", "memory": "1Ti"});
                if gpus > 0 {
                    capacity[GPU] = gpus.to_string().into();
                }
                nodes.push(json!({"name": format!("{shape}-{domain}-{at}"), "labels": labels, "capacity": capacity}));
            }
        }
    }
    json!({"nodes": nodes}).to_string()
}

/// A cluster of these nodes with these neighbours, whose scheduler calls an extender at the address.
fn cluster(address: &ExtenderAddress, neighbours: &[&str]) -> TestCluster {
    TestCluster::start(&options(address, neighbours))
}

/// The options of that cluster.
fn options(address: &ExtenderAddress, neighbours: &[&str]) -> Options {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let folder = env::temp_dir().join(format!("pointsman-placement-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let config = address.write_config(&folder, |_| {});
    let file = folder.join("nodes.yaml");
    fs::write(&file, nodes()).unwrap();
    let neighbours = neighbours.iter().map(ToString::to_string).collect();
    Options { nodes: Some(file), scheduler_config: Some(config), neighbours: Some(neighbours), ..Options::default() }
}

/// A pod that the policies place, with this many accelerators.
fn pod(name: &str, gpus: u32) -> Value {
    let mut requests = json!({"cpu": "1", "memory": "4Gi"});
    if gpus > 0 {
        requests[GPU] = gpus.to_string().into();
    }
    json!({
        "metadata": {"name": name, "labels": {"placed": "by-policies"}},
        "spec": {
            "schedulerName": "pointsman", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "example.com/engine:1", "resources": {"requests": requests, "limits": requests}}],
        },
    })
}

/// The members of a gang.
fn gang(name: &str, size: usize, gpus: u32) -> Vec<Value> {
    let member = |at: usize| {
        let mut pod = pod(&format!("{name}-{at}"), gpus);
        pod["metadata"]["labels"]["pointsman.dev/gang"] = name.into();
        pod["metadata"]["labels"]["pointsman.dev/gang-size"] = size.to_string().into();
        pod
    };
    (0..size).map(member).collect()
}

/// The members of a gang, as a ReplicaSet.
fn replica_set(name: &str, size: usize, gpus: u32, namespace: &str) -> Value {
    let member = gang(name, size, gpus).remove(0);
    let labels = &member["metadata"]["labels"];
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": size, "selector": {"matchLabels": {"pointsman.dev/gang": name}},
            "template": {"metadata": {"labels": labels}, "spec": member["spec"]},
        },
    })
}

/// Replicas of a service.
fn replicas(service: &str, number: usize, gpus: u32) -> Vec<Value> {
    let replica = |at: usize| {
        let mut pod = pod(&format!("{service}-{at}"), gpus);
        pod["metadata"]["labels"][SUBJECT_KIND] = "InferenceService".into();
        pod["metadata"]["labels"]["serving.ome.io/inferenceservice"] = service.into();
        pod["metadata"]["labels"]["serving.ome.io/component"] = "engine".into();
        pod
    };
    (0..number).map(replica).collect()
}

/// Makes a pod prefer nodes with the model, like a service that may download it.
fn with_model(mut pod: Value) -> Value {
    let term = json!({"weight": 1, "preference": {"matchExpressions": [{"key": MODEL, "operator": "In", "values": ["Ready"]}]}});
    pod["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}});
    pod
}

/// A typical workload: replicas, small pods, a model that some nodes have, and then gangs, which need whole nodes.
fn workload() -> Vec<Value> {
    let scale = scale();
    let mut pods: Vec<Value> = (0..scale).flat_map(|at| replicas(&format!("chat-{at}"), 3, 1)).collect();
    for at in 0..4 * scale {
        pods.extend((0..2).map(|twin| pod(&format!("single-{at}-{twin}"), 1)));
        pods.push(pod(&format!("double-{at}"), 2));
        pods.push(pod(&format!("router-{at}"), 0));
    }
    for at in 0..scale {
        pods.extend((0..2).map(|twin| with_model(pod(&format!("llama-{at}-{twin}"), 4))));
    }
    for at in 0..scale {
        pods.extend(gang(&format!("pair-{at}"), 2, 8));
        pods.extend(gang(&format!("four-{at}"), 4, 2));
    }
    pods
}

/// The nodes of pods by name; empty for pods without a node.
type Places = BTreeMap<String, String>;

struct Space<'c>(TestNamespace<'c>);

impl Space<'_> {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.0.client.clone(), &self.0.name)
    }

    async fn create(&self, pods: &[Value]) {
        for pod in pods {
            self.pods().create(&PostParams::default(), &serde_json::from_value(pod.clone()).unwrap()).await.unwrap();
        }
    }

    async fn list(&self) -> Vec<Pod> {
        self.pods().list(&ListParams::default()).await.unwrap().items
    }

    async fn places(&self) -> Places {
        let pods = self.list().await;
        let place = |pod: Pod| (pod.metadata.name.unwrap(), pod.spec.and_then(|spec| spec.node_name).unwrap_or_default());
        pods.into_iter().map(place).collect()
    }

    /// Waits until all pods have nodes.
    async fn all_placed(&self, number: usize) -> Places {
        eventually("all pods have nodes", async || {
            let places = self.places().await;
            (places.len() == number && places.values().all(|node| !node.is_empty())).then_some(places)
        })
        .await
    }

    async fn clear(&self) {
        self.pods().delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await.unwrap();
        eventually("all pods are gone", async || self.places().await.is_empty().then_some(())).await;
    }
}

/// Statistics of a placement of the workload.
#[derive(Debug, Default)]
struct Figures {
    /// Nodes with eight accelerators, all of them free.
    free_nodes: usize,
    /// Gangs whose members are all in one domain.
    gangs_in_one_domain: usize,
    gangs: usize,
    /// Pods of the model on nodes that have it.
    local: usize,
    /// The number of zones of each service's replicas, summed up.
    zones: usize,
}

fn domain(node: &str) -> &str {
    node.rsplit('-').nth(1).unwrap_or_default()
}

impl Figures {
    fn of_places(places: &Places) -> Self {
        let accelerated = |name: &str| !name.starts_with("router");
        let taken: BTreeSet<&str> = places.iter().filter(|(name, _)| accelerated(name)).map(|(_, node)| node.as_str()).collect();
        let whole = SHAPES.iter().filter(|(_, gpus, _)| *gpus == 8).map(|(_, _, number)| number * scale() * DOMAINS).sum::<usize>();
        let is_whole = |node: &&&str| node.starts_with("a100") || node.starts_with("h100") && !node.starts_with("h100-half");
        let mut figures = Self { free_nodes: whole - taken.iter().filter(is_whole).count(), ..Self::default() };
        let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, node) in places {
            let group = name.rsplit_once('-').unwrap().0;
            groups.entry(group).or_default().insert(domain(node));
            let has_model = node.starts_with("h100-")
                && !node.starts_with("h100-half")
                && node.rsplit_once('-').unwrap().1.parse::<usize>().unwrap().is_multiple_of(2);
            figures.local += usize::from(name.starts_with("llama") && has_model);
        }
        for (group, domains) in groups {
            if ["pair", "four", "gang"].iter().any(|kind| group.starts_with(kind)) {
                figures.gangs += 1;
                figures.gangs_in_one_domain += usize::from(domains.len() == 1);
            } else if group.starts_with("chat") {
                figures.zones += domains.len();
            }
        }
        figures
    }
}

/// Whether the scheduler has reported that a pod has no suitable node or waits for other pods.
fn is_refused(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}

/// The gangs with nodes for only some of their members.
fn half_placed(places: &Places, size: impl Fn(&str) -> usize) -> Vec<String> {
    let mut placed: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, node) in places {
        *placed.entry(name.rsplit_once('-').unwrap().0).or_default() += usize::from(!node.is_empty());
    }
    placed.into_iter().filter(|(gang, placed)| *placed > 0 && *placed < size(gang)).map(|(gang, _)| gang.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_policy_keeps_nodes_free_gangs_together_models_local_and_replicas_apart() {
    let address = ExtenderAddress::free();
    let cluster = cluster(&address, &[]);
    let space = Space(cluster.namespace("placement").await);
    let workload = workload();

    // Without the extender, the scheduler works on its own.
    space.create(&workload).await;
    let alone = Figures::of_places(&space.all_placed(workload.len()).await);
    space.clear().await;

    let extender = SchedulerExtender::start(&cluster, &address, SETTINGS, &[]).await;
    space.create(&workload).await;
    let places = space.all_placed(workload.len()).await;
    let figures = Figures::of_places(&places);
    println!("{} pods on {} nodes", workload.len(), nodes().matches("\"name\"").count());
    println!("  without the extender: {alone:?}\n  with it:              {figures:?}");
    assert!(figures.free_nodes > alone.free_nodes, "{figures:?} {alone:?}");
    assert!(figures.gangs_in_one_domain > alone.gangs_in_one_domain, "{figures:?} {alone:?}");
    assert_eq!(figures.gangs_in_one_domain, figures.gangs, "{figures:?}");
    assert_eq!(figures.local, 2 * scale(), "{figures:?}");
    assert_eq!(figures.zones, 3 * scale(), "{figures:?}");

    // The decision can be explained, with the node of the pod.
    let explained = cluster.pointsman(&["explain", "pod/llama-0-0", "-n", &space.0.name, "--extender", &extender.pages]).ok();
    assert!(explained.contains(&places["llama-0-0"]), "{explained}");
    println!("{explained}");
    let (_, page) = extender.get("/metrics").unwrap();
    assert!(page.contains("pointsman_extender_calls_total{verb=\"filter\",outcome=\"answered\"}"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gangs_are_placed_whole_or_start_over_also_when_the_extender_dies_among_them() {
    let address = ExtenderAddress::free();
    let cluster = cluster(&address, &["lws"]);
    let space = Space(cluster.namespace("gangs").await);
    let extender = SchedulerExtender::start(&cluster, &address, SETTINGS, &DISSOLVE).await;
    let whole_nodes = 3 * DOMAINS * scale();
    // A gang with a Ready member has started its work and is never dissolved, so keep the pods pending.
    cluster.behave("starting", &space.0.name, &BTreeMap::from([("placed", "by-policies")]), Behaviour::Pending).unwrap();

    // Each gang needs half of the whole nodes plus one, so only one of the two fits.
    let size = whole_nodes / 2 + 1;
    let first = gang("first", size, 8);
    space.create(&first[..size - 1]).await;
    let waiting = eventually("a member waits for the last one", async || {
        let events = cluster.kubectl(&["get", "events", "-n", &space.0.name, "-o", "yaml"]).ok();
        events.lines().find(|line| line.contains(&format!("of {size} members"))).map(str::to_owned)
    })
    .await;
    println!("{waiting}");
    assert!(space.places().await.values().all(String::is_empty));
    space.create(&first[size - 1..]).await;
    space.all_placed(size).await;
    // The ReplicaSet creates deleted pods again.
    cluster.apply(&replica_set("second", size, 8, &space.0.name)).ok();
    eventually("all members of the second exist", async || (space.places().await.len() == 2 * size).then_some(())).await;

    // Without the extender, the scheduler places some pods of the second gang.
    extender.kill();
    space.create(&[pod("wakes-0", 0)]).await;
    eventually("the scheduler goes on by itself", async || {
        let places = space.places().await;
        (half_placed(&places, |gang| if gang == "wakes" { 1 } else { size }) == ["second"]).then_some(())
    })
    .await;

    // The extender dissolves the second gang, and keeps the whole one.
    let extender = SchedulerExtender::start(&cluster, &address, SETTINGS, &DISSOLVE).await;
    // An extender that no scheduler has called yet deletes nothing.
    space.create(&[pod("wakes-1", 0)]).await;
    eventually("no gang has nodes for some of its members", async || {
        let places = space.places().await;
        let first = places.iter().filter(|(name, node)| name.starts_with("first") && !node.is_empty()).count();
        (first == size && half_placed(&places, |gang| if gang == "wakes" { 1 } else { size }).is_empty()).then_some(())
    })
    .await;
    drop(extender);
    a_leader_goes_first(&cluster, whole_nodes).await;
}

/// The workers of a LeaderWorkerSet may be created only once the leader is Ready: the leader doesn't wait for them, and they are placed
/// together. The whole gang leaves enough nodes for one of the two groups.
async fn a_leader_goes_first(cluster: &TestCluster, whole_nodes: usize) {
    let space = Space(cluster.namespace("leader-first").await);
    let size = whole_nodes / 2 - 1;
    let template = |pod: Value| json!({"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]});
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "group", "namespace": space.0.name},
        "spec": {
            "replicas": 1, "startupPolicy": "LeaderReady",
            "leaderWorkerTemplate": {"size": size, "workerTemplate": template(pod("worker", 8))},
        },
    });
    cluster.apply(&set).ok();
    let places = space.all_placed(size).await;
    assert_eq!(places.values().collect::<BTreeSet<_>>().len(), size, "{places:?}");
}
