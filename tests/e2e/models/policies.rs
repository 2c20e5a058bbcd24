//! A plugin that decides who is worth more, exchanged while models compete.

use super::{Pool, gateway::Gateway};
use crate::services::{Space, condition, own_cluster};
use pointsman_core::resource::INFERENCE_MODEL;
use pointsman_sandbox::{builtin, digest::Digest};
use pointsman_tests::{Host, PolicyCluster, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// The name of the plugin that turns the order around.
const TURNED: &str = "turned-around";

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_turns_around_who_sleeps_for_whom_while_the_host_runs() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let space = Space::bare(&cluster, "turned").await;
    let pool = Pool::new(&space, &["100Gi"]);
    let mut gateway = Gateway::new(space.0.client.clone(), &space.0.name, "turned");
    let prioritize = async |name: &str, priority: &str| {
        space.patch(&INFERENCE_MODEL, name, json!({"metadata": {"annotations": {"pointsman.dev/priority": priority}}})).await;
    };
    // Only what the annotation says counts, and the built-in policy takes more for more.
    let weights = |priority: i64| json!({"memoryAdmission": {"priority": priority, "demand": 0, "wait": 0, "load": 0, "wakes": 0, "dependants": 0, "size": 0}});
    pool.create("low", "60Gi", json!({})).await;
    prioritize("low", "-10").await;
    pool.ready("low").await;
    gateway.ask("low", Duration::from_millis(1));
    let until = async |gateway: &mut Gateway, name: &str, what: &str, expected: &dyn Fn(&Value) -> bool| {
        eventually(&format!("{name} {what}"), async || {
            gateway.tick().await;
            space.find(&INFERENCE_MODEL, name).await.filter(expected).map(drop)
        })
        .await;
    };
    let answered = |gateway: &Gateway| gateway.open() == 0;
    eventually("the request is answered", async || {
        gateway.tick().await;
        answered(&gateway).then_some(())
    })
    .await;

    let bytes = builtin::find("scheduling-scoring").unwrap().bytes;
    cluster.config_map(TURNED, bytes).await;
    cluster
        .plugin_of_config_map(TURNED, json!({"mode": "Replace", "order": 200, "strategy": {"type": "Immediate"}, "config": weights(-4)}))
        .await;
    cluster.active(TURNED, &Digest::hash(bytes).to_string()).await;
    pool.create("high", "60Gi", json!({})).await;
    prioritize("high", "10").await;
    gateway.ask("high", Duration::from_millis(1));
    let ranks = |model: &Value| {
        condition(model, "Allocated")["message"]
            .as_str()
            .is_some_and(|message| message.contains("ranks as high by the policies, or nearly"))
    };
    until(&mut gateway, "high", "waits for one of a lower priority", &ranks).await;
    // The built-in policy alone decides again.
    cluster.delete_plugin(TURNED).await;
    let ready = |model: &Value| condition(model, "Ready")["status"] == "True";
    until(&mut gateway, "high", "gets its place", &ready).await;
    let sleeps = |model: &Value| model["status"]["replicas"] == 0;
    until(&mut gateway, "low", "sleeps", &sleeps).await;
}
