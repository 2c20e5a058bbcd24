//! Connections to the API server that hang: a leader whose connections hang gives up in time, another host takes the lead, and nothing is
//! written twice.

use crate::sets::leaders::leads;
use kube::{Api, api::DynamicObject};
use pointsman_core::resource::DEPLOYMENT;
use pointsman_tests::{Host, PolicyCluster, eventually, grants::host_user, relay::Relay};
use serde_json::{Value, json};
use std::sync::Arc;

fn services(numbers: std::ops::Range<usize>) -> Value {
    let service = |number: usize| {
        json!({
            "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService",
            "metadata": {"name": format!("chat-{number}"), "namespace": "default"}, "spec": {"model": {"uri": "hf://example/llama"}},
        })
    };
    json!({"apiVersion": "v1", "kind": "List", "items": numbers.map(service).collect::<Vec<_>>()})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_leader_whose_connections_hang_gives_up_another_goes_on_and_nothing_is_written_twice() {
    let cluster = PolicyCluster::start().await;
    let (relay, relayed) = Relay::before(&cluster.host_kubeconfig());
    let first = Host::start_as(&cluster, &relayed, &[]).await;
    first.ready().await;
    eventually("the first leads", async || leads(&first).then_some(())).await;
    let hung = cluster.requests().iter().find_map(|request| token(request)).expect("the first has made requests");
    let second = Host::start(&cluster, &[]).await;
    second.ready().await;

    let deployments = Api::<DynamicObject>::namespaced_with(cluster.client().await, "default", &DEPLOYMENT.api_resource());
    let made = async |number: usize| {
        let there = async || deployments.list(&kube::api::ListParams::default()).await.ok().filter(|all| all.items.len() == number);
        eventually(&format!("{number} Deployments are there"), there).await
    };
    cluster.apply(&services(0..5)).ok();
    made(5).await;
    // Freeze the connections while the first host applies these.
    cluster.apply(&services(5..25)).ok();
    eventually("the first is at it", async || {
        let all = deployments.list(&kube::api::ListParams::default()).await.ok()?;
        (all.items.len() > 6).then_some(())
    })
    .await;
    relay.freeze();
    eventually("the second leads", async || leads(&second).then_some(())).await;
    assert!(!leads(&first), "by then the first has given up");
    cluster.apply(&services(25..30)).ok();
    made(30).await;

    // The delayed requests arrive at last, and must not change anything.
    relay.thaw();
    first.ready().await;
    cluster.apply(&services(30..31)).ok();
    let all = made(31).await;
    for deployment in &all.items {
        assert_eq!(deployment.metadata.generation, Some(1), "{:?} was written twice", deployment.metadata.name);
    }
    let writes: Vec<Arc<Value>> = cluster.requests().into_iter().filter(|request| is_write(request) && token(request).is_some()).collect();
    // Requests that were in flight when the connections froze can't be cancelled: they arrive late and find everything done. Later services
    // belong to the second host.
    let late: Vec<&Arc<Value>> = writes
        .iter()
        .filter(|request| token(request).as_ref() == Some(&hung) && service(request).is_some_and(|number| number >= 25))
        .collect();
    assert!(late.is_empty(), "it writes although another leads: {late:#?}");
    let mut created: Vec<&str> =
        writes.iter().filter(|request| request["responseStatus"]["code"] == 201).filter_map(|request| deployment(request)).collect();
    let number = created.len();
    created.sort_unstable();
    created.dedup();
    assert_eq!((created.len(), number), (31, 31), "each is made once");

    // The first host becomes the leader again.
    second.stop();
    eventually("the first leads again", async || leads(&first).then_some(())).await;
    cluster.apply(&services(31..32)).ok();
    made(32).await;
}

/// The token of a host's request. Each host has its own.
fn token(request: &Value) -> Option<Value> {
    let user = &request["user"];
    (user["username"] == *host_user()).then(|| user["extra"]["authentication.kubernetes.io/credential-id"].clone())
}

/// The number of the service that an object is or belongs to.
fn service(request: &Value) -> Option<usize> {
    request["objectRef"]["name"].as_str()?.strip_prefix("chat-")?.split('-').next()?.parse().ok()
}

/// Whether a request changes anything except the Lease and events.
fn is_write(request: &Value) -> bool {
    let of_leadership = ["leases", "events"].contains(&request["objectRef"]["resource"].as_str().unwrap_or_default());
    !of_leadership && ["create", "update", "patch", "delete"].contains(&request["verb"].as_str().unwrap_or_default())
}

fn deployment(request: &Value) -> Option<&str> {
    let object = &request["objectRef"];
    (object["resource"] == "deployments" && object["subresource"].is_null()).then(|| object["name"].as_str()).flatten()
}
