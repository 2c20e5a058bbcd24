//! The guides for operators: a backup restores an installation, the log level changes, and every command is run by a test.

use crate::services::{Space, fixed, with_model};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pointsman_core::{
    resource::{DEPLOYMENT, LLM_INFERENCE_SERVICE},
    settings::HOST_NAMESPACE,
};
use pointsman_harness::{Options, workspace};
use pointsman_tests::{
    CommandOutput, Host, PolicyCluster, TestCluster, eventually,
    guide::{blocks, fenced, page, sections},
    kubelet::Kubelet,
    plugin_bytes, pointsman,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The label that the example plugin copies from a namespace to its pods.
const LABEL: &str = "cost-centre";

fn get(cluster: &TestCluster, args: &[&str]) -> Vec<Value> {
    let list: Value = serde_json::from_str(&cluster.kubectl(&[&["get", "-o", "json"], args].concat()).ok()).unwrap();
    list["items"].as_array().cloned().unwrap()
}

/// The uids of the pods, each with the label of the plugin.
fn pods(space: &Space<'_>) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = get(space.0.cluster, &["pods", "-n", &space.0.name]);
    pods.iter().map(|pod| (text(&pod["metadata"]["uid"]), text(&pod["metadata"]["labels"][LABEL]))).collect()
}

/// The digests of the active sets.
fn active(cluster: &TestCluster) -> Vec<Value> {
    let sets = get(cluster, &["policysets"]);
    sets.into_iter().filter(|set| set["status"]["phase"] == "Active").map(|set| set["spec"]["digest"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn after_an_installation_is_lost_a_backup_restores_it_and_services_keep_their_pods() {
    let cluster = TestCluster::start(&Options { neighbours: Some(Vec::new()), ..Options::default() });
    let clone = cluster.dir.join("clone");
    fs::create_dir(&clone).unwrap();
    for folder in ["crds", "deploy"] {
        CommandOutput::by(Command::new("cp").arg("-r").arg(workspace().join(folder)).arg(&clone)).ok();
    }
    let mut kubelet = Kubelet::new(&cluster, &[("registry.example.com/pointsman:0.1.0", pointsman())]);
    let commands = blocks("install.md", "By kustomize");
    let [crds, install, removal] = &commands[..] else { panic!("{commands:#?}") };
    crds.run(&cluster, &clone).ok();
    kubelet.during(|| install.run(&cluster, &clone)).ok();
    let commands = blocks("operate.md", "High availability");
    let [lease] = &commands[..] else { panic!("{commands:#?}") };
    eventually("a host leads", async || {
        let said = lease.run(&cluster, &clone);
        kubelet.pods().iter().any(|pod| said.stdout.contains(pod)).then_some(())
    })
    .await;

    // A policy that changes pods.
    let space = Space::on(&cluster, "restored").await;
    let change = Patch::Merge(json!({"metadata": {"labels": {LABEL: "4711"}}}));
    Api::<Namespace>::all(space.0.client.clone()).patch(&space.0.name, &PatchParams::default(), &change).await.unwrap();
    let plugin = cluster.dir.join("plugin.wasm");
    fs::write(&plugin, plugin_bytes("pointsman-example-rust-labels")).unwrap();
    let push = ["plugin", "push", &plugin.to_string_lossy(), "--name", LABEL, "--strategy", "Immediate", "--order", "100"];
    cluster.pointsman(&push).ok();
    space.service("chat", with_model(json!({"engine": fixed(1)}))).await;
    space.create(&LLM_INFERENCE_SERVICE, "llama", json!({"spec": {"model": {"uri": "hf://example/llama"}}})).await;
    eventually("both services have their pod, with the label", async || {
        let pods = pods(&space);
        (pods.len() == 2 && pods.iter().all(|(_, label)| label == "4711")).then_some(())
    })
    .await;
    space.ready("chat").await;
    let (before, set) = (pods(&space), active(&cluster));
    assert_eq!(set.len(), 1);

    let commands = blocks("operate.md", "Backup and restore");
    let [backup, restore] = &commands[..] else { panic!("{commands:#?}") };
    backup.run(&cluster, &clone).ok();
    kubelet.during(|| removal.run(&cluster, &clone)).ok();
    kubelet.all_end().await;
    cluster.kubectl(&["delete", "policyplugins,policysets,validationrules", "--all"]).ok();
    cluster.kubectl(&["wait", "--for=delete", &format!("namespace/{HOST_NAMESPACE}"), "--timeout=600s"]).ok();
    assert_eq!(pods(&space), before, "no host is needed for what runs");

    kubelet.during(|| restore.run(&cluster, &clone)).ok();
    kubelet.until("the set of before is active", async |_| (active(&cluster) == set).then_some(())).await;
    // A change of a service shows whether the restored policies decide as before.
    space.change("chat", json!({"engine": fixed(2)})).await;
    space.becomes(&DEPLOYMENT, "chat-engine", "it has 2", |now| now["status"]["readyReplicas"] == 2).await;
    space.ready("chat").await;
    let after = pods(&space);
    assert!(after.is_superset(&before) && after.len() == 3 && after.iter().all(|(_, label)| label == "4711"), "{before:?}: {after:?}");
}

/// Precedes the commands of the guide. Without a kubelet no port can be forwarded, and port 8080 may be in use: the test has checked the
/// port of the Deployment, and curl connects to the host's address on loopback, as it would with a forwarded port.
const FORWARDED: &str = r#"
kubectl() { [ "$*" = "port-forward --namespace pointsman-system deployment/pointsman 8080" ] && exec sleep 300; }
curl() { command curl "${@//127.0.0.1:8080/ADDRESS}"; }
"#;

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn by_the_guide_the_log_level_changes() {
    let cluster = PolicyCluster::start().await;
    let deploy = workspace().join("deploy/host");
    cluster.kubectl(&["apply", "--server-side", "-k", &deploy.to_string_lossy()]).ok();
    let port = "jsonpath={.spec.template.spec.containers[0].ports[0].containerPort}";
    assert_eq!(cluster.kubectl(&["get", "deployment", "pointsman", "-n", HOST_NAMESPACE, "-o", port]).ok(), "8080");
    let host = Host::start(&cluster, &[]).await;
    let commands = blocks("metrics.md", "Logs");
    let [change] = &commands[..] else { panic!("{commands:#?}") };
    host.ready().await;
    let said = change.run_with(&cluster, &cluster.dir, &FORWARDED.replace("ADDRESS", &host.address)).ok();
    assert_eq!(said, "info,pointsman=debug\ninfo,pointsman=debug\n");
    host.stop();
}

/// The sources of the end-to-end tests.
fn sources(folder: &Path) -> String {
    let entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let text = |path: &PathBuf| if path.is_dir() { sources(path) } else { fs::read_to_string(path).unwrap() };
    entries.iter().map(text).collect()
}

/// The commands of a page that no test runs. A test that reads the blocks of a heading runs each of them ([`blocks`]).
fn untested(name: &str, page: &str, tests: &str) -> Vec<String> {
    const TOOLS: [&str; 4] = ["kubectl ", "helm ", "pointsman ", "curl "];
    // `cargo xtask test --full` builds the image and reads it as a registry client does (`xtask/src/image`).
    const BY_XTASK: (&str, &str) = ("install.md", "The image");
    let mut untested = Vec::new();
    for (heading, text) in sections(page) {
        let is_taken = (name, heading) == BY_XTASK || !heading.is_empty() && tests.contains(&format!("blocks(\"{name}\", \"{heading}\")"));
        for (language, block) in fenced(text) {
            let is_command = language == "sh" || block.lines().any(|line| TOOLS.iter().any(|tool| line.trim_start().starts_with(tool)));
            if is_command && (language != "sh" || !is_taken) {
                untested.push(format!("{name}, {heading}: a block of {language}\n{block}"));
            }
        }
    }
    untested
}

#[test]
fn a_test_runs_every_command_in_the_guides_for_operators() {
    let tests = sources(&workspace().join("tests/e2e"));
    for name in ["first-service.md", "install.md", "operate.md", "metrics.md"] {
        assert_eq!(untested(name, &page(name), &tests), Vec::<String>::new());
    }
    let page = "# A\n\n## B\n\n```sh\nls\n```\n\n## C\n\n```text\nkubectl get pods\n```\n\n```yaml\na: b\n```\n";
    let tests = ["B", "C"].map(|heading| format!("blocks(\"a.md\", \"{heading}\")"));
    assert_eq!(untested("a.md", page, &tests.concat()).len(), 1, "a command is a block of sh");
    assert_eq!(untested("a.md", page, &tests[1]).len(), 2, "the blocks of B are taken by no test");
}
