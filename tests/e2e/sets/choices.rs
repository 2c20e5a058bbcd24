//! The runtimes that running services would choose next: nothing changes for them, but the report lists them.

use super::{bring, counts, message, radius, set_that, start, turns, waits};
use crate::services::{Space, fixed, with_model};
use kube::ResourceExt;
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE, SERVING_RUNTIME};
use pointsman_crds::policy::set::PolicySetPhase;
use pointsman_tests::{PolicyCluster, plugin_bytes};
use serde_json::json;

/// The annotation with a runtime's price, which the plugin reads.
const PRICE: &str = "cost.example.com/per-hour";

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_ranks_runtimes_otherwise_says_who_would_choose_another_one_when_next_asked() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = Space::on(&cluster, "choices").await;
    let runtime = space.patch(&SERVING_RUNTIME, "runtime", json!({"metadata": {"annotations": {PRICE: "2"}}})).await;
    // Among equal runtimes, the first one by name is chosen.
    let cheap = json!({"metadata": {"annotations": {PRICE: "1"}}, "spec": runtime["spec"]});
    space.create(&SERVING_RUNTIME, "zz-cheap", cheap).await;
    for name in ["a", "b"] {
        space.create(&INFERENCE_SERVICE, name, json!({"spec": with_model(json!({"engine": fixed(1)}))})).await;
        space.becomes(&INFERENCE_SERVICE, name, "its runtime is chosen", |now| now["status"]["runtime"]["name"] == "runtime").await;
        space.becomes(&DEPLOYMENT, &format!("{name}-engine"), "it is there", |_| true).await;
    }
    let strategy = json!({"type": "Guarded", "maxChoices": 1});
    bring(&cluster, "cost", &plugin_bytes("pointsman-example-rust-cost"), json!({"strategy": strategy})).await;
    let candidate = set_that(&cluster, "the other ranking waits", waits).await;
    assert_eq!((counts(&candidate), radius(&candidate).choices), ([0, 0, 0, 0], 2), "{}", message(&candidate));
    assert!(
        message(&candidate).contains("2 subjects would choose another runtime at the next choice; the limit is 1"),
        "{}",
        message(&candidate)
    );
    let example = format!(
        "InferenceService {}/a: would choose another runtime at the next choice (ServingRuntime zz-cheap instead of \
         ServingRuntime runtime)",
        space.0.name
    );
    assert!(radius(&candidate).examples.contains(&example), "{:?}", radius(&candidate).examples);
    let history = cluster.pointsman(&["policy", "history", &candidate.name_any()]).ok();
    assert!(history.contains("2 would choose another runtime at the next choice"), "{history}");

    let before = space.get(&DEPLOYMENT, "a-engine").await;
    cluster.pointsman(&["policy", "approve", &candidate.name_any()]).ok();
    turns(&cluster, &candidate, PolicySetPhase::Active).await;
    // Only the service that requests a new choice chooses, as predicted.
    space.patch(&INFERENCE_SERVICE, "b", json!({"metadata": {"annotations": {"pointsman.dev/choose-runtime": "now"}}})).await;
    space.becomes(&INFERENCE_SERVICE, "b", "it has chosen again", |now| now["status"]["runtime"]["name"] == "zz-cheap").await;
    assert_eq!(space.get(&DEPLOYMENT, "a-engine").await["spec"], before["spec"]);
    host.stop();
}
