//! A rollback to an earlier pod template restores its revision, with its ReplicaSet.

use super::{LABELS, bring, digest, label, set_that, start};
use crate::services::{Space, fixed, own_cluster, with_model};
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};
use pointsman_core::resource::DEPLOYMENT;
use pointsman_tests::{Host, PolicyCluster, eventually, plugin_bytes};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The labels of the namespace. The plugin propagates the configured one.
const CARRIED: [&str; 3] = ["cost-centre", "team", "stage"];

/// The changes, as the index of the propagated label; `None` is a rollback. The sequence was drawn once.
const CHANGES: [Option<usize>; 12] = [Some(1), None, Some(2), Some(0), Some(1), None, Some(2), None, Some(0), Some(2), Some(1), None];

/// The running state: the propagated label, the number of the revision, the ReplicaSet with replicas, and the pods.
#[derive(Debug, PartialEq)]
struct Running {
    carried: Option<String>,
    number: String,
    set: String,
    pods: BTreeSet<String>,
}

async fn running(space: &Space<'_>) -> Option<Running> {
    let (client, namespace) = (space.0.client.clone(), &space.0.name);
    let deployment = space.find(&DEPLOYMENT, "chat-engine").await?;
    let (labels, status) = (&deployment["spec"]["template"]["metadata"]["labels"], &deployment["status"]);
    let is_settled = status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| status[*field] == 1);
    let sets = Api::<ReplicaSet>::namespaced(client.clone(), namespace).list(&ListParams::default()).await.unwrap();
    let mut scaled = sets.items.into_iter().filter(|set| set.spec.as_ref().is_some_and(|spec| spec.replicas != Some(0)));
    let (set, further) = (scaled.next()?, scaled.next());
    let pods = Api::<Pod>::namespaced(client, namespace).list(&ListParams::default()).await.unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    (is_settled && further.is_none() && pods.items.len() == 1).then(|| Running {
        carried: CARRIED.iter().find(|key| labels[**key].is_string()).map(|key| (*key).to_owned()),
        number: text(&labels["serving.ome.io/revision"]).unwrap_or_default(),
        set: set.uid().unwrap(),
        pods: pods.items.iter().filter_map(ResourceExt::uid).collect(),
    })
}

/// Waits until pods have this label, and the rollout has ended.
async fn settles(space: &Space<'_>, carried: Option<&str>) -> Running {
    eventually(&format!("pods that carry {carried:?} run"), async || {
        running(space).await.filter(|running| running.carried.as_deref() == carried)
    })
    .await
}

/// Configures the plugin to propagate a label, which is active at once.
async fn carry(cluster: &PolicyCluster, key: &str) {
    let more = json!({"strategy": {"type": "Immediate"}, "config": {"label": key}});
    bring(cluster, "labels", &plugin_bytes(LABELS), more).await;
}

/// The label that the active set's plugin propagates.
async fn active_label(cluster: &PolicyCluster) -> Option<String> {
    let set = set_that(cluster, "a set decides", super::decides).await;
    let plugin = set.spec.plugins.iter().find(|plugin| plugin.name == "labels")?;
    let config: Value = serde_json::from_str(plugin.config.as_deref().unwrap_or_default()).unwrap();
    config["label"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_was_changed_and_rolled_back_templates_have_the_revision_that_they_had_also_under_another_host() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    let mut host = start(&cluster, &[]).await;
    let space = Space::on(&cluster, "back").await;
    label(&space, CARRIED.iter().map(|key| ((*key).to_owned(), json!("a"))).collect::<serde_json::Map<_, _>>().into()).await;
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    // By the propagated label.
    let mut known = BTreeMap::from([(None, settles(&space, None).await)]);
    carry(&cluster, CARRIED[0]).await;
    cluster.active("labels", &digest(&plugin_bytes(LABELS))).await;
    known.insert(Some(CARRIED[0].to_owned()), settles(&space, Some(CARRIED[0])).await);

    for (number, change) in CHANGES.into_iter().enumerate() {
        // Halfway, another host continues with only the cluster's state.
        if number == CHANGES.len() / 2 {
            host.stop();
            host = Host::start(&cluster, &[]).await;
            host.ready().await;
        }
        let expected = if let Some(at) = change {
            carry(&cluster, CARRIED[at]).await;
            Some(CARRIED[at].to_owned())
        } else {
            cluster.pointsman(&["policy", "rollback"]).ok();
            active_label(&cluster).await
        };
        let now = settles(&space, expected.as_deref()).await;
        println!("{number}: {change:?} -> {now:?}");
        if let Some(former) = known.get(&expected) {
            assert_eq!((&former.number, &former.set), (&now.number, &now.set), "{expected:?} is the revision that it was");
        } else {
            assert!(known.values().all(|former| former.number != now.number), "a new one has a number of its own: {now:?}");
            known.insert(expected, now);
        }
        if change.is_none() {
            // The PolicyPlugin's configuration becomes active again.
            cluster.pointsman(&["policy", "resume"]).ok();
        }
    }
    assert_eq!(known.len(), CARRIED.len() + 1);
    host.stop();
}
