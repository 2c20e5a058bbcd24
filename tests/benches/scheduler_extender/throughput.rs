//! The throughput of the real kube-scheduler with and without the extender, alternating. Without it, the scheduler's configuration has no
//! extender.

use crate::{
    metric,
    objects::{CONNECTIONS, SERVICES, engine, node_file, pods, router},
    start, tell_failures,
};
use futures::{StreamExt, stream};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use pointsman_harness::Options;
use pointsman_tests::{
    ExtenderAddress, TestCluster, TestNamespace, eventually,
    measure::{goal, is_quick, keep, number_in, quantile, taken_by_part},
};
use std::{
    env, fs,
    path::Path,
    pin::pin,
    process,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// The number of nodes.
const NODES: usize = 200;

/// The number of pods per round. Every other one requests an accelerator, because there are fewer accelerators than pods.
const PODS: u32 = 1_000;
const PODS_QUICK: u32 = 500;

/// The number of rounds of each variant.
const ROUNDS: u32 = 3;

/// The maximum ratio of the time with the extender to that without: four fifths of the pods in the same time.
const MAX_RATIO: f64 = 1.25;

/// The timeout of a round.
const PATIENCE: Duration = Duration::from_mins(10);

/// The scheduler's name among the cluster's parts.
const SCHEDULER: &str = "scheduler";

/// The bench prints the CPU of these parts, and of the extender after them.
const PARTS: [&str; 3] = ["etcd", "apiserver", SCHEDULER];

/// The result of a round.
struct Round {
    took: Duration,
    /// The CPU of the parts and of the extender.
    cpu: Vec<Duration>,
}

struct Bench<'a> {
    space: &'a TestNamespace<'a>,
    address: &'a ExtenderAddress,
    /// The file of the scheduler's configuration.
    folder: &'a Path,
    pods: u32,
}

pub(crate) async fn measure() {
    let address = ExtenderAddress::free();
    let folder = env::temp_dir().join(format!("pointsman-scheduler-extender-{}", process::id()));
    let config = address.write_config(&folder, |_| {});
    let file = folder.join("nodes.yaml");
    fs::write(&file, node_file(NODES)).unwrap();
    let options = Options { nodes: Some(file), scheduler_config: Some(config), neighbours: Some(Vec::new()), ..Options::default() };
    let cluster = TestCluster::start(&options);
    let space = cluster.namespace("bench").await;
    let bench = Bench { space: &space, address: &address, folder: &folder, pods: if is_quick() { PODS_QUICK } else { PODS } };
    let rounds = number_in("POINTSMAN_ROUNDS").unwrap_or(ROUNDS);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let is_even = round.is_multiple_of(2);
        // Each runs first equally often.
        for has_extender in [!is_even, is_even] {
            let took = bench.round(has_extender).await;
            if has_extender { with.push(took) } else { without.push(took) }
        }
    }
    tell(&without, &with, bench.pods);
    fs::remove_dir_all(&folder).unwrap();
}

