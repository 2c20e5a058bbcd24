//! Random operations on many models and nodes, with two hosts of which one is killed now and then: models never get more of a node than it
//! has, none is stopped while it serves requests, none is stopped before its minimum time, and in the end each is Ready or correctly
//! reports why it waits.

use super::{
    gateway::Gateway,
    observed::{Moment, Watchdog},
};
use crate::services::{LastSeen, Space, condition, home, own_cluster};
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use pointsman_core::{
    allocation::{ObjectName, Phase, SleepReason},
    resource::{INFERENCE_MODEL, POD},
};
use pointsman_tests::{Host, TestCluster, eventually, is_full};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

const MODELS: u64 = 80;
const NODES: u64 = 12;
const GATEWAYS: u64 = 2;

/// The minimum time that a model stays awake, in seconds.
const RESIDENCY: i64 = 4;

/// The maximum age of a host's view in seconds: its watches lag behind our requests.
const LAG: i64 = 3;

/// The number of operations between two checks.
const AT_ONCE: u64 = 16;

/// How long clients wait at the end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A host is killed once per this many operations.
const KILL_EVERY: u64 = 400;

struct Run<'a> {
    cluster: &'a TestCluster,
    space: Space<'a>,
    hosts: Vec<Host<'a>>,
    gateways: Vec<Gateway>,
    watchdog: Watchdog,
    random: u64,
    /// The times at which reservations were seen to begin draining.
    leaving: BTreeMap<ObjectName, u64>,
    /// When pods of models became Ready, and until when: a pod can be replaced, and its condition changes if its node reports too late.
    ready: BTreeMap<ObjectName, BTreeMap<i64, Ready>>,
}

/// How long a pod was Ready.
#[derive(Debug)]
struct Ready {
    /// When it was last seen Ready, or first seen not Ready.
    until: i64,
    is_over: bool,
}

fn node(at: u64) -> String {
    format!("gpu-{at}")
}

fn model(at: u64) -> String {
    format!("model-{at}")
}

impl<'a> Run<'a> {
    async fn start(cluster: &'a TestCluster) -> Self {
        home(cluster).await;
        let space = Space::bare(cluster, "random").await;
        let mut run = Self {
            cluster,
            hosts: Vec::new(),
            gateways: Vec::new(),
            watchdog: Watchdog::default(),
            random: std::env::var("POINTSMAN_TEST_SEED").map_or(20_261_125, |seed| seed.parse().unwrap()),
            leaving: BTreeMap::new(),
            ready: BTreeMap::new(),
            space,
        };
        let nodes: Vec<Value> = (0..NODES).map(|at| run.node_yaml(at)).collect();
        cluster.add_nodes(&json!({ "nodes": nodes }).to_string()).unwrap();
        for at in 0..GATEWAYS {
            run.gateways.push(Gateway::new(run.space.0.client.clone(), &run.space.0.name, &at.to_string()));
        }
        for _ in 0..2 {
            run.hosts.push(Host::start(cluster, &[]).await);
        }
        run
    }

    fn pool(&self) -> &str {
        &self.space.0.name
    }

    fn node_yaml(&self, at: u64) -> Value {
        json!({
            "name": node(at), "labels": {"inference-pool": self.pool(), "half": (at % 2).to_string()},
            "taints": [{"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}],
            "capacity": {"cpu": "64", "memory": format!("{}Gi", 60 + 20 * (at % 3)), "nvidia.com/gpu": "64"},
        })
    }

    /// The next random number below a limit. The generator of POSIX's `drand48`, whose upper bits are good enough for a choice.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5_deec_e66d).wrapping_add(11);
        (self.random >> 16) % bound
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.space.0.client.clone())
    }

    async fn patch_node(&mut self, change: Value) {
        let name = node(self.below(NODES));
        // The node may not exist.
        self.nodes().patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.ok();
    }

