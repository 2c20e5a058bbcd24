//! The routing of requests to a service: the route, the Gateways, the pool.

use super::{create, ready, with_model};
use crate::services::{Space, condition};
use pointsman_core::resource::{GATEWAY, HTTP_ROUTE, INFERENCE_POOL, LLM_INFERENCE_SERVICE};
use serde_json::{Value, json};

/// The status of a route or a pool that a Gateway accepts, for this generation.
fn taken(generation: &Value) -> Value {
    taken_by(&["edge"], generation)
}

fn taken_by(gateways: &[&str], generation: &Value) -> Value {
    let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation});
    let parent = |name: &&str| {
        let reference = json!({"name": name, "kind": "Gateway", "group": "gateway.networking.k8s.io"});
        json!({"parentRef": reference, "controllerName": "example.com/gateway", "conditions": [condition("Accepted"), condition("ResolvedRefs")]})
    };
    json!({"parents": gateways.iter().map(parent).collect::<Vec<_>>()})
}

/// A programmed Gateway.
async fn gateway(space: &Space<'_>, name: &str, listener: Value) {
    space.create(&GATEWAY, name, json!({"spec": {"gatewayClassName": "none", "listeners": [listener]}})).await;
    let programmed = json!({"type": "Programmed", "status": "True", "reason": "Programmed", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    space.patch_status(&GATEWAY, name, json!({"conditions": [programmed]})).await;
}

#[tokio::test]
async fn a_route_hangs_on_the_gateway_that_is_named_and_leads_to_the_pool() {
    let space = Space::shared_bare("llm-route").await;
    let router = json!({"route": {}, "gateway": {"refs": [{"name": "edge"}]}, "scheduler": {}});
    create(&space, "llama", json!({}), with_model(json!({"router": router}))).await;
    let said = space.says_of(&LLM_INFERENCE_SERVICE, "llama", "GatewaysReady", "False", "GatewayNotFound").await;
    assert!(said.contains("Gateway edge"), "{said}");
    let listener = json!({"name": "http", "port": 80, "protocol": "HTTP", "hostname": "llm.example.com"});
    gateway(&space, "edge", listener).await;
    space.says_of(&LLM_INFERENCE_SERVICE, "llama", "GatewaysReady", "True", "Programmed").await;

    let route = space.get(&HTTP_ROUTE, "llama-kserve-route").await;
    assert_eq!(route["spec"]["parentRefs"][0]["name"], "edge");
    let rules = route["spec"]["rules"].as_array().unwrap();
    let backends: Vec<&str> = rules.iter().map(|rule| rule["backendRefs"][0]["kind"].as_str().unwrap()).collect();
    assert_eq!(backends, ["InferencePool", "InferencePool", "Service"]);
    assert_eq!(rules[0]["matches"][0]["path"]["value"], format!("/{}/llama/v1/completions", space.0.name));
    space.patch_status(&HTTP_ROUTE, "llama-kserve-route", taken(&route["metadata"]["generation"])).await;
    space.says_of(&LLM_INFERENCE_SERVICE, "llama", "InferencePoolReady", "Unknown", "Progressing").await;
    let pool = space.get(&INFERENCE_POOL, "llama-inference-pool").await;
    space.patch_status(&INFERENCE_POOL, "llama-inference-pool", taken(&pool["metadata"]["generation"])).await;
    let service = ready(&space, "llama").await;
    assert_eq!(service["status"]["url"], format!("http://llm.example.com/{}/llama", space.0.name));
    assert_eq!(service["status"]["addresses"].as_array().unwrap().len(), 2);

    // Only the author of custom rules knows which paths they serve.
    let rules = json!([{"backendRefs": [{"name": "llama-kserve-workload-svc", "port": 8000}]}]);
    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"router": {"route": {"http": {"spec": {"rules": rules}}}}}})).await;
    let bare = |service: &Value| service["status"]["url"] == "http://llm.example.com";
    space.becomes(&LLM_INFERENCE_SERVICE, "llama", "its URL has no path", bare).await;

    space.patch(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"router": {"route": null, "gateway": null}}})).await;
    space.goes(&HTTP_ROUTE, "llama-kserve-route").await;
}

