//! The manifests of `deploy/`, applied as a user applies them.

use crate::{
    first_service::run_the_page,
    services::{Space, fixed, with_model},
};
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_harness::{Options, workspace};
use pointsman_tests::{CommandOutput, Host, PolicyCluster, TestCluster, eventually, guide::blocks};
use serde_json::{Value, json};
use std::{fs, process::Command};

/// Applies a folder. A warning is an error.
fn apply(cluster: &TestCluster, folder: &str) {
    let applied = cluster.kubectl(&["apply", "--server-side", "-k", &workspace().join(folder).to_string_lossy()]);
    assert_eq!(applied.stderr, "", "{folder}: a warning, or an error");
}

/// Waits until all pods of the host exist, so Pod Security has admitted them.
fn rolled_out(cluster: &TestCluster, folder: &str) {
    let waited = cluster.kubectl(&["rollout", "status", "deployment/pointsman", "-n", HOST_NAMESPACE, "--timeout", "600s"]);
    assert!(waited.success, "{folder}: {}", waited.stderr);
}

fn object(cluster: &TestCluster, kind: &str) -> Value {
    serde_json::from_str(&cluster.kubectl(&["get", kind, "pointsman", "-n", HOST_NAMESPACE, "-o", "json"]).ok()).unwrap()
}

#[test]
#[ignore = "long: `cargo xtask test --full` runs it"]
fn every_overlay_is_applied_without_a_warning_and_its_pods_pass_pod_security() {
    let neighbours = ["cert-manager", "prometheus-operator"].map(str::to_owned).to_vec();
    let cluster = TestCluster::start(&Options { neighbours: Some(neighbours), ..Options::default() });
    apply(&cluster, "deploy/install");
    rolled_out(&cluster, "deploy/install");
    assert_eq!(object(&cluster, "deployment")["spec"]["replicas"], 2);
    for namespace in ["team-a", "team-b"] {
        cluster.kubectl(&["create", "namespace", namespace]).ok();
    }
    let privileged = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "privileged", "namespace": HOST_NAMESPACE},
        "spec": {"containers": [{"name": "a", "image": "example.com/a:1", "securityContext": {"privileged": true}}]},
    });
    let refused = cluster.apply(&privileged);
    assert!(refused.stderr.contains("violates PodSecurity \"restricted"), "it is enforced: {}", refused.stderr);

    let overlays = fs::read_dir(workspace().join("deploy/overlays")).unwrap();
    let mut overlays: Vec<String> = overlays.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    overlays.sort();
    for overlay in &overlays {
        let folder = format!("deploy/overlays/{overlay}");
        apply(&cluster, &folder);
        rolled_out(&cluster, &folder);
    }
    assert!(overlays.len() >= 6, "{overlays:?}");
    let replicas = |folder: &str| {
        apply(&cluster, folder);
        object(&cluster, "deployment")["spec"]["replicas"].clone()
    };
    assert_eq!((replicas("deploy/overlays/single-replica"), replicas("deploy/install")), (json!(1), json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn by_the_guide_a_service_gets_ready_doctor_is_content_and_all_goes_again() {
    let cluster = TestCluster::start(&Options { neighbours: Some(vec!["lws".to_owned()]), ..Options::default() });
    let clone = cluster.dir.join("clone");
    fs::create_dir(&clone).unwrap();
    for folder in ["crds", "deploy"] {
        CommandOutput::by(Command::new("cp").arg("-r").arg(workspace().join(folder)).arg(&clone)).ok();
    }
    let commands = blocks("install.md", "By kustomize");
    let [crds, install, removal] = &commands[..] else { panic!("{commands:#?}") };
    let commands = blocks("install.md", "Looking at it");
    let [doctor] = &commands[..] else { panic!("{commands:#?}") };
    crds.run(&cluster, &clone).ok();
    install.run(&cluster, &clone).ok();
    let deployment = object(&cluster, "deployment");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "registry.example.com/pointsman:0.1.0");
    // No container runs here: the test starts the pods' program itself, with the Deployment's arguments.
    let host = Host::start_as_deployed(&cluster, &deployment).await;
    host.ready().await;
    let space = Space::on(&cluster, "first").await;
    space.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    space.ready("chat").await;
    eventually("doctor is content", async || doctor.run(&cluster, &clone).success.then_some(())).await;
    let commands = blocks("install.md", "A first service");
    let [first, why] = &commands[..] else { panic!("{commands:#?}") };
    let said = first.run(&cluster, &clone).ok();
    assert!(said.contains("http://qwen-kserve-workload-svc.default.svc.cluster.local:8000") && said.contains("True"), "{said}");
    let said = why.run(&cluster, &clone).ok();
    assert!(said.contains("MainWorkloadReady") && said.contains("pod-templating"), "{said}");

    host.stop();
    assert_eq!(object(&cluster, "lease")["spec"]["holderIdentity"].as_str().unwrap_or_default(), "", "given back");
    removal.run(&cluster, &clone).ok();
    let left = space.kubectl(&["get", "deployments,services", "-o", "name"]).ok();
    assert!(left.contains("deployment.apps/chat-engine"), "what serves goes on: {left}");
    space.kubectl(&["delete", "isvc", "chat", "--timeout", "600s"]).ok();

    // Only the CRDs are left.
    tokio::task::block_in_place(|| run_the_page(&cluster, |_| {}));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn the_hardened_overlay_keeps_its_rule_enabled() {
    let cluster = PolicyCluster::start().await;
    apply(&cluster, "deploy/overlays/hardened");
    let host = Host::start_as_deployed(&cluster, &object(&cluster, "deployment")).await;
    let rule = "validationrule/hardened-pods";
    let is_enabled = || cluster.kubectl(&["get", rule, "-o", "jsonpath={.spec.enabled}"]).stdout == "true";
    eventually("it is made enabled", async || is_enabled().then_some(())).await;
    cluster.kubectl(&["patch", rule, "--type", "merge", "-p", r#"{"spec":{"enabled":false}}"#]).ok();
    eventually("it is enabled again", async || is_enabled().then_some(())).await;
    host.stop();
}
