//! The host itself: it starts, becomes ready, notices which APIs the cluster serves, and terminates.

use crate::services::{Space, fixed, with_model};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Namespace},
    jiff::Timestamp,
};
use kube::{Api, api::PostParams};
use pointsman_core::{resource::DEPLOYMENT, settings::HOST_NAMESPACE};
use pointsman_harness::http_request;
use pointsman_tests::{Host, PolicyCluster, TestCluster, condition, eventually, grants::host_user};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

#[tokio::test]
async fn the_host_becomes_ready_and_ends_in_good_order() {
    let cluster = PolicyCluster::start().await;
    let host = Host::start(&cluster, &[]).await;
    assert_eq!(host.get("/healthz").unwrap(), (200, "ok\n".to_owned()));
    host.ready().await;
    let part = host.part.clone();
    host.stop();
    let parts = cluster.control(&serde_json::json!({ "do": "status" })).unwrap();
    let stopped = parts["parts"].as_array().unwrap().iter().find(|p| p["name"] == *part).unwrap();
    assert_eq!(stopped["exit"], 0, "{stopped}");
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_host_that_is_ended_while_it_starts_or_plans_ends_well_and_gives_the_lease_back() {
    let cluster = PolicyCluster::start().await;
    let leases = Api::<Lease>::namespaced(cluster.client().await, HOST_NAMESPACE);
    let holder = async || {
        let lease = leases.get_opt("pointsman").await.unwrap();
        lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty())
    };
    let ended = |host: Host<'_>| {
        let part = host.part.clone();
        host.stop();
        let parts = cluster.control(&serde_json::json!({ "do": "status" })).unwrap();
        let stopped = parts["parts"].as_array().unwrap().iter().find(|p| p["name"] == *part).unwrap().clone();
        assert_eq!(stopped["exit"], 0, "{stopped}");
    };
    // Without compiled plugins it starts slowly, and may be the leader before it is ready.
    let cache = cluster.folder("cold-cache");
    let host = Host::start(&cluster, &["--cache", cache.to_str().unwrap()]).await;
    eventually("it leads", holder).await;
    ended(host);
    assert_eq!(holder().await, None, "the lease is given back");

    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    eventually("it leads", holder).await;
    let model = serde_json::json!({"model": {"uri": "hf://example/llama"}});
    let service = |number: u32| {
        serde_json::json!({
            "apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService",
            "metadata": {"name": format!("busy-{number}"), "namespace": "default"}, "spec": model,
        })
    };
    cluster.apply(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": (0..60).map(service).collect::<Vec<_>>()})).ok();
    ended(host);
    assert_eq!(holder().await, None, "the lease is given back");
}

/// The time from SIGTERM until a host's Lease was free, by the clock that this process and the API server share.
async fn released_after(cluster: &TestCluster, host: Host<'_>) -> Duration {
    let begun = Timestamp::now();
    assert_eq!(host.terminate().await, 0);
    let leases = Api::<Lease>::namespaced(cluster.client().await, HOST_NAMESPACE);
    assert_eq!(leases.get("pointsman").await.unwrap().spec.unwrap().holder_identity, None, "it is free");
    let user = host_user();
    let is_release = |request: &&Arc<Value>| {
        request["user"]["username"] == *user && request["objectRef"]["resource"] == "leases" && request["verb"] == "update"
    };
    let requests = cluster.requests();
    let last = requests.iter().rfind(is_release).and_then(|request| request["stageTimestamp"].as_str()).unwrap();
    last.parse::<Timestamp>().unwrap().duration_since(begun).try_into().unwrap_or_default()
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_lease_is_free_a_second_after_sigterm_at_the_latest_even_while_services_are_planned() {
    /// On a busy machine a host may be late, but not every time.
    const TRIES: usize = 5;
    let cluster = PolicyCluster::start().await;
    let service = |number: usize| {
        let spec = json!({"model": {"uri": "hf://example/llama"}});
        let metadata = json!({"name": format!("busy-{number}"), "namespace": "default"});
        json!({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "LLMInferenceService", "metadata": metadata, "spec": spec})
    };
    let mut number = 0;
    for busy in [false, true] {
        let mut durations = Vec::new();
        while durations.last().is_none_or(|last| *last > Duration::from_secs(1)) {
            assert!(durations.len() < TRIES, "busy: {busy}: {durations:?}");
            let host = Host::start(&cluster, &[]).await;
            host.ready().await;
            eventually("it leads", async || (host.metric("pointsman_leader") == Some(1.0)).then_some(())).await;
            if busy {
                let items: Vec<Value> = (number..number + 60).map(service).collect();
                number += 60;
                cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items})).ok();
            }
            durations.push(released_after(&cluster, host).await);
        }
        println!("busy: {busy}: the Lease is free after {durations:?}");
    }
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_host_without_crds_or_its_namespace_says_what_is_missing_and_heals_without_a_restart() {
    let cluster = TestCluster::bare(&[]);
    // The host's ServiceAccount would be in the missing namespace.
    let host = Host::start_as(&cluster, &cluster.kubeconfig, &[]).await;
    let says = async |what: &str| {
        eventually(&format!("it misses {what}"), async || {
            let (code, body) = host.get("/readyz").ok()?;
            (code == 503 && body.contains(what)).then_some(body)
        })
        .await
    };
    let said = says("policyplugins").await;
    assert!(said.contains("`pointsman crds install` installs the CRDs"), "{said}");
    assert_eq!(host.get("/healthz").unwrap().0, 200);

    cluster.pointsman(&["crds", "install"]).ok();
    says("`kubectl create namespace pointsman-system`").await;
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("pointsman-system".to_owned());
    Api::all(cluster.client().await).create(&PostParams::default(), &namespace).await.unwrap();
    host.ready().await;
}

