//! A policy that a ConfigMap replaces while pods are created.

use super::{DOMAINS, Places, Space, domain, options, pod};
use pointsman_sandbox::{builtin, digest::Digest};
use pointsman_tests::{ExtenderAddress, Host, PolicyCluster, SchedulerExtender, TestCluster, eventually};
use serde_json::json;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// The name of the plugin that prefers cheap nodes.
const CHEAP: &str = "cheap-nodes";

/// The number of pods that are created before the policy is replaced, and after.
const PODS: usize = 12;

/// Creates pods until `ends` is set, each once the previous one has a node. Returns their number.
async fn create_pods(space: &Space<'_>, created: &AtomicUsize, ends: &AtomicBool) -> usize {
    for number in 1.. {
        if ends.load(Ordering::SeqCst) {
            return number - 1;
        }
        created.store(number, Ordering::SeqCst);
        space.create(&[pod(&format!("pod-{number}"), u32::from(number % 2 == 0))]).await;
        space.all_placed(number).await;
    }
    0
}

fn set_digest(extender: &SchedulerExtender<'_>) -> Option<String> {
    let (_, page) = extender.get("/metrics")?;
    page.lines().find(|line| line.starts_with("pointsman_policy_set_info")).map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_policy_that_is_replaced_by_a_config_map_changes_later_placements_alone() {
    let address = ExtenderAddress::free();
    let cluster = PolicyCluster::from_cluster(TestCluster::with_our_crds(options(&address, &[])));
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let space = Space(cluster.namespace("swap").await);
    let extender = SchedulerExtender::start(&cluster, &address, super::SETTINGS, &[]).await;
    let before = set_digest(&extender).unwrap();
    let (created, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    let load = create_pods(&space, &created, &ends);
    let replaces = async {
        let reaches = async |number: usize| {
            eventually("pods are created", async || (created.load(Ordering::SeqCst) > number).then_some(())).await;
        };
        reaches(PODS).await;
        let earlier = space.places().await;
        let bytes = builtin::find("scheduling-scoring").unwrap().bytes;
        cluster.config_map(CHEAP, bytes).await;
        let config = json!({"nodePlacement": {"price": 1000}});
        let more = json!({"mode": "Replace", "order": 200, "strategy": {"type": "Immediate"}, "config": config});
        cluster.plugin_of_config_map(CHEAP, more).await;
        cluster.active(CHEAP, &Digest::hash(bytes).to_string()).await;
        eventually("the extender follows", async || set_digest(&extender).filter(|set| *set != before)).await;
        // The policy may have decided already about the pod that is being placed.
        let later = created.load(Ordering::SeqCst) + 1;
        reaches(later + PODS).await;
        ends.store(true, Ordering::SeqCst);
        (earlier, later)
    };
    let (number, (earlier, later)) = tokio::join!(load, replaces);
    let places: Places = space.places().await;
    println!("of {number} pods, {} were placed before another policy decided", later - 1);

    // Pods that were already placed stay.
    for (name, node) in earlier.iter().filter(|(_, node)| !node.is_empty()) {
        assert_eq!(&places[name], node, "{name}");
    }
    let domains = |numbers: std::ops::RangeInclusive<usize>| -> BTreeSet<&str> {
        numbers.map(|number| domain(&places[&format!("pod-{number}")])).collect()
    };
    let cheapest = (DOMAINS - 1).to_string();
    assert_ne!(domains(1..=PODS), BTreeSet::from([cheapest.as_str()]), "the default policy doesn't look at prices");
    assert_eq!(domains(later + 1..=number), BTreeSet::from([cheapest.as_str()]));
    let (_, page) = extender.get("/metrics").unwrap();
    assert!(!page.contains("pointsman_extender_policy_failures_total{"), "{page}");
    host.stop();
}
