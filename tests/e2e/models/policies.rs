//! A plugin that ranks models and is replaced while they compete; one that chooses nodes by price; and models that wake and are deleted
//! while restarts are paused.

use super::{Pool, gateway::Gateway};
use crate::services::{Space, condition, home, own_cluster};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_MODEL};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use pointsman_sandbox::{builtin, digest::Digest};
use pointsman_tests::{Host, PolicyCluster, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// The name of the plugin that reverses the order.
const TURNED: &str = "turned-around";

/// The name of the plugin that prefers cheap nodes.
const CHEAP: &str = "cheap-nodes";

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
    // Only the annotation affects the rank. With the built-in policy, a higher priority ranks higher.
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
            .is_some_and(|message| message.contains("ranks as high or nearly as high by the policies"))
    };
    until(&mut gateway, "high", "waits for one of a lower priority", &ranks).await;
    // Only the built-in policy decides again.
    cluster.delete_plugin(TURNED).await;
    let ready = |model: &Value| condition(model, "Ready")["status"] == "True";
    until(&mut gateway, "high", "gets its place", &ready).await;
    let sleeps = |model: &Value| model["status"]["replicas"] == 0;
    until(&mut gateway, "low", "sleeps", &sleeps).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn policies_choose_the_node_of_a_model_and_the_condition_names_one_that_they_exclude() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let bytes = builtin::find("scheduling-scoring").unwrap().bytes;
    cluster.config_map(CHEAP, bytes).await;
    let config = json!({"nodePlacement": {"price": 8, "maxPrice": 10}});
    cluster
        .plugin_of_config_map(CHEAP, json!({"mode": "Replace", "order": 200, "strategy": {"type": "Immediate"}, "config": config}))
        .await;
    cluster.active(CHEAP, &Digest::hash(bytes).to_string()).await;

    let space = Space::bare(&cluster, "cheap").await;
    let pool = Pool::new(&space, &["100Gi", "150Gi", "200Gi"]);
    let nodes: Api<Node> = Api::all(space.0.client.clone());
    let set_price = async |at: usize, price: &str| {
        let priced = json!({"metadata": {"annotations": {"pointsman.dev/price": price}}});
        nodes.patch(&pool.node(at), &PatchParams::default(), &Patch::Merge(priced)).await.unwrap();
    };
    for (at, price) in ["5", "1", "20"].into_iter().enumerate() {
        set_price(at, price).await;
    }
    pool.create("llama", "60Gi", json!({})).await;
    pool.ready("llama").await;
    pool.reserves("it is on the cheapest node, although it fills another one better", &[("llama", 1)]).await;

    pool.create("mistral", "60Gi", json!({"nodeSelector": {"inference-pool": pool.name, "at": "2"}})).await;
    pool.explains("mistral", &format!("exclude the node {}, where it would fit", pool.node(2))).await;
    set_price(2, "2").await;
    pool.ready("mistral").await;
    pool.reserves("its node costs little enough", &[("llama", 1), ("mistral", 2)]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_model_wakes_on_another_node_and_goes_while_restarts_are_paused() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    home(&cluster).await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let space = Space::bare(&cluster, "paused").await;
    let pool = Pool::new(&space, &["100Gi", "200Gi"]);
    let mut gateway = Gateway::new(space.0.client.clone(), &space.0.name, "paused");
    pool.create("llama", "60Gi", json!({"cooldownPeriod": "1s"})).await;
    pool.ready("llama").await;
    pool.reserves("it is where it fits best", &[("llama", 0)]).await;
    let until = async |gateway: &mut Gateway, what: &str, expected: &dyn Fn(Option<&Value>) -> bool| {
        eventually(what, async || {
            gateway.tick().await;
            expected(space.find(&INFERENCE_MODEL, "llama").await.as_ref()).then_some(())
        })
        .await;
    };
    let sleeps = |model: Option<&Value>| model.is_some_and(|model| model["status"]["replicas"] == 0);
    let ready = |model: Option<&Value>| model.is_some_and(|model| condition(model, "Ready")["status"] == "True");
    gateway.ask("llama", Duration::from_millis(1));
    until(&mut gateway, "it sleeps", &sleeps).await;

    let sets = Api::<PolicySet>::all(space.0.client.clone());
    eventually("a set decides", async || {
        let sets = sets.list(&ListParams::default()).await.unwrap();
        sets.iter().any(|set| set.status.as_ref().is_some_and(|status| status.phase == Some(PolicySetPhase::Active))).then_some(())
    })
    .await;
    cluster.pointsman(&["policy", "pause", "--reason", "the night shift looks first"]).ok();
    eventually("restarts are paused", async || (host.metric("pointsman_pace_stopped") == Some(1.0)).then_some(())).await;
    let cordoned = json!({"spec": {"unschedulable": true}});
    let nodes: Api<Node> = Api::all(space.0.client.clone());
    nodes.patch(&pool.node(0), &PatchParams::default(), &Patch::Merge(cordoned)).await.unwrap();
    // Keep the model busy for longer than the test takes, so that it stays awake.
    gateway.ask("llama", Duration::from_hours(1));
    until(&mut gateway, "it wakes on the other node", &ready).await;
    pool.reserves("it has its place there", &[("llama", 1)]).await;
    let mut gateway = Gateway::new(space.0.client.clone(), &space.0.name, "paused");
    space.delete(&INFERENCE_MODEL, "llama").await;
    until(&mut gateway, "it goes", &|model: Option<&Value>| model.is_none()).await;
    space.goes(&DEPLOYMENT, "llama").await;
    pool.reserves("nothing is reserved", &[]).await;
}
