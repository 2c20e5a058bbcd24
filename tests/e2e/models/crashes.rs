//! A host that crashes before or after any of its writes about models: its successor never allocates memory twice, and finishes the work.

use super::{
    Pool,
    gateway::Gateway,
    observed::{Moment, Watchdog},
};
use crate::services::{Space, condition, home, own_cluster};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_MODEL};
use pointsman_tests::{
    Host, TestCluster, client, eventually,
    faults::{Call, Faults, Proxy},
    is_full,
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

/// Starts a host behind the proxy. It has the same identity as the previous one, so it becomes the leader at once.
async fn start<'a>(cluster: &'a TestCluster, proxy: &Proxy) -> Host<'a> {
    Host::start_as(cluster, &proxy.kubeconfig, &["--identity", "the-only"]).await
}

/// Whether a call reserves or releases memory.
fn is_reservation(call: &Call) -> bool {
    let target = &call.target;
    target.contains("/configmaps/pointsman-node-") || target.contains("/namespaces/pointsman-system/configmaps?")
}

/// Whether a call also uses memory or does anything else about models, except statuses, Services and events, which are written as for any
/// kind.
fn is_about_memory(call: &Call) -> bool {
    let target = &call.target;
    is_reservation(call) || target.contains("/deployments/") || target.contains("/inferencemodels/") && !target.contains("/status")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_host_that_ends_at_any_write_gives_out_no_memory_twice_and_its_follower_goes_on() {
    let cluster = own_cluster(Some(&[]));
    home(&cluster).await;
    let space = Space::bare(&cluster, "crash").await;
    let pool = Pool::new(&space, &["100Gi", "50Gi"]);
    let faults = Arc::new(Faults::new(1));
    let proxy = Proxy::start(0, client(&cluster.host_kubeconfig()).await, &cluster.dir, &faults).await;
    let mut host = start(&cluster, &proxy).await;
    host.ready().await;
    let mut crashed = faults.crash_at(if is_full() { is_about_memory } else { is_reservation });
    let mut gateway = Gateway::new(space.0.client.clone(), &space.0.name, "crash");
    let mut watchdog = Watchdog::default();

    // Checks every state until a model is as expected, and starts a host after each crash.
    let mut until = async |gateway: &mut Gateway, name: &str, expected: &dyn Fn(Option<&serde_json::Value>) -> bool| {
        eventually(&format!("{name} comes to its end"), async || {
            if crashed.has_changed().unwrap() {
                crashed.borrow_and_update();
                cluster.kill_part(&host.part).unwrap();
                host = start(&cluster, &proxy).await;
            }
            gateway.tick().await;
            watchdog.check(&Moment::now(&space.0.client, &space.0.name).await);
            let found = space.find(&INFERENCE_MODEL, name).await;
            expected(found.as_ref()).then_some(())
        })
        .await;
    };
    let ready = |model: Option<&serde_json::Value>| model.is_some_and(|model| condition(model, "Ready")["status"] == "True");
    let gone = |model: Option<&serde_json::Value>| model.is_none();
    pool.create("llama", "60Gi", json!({})).await;
    until(&mut gateway, "llama", &ready).await;
    gateway.ask("llama", Duration::from_millis(1));
    until(&mut gateway, "llama", &ready).await;
    // The first model is stopped for one that starts together with its dependency, each on its own node.
    pool.create("tokens", "30Gi", json!({"nodeSelector": {"inference-pool": pool.name, "at": "1"}})).await;
    pool.create("mistral", "70Gi", json!({"dependencies": [pool.model_name("tokens")]})).await;
    gateway.ask("mistral", Duration::from_millis(1));
    until(&mut gateway, "mistral", &ready).await;
    space.delete(&INFERENCE_MODEL, "mistral").await;
    until(&mut gateway, "mistral", &gone).await;
    gateway.ask("llama", Duration::from_millis(1));
    until(&mut gateway, "llama", &ready).await;
    space.delete(&INFERENCE_MODEL, "llama").await;
    until(&mut gateway, "llama", &gone).await;

    let crashes = faults.crashes();
    let met = |part: &str| crashes.iter().filter(|(write, times)| write.contains(part) && **times >= 2).count();
    println!("{} kinds of write, {} states looked at", crashes.len(), watchdog.moments);
    let more: &[&str] = if is_full() { &["/deployments/", "finalizers"] } else { &[] };
    for part in ["Admitted", "Draining", "Stopping", "DELETE"].iter().chain(more) {
        assert!(met(part) > 0, "no host has ended before and after a write of {part}: {crashes:#?}");
    }
    pool.reserves("only what stays has a place", &[("tokens", 1)]).await;
    space.goes(&DEPLOYMENT, "llama").await;
}
