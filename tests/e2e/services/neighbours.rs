//! APIs of other projects: a missing one is reported by name, and noticed once it is installed, without a restart.

use super::{
    DEPLOYMENT, HTTP_ROUTE, INFERENCE_SERVICE, LEADER_WORKER_SET, SCALED_OBJECT, Space, condition, fixed, is_ready, own_cluster, with_model,
};
use pointsman_tests::{Host, eventually};
use serde_json::{Value, json};

/// A Gateway's status for a route.
fn taken(status: &str, reason: &str) -> Value {
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "It is as it is.", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        })
    };
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "gateways", "name": "front"});
    json!({"parents": [{"parentRef": parent, "controllerName": "example.com/gateway", "conditions": [condition("Accepted")]}]})
}

/// From the installation of the Gateway API to an accepted route.
async fn routes(space: &Space<'_>) {
    let said = space.says("chat", "IngressReady", "False", "MissingApi").await;
    assert!(said.contains("httproutes.gateway.networking.k8s.io") && said.contains("the Gateway API"), "{said}");
    let within = format!("http://chat.{}.svc.cluster.local", space.0.name);
    assert_eq!(space.get(&INFERENCE_SERVICE, "chat").await["status"]["url"], within);
    space.0.cluster.install("gateway").unwrap();
    let route = space.becomes(&HTTP_ROUTE, "chat", "it is there", |_| true).await;
    let host = format!("chat.{}.example.com", space.0.name);
    assert_eq!(route["spec"]["hostnames"], json!([host]));
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "gateways", "name": "front"});
    assert_eq!(route["spec"]["parentRefs"], json!([parent]));
    let rule = &route["spec"]["rules"][0];
    assert_eq!(rule["matches"], json!([{"path": {"type": "PathPrefix", "value": "/"}}]));
    let backend = json!({"group": "", "kind": "Service", "name": "chat", "port": 80, "weight": 1});
    assert_eq!((&rule["backendRefs"], &rule["timeouts"]["request"]), (&json!([backend]), &json!("90s")));

    let unsaid = |service: &Value| {
        let told = condition(service, "IngressReady");
        told["status"] == "Unknown" && told["message"] == "The Gateway gateways/front has not reported whether it accepts the route."
    };
    space.becomes(&INFERENCE_SERVICE, "chat", "the Gateway is waited for", unsaid).await;
    // The test acts as the Gateway.
    space.patch_status(&HTTP_ROUTE, "chat", taken("False", "NotAllowedByListeners")).await;
    let said = space.says("chat", "IngressReady", "False", "NotAllowedByListeners").await;
    assert!(said.contains("gateways/front") && said.contains("It is as it is."), "{said}");
    assert_eq!(space.says("chat", "Ready", "False", "NotAllowedByListeners").await, said);
    space.patch_status(&HTTP_ROUTE, "chat", taken("True", "Accepted")).await;
    space.says("chat", "IngressReady", "True", "Accepted").await;
    let status = space.ready("chat").await["status"].clone();
    assert_eq!((&status["url"], &status["address"]["url"]), (&json!(format!("http://{host}")), &json!(within)));
}

#[tokio::test]
async fn a_missing_neighbour_is_named_and_installing_it_is_all_that_it_takes() {
    let cluster = own_cluster(Some(&[]));
    let flags = ["--gateway", "gateways/front", "--ingress-domain", "example.com"];
    let host = Host::start(&cluster, &flags).await;
    let space = Space::on(&cluster, "neighbours").await;
    let mut engine = fixed(1);
    engine["timeoutSeconds"] = 90.into();
    space.service("chat", with_model(json!({"engine": engine}))).await;
    let runner = json!({"runner": {"name": "ome-container", "image": "example.com/engine:1"}});
    let mut engine = fixed(1);
    (engine["leader"], engine["worker"]) = (runner.clone(), runner);
    space.service("big", with_model(json!({"engine": engine}))).await;
    let keda = json!({"enableKeda": true, "promServerAddress": "http://prometheus:9090", "customPromQuery": "sum(queue)"});
    space.service("queue", with_model(json!({"kedaConfig": keda}))).await;

    space.says("chat", "EngineReady", "True", "Available").await;
    for (service, crd, brings) in [
        ("big", "leaderworkersets.leaderworkerset.x-k8s.io", "install LeaderWorkerSet"),
        ("queue", "scaledobjects.keda.sh", "install KEDA"),
    ] {
        let said = space.says(service, "Accepted", "False", "MissingApi").await;
        assert!(said.contains(crd) && said.contains(brings), "{said}");
        assert_eq!(space.warned(service, "MissingApi").await, said);
        let made = space.made().await;
        assert!(made.iter().all(|object| !object.contains(service)), "{made:?}");
    }

    cluster.install("lws").unwrap();
    space.says("big", "EngineReady", "True", "Available").await;
    assert_eq!(space.get(&LEADER_WORKER_SET, "big-engine-mn").await["spec"]["leaderWorkerTemplate"]["size"], 2);
    let pods = space.pods("big").await;
    assert_eq!((pods.len(), pods.values().all(is_ready)), (2, true));
    cluster.install("keda").unwrap();
    space.becomes(&SCALED_OBJECT, "queue-engine", "it is there", |_| true).await;
    space.says("queue", "EngineReady", "True", "Available").await;

    // If an API is removed, the pods stay.
    let (pods, deployment) = (space.pod_uids("queue").await, space.get(&DEPLOYMENT, "queue-engine").await);
    cluster.remove("keda").unwrap();
    space.says("queue", "Accepted", "False", "MissingApi").await;
    cluster.install("keda").unwrap();
    eventually("the ScaledObject is back", async || space.find(&SCALED_OBJECT, "queue-engine").await).await;
    space.says("queue", "Accepted", "True", "Accepted").await;
    assert_eq!(space.pod_uids("queue").await, pods);
    assert_eq!(space.get(&DEPLOYMENT, "queue-engine").await["spec"], deployment["spec"]);

    routes(&space).await;
    for service in ["big", "queue"] {
        space.becomes(&HTTP_ROUTE, service, "it is there", |_| true).await;
        assert_eq!(condition(&space.get(&INFERENCE_SERVICE, service).await, "EngineReady")["status"], "True");
    }
    host.stop();
}