impl Bench<'_> {
    /// Measures the time from the first creation of a pod to the last binding.
    async fn round(&self, has_extender: bool) -> Round {
        let cluster = self.space.cluster;
        self.address.write_config(self.folder, |config| {
            if !has_extender {
                config.as_object_mut().unwrap().remove("extenders");
            }
        });
        let extender = if has_extender { Some(start(cluster, self.address).await) } else { None };
        // The scheduler reads its configuration only when it starts.
        cluster.stop_part(SCHEDULER).unwrap();
        cluster.start_part(SCHEDULER).unwrap();
        self.place_one().await;
        let parts: Vec<&str> = PARTS.into_iter().chain(extender.as_ref().map(|extender| extender.part.as_str())).collect();
        let cpu = || parts.iter().map(|part| taken_by_part(cluster, part).cpu()).collect::<Vec<_>>();
        let before = cpu();
        let took = self.place_all().await;
        let cpu = cpu().into_iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect();
        if let Some(extender) = extender {
            let asked = metric(&extender, "pointsman_extender_pods_total{scope=\"in\"}");
            assert!(asked >= f64::from(self.pods), "the scheduler called the extender for {asked} of {} pods", self.pods);
            tell_failures(&extender);
            extender.kill();
        }
        self.clear().await;
        Round { took, cpu }
    }

    /// Waits until the scheduler has listed the cluster: it places a pod that isn't measured.
    async fn place_one(&self) {
        let pods = pods(self.space);
        pods.create(&PostParams::default(), &engine("first", 0)).await.unwrap();
        eventually("the first pod has a node", async || pods.get("first").await.ok()?.spec?.node_name).await;
        self.clear().await;
    }

    async fn place_all(&self) -> Duration {
        let pods = pods(self.space);
        let version = pods.list_metadata(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let create = |number: usize| {
            let pods = &pods;
            let (name, service) = (format!("pod-{number}"), number / 2 % SERVICES);
            let pod = if number.is_multiple_of(2) { engine(&name, service) } else { router(&name, service) };
            async move {
                pods.create(&PostParams::default(), &pod).await.unwrap();
            }
        };
        let binding = async {
            if timeout(PATIENCE, self.see_bound(version)).await.is_err() {
                panic!("not all pods have a node after {PATIENCE:?}: {}", self.unplaced().await);
            }
        };
        let begun = Instant::now();
        tokio::join!(stream::iter(0..self.pods as usize).for_each_concurrent(CONNECTIONS, create), binding);
        begun.elapsed()
    }

    /// Waits until all pods that were created after this resource version have nodes.
    async fn see_bound(&self, mut version: String) {
        let pods = pods(self.space);
        // For this watch, a pod is new when it gets a node.
        let bound = WatchParams::default().fields("spec.nodeName!=");
        let mut left = self.pods;
        // The API server ends a watch if its client doesn't read while all processors are busy.
        while left > 0 {
            let mut events = pin!(pods.watch_metadata(&bound, &version).await.unwrap());
            while let Some(event) = events.next().await {
                let (object, is_new) = match event.unwrap() {
                    WatchEvent::Added(object) => (object, true),
                    WatchEvent::Modified(object) | WatchEvent::Deleted(object) => (object, false),
                    WatchEvent::Error(error) => panic!("the watch of pods failed: {error:?}"),
                    WatchEvent::Bookmark(_) => continue,
                };
                version = object.metadata.resource_version.unwrap();
                left -= u32::from(is_new);
                if left == 0 {
                    return;
                }
            }
        }
    }

    /// A pod without a node, and the scheduler's message about it.
    async fn unplaced(&self) -> String {
        let first = pods(self.space).list(&ListParams::default().fields("spec.nodeName=").limit(1)).await.unwrap().items.pop();
        let Some(pod) = first else { return "by now all have one".to_owned() };
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        let messages: Vec<String> = conditions.into_iter().filter_map(|condition| condition.message).collect();
        format!("{}: {}", pod.metadata.name.unwrap_or_default(), messages.join("; "))
    }

    async fn clear(&self) {
        let pods = pods(self.space);
        pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await.unwrap();
        eventually("all pods are gone", async || pods.list_metadata(&ListParams::default()).await.unwrap().items.is_empty().then_some(()))
            .await;
    }
}

fn tell(without: &[Round], with: &[Round], pods: u32) {
    let a_second = |took: Duration| f64::from(pods) / took.as_secs_f64();
    let median = |rounds: &[Round]| quantile(&rounds.iter().map(|round| round.took).collect::<Vec<_>>(), 0.5);
    println!("\nscheduler throughput at {NODES} nodes, {} rounds of {pods} pods each", with.len());
    for (name, rounds) in [("without the extender", without), ("with it", with)] {
        let each: Vec<String> = rounds.iter().map(|round| format!("{:.0}", a_second(round.took))).collect();
        println!("  {name:<22} {:>5.0} pods per second, of {}", a_second(median(rounds)), each.join(", "));
        let cpu = |at: usize| quantile(&rounds.iter().filter_map(|round| round.cpu.get(at).copied()).collect::<Vec<_>>(), 0.5) / pods;
        let parts = PARTS.into_iter().chain(["extender"]).take(rounds.first().map_or(0, |round| round.cpu.len()));
        let cpus: Vec<String> = parts.enumerate().map(|(at, part)| format!("{part} {:.2?}", cpu(at))).collect();
        println!("  {:<22} {}", "CPU per pod", cpus.join(", "));
    }
    let (native, extender) = (median(without), median(with));
    let ratio = extender.div_duration_f64(native);
    println!("  {:.2} x the pods per second without the extender", 1.0 / ratio);
    goal("time, with/without", &format!("{ratio:.2}"), &format!("<= {MAX_RATIO}"), ratio <= MAX_RATIO);
    // Per pod, so that a quick run has comparable times.
    keep(&format!("scheduler throughput at {NODES} nodes"), &[("native", native / pods), ("extender", extender / pods)]);
}
