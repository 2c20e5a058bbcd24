//! Predictions compared with the real kube-scheduler: random services are rendered with a cluster's nodes and pods, and then the cluster's
//! controllers create their pods.

use super::{GPU, Space, cluster};
use pointsman_picker::random::nth;
use pointsman_tests::{ExtenderAddress, SchedulerExtender, TestCluster, eventually, is_full};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
};

/// The seed of the services. Set `POINTSMAN_TEST_SEED` for another run.
const SEED: u64 = 20_261_126;

/// The settings of the extender and of the predictions.
const SETTINGS: &str = "gangTimeoutSeconds: 120\n";

/// The minimum share, in percent, of pods that get a node that is predicted for their service.
const MIN_PERCENT: usize = 95;

/// The maximum number of nodes that are predicted for a pod on average.
const MAX_MEAN: usize = 2;

/// A sequence of random numbers with a seed.
struct Random {
    seed: u64,
    place: u64,
}

impl Random {
    /// The next number, below a limit.
    fn below(&mut self, limit: u64) -> u64 {
        self.place += 1;
        nth(self.seed, self.place) % limit
    }
}

fn resources(gpus: u64) -> Value {
    let amounts = json!({"cpu": "1", "memory": "4Gi", GPU: gpus.to_string()});
    json!({"requests": amounts, "limits": amounts})
}

/// An InferenceService with a fixed number of replicas.
fn inference_service(name: &str, replicas: u64, gpus: u64) -> Value {
    let ports = json!([{"containerPort": 8080}]);
    let runner = json!({"name": "ome-container", "image": "example.com/engine:1", "ports": ports, "resources": resources(gpus)});
    let engine = json!({"minReplicas": replicas, "maxReplicas": replicas, "schedulerName": "pointsman", "runner": runner});
    json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name}, "spec": {"engine": engine}})
}

