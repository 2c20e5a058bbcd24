//! Updates that become active without a limit of their own: not before it is known that no plan fails by them.

use super::{LABELS, counts, decides, digest, has, message, set_that, start, turns, waits};
use crate::services::Space;
use pointsman_core::resource::{DEPLOYMENT, LLM_INFERENCE_SERVICE};
use pointsman_crds::policy::set::{PolicySet, PolicySetPhase};
use pointsman_tests::{PolicyCluster, condition, plugin_bytes, with_other_digest};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_immediate_update_by_which_plans_fail_waits_unless_it_is_forced_and_says_that_it_fails() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = Space::bare(&cluster, "immediate").await;
    for name in ["a", "b"] {
        space.create(&LLM_INFERENCE_SERVICE, name, json!({"spec": {"model": {"uri": "hf://example/llama"}}})).await;
        space.becomes(&DEPLOYMENT, &format!("{name}-kserve"), "it is there", |_| true).await;
    }
    let (good, bad) = (plugin_bytes(LABELS), with_other_digest(&plugin_bytes(LABELS), 1));
    let folder = cluster.folder("pushed");
    let push = |bytes: &[u8], more: &[&str]| {
        let file = folder.join("labels.wasm");
        std::fs::write(&file, bytes).unwrap();
        let (file, cache) = (file.to_str().unwrap(), folder.to_str().unwrap());
        cluster.pointsman(&[&["plugin", "push", file, "--name", "labels", "--strategy", "Immediate", "--cache", cache], more].concat())
    };
    let said = push(&good, &[]).ok();
    assert!(said.contains(&format!("{} decides", digest(&good))), "{said}");

    // From now on it is out of fuel whatever it is asked.
    cluster.kubectl(&["patch", "policyplugin", "labels", "--type", "merge", "-p", r#"{"spec": {"limits": {"fuel": 1}}}"#]).ok();
    let waiting = push(&bad, &[]);
    assert_eq!(waiting.code, Some(2), "{waiting:?}");
    let said = waiting.stdout;
    assert!(said.contains("waits for an approval") && said.contains("for 2 subjects no plan could be made any more"), "{said}");
    let candidate =
        set_that(&cluster, "the update waits", |set| waits(set) && set.spec.plugins.iter().any(|plugin| plugin.digest == digest(&bad)))
            .await;
    assert_eq!(counts(&candidate), [0, 0, 0, 2], "{}", message(&candidate));
    let active = set_that(&cluster, "a set decides", decides).await;
    assert!(has(&active, "labels"));
    let held = |set: &PolicySet| set.spec.plugins.iter().any(|plugin| plugin.digest == digest(&good));
    assert!(held(&active), "the former version decides: {active:#?}");

    // Who knows better says so, and then the plugin says that it fails.
    let said = push(&bad, &["--force"]).ok();
    assert!(said.contains("by --force") && said.contains(&format!("{} decides", digest(&bad))), "{said}");
    turns(&cluster, &candidate, PolicySetPhase::Active).await;
    let failing =
        |status: &_| condition(status, "Ready").is_some_and(|(is, reason, _)| (is.as_str(), reason.as_str()) == ("False", "Failing"));
    let status = cluster.status("labels", "it fails", failing).await;
    let (_, _, why) = condition(&status, "Ready").unwrap();
    assert!(why.contains("fuel") && why.contains("pointsman plugin rollback"), "{why}");
    let listed = cluster.pointsman(&["plugin", "status"]).ok();
    assert!(listed.lines().any(|line| line.starts_with("labels ") && line.contains("Failing")), "{listed}");
    host.stop();
}
