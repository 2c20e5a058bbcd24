//! The host by itself: it starts, becomes ready, notices what the cluster serves, and ends.

use pointsman_tests::{Host, TestCluster, eventually};

#[tokio::test]
async fn the_host_becomes_ready_and_ends_in_good_order() {
    let cluster = TestCluster::shared();
    let host = Host::start(cluster, &cluster.kubeconfig, &[]).await;
    assert_eq!(host.get("/healthz").unwrap(), (200, "ok\n".to_owned()));
    host.ready().await;
    let part = host.part.clone();
    host.stop();
    let parts = cluster.control(&serde_json::json!({ "do": "status" })).unwrap();
    let stopped = parts["parts"].as_array().unwrap().iter().find(|p| p["name"] == *part).unwrap();
    assert_eq!(stopped["exit"], 0, "{stopped}");
}

#[tokio::test]
async fn a_host_without_crds_says_what_is_missing_and_heals_without_a_restart() {
    let cluster = TestCluster::bare(&[]);
    let host = Host::start(&cluster, &cluster.kubeconfig, &[]).await;
    let said = eventually("it has asked the API server", async || {
        let (code, body) = host.get("/readyz").ok()?;
        body.contains("policyplugins").then_some((code, body))
    })
    .await;
    assert_eq!(said.0, 503);
    assert!(said.1.contains("`pointsman crds install` installs the CRDs"), "{}", said.1);
    assert_eq!(host.get("/healthz").unwrap().0, 200);

    cluster.pointsman(&["crds", "install"]).ok();
    host.ready().await;
}

#[tokio::test]
async fn an_idle_host_writes_nothing() {
    let cluster = TestCluster::shared();
    let kubeconfig = cluster.kubeconfig_of_user("idle-host", &["system:masters"]).unwrap();
    let host = Host::start(cluster, &kubeconfig, &[]).await;
    host.ready().await;
    let of_host = || -> Vec<_> { cluster.requests().into_iter().filter(|request| request["user"]["username"] == "idle-host").collect() };
    // Once more after things have settled, and then no more.
    eventually("it has nothing left to ask", async || {
        let asked = |request: &&serde_json::Value| request["requestURI"].as_str().is_some_and(|uri| uri == "/apis");
        (of_host().iter().filter(asked).count() >= 2).then_some(())
    })
    .await;
    host.stop();
    let of_host = of_host();
    let writes: Vec<_> = of_host.iter().filter(|request| !["get", "list", "watch"].contains(&request["verb"].as_str().unwrap())).collect();
    assert!(writes.is_empty(), "{writes:?}");
}
