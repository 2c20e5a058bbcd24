//! Immediate updates, which have no limits of their own: they only become active once it is known that no plan fails.

use super::{counts, decides, digest, has, message, radius, reason, set_that, start, turns, waits};
use crate::services::{
    Space, fixed, own_cluster,
    policies::{spoils_pods, traps},
    with_model,
};
use pointsman_core::resource::{DEPLOYMENT, INFERENCE_SERVICE};
use pointsman_crds::policy::set::PolicySetPhase;
use pointsman_tests::{PolicyCluster, condition};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_immediate_update_by_which_plans_fail_waits_unless_it_is_forced_and_says_that_it_fails() {
    let cluster = PolicyCluster::start().await;
    let host = start(&cluster, &[]).await;
    let space = Space::on(&cluster, "immediate").await;
    for name in ["a", "b"] {
        space.create(&INFERENCE_SERVICE, name, json!({"spec": with_model(json!({"engine": fixed(1)}))})).await;
        space.becomes(&DEPLOYMENT, &format!("{name}-engine"), "it is there", |_| true).await;
    }
    let bad = traps();
    let folder = cluster.folder("pushed");
    let file = folder.join("traps.wasm");
    std::fs::write(&file, &bad).unwrap();
    let (file, cache) = (file.to_str().unwrap(), folder.to_str().unwrap());
    let push = |more: &[&str]| {
        let args = ["plugin", "push", file, "--name", "traps", "--point", "pod-templating", "--mode", "Replace", "--strategy", "Immediate"];
        cluster.pointsman(&[&args[..], &["--cache", cache, "--wait", "300"], more].concat())
    };
    let waiting = push(&[]);
    assert_eq!(waiting.code, Some(2), "{waiting:?}");
    let said = waiting.stdout;
    assert!(said.contains("needs an approval") && said.contains("planning would fail for 2 subjects"), "{said}");
    assert!(said.contains("/a: ") && said.contains("trapped") && said.contains(": push a fix;"), "{said}");
    let candidate = set_that(&cluster, "the update waits", |set| waits(set) && has(set, "traps")).await;
    assert_eq!(counts(&candidate), [0, 0, 0, 2], "{}", message(&candidate));
    let active = set_that(&cluster, "a set decides", decides).await;
    assert!(!has(&active, "traps"), "{active:#?}");

    // With `--force`, the update becomes active, and the plugin reports its failures.
    let said = push(&["--force"]).ok();
    assert!(said.contains("by --force, although planning would fail for 2 subjects (InferenceService "), "{said}");
    assert!(said.contains(&format!("active    {}", digest(&bad))), "{said}");
    turns(&cluster, &candidate, PolicySetPhase::Active).await;
    let failing =
        |status: &_| condition(status, "Ready").is_some_and(|(is, reason, _)| (is.as_str(), reason.as_str()) == ("False", "Failing"));
    let status = cluster.status("traps", "it fails", failing).await;
    let (_, _, why) = condition(&status, "Ready").unwrap();
    assert!(why.contains("trapped") && why.contains("pointsman plugin rollback"), "{why}");
    let listed = cluster.pointsman(&["plugin", "status"]).ok();
    assert!(listed.lines().any(|line| line.starts_with("traps ") && line.contains("Failing")), "{listed}");
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_the_api_server_rejects_are_found_before_an_update_is_active_and_pause_it_if_it_is_forced() {
    let cluster = PolicyCluster::from_cluster(own_cluster(Some(&[])));
    let host = start(&cluster, &[]).await;
    let space = Space::on(&cluster, "invalid").await;
    space.serves("a", with_model(json!({"engine": fixed(1)}))).await;
    let pods = space.pod_uids("a").await;
    let folder = cluster.folder("pushed");
    let file = folder.join("spoils.wasm");
    std::fs::write(&file, spoils_pods()).unwrap();
    let (file, cache) = (file.to_str().unwrap(), folder.to_str().unwrap());
    let push = |more: &[&str]| {
        let args = ["plugin", "push", file, "--name", "spoils", "--point", "pod-templating", "--order", "10", "--strategy", "Immediate"];
        cluster.pointsman(&[&args[..], &["--cache", cache, "--wait", "300"], more].concat())
    };
    let waiting = push(&[]);
    assert_eq!(waiting.code, Some(2), "{waiting:?}");
    let candidate = set_that(&cluster, "the update waits", |set| waits(set) && has(set, "spoils")).await;
    assert_eq!(counts(&candidate), [0, 0, 0, 1], "{}", message(&candidate));
    let examples = radius(&candidate).examples.join("; ");
    let expected = "/a-engine as invalid: Deployment.apps \"a-engine\" is invalid: spec.template.spec.restartPolicy: Unsupported value";
    assert!(examples.contains(expected), "{examples}");

    push(&["--force"]).ok();
    let paused = set_that(&cluster, "the rollout is paused", |set| decides(set) && reason(set, "RolledOut") == "Paused").await;
    assert!(message(&paused).contains(expected), "{}", message(&paused));
    assert_eq!(space.pod_uids("a").await, pods);
    let back = cluster.pointsman(&["policy", "rollback", "--wait", "300"]);
    assert_eq!(back.code, Some(0), "{back:?}");
    space
        .becomes(&INFERENCE_SERVICE, "a", "it is Ready again", |service| {
            let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
            conditions
                .filter(|condition| condition["type"] == "Ready" || condition["type"] == "Applied")
                .all(|found| found["status"] == "True")
        })
        .await;
    assert_eq!(space.pod_uids("a").await, pods);
    host.stop();
}
