//! Which models get memory, which wait, and which are stopped for others.

use super::{ModelActivity, PlayedGateway, Pool, now, shared_space};
use pointsman_core::{
    allocation::Phase,
    resource::{DEPLOYMENT, INFERENCE_MODEL, SERVICE},
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_model_gets_memory_on_a_node_and_gives_it_back_when_it_is_deleted() {
    let space = shared_space("memory").await;
    let pool = Pool::new(&space, &["100Gi"]);
    pool.create("llama", "60Gi", json!({})).await;
    pool.ready("llama").await;
    let deployment = space.get(&DEPLOYMENT, "llama").await;
    let pod = &deployment["spec"]["template"]["spec"];
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchFields"][0]["values"], json!([pool.node(0)]));
    assert_eq!(pod["containers"][0]["resources"]["requests"]["memory"], "60Gi");
    assert_eq!(deployment["metadata"]["labels"]["inference.eh-ops.io/model"], pool.model_name("llama").as_str());
    assert_eq!(space.get(&SERVICE, "llama").await["spec"]["ports"][0]["port"], 8000);
    let model = space.get(&INFERENCE_MODEL, "llama").await;
    assert_eq!((&model["status"]["ready"], &model["status"]["replicas"]), (&json!(true), &json!(1)));
    assert_eq!(model["metadata"]["finalizers"], json!(["inference.eh-ops.io/finalizer"]));
    pool.reserves("its place is written", &[("llama", 0)]).await;

    pool.create("mistral", "60Gi", json!({})).await;
    pool.says("mistral", "Allocated", "False", "InsufficientMemory").await;
    let message = pool.explains("mistral", "no gateway has seen its traffic").await;
    let blocker = format!("{}/llama takes 60Gi, has been idle for", space.0.name);
    assert!(message.contains("It needs 60Gi of memory (40Gi free)") && message.contains(&blocker), "{message}");
    pool.create("giant", "200Gi", json!({})).await;
    let message = pool.says("giant", "Allocated", "False", "InsufficientMemory").await;
    assert!(message.starts_with(&format!("It fits no node. The largest that spec.nodeSelector selects is {}", pool.node(0))), "{message}");
    space.delete(&INFERENCE_MODEL, "giant").await;
    space.goes(&INFERENCE_MODEL, "giant").await;

    space.delete(&INFERENCE_MODEL, "llama").await;
    space.goes(&INFERENCE_MODEL, "llama").await;
    pool.ready("mistral").await;
    pool.reserves("the other has the place", &[("mistral", 0)]).await;
    space.goes(&DEPLOYMENT, "llama").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_model_sleeps_for_one_that_is_asked_for_and_comes_back() {
    let space = shared_space("sleep").await;
    let pool = Pool::new(&space, &["100Gi"]);
    let gateway = PlayedGateway::new(&pool);
    pool.create("llama", "60Gi", json!({})).await;
    pool.ready("llama").await;
    pool.create("mistral", "60Gi", json!({})).await;
    pool.says("mistral", "Allocated", "False", "InsufficientMemory").await;
    let asked = ModelActivity { waiting: 1, waiting_since: Some(now()), last_request: Some(now()), ..ModelActivity::default() };
    let busy = ModelActivity { in_flight: 1, last_request: Some(now()), ..ModelActivity::default() };
    gateway.writes(&[("llama", busy.clone()), ("mistral", asked.clone())]);
    pool.explains("mistral", "is answering requests").await;
    // Its last request is long enough ago for the other model to rank higher.
    let idle = ModelActivity { last_request: Some(now() + 1), ..ModelActivity::default() };
    gateway.writes(&[("llama", idle.clone()), ("mistral", asked.clone())]);
    let message = pool.says("llama", "Allocated", "False", "ScaledToZero").await;
    assert!(message.contains(&format!("The model {}/mistral needs its memory", space.0.name)), "{message}");
    let (_, place) = pool.reserved().await["llama"].clone();
    assert!(matches!(place.phase, Phase::Draining(_)), "{place:?}");
    // Nothing is stopped before the gateway confirms that it is drained.
    let confirmed = ModelActivity { drained: Some(place.since), ..idle.clone() };
    gateway.writes(&[("llama", confirmed), ("mistral", asked)]);
    pool.ready("mistral").await;
    let sleeping = space.becomes(&INFERENCE_MODEL, "llama", "it sleeps", |model| model["status"]["replicas"] == 0).await;
    assert_eq!(sleeping["status"]["ready"], json!(false));
    pool.reserves("only one has a place", &[("mistral", 0)]).await;

    // The first model gets requests again, and the other one doesn't.
    let asked = ModelActivity { waiting: 5, waiting_since: Some(now()), last_request: Some(now()), ..ModelActivity::default() };
    let seen = ModelActivity { last_request: Some(now() + 1), ..ModelActivity::default() };
    gateway.writes(&[("llama", asked.clone()), ("mistral", seen.clone())]);
    pool.says("mistral", "Allocated", "False", "ScaledToZero").await;
    let (_, place) = pool.reserved().await["mistral"].clone();
    gateway.writes(&[("llama", asked), ("mistral", ModelActivity { drained: Some(place.since), ..seen })]);
    pool.ready("llama").await;
    gateway.leaves().await;
}
