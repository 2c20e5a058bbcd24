//! Kubernetes' own gang scheduling, which is alpha in 1.36: the scheduler places a PodGroup whole, and the policies choose its nodes.

use super::{Options, SETTINGS, Space, domain, is_refused, options, pod};
use k8s_openapi::api::core::v1::Pod;
use pointsman_tests::{ExtenderAddress, SchedulerExtender, TestCluster, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The feature gates and APIs that it requires in 1.36.
const FEATURES: [&str; 2] = ["GenericWorkload=true,GangScheduling=true", "scheduling.k8s.io/v1alpha2=true"];

/// The accelerators of a whole node.
const WHOLE: u32 = 8;

/// The nodes with this many accelerators in a domain.
const WHOLE_NODES: usize = 3;

/// Members of a PodGroup, each of which takes a whole node.
fn members(group: &str, number: usize) -> Vec<Value> {
    let member = |at: usize| {
        let mut pod = pod(&format!("{group}-{at}"), WHOLE);
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
        pod
    };
    (0..number).map(member).collect()
}

fn create_group(cluster: &TestCluster, namespace: &str, name: &str, size: usize) {
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    });
    cluster.apply(&group).ok();
}

/// The nodes of a group's members; empty for members without a node.
async fn nodes(space: &Space<'_>, group: &str) -> Vec<String> {
    let places = space.places().await;
    places.into_iter().filter(|(name, _)| name.rsplit_once('-').is_some_and(|(owner, _)| owner == group)).map(|(_, node)| node).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_group_of_kubernetes_own_is_placed_whole_by_the_scheduler_on_nodes_that_policies_choose() {
    let address = ExtenderAddress::free();
    let features = Some(FEATURES.map(str::to_owned));
    let cluster = TestCluster::start(&Options { features, ..options(&address, &[]) });
    let space = Space(cluster.namespace("native").await);
    let extender = SchedulerExtender::start(&cluster, &address, SETTINGS, &[]).await;

    // An incomplete group waits, even once a later pod has a node.
    create_group(&cluster, &space.0.name, "team", WHOLE_NODES);
    let team = members("team", WHOLE_NODES);
    space.create(&team[..WHOLE_NODES - 1]).await;
    space.create(&[pod("other-0", 0)]).await;
    eventually("a pod that came later has a node", async || (nodes(&space, "other").await != [""]).then_some(())).await;
    assert!(nodes(&space, "team").await.iter().all(String::is_empty));

    // The complete group is placed as a whole, in one domain.
    space.create(&team[WHOLE_NODES - 1..]).await;
    let placed = eventually("the group is placed", async || {
        let nodes = nodes(&space, "team").await;
        (nodes.len() == WHOLE_NODES && nodes.iter().all(|node| !node.is_empty())).then_some(nodes)
    })
    .await;
    println!("the group is on {placed:?}");
    assert_eq!(placed.iter().map(|node| domain(node)).collect::<BTreeSet<_>>().len(), 1, "{placed:?}");
    let explained = cluster.pointsman(&["explain", "pod/team-0", "-n", &space.0.name, "--extender", &extender.pages]).ok();
    assert!(explained.contains("Gang"), "{explained}");

    // A group that is larger than the cluster gets no node at all, and nothing is reserved for it.
    let size = WHOLE_NODES * super::DOMAINS * super::scale();
    create_group(&cluster, &space.0.name, "large", size);
    space.create(&members("large", size)).await;
    eventually("the scheduler finds too few nodes for it", async || {
        let pods = space.list().await;
        let is_large = |pod: &&Pod| pod.metadata.name.as_deref().is_some_and(|name| name.starts_with("large"));
        let large: Vec<&Pod> = pods.iter().filter(is_large).collect();
        (large.len() == size && large.into_iter().all(is_refused)).then_some(())
    })
    .await;
    assert!(nodes(&space, "large").await.iter().all(String::is_empty));
    let (_, page) = extender.get("/metrics").unwrap();
    assert!(!page.contains("pointsman_extender_policy_failures_total{"), "{page}");
}