#[tokio::test]
async fn an_idle_host_writes_nothing_but_its_lease() {
    let cluster = PolicyCluster::start().await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    for name in ["runtime-selection", "pod-templating", "metadata-propagation", "scheduling-scoring"] {
        cluster.status(name, "it is ready", |status| condition(status, "Ready").is_some_and(|(is, ..)| is == "True")).await;
    }
    let user = host_user();
    let of_host = || -> Vec<_> { cluster.requests().into_iter().filter(|request| request["user"]["username"] == *user).collect() };
    let is_lease = |request: &serde_json::Value| request["objectRef"]["resource"] == "leases";
    let before = of_host().len();
    // The renewals of the Lease are the clock: after four of them, the host has completed its remaining work.
    eventually("the lease is renewed again and again", async || {
        (of_host().iter().skip(before).filter(|request| is_lease(request)).count() >= 4).then_some(())
    })
    .await;
    let settled = of_host().len();
    eventually("the lease is renewed some more", async || {
        (of_host().iter().skip(settled).filter(|request| is_lease(request)).count() >= 3).then_some(())
    })
    .await;
    host.stop();
    let reads = ["get", "list", "watch"];
    let later = of_host().split_off(settled);
    let writes: Vec<_> = later.iter().filter(|request| !is_lease(request) && !reads.contains(&request["verb"].as_str().unwrap())).collect();
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn what_is_logged_changes_while_the_host_runs_and_each_write_names_the_service_its_set_and_its_decisions() {
    let cluster = PolicyCluster::start().await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let change = |filter: &str| http_request(&host.address, "PUT", "/log-level", filter).unwrap();
    assert_eq!(host.get("/log-level").unwrap(), (200, "info\n".to_owned()));
    let (code, said) = change("inof");
    assert_eq!((code, host.get("/log-level").unwrap().1.as_str()), (400, "info\n"));
    assert!(said.starts_with("\"inof\" is neither a level (error, warn, info"), "{said}");
    assert_eq!(change(&"a".repeat(2000)).0, 413);

    let space = Space::on(&cluster, "logged").await;
    let told = |name: &str| {
        let object = format!("Deployment {}/{name}-engine", space.0.name);
        host.logged().into_iter().find(|line| line["object"] == *object && line["message"] == "created")
    };
    assert_eq!(change("warn\n"), (200, "warn\n".to_owned()));
    space.service("silent", with_model(json!({"engine": fixed(1)}))).await;
    space.becomes(&DEPLOYMENT, "silent-engine", "it is there", |_| true).await;
    assert_eq!(change("info").0, 200);
    space.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    let created = async || told("chat");
    let line = eventually("the log tells of the Deployment", created).await;
    let span = &line["span"];
    let set = cluster.kubectl(&["get", "policysets", "-o", "name"]).ok();
    assert_eq!(span["subject"], format!("InferenceService {}/chat", space.0.name), "{line}");
    assert!(set.contains(span["set"].as_str().unwrap()) && span["decisions"].as_str().unwrap().len() == 12, "{line} of {set}");
    assert_eq!(told("silent"), None);
    host.stop();
}
