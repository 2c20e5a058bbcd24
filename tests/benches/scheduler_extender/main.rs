//! The real scheduler extender: the time of a pod's two calls, the throughput of the real kube-scheduler with and without it, and the
//! growth of its memory.
//!
//! `POINTSMAN_ROUNDS=10` (for the scheduler) and `POINTSMAN_PODS=100000` (for memory) measure longer. `POINTSMAN_ONLY` limits the bench to
//! `memory`, `latency` or `throughput`.
#![allow(clippy::unwrap_used, clippy::panic)]

mod calls;
mod latency;
mod memory;
mod objects;
mod throughput;

use pointsman_harness::Options;
use pointsman_tests::{ExtenderAddress, SchedulerExtender, TestCluster, measure::metric_on_page};

fn main() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        calls_alone().await;
        if is_wanted("throughput") {
            throughput::measure().await;
        }
    });
}

/// The measurements that can be selected.
const PARTS: [&str; 3] = ["memory", "latency", "throughput"];

/// Whether a measurement is selected.
fn is_wanted(what: &str) -> bool {
    let Ok(only) = std::env::var("POINTSMAN_ONLY") else { return true };
    assert!(PARTS.contains(&only.as_str()), "POINTSMAN_ONLY is {only}: set it to one of {}", PARTS.join(", "));
    only == what
}

/// The measurements without a scheduler, with only an API server.
async fn calls_alone() {
    if !is_wanted("memory") && !is_wanted("latency") {
        return;
    }
    let parts = Some(vec!["etcd".to_owned(), "apiserver".to_owned()]);
    let options = Options { parts, nodes: Some("none".into()), neighbours: Some(Vec::new()), ..Options::default() };
    let cluster = TestCluster::start(&options);
    let space = cluster.namespace("bench").await;
    objects::create_service_account(&space).await;
    let template = objects::pod_template(&space).await;
    objects::create_nodes(&space, 0..memory::NODES).await;
    if is_wanted("memory") {
        memory::measure(&space, &template).await;
    }
    let mut created = memory::NODES;
    for case in latency::CASES.iter().filter(|_| is_wanted("latency")) {
        objects::create_nodes(&space, created..case.nodes).await;
        created = case.nodes;
        latency::measure(&space, &template, case).await;
    }
}

/// Starts an extender with the default settings.
async fn start<'c>(cluster: &'c TestCluster, address: &ExtenderAddress) -> SchedulerExtender<'c> {
    SchedulerExtender::start(cluster, address, "{}\n", &[]).await
}

/// One of the extender's metrics, summed over the labels that aren't part of the name.
fn metric(extender: &SchedulerExtender<'_>, name: &str) -> f64 {
    let (_, page) = extender.get("/metrics").unwrap();
    metric_on_page(&page, name)
}

/// Prints how often policies didn't answer: the measurement then isn't of the policies.
fn tell_failures(extender: &SchedulerExtender<'_>) {
    let (_, page) = extender.get("/metrics").unwrap();
    for line in page.lines().filter(|line| line.starts_with("pointsman_extender_policy_failures_total{")) {
        println!("  POLICIES DIDN'T ANSWER: {line}");
    }
}
