//! Adopted services keep what users rely on: their addresses and their files, and there is only one workload.

use super::{MANAGER, Other, adopt, engine_alone, host, looks_again, ome::grouped, run, running, unmarked};
use crate::services::{Space, condition, own_cluster};
use pointsman_core::{
    resource::{DEPLOYMENT, INFERENCE_SERVICE, LEADER_WORKER_SET, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM, POD_DISRUPTION_BUDGET, SERVICE},
    world::child::SUBJECT_KIND,
};
use pointsman_tests::{Host, eventually};
use serde_json::{Value, json};

/// The external addresses of a Service, at its known port.
async fn address(space: &Space<'_>, name: &str) -> Value {
    let spec = space.get(&SERVICE, name).await["spec"].take();
    let known = spec["ports"].as_array().unwrap().iter().find(|port| port["port"] == 80).unwrap();
    assert!(known["nodePort"].is_number(), "{spec:#}");
    json!([spec["type"], spec["clusterIP"], spec["externalTrafficPolicy"], spec["healthCheckNodePort"], known["nodePort"]])
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_service_that_is_reached_from_without_stays_so_through_a_taking_over_and_a_rollout() {
    let cluster = own_cluster(Some(&[]));
    let space = Space::on(&cluster, "addresses").await;
    engine_alone(&space, "balanced", json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"})).await;
    engine_alone(&space, "ported", json!({"type": "NodePort"})).await;
    let before = [address(&space, "balanced").await, address(&space, "ported").await];
    let now = async || [address(&space, "balanced").await, address(&space, "ported").await];
    let host = host(&cluster).await;
    run(&space, 4).await;
    adopt(&space, &["--all", "--yes", "--force"]).ok();
    for service in ["balanced", "ported"] {
        space.ready(service).await;
    }
    assert_eq!(now().await, before);
    assert!(!unmarked(&space.get(&SERVICE, "balanced").await), "it is ours");

    for service in ["balanced", "ported"] {
        let runner = json!({"name": "ome-container", "image": "example.com/engine:2"});
        space.change(service, json!({"engine": {"runner": runner}})).await;
        eventually(&format!("the pods of {service} are new"), async || {
            let pods = space.pods(service).await;
            let fresh = |pod: &Value| pod["spec"]["containers"][0]["image"] == "example.com/engine:2";
            (pods.len() == 2 && pods.values().all(fresh)).then_some(())
        })
        .await;
        space.ready(service).await;
    }
    assert_eq!(now().await, before);
    host.stop();
}

/// The writes in a namespace, without statuses and events.
fn objects_written(space: &Space<'_>) -> Vec<String> {
    space.writes().into_iter().filter(|write| !write.ends_with("/status") && !write.contains(" events")).collect()
}

/// The groups of pods in a namespace, by name.
fn groups(space: &Space<'_>) -> String {
    space.kubectl(&["get", "leaderworkersets", "-o", "name"]).ok()
}

const GROUP: &str = "leaderworkerset.leaderworkerset.x-k8s.io/lws-big-engine\n";

/// A host that doesn't see the adopted group creates no second one.
async fn makes_none_beside_it(space: &Space<'_>, host: &Host<'_>) {
    let said = space.says("big", "Contested", "True", "MadeByOther").await;
    assert!(said.contains("lws-big-engine") && said.contains("pointsman adopt"), "{said}");
    looks_again(space, host, &INFERENCE_SERVICE, "big").await;
    assert_eq!(groups(space), GROUP);
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_workload_that_has_lost_our_label_gets_no_second_one_beside_it_and_is_taken_over_again() {
    let cluster = own_cluster(Some(&["lws"]));
    let space = Space::on(&cluster, "unseen").await;
    grouped(&space, "big").await;
    let first = host(&cluster).await;
    let pods = run(&space, 2).await;
    adopt(&space, &["isvc/big", "--yes", "--force"]).ok();
    let service = space.ready("big").await;
    assert_eq!(service["metadata"]["annotations"]["pointsman.dev/adopted-workloads"], "LeaderWorkerSet/lws-big-engine");

    let before = objects_written(&space);
    space.patch(&LEADER_WORKER_SET, "lws-big-engine", json!({"metadata": {"labels": {SUBJECT_KIND: null}}})).await;
    makes_none_beside_it(&space, &first).await;
    first.stop();
    let second = host(&cluster).await;
    makes_none_beside_it(&space, &second).await;
    assert_eq!((objects_written(&space), running(&space).await), (before, pods.clone()));

    let told = adopt(&space, &["isvc/big", "--force"]).ok();
    assert!(told.contains("/big: 0 pods restart"), "{told}");
    let row = told.lines().find(|line| line.contains("LeaderWorkerSet")).unwrap();
    assert!(row.contains(MANAGER) && row.contains("adopted again"), "{row}");
    adopt(&space, &["isvc/big", "--yes", "--force"]).ok();
    space.becomes(&INFERENCE_SERVICE, "big", "it is served", |now| condition(now, "Contested")["status"] == "False").await;
    space.ready("big").await;
    assert_eq!((groups(&space).as_str(), running(&space).await), (GROUP, pods));
    second.stop();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn files_are_never_removed_and_what_guards_pods_goes_with_its_maker() {
    let cluster = own_cluster(Some(&[]));
    let space = Space::on(&cluster, "files").await;
    engine_alone(&space, "chat", json!({})).await;
    let other = Other::new(&space, &INFERENCE_SERVICE, "chat");
    let room = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    other.makes(&PERSISTENT_VOLUME_CLAIM, "old-files", json!({}), json!({"spec": room})).await;
    let everybody = json!({"podSelector": {"matchLabels": {"app": "isvc.chat-engine"}}, "ingress": [{}]});
    other.makes(&NETWORK_POLICY, "old-guard", json!({}), json!({"spec": everybody})).await;
    let settings = json!({"security.ome.io/network-policy": "allow-inference-only", "storage.ome.io/size": "1Gi"});
    space.annotate("chat", settings).await;
    let host = host(&cluster).await;
    let pods = run(&space, 2).await;

    // Removing a NetworkPolicy permits more traffic, so it requires `--force`.
    let refused = adopt(&space, &["isvc/chat", "--yes"]);
    assert_eq!(refused.code, Some(2), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stdout.contains("old-guard would be removed, and with it the isolation of its pods"), "{}", refused.stdout);
    let told = adopt(&space, &["isvc/chat", "--yes", "--force"]).ok();
    assert!(told.contains("retained: it may contain files") && told.contains("/chat: 0 pods restart"), "{told}");
    space.goes(&NETWORK_POLICY, "old-guard").await;
    for resource in [&NETWORK_POLICY, &PERSISTENT_VOLUME_CLAIM, &POD_DISRUPTION_BUDGET] {
        space.becomes(resource, "chat-engine", "it is made", |_| true).await;
    }
    assert!(unmarked(&space.get(&PERSISTENT_VOLUME_CLAIM, "old-files").await));
    let told = adopt(&space, &["isvc/chat", "--yes"]).ok();
    assert!(told.contains("nothing to adopt"), "{told}");

    let told = adopt(&space, &["isvc/chat", "--back", "--yes"]).ok();
    for (kind, what) in [
        ("NetworkPolicy", "removed: the other controller didn't create it"),
        ("PersistentVolumeClaim", "released unchanged; created by Pointsman"),
    ] {
        assert!(told.lines().any(|line| line.contains(kind) && line.contains(what)), "{kind}: {told}");
    }
    assert!(space.find(&NETWORK_POLICY, "chat-engine").await.is_none());
    for claim in ["chat-engine", "old-files"] {
        let claim = space.get(&PERSISTENT_VOLUME_CLAIM, claim).await;
        assert!(unmarked(&claim) && claim["metadata"]["deletionTimestamp"].is_null(), "{claim:#}");
    }
    assert!(unmarked(&space.get(&DEPLOYMENT, "chat-engine").await));
    assert_eq!(running(&space).await, pods);
    host.stop();
}
