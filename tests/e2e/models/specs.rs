//! The spec of a model: dependencies, external models, names, and invalid specs.

use super::{Pool, shared_space};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_MODEL, SERVICE};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn dependencies_start_first_and_a_cycle_or_an_unknown_one_is_shown_with_its_path() {
    let space = shared_space("depends").await;
    let pool = Pool::new(&space, &["100Gi", "100Gi"]);
    let on = |name: &str| json!({"dependencies": [pool.model_name(name)]});
    // The two don't fit on one node, so they get two nodes, and only together.
    pool.create("llama", "80Gi", on("tokens")).await;
    let path = format!("({} -> {})", pool.model_name("llama"), pool.model_name("tokens"));
    pool.explains("llama", &format!("{path} is the modelName of no model in its namespace")).await;
    pool.create("tokens", "80Gi", json!({})).await;
    pool.ready("llama").await;
    pool.ready("tokens").await;
    let started = async |name: &str| {
        let pods = space.pods_with(&format!("app.kubernetes.io/name={name}")).await;
        let pod = pods.into_values().next().unwrap();
        pod["metadata"]["creationTimestamp"].as_str().unwrap().to_owned()
    };
    assert!(started("tokens").await <= started("llama").await);

    pool.create("a", "1Gi", on("b")).await;
    pool.create("b", "1Gi", on("a")).await;
    let [a, b] = ["a", "b"].map(|name| pool.model_name(name));
    pool.explains("a", &format!("form a cycle, {a} -> {b} -> {a}: remove one of them")).await;

    // If a dependency is disabled, its dependants are stopped too, before it.
    space.patch(&INFERENCE_MODEL, "tokens", json!({"spec": {"maxReplicas": 0}})).await;
    pool.reserves("both have gone", &[]).await;
    pool.explains("llama", "can't run: set its spec.maxReplicas to 1").await;
    pool.explains("tokens", "It sleeps, because spec.maxReplicas is 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_model_is_ready_without_objects_and_of_two_with_one_name_the_older_serves() {
    let space = shared_space("external").await;
    let pool = Pool::new(&space, &["100Gi"]);
    pool.create("outside", "60Gi", json!({"containerImage": "", "backendUrl": "https://inference.example.com"})).await;
    pool.ready("outside").await;
    assert!(space.find(&DEPLOYMENT, "outside").await.is_none());
    pool.create("llama", "60Gi", json!({})).await;
    pool.ready("llama").await;
    // If two models have the same age in seconds, the first one by name serves.
    pool.create("second", "1Gi", json!({"modelName": pool.model_name("llama")})).await;
    let message = pool.says("second", "Allocated", "False", "Failed").await;
    assert!(message.starts_with(&format!("The older model {}/llama has the same spec.modelName", space.0.name)), "{message}");
    // The host doesn't create a Service in another namespace.
    pool.create("far", "1Gi", json!({"backendUrl": "http://vllm.elsewhere:8000"})).await;
    pool.ready("far").await;
    assert!(space.find(&SERVICE, "vllm").await.is_none() && space.find(&SERVICE, "far").await.is_none());
    // A model that becomes external releases its memory, and its objects are deleted.
    space.patch(&INFERENCE_MODEL, "llama", json!({"spec": {"containerImage": ""}})).await;
    pool.reserves("it has no place any more", &[("far", 0)]).await;
    space.goes(&DEPLOYMENT, "llama").await;
    pool.ready("llama").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_invalid_example_of_the_page_is_refused_with_what_to_write() {
    let space = shared_space("invalid").await;
    let refused = |change: Value| {
        let mut spec = json!({"modelName": "m", "memory": "1Gi", "backendUrl": "http://m:8000"});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": INFERENCE_MODEL.api_version(), "kind": INFERENCE_MODEL.kind,
            "metadata": {"name": "m", "namespace": space.0.name}, "spec": spec,
        });
        space.0.cluster.apply(&object).stderr
    };
    for (change, expected) in [
        (json!({"memory": "16GB"}), "spec.memory"),
        (json!({"memory": "80"}), "spec.memory"),
        (json!({"memory": "1.5Gi"}), "spec.memory"),
        (json!({"modelName": ""}), "spec.modelName"),
        (json!({"backendUrl": "vllm-server:8000"}), "backendUrl must be an http:// or https:// URL with a host"),
        (json!({"maxReplicas": 2}), "spec.maxReplicas"),
        (json!({"maxReplicas": -1}), "spec.maxReplicas"),
        (json!({"cooldownPeriod": "soon"}), "spec.cooldownPeriod"),
    ] {
        let message = refused(change.clone());
        assert!(message.contains(expected), "{change}: {message}");
    }
}
