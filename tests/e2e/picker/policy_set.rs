//! Scorers of a controller's active policy set.

use super::{Load, PATIENT, POOL, Servers, all_are_served, start_envoy};
use crate::services::{Space, own_cluster};
use pointsman_core::{resource::INFERENCE_POOL, selector::NAMESPACE_NAME, settings::HOST_NAMESPACE};
use pointsman_harness::workspace;
use pointsman_sandbox::digest::Digest;
use pointsman_tests::{Host, PICKER_ACCOUNT, PickerProcess, PolicyCluster, eventually, plugin_bytes};
use serde_json::{Value, json};
use std::fs;

/// The rights that the guide grants pickers, for those of a namespace.
fn grant(space: &Space<'_>) {
    let guide = fs::read_to_string(workspace().join("docs/endpoint-picker.md")).unwrap();
    let mut blocks = guide.split("```").filter(|block| block.contains("kind: RoleBinding") && block.contains("pointsman-active"));
    let rights = blocks.next().unwrap().strip_prefix("yaml\n").unwrap();
    let (guide_s, ours) = ("name: llama-picker, namespace: models}", format!("name: {PICKER_ACCOUNT}, namespace: {}}}", space.0.name));
    assert!(rights.contains(guide_s), "{rights}");
    let file = space.0.cluster.dir.join("policy-reader.yaml");
    fs::write(&file, rights.replace(guide_s, &ours)).unwrap();
    space.0.cluster.kubectl(&["apply", "-f", &file.to_string_lossy()]).ok();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_plugin_that_becomes_active_scores_under_load_and_a_rollback_takes_it_back() {
    const NAME: &str = "balance";
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&["inference-pool"])));
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let space = Space::bare(&cluster, "policy-set").await;
    let _servers = Servers::start(&space, 2, |_| {}).await;
    let flags = [&["--grpc-port", "0", "--policy-set", HOST_NAMESPACE], &PATIENT[..]].concat();
    let picker = PickerProcess::start(&space.0, POOL, &flags).await;
    let log_has = |what: &'static str, expected: fn(&Value) -> bool| {
        let picker = &picker;
        eventually(what, async move || picker.log().iter().any(expected).then_some(()))
    };
    // Without the right, the picker logs which one is missing, and serves.
    log_has("the remedy", |line| line["error"].as_str().is_some_and(|error| error.contains("resourceNames: [pointsman-active]"))).await;
    let envoy = start_envoy(&space, &picker).await;
    picker.knows(2).await;
    let load = Load::start(envoy.address(), 4);
    load.goes_on(40).await;
    grant(&space);
    let plugins = async |expected: &str| {
        eventually(&format!("the plugins are {expected:?}"), async || {
            let log = picker.log();
            let last = log.iter().rev().find(|line| line["message"] == "another policy set is active")?;
            (last["plugins"] == expected).then(|| last["set"].as_str().unwrap().to_owned())
        })
        .await
    };
    let first = plugins("").await;
    load.goes_on(40).await;

    let bytes = plugin_bytes("pointsman-example-rust-balance");
    cluster.config_map(NAME, &bytes).await;
    let of_pools = json!({
        "kinds": [{"group": INFERENCE_POOL.group, "kind": INFERENCE_POOL.kind}],
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: space.0.name}},
    });
    let more = json!({"points": ["scheduling-scoring"], "mode": "Replace", "instances": "Warm", "match": of_pools, "strategy": {"type": "Immediate"}});
    cluster.plugin_of_config_map(NAME, more).await;
    cluster.active(NAME, &Digest::hash(&bytes).to_string()).await;
    let second = plugins(NAME).await;
    assert_ne!(first, second);
    let asked = || {
        let series =
            format!("llm_d_epp_plugin_duration_seconds_count{{extension_point=\"Score\",plugin_type=\"policy\",plugin_name=\"{NAME}\"}} ");
        picker.page().lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok()).unwrap_or_default()
    };
    load.goes_on(100).await;
    assert!(asked() >= 90, "{}", asked());
    let info = |digest: &str| format!("pointsman_policy_set_info{{digest=\"{digest}\"}} 1");
    assert!(picker.page().contains(&info(&second)), "{}", picker.page());
    let decision = picker.decisions().into_iter().find(|decision| decision["refused"].is_null()).unwrap();
    let profile = &decision["profiles"][0];
    assert_eq!((&profile["policySet"], &profile["policy"]["name"]), (&json!(second), &json!(NAME)));

    cluster.pointsman(&["policy", "rollback"]).ok();
    plugins("").await;
    // Wait for the requests that were being decided.
    load.goes_on(20).await;
    let before = asked();
    load.goes_on(100).await;
    assert_eq!(asked(), before, "it isn't asked any more");
    assert!(!picker.page().contains(&info(&second)));
    all_are_served(&load.end().await);
    picker.stop();
    host.stop();
}
