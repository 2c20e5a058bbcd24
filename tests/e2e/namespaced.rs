//! A host that serves only some namespaces, with rights only in these.

use crate::services::{LastSeen, Space, fixed, with_model};
use pointsman::permissions::is_read_everywhere;
use pointsman_core::{
    resource::{INFERENCE_SERVICE, LLM_INFERENCE_SERVICE},
    settings::HOST_NAMESPACE,
    subject_kind::ALL,
};
use pointsman_harness::{Options, workspace};
use pointsman_tests::{Host, TestCluster, TestNamespace, eventually, grants::host_user};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Creates one of the namespaces that `deploy/overlays/namespaced` names, or another one.
async fn space<'a>(cluster: &'a TestCluster, name: &str) -> Space<'a> {
    cluster.kubectl(&["create", "namespace", name]).ok();
    let space = Space(TestNamespace { cluster, client: cluster.client().await, name: name.to_owned() });
    space.furnish().await;
    space
}

/// The requests of the host: their namespaces, and the kinds that it requested in all namespaces at once.
fn requested(cluster: &TestCluster) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut namespaces, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    for request in cluster.requests().into_iter().filter(|request| request["user"]["username"] == *host_user()) {
        let object = &request["objectRef"];
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let known = ALL.iter().find(|resource| resource.group == text("apiGroup") && resource.plural == text("resource"));
        match object["namespace"].as_str() {
            Some(namespace) => _ = namespaces.insert(namespace.to_owned()),
            None if known.is_some_and(|resource| !is_read_everywhere(resource)) => _ = everywhere.insert(text("resource").to_owned()),
            None => {}
        }
    }
    (namespaces, everywhere)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_host_of_some_namespaces_serves_these_and_reads_no_others() {
    let cluster = TestCluster::start(&Options { neighbours: Some(vec!["lws".to_owned()]), ..Options::default() });
    cluster.pointsman(&["crds", "install"]).ok();
    let (team_a, team_b, other) = (space(&cluster, "team-a").await, space(&cluster, "team-b").await, space(&cluster, "other").await);
    let overlay = workspace().join("deploy/overlays/namespaced");
    let applied = cluster.kubectl(&["apply", "--server-side", "-k", &overlay.to_string_lossy()]);
    assert_eq!(applied.stderr, "", "a warning, or an error");
    other.service("chat", with_model(json!({"engine": fixed(1)}))).await;

    let deployment = cluster.kubectl(&["get", "deployment", "pointsman", "-n", HOST_NAMESPACE, "-o", "json"]).ok();
    let host = Host::start_as_deployed(&cluster, &serde_json::from_str(&deployment).unwrap()).await;
    host.ready().await;
    // Both services have the same name, and the namespaces are listed one after the other.
    for space in [&team_a, &team_b] {
        space.service("chat", with_model(json!({"engine": fixed(1)}))).await;
        space.ready("chat").await;
    }
    // Groups, and the Roles of the pods.
    let groups = json!({"spec": {"model": {"uri": "hf://example/llama"}, "parallelism": {"pipeline": 2}, "worker": {"containers": []}}});
    team_b.create(&LLM_INFERENCE_SERVICE, "grouped", groups).await;
    team_b.says_of(&LLM_INFERENCE_SERVICE, "grouped", "Ready", "True", "Ready").await;
    team_a.kubectl(&["delete", "isvc", "chat", "--timeout", "600s"]).ok();

    let untouched = other.get(&INFERENCE_SERVICE, "chat").await;
    assert_eq!(untouched["status"], Value::Null);
    let (namespaces, everywhere) = requested(&cluster);
    let beside = [HOST_NAMESPACE, "team-a", "team-b"].map(str::to_owned);
    assert_eq!(namespaces.into_iter().filter(|namespace| namespace != "default").collect::<Vec<_>>(), beside);
    assert_eq!(everywhere, BTreeSet::new(), "requested in all namespaces");
    let seen = LastSeen::default();
    let doctor = || {
        let found = cluster.pointsman(&["doctor"]);
        seen.note(&found.stdout);
        found
    };
    eventually("doctor is content", async || doctor().success.then_some(())).await;
    host.stop();

    cluster.kubectl(&["delete", "rolebinding", "pointsman-leaderworkerset", "-n", "team-b"]).ok();
    let wrong = "the ServiceAccount lacks rights of leaderworkerset (create leaderworkersets.leaderworkerset.x-k8s.io in team-b, ";
    eventually(wrong, async || doctor().stdout.contains(wrong).then_some(())).await;
    let found = doctor().stdout;
    assert!(found.contains("): apply deploy/roles/namespaced/tenant/leaderworkerset to each of team-a, team-b\n"), "{found}");
}