#[tokio::test]
async fn without_a_gateway_the_condition_says_how_to_name_one() {
    let space = Space::shared_bare("llm-no-gateway").await;
    create(&space, "llama", json!({}), with_model(json!({"router": {"route": {}}}))).await;
    let said = space.says_of(&LLM_INFERENCE_SERVICE, "llama", "GatewaysReady", "False", "NoGateway").await;
    assert!(said.contains("spec.router.gateway.refs") && said.contains("--gateway"), "{said}");
    space.says_of(&LLM_INFERENCE_SERVICE, "llama", "MainWorkloadReady", "True", "Available").await;
    assert!(space.find(&HTTP_ROUTE, "llama-kserve-route").await.is_none());
}

#[tokio::test]
async fn a_route_of_ones_own_counts_with_all_its_gateways_and_for_what_it_leads_to() {
    let space = Space::shared_bare("llm-own-route").await;
    let router = json!({"route": {"http": {"refs": [{"name": "mine"}]}}, "scheduler": {}});
    create(&space, "llama", json!({}), with_model(json!({"router": router}))).await;
    let said = space.says_of(&LLM_INFERENCE_SERVICE, "llama", "HTTPRoutesReady", "False", "RouteNotFound").await;
    assert!(said.contains("HTTPRoute mine"), "{said}");
    gateway(&space, "edge", json!({"name": "http", "port": 80, "protocol": "HTTP"})).await;
    gateway(&space, "inner", json!({"name": "https", "port": 8443, "protocol": "HTTPS", "hostname": "*.example.com", "tls": {"certificateRefs": [{"name": "any"}]}})).await;
    let rules = json!([{"backendRefs": [{"name": "llama-kserve-workload-svc", "port": 8000}]}]);
    let spec = json!({"hostnames": ["llm.example.com"], "parentRefs": [{"name": "edge"}, {"name": "inner"}], "rules": rules});
    // Our label on another owner's object doesn't make it ours.
    let labels = json!({"pointsman.dev/subject-kind": "LLMInferenceService"});
    let route = space.create(&HTTP_ROUTE, "mine", json!({"metadata": {"labels": labels}, "spec": spec})).await;
    let generation = &route["metadata"]["generation"];
    space.says_of(&LLM_INFERENCE_SERVICE, "llama", "GatewaysReady", "True", "Programmed").await;
    space.patch_status(&HTTP_ROUTE, "mine", taken_by(&["edge", "elsewhere"], generation)).await;
    let waits = |service: &Value| {
        condition(service, "HTTPRoutesReady")["message"].as_str().is_some_and(|said| said.contains("/inner has not reported"))
    };
    space.becomes(&LLM_INFERENCE_SERVICE, "llama", "it waits for the other Gateway", waits).await;
    space.patch_status(&HTTP_ROUTE, "mine", taken_by(&["edge", "inner"], generation)).await;
    // The route doesn't use the pool, so no Gateway reports on it.
    let service = ready(&space, "llama").await;
    assert_eq!(condition(&service, "InferencePoolReady")["reason"], "NotReferenced");
    let urls: Vec<&str> =
        service["status"]["addresses"].as_array().unwrap().iter().map(|address| address["url"].as_str().unwrap()).collect();
    assert_eq!(urls[..2], ["https://llm.example.com:8443", "http://llm.example.com"]);
    let kept = space.get(&HTTP_ROUTE, "mine").await;
    assert_eq!(
        (&kept["metadata"]["uid"], &kept["metadata"]["labels"], &kept["spec"]),
        (&route["metadata"]["uid"], &route["metadata"]["labels"], &route["spec"])
    );
}