    /// The spec of a model that is created or changed.
    fn spec(&mut self, at: u64) -> Value {
        let mut selector = json!({"inference-pool": self.pool()});
        if self.below(3) == 0 {
            selector["half"] = self.below(2).to_string().into();
        }
        // Only models with high numbers depend on models with low ones, so there is no cycle.
        let depends = at >= MODELS / 2 && self.below(5) == 0;
        let dependencies = if depends { json!([model(self.below(MODELS / 2))]) } else { json!([]) };
        json!({
            "modelName": model(at), "memory": format!("{}Gi", 5 + 5 * self.below(9)), "backendUrl": format!("http://{}:8000", model(at)),
            "containerImage": "example.com/vllm:1", "nodeSelector": selector, "dependencies": dependencies,
            "cooldownPeriod": "20s", "maxReplicas": u64::from(self.below(20) > 0), "resources": {"requests": {"gpu": "1"}},
        })
    }

    async fn operate(&mut self) {
        let (at, api) = (self.below(MODELS), self.space.api(&INFERENCE_MODEL));
        let choice = self.below(100);
        match choice {
            0..56 => {
                let (gateway, takes) = (self.below(GATEWAYS), Duration::from_millis(self.below(2000)));
                self.gateways[usize::try_from(gateway).unwrap()].ask(&model(at), takes);
            }
            56..72 => {
                let spec = self.spec(at);
                let annotations = json!({
                    "pointsman.dev/minimum-residency": format!("{RESIDENCY}s"), "pointsman.dev/priority": self.below(100).to_string(),
                });
                let object = json!({
                    "apiVersion": INFERENCE_MODEL.api_version(), "kind": INFERENCE_MODEL.kind,
                    "metadata": {"name": model(at), "annotations": annotations}, "spec": spec,
                });
                // It may exist or be terminating.
                api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.ok();
            }
            72..78 => {
                let spec = self.spec(at);
                api.patch(&model(at), &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await.ok();
            }
            78..83 => drop(api.delete(&model(at), &DeleteParams::default()).await),
            83..87 => {
                let cordoned = self.below(2) == 0;
                self.patch_node(json!({"spec": {"unschedulable": cordoned}})).await;
            }
            87..90 => {
                let budget = (self.below(2) == 0).then_some("60Gi");
                self.patch_node(json!({"metadata": {"annotations": {"pointsman.dev/memory-budget": budget}}})).await;
            }
            90..93 => {
                let name = node(self.below(NODES));
                let status = json!({"status": {"allocatable": {"memory": format!("{}Gi", 40 + 20 * self.below(4))}}});
                self.nodes().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.ok();
            }
            93..97 => {
                let requests = json!({"requests": {"memory": format!("{}Gi", 5 + self.below(25))}});
                let name = format!("foreign-{}", self.below(6));
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                    "spec": {"nodeName": node(self.below(NODES)), "containers": [
                        {"name": "other", "image": "example.com/other:1", "resources": requests},
                    ]},
                });
                let pods = self.space.api(&POD);
                if pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.is_err() {
                    pods.delete(&name, &DeleteParams::default().grace_period(0)).await.ok();
                }
            }
            _ => {
                let at = self.below(NODES);
                if self.nodes().delete(&node(at), &DeleteParams::default()).await.is_err() {
                    self.cluster.add_nodes(&json!({ "nodes": [self.node_yaml(at)] }).to_string()).unwrap();
                }
            }
        }
        // A node's memory for models may change only for a moment: a node that is created again has its initial memory.
        if (87..100).contains(&choice) {
            let moment = Moment::now(&self.space.0.client, &self.space.0.name).await;
            self.watchdog.note_capacities(&moment);
        }
    }

    /// Checks the current state, and gives each gateway a turn.
    async fn look(&mut self) {
        for gateway in &mut self.gateways {
            gateway.tick().await;
        }
        let moment = Moment::now(&self.space.0.client, &self.space.0.name).await;
        self.watchdog.check(&moment);
        self.note_ready(&moment);
        for (model, place) in moment.places.values().flatten() {
            let Phase::Draining(reason) = &place.phase else { continue };
            if self.leaving.insert(model.clone(), place.since) == Some(place.since) {
                continue;
            }
            // Its pod still exists: it is deleted only once it is drained.
            if matches!(reason, SleepReason::Idle | SleepReason::Evicted(_) | SleepReason::Overcommitted) {
                let since = i64::try_from(place.since / 1000).unwrap();
                let ready = self.ready.get(model);
                let long_enough =
                    ready.is_some_and(|times| times.range(..=since - RESIDENCY).any(|(_, Ready { until, .. })| *until >= since - LAG));
                assert!(long_enough, "{model} goes at {since}, before it was Ready for {RESIDENCY} s: {reason:?}, {ready:#?}");
            }
        }
    }

    /// Records which pods of models are Ready, and which are no longer Ready.
    fn note_ready(&mut self, moment: &Moment) {
        let now = Timestamp::now().as_second();
        let seen = moment.ready_pods();
        for (model, times) in &mut self.ready {
            for (ready, time) in times.iter_mut().filter(|(_, time)| !time.is_over) {
                *time = Ready { until: now, is_over: !seen.contains(&(model.clone(), *ready)) };
            }
        }
        for (model, ready) in seen {
            self.ready.entry(model).or_default().insert(ready, Ready { until: now, is_over: false });
        }
    }

    async fn kill_one(&mut self) {
        let at = usize::try_from(self.below(2)).unwrap();
        self.cluster.kill_part(&self.hosts[at].part).unwrap();
        self.hosts[at] = Host::start(self.cluster, &[]).await;
    }

    /// Restores all nodes, and removes the other pods.
    async fn heal(&mut self) {
        for at in 0..NODES {
            let name = node(at);
            if self.nodes().get_opt(&name).await.unwrap().is_none() {
                self.cluster.add_nodes(&json!({ "nodes": [self.node_yaml(at)] }).to_string()).unwrap();
            }
            let change = json!({"spec": {"unschedulable": false}});
            self.nodes().patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        }
        let pods = self.space.api(&POD);
        for at in 0..6 {
            pods.delete(&format!("foreign-{at}"), &DeleteParams::default().grace_period(0)).await.ok();
        }
    }

    async fn models(&self) -> Vec<Value> {
        let models: Vec<DynamicObject> = self.space.api(&INFERENCE_MODEL).list(&ListParams::default()).await.unwrap().items;
        models.iter().map(|model| serde_json::to_value(model).unwrap()).collect()
    }

    /// The parts of the control plane, the nodes and the pods, for a message: a model that waits for one of them isn't at fault.
    async fn surroundings(&self) -> String {
        let parts = self.cluster.control(&json!({"do": "status"})).unwrap();
        let mut lines: Vec<String> = parts["parts"].as_array().into_iter().flatten().map(|part| format!("part {part}")).collect();
        for node in self.nodes().list(&ListParams::default()).await.unwrap() {
            let ready =
                node.status.iter().flat_map(|status| status.conditions.iter().flatten()).find(|condition| condition.type_ == "Ready");
            lines.push(format!(
                "node {}: {:?}",
                node.name_any(),
                ready.map(|ready| (&ready.status, &ready.reason, &ready.last_heartbeat_time))
            ));
        }
        for pod in self.space.api(&POD).list(&ListParams::default()).await.unwrap() {
            let (status, node) = (&pod.data["status"], &pod.data["spec"]["nodeName"]);
            let deleted = &pod.metadata.deletion_timestamp;
            lines.push(format!("pod {} on {node}: {}, deleted {deleted:?}, {}", pod.name_any(), status["phase"], status["conditions"]));
        }
        // Whether restarts are paused, and which subjects are queued.
        let sets = self.cluster.kubectl(&["get", "policysets", "-o", "yaml"]);
        let paused = sets.stdout.lines().filter(|line| line.contains("policy.pointsman.dev/") || line.contains("message:"));
        lines.extend(paused.map(|line| format!("policyset {}", line.trim())));
        for model in self.models().await {
            let (name, metadata) = (&model["metadata"]["name"], &model["metadata"]);
            let (applied, available) = (condition(&model, "Applied"), condition(&model, "Available"));
            lines.push(format!(
                "model {name}: generation {} of {}, deleted {}, Applied {} {}: {}, Available {} {}",
                model["status"]["observedGeneration"],
                metadata["generation"],
                metadata["deletionTimestamp"],
                applied["status"],
                applied["reason"],
                applied["message"],
                available["status"],
                available["message"],
            ));
        }
        for (node, places) in super::reservations(&self.space.0.client).await.0 {
            lines
                .extend(places.iter().map(|(model, place)| format!("place of {model} on {node}: {:?} since {}", place.phase, place.since)));
        }
        for what in
            [["deployments,replicasets", "-o", "wide"], ["leases", "-A", "-o=wide"], ["events", "--sort-by=.lastTimestamp", "-o=wide"]]
        {
            let listed = self.cluster.kubectl(&[&["get", "-n", self.pool()], &what[..]].concat());
            lines.extend([listed.stdout, listed.stderr]);
        }
        for part in self.hosts.iter().map(|host| &*host.part).chain(["controller-manager"]) {
            let log = std::fs::read_to_string(self.cluster.log_of(part)).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(60).collect();
            lines.extend(last.into_iter().rev().map(|line| format!("{part} {line}")));
        }
        lines.join("\n")
    }

    /// Violations of the expected final state.
    async fn flaws(&self) -> Vec<String> {
        let moment = Moment::now(&self.space.0.client, &self.space.0.name).await;
        let placed: BTreeMap<&ObjectName, &Phase> = moment.places.values().flatten().map(|(name, place)| (name, &place.phase)).collect();
        let mut flaws = Vec::new();
        for model in self.models().await {
            let name = ObjectName(format!("{}/{}", self.pool(), model["metadata"]["name"].as_str().unwrap()));
            let allocated = condition(&model, "Allocated");
            let message = allocated["message"].as_str().unwrap_or_default();
            if model["metadata"]["deletionTimestamp"].is_string() {
                flaws.push(format!("{name} isn't gone"));
                continue;
            }
            match placed.get(&name) {
                Some(Phase::Admitted) if model["status"]["ready"] != true => {
                    flaws.push(format!("{name} has a place and isn't Ready: {message}"));
                }
                Some(Phase::Admitted) => {}
                Some(phase) => flaws.push(format!("{name} is {phase:?}")),
                None if allocated["status"] == "True" => flaws.push(format!("{name} has no place, and says: {message}")),
                None => flaws.extend(untrue(&moment, &model, message)),
            }
        }
        flaws
    }
}

