//! The real scheduler extender: how long a pod's two calls take, how many pods the real kube-scheduler places with it and without, and whether
//! its memory stays what it is.
//!
//! `POINTSMAN_ROUNDS=10` compares the scheduler longer, and `POINTSMAN_PODS=100000` watches memory for longer. `POINTSMAN_ONLY` names one of
//! `memory`, `latency` and `throughput`, and nothing else is measured.
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

/// What can be measured alone.
const PARTS: [&str; 3] = ["memory", "latency", "throughput"];

/// Whether something is to be measured.
fn is_wanted(what: &str) -> bool {
    let Ok(only) = std::env::var("POINTSMAN_ONLY") else { return true };
    assert!(PARTS.contains(&only.as_str()), "POINTSMAN_ONLY is {only}, and can be one of {}", PARTS.join(", "));
    only == what
}

/// What is measured without a scheduler, on an API server alone: nothing else takes part in it.
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

/// Prints how often policies gave no answer: what was measured isn't theirs then.
fn tell_failures(extender: &SchedulerExtender<'_>) {
    let (_, page) = extender.get("/metrics").unwrap();
    for line in page.lines().filter(|line| line.starts_with("pointsman_extender_policy_failures_total{")) {
        println!("  POLICIES GAVE NO ANSWER: {line}");
    }
}