/// An LLMInferenceService: replicas of one node each, or a group of several nodes.
fn llm_inference_service(name: &str, replicas: u64, nodes: u64, gpus: u64) -> Value {
    let pod = json!({"schedulerName": "pointsman", "containers": [{"name": "main", "resources": resources(gpus)}]});
    let mut spec = json!({"model": {"uri": "hf://example/llama", "name": "llama"}, "replicas": replicas, "template": pod});
    if nodes > 1 {
        spec["parallelism"] = json!({"tensor": gpus, "pipeline": nodes});
        spec["worker"] = pod;
    }
    json!({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService", "metadata": {"name": name}, "spec": spec})
}

/// Random services. Together they need less than the cluster's capacity.
fn services(random: &mut Random) -> Vec<Value> {
    let number = 3 + random.below(8);
    let service = |at: u64| {
        let (name, gpus) = (format!("s{at}"), 1 + random.below(2));
        match random.below(3) {
            0 => inference_service(&name, 1 + random.below(3), gpus),
            1 => llm_inference_service(&name, 1 + random.below(3), 1, gpus),
            _ => llm_inference_service(&name, 1, 2 + random.below(2), gpus),
        }
    };
    (0..number).map(service).collect()
}

/// The name of the service that a workload or a pod belongs to.
fn service_name(name: &str) -> &str {
    name.split_once('-').unwrap().0
}

/// The output of `render`.
struct Rendered {
    /// The objects that create pods, in the order of the services.
    workloads: Vec<Value>,
    /// The predicted nodes for each pod of a service.
    predicted: BTreeMap<String, Vec<BTreeSet<String>>>,
}

fn render(cluster: &TestCluster, namespace: &str, services: &[Value]) -> Rendered {
    let write = |name: &str, text: &str| {
        let file = cluster.dir.join(name);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let manifest = write("services.json", &json!({"apiVersion": "v1", "kind": "List", "items": services}).to_string());
    let nodes = write("nodes-and-pods.yaml", &cluster.kubectl(&["get", "nodes,pods", "-A", "-o", "yaml"]).ok());
    let settings = write("prediction-settings.yaml", SETTINGS);
    let args = ["render", "-f", &manifest, "-n", namespace, "--nodes", &nodes, "--placement-config", &settings, "-o", "json"];
    let output = cluster.pointsman(&args);
    assert!(output.success, "{}", output.stderr);
    let list: Value = serde_json::from_str(&output.stdout).unwrap();
    let creates_pods = |object: &&Value| matches!(object["kind"].as_str(), Some("Deployment" | "LeaderWorkerSet"));
    let workloads = list["items"].as_array().unwrap().iter().filter(creates_pods).cloned().collect();
    Rendered { workloads, predicted: predictions(&output.stderr) }
}

/// The predictions among the lines of stderr.
fn predictions(stderr: &str) -> BTreeMap<String, Vec<BTreeSet<String>>> {
    let mut predicted: BTreeMap<String, Vec<BTreeSet<String>>> = BTreeMap::new();
    for line in stderr.lines() {
        let Some((pod, place)) = line.strip_prefix("pod ").and_then(|line| line.split_once(": ")) else { continue };
        let several = || place.strip_prefix("on one of the nodes ")?.strip_suffix(" (the scheduler decides)");
        let nodes = place.strip_prefix("on the node ").or_else(several).unwrap_or_else(|| panic!("{line}"));
        let service = service_name(pod.split_once('/').unwrap().1).to_owned();
        predicted.entry(service).or_default().push(nodes.split(", ").map(str::to_owned).collect());
    }
    predicted
}

/// The results of all sets of services.
#[derive(Debug, Default)]
struct Tally {
    pods: usize,
    /// Pods on a node that is predicted for their service.
    hits: usize,
    /// The number of predicted nodes, summed over all pods.
    nodes: usize,
}

impl Tally {
    /// Adds the pods of one service. They are interchangeable, so a prediction can match any of them.
    fn add(&mut self, service: &str, predicted: &[BTreeSet<String>], mut chosen: Vec<String>) {
        self.pods += chosen.len();
        let mut sets: Vec<&BTreeSet<String>> = predicted.iter().collect();
        sets.sort_by_key(|set| set.len());
        for set in sets {
            self.nodes += set.len();
            if let Some(at) = chosen.iter().position(|node| set.contains(node)) {
                chosen.swap_remove(at);
                self.hits += 1;
            }
        }
        if !chosen.is_empty() {
            println!("{service}: predicted {predicted:?}, and pods went to {chosen:?}");
        }
    }
}

/// Creates the workloads one after the other, each once all pods of the previous ones have nodes: predictions don't cover the order in
/// which controllers create pods. Returns the nodes of the pods by service.
async fn create(cluster: &TestCluster, space: &Space<'_>, rendered: &Rendered) -> BTreeMap<String, Vec<String>> {
    let mut number = 0;
    for workload in &rendered.workloads {
        let service = service_name(workload["metadata"]["name"].as_str().unwrap());
        cluster.apply(workload).ok();
        number += rendered.predicted[service].len();
        space.all_placed(number).await;
    }
    let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (pod, node) in space.places().await {
        nodes.entry(service_name(&pod).to_owned()).or_default().push(node);
    }
    nodes
}

/// Deletes the workloads with their pods.
async fn delete(cluster: &TestCluster, space: &Space<'_>) {
    let kinds = "deployments.apps,leaderworkersets.leaderworkerset.x-k8s.io";
    cluster.kubectl(&["delete", kinds, "--all", "-n", &space.0.name, "--cascade=foreground", "--timeout=300s"]).ok();
    eventually("all pods are gone", async || space.places().await.is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn predictions_name_the_nodes_that_pods_get() {
    let address = ExtenderAddress::free();
    let cluster = cluster(&address, &["lws"]);
    let space = Space(cluster.namespace("prediction").await);
    let _extender = SchedulerExtender::start(&cluster, &address, SETTINGS, &[]).await;
    let seed = env::var("POINTSMAN_TEST_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    println!("POINTSMAN_TEST_SEED={seed}");
    let mut random = Random { seed, place: 0 };
    let mut tally = Tally::default();
    let sets = if is_full() { 50 } else { 3 };
    for _ in 0..sets {
        let services = services(&mut random);
        let rendered = render(&cluster, &space.0.name, &services);
        assert_eq!(rendered.predicted.len(), services.len(), "{:?}", rendered.predicted);
        let mut chosen = create(&cluster, &space, &rendered).await;
        for (service, predicted) in &rendered.predicted {
            tally.add(service, predicted, chosen.remove(service).unwrap_or_default());
        }
        delete(&cluster, &space).await;
    }
    let Tally { pods, hits, nodes } = tally;
    let hundredths = nodes * 100 / pods;
    println!("{hits} of {pods} pods got a predicted node; {}.{:02} nodes are predicted for a pod", hundredths / 100, hundredths % 100);
    assert!(hits * 100 >= pods * MIN_PERCENT, "{hits} of {pods} pods got a predicted node");
    assert!(nodes <= pods * MAX_MEAN, "{nodes} nodes are predicted for {pods} pods");
}