/// Why the message of a model without a reservation is wrong, if it is.
fn untrue(moment: &Moment, model: &Value, message: &str) -> Option<String> {
    let name = model["metadata"]["name"].as_str().unwrap();
    let needs: i64 = model["spec"]["memory"].as_str()?.strip_suffix("Gi")?.parse().ok()?;
    if !message.contains("It needs") || model["spec"]["dependencies"].as_array().is_some_and(|list| !list.is_empty()) {
        return None;
    }
    let selects = |node: &Node| {
        let half = model["spec"]["nodeSelector"]["half"].as_str();
        half.is_none() || node.labels().get("half").map(String::as_str) == half
    };
    let room = moment.nodes.iter().filter(|(_, node)| selects(node)).map(|(node, _)| moment.capacity(node) - moment.taken(node));
    let most = room.max().unwrap_or_default();
    (most >= needs).then(|| format!("{name} needs {needs} Gi and a node has {most}: {message}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn whatever_happens_models_get_no_more_memory_than_there_is_and_nobody_busy_is_stopped() {
    let cluster = own_cluster(Some(&[]));
    let mut run = Run::start(&cluster).await;
    let operations = if is_full() { 20_000 } else { 1_000 };
    for at in 1..=operations {
        run.operate().await;
        if at % AT_ONCE == 0 {
            run.look().await;
        }
        if at % KILL_EVERY == 0 {
            run.kill_one().await;
        }
    }
    run.heal().await;
    // Wait until the requests are served, or cancel them: before that, no model can correctly report that it waits.
    let begun = Instant::now();
    eventually("requests are answered", async || {
        run.look().await;
        let is_over = run.gateways.iter().all(|gateway| gateway.open() == 0) || begun.elapsed() > PATIENCE;
        is_over.then_some(())
    })
    .await;
    run.gateways.iter_mut().for_each(Gateway::give_up);
    let last = LastSeen::default();
    eventually("each model is Ready, or says truly why it waits", async || {
        run.look().await;
        let flaws = run.flaws().await;
        last.note(format!("{flaws:#?}\n{}", run.surroundings().await));
        flaws.is_empty().then_some(())
    })
    .await;
    let answered: usize = run.gateways.iter().map(|gateway| gateway.answered).sum();
    let slept: BTreeSet<&ObjectName> = run.leaving.keys().collect();
    println!("{} requests answered, {} models put to sleep, {} states looked at", answered, slept.len(), run.watchdog.moments);
    assert!(answered > 100 && slept.len() > 10, "the test has tried little: {answered} answered, {} put to sleep", slept.len());
}
