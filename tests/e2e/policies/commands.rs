//! `pointsman plugin` against a cluster: push, status, rollback, and back to the source.

use super::digest;
use pointsman_tests::{Host, PolicyCluster, compiled, eventually, plugin_bytes, with_other_digest, with_section};
use serde_json::{Value, json};

/// A plugin that can't be compressed, so that a push takes several ConfigMaps.
fn large(plugin: &[u8]) -> Vec<u8> {
    let mut last = pointsman_sandbox::digest::Digest::hash(b"seed");
    let mut noise = Vec::new();
    while noise.len() < 1_500_000 {
        last = pointsman_sandbox::digest::Digest::hash(&last.0);
        noise.extend(last.0);
    }
    with_section(plugin, &noise)
}

#[tokio::test]
async fn a_plugin_is_pushed_shown_rolled_back_and_resumed_from_the_command_line() {
    let cluster = PolicyCluster::start().await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    let folder = cluster.folder("plugins");
    let cache = compiled();
    let file = |name: &str, bytes: &[u8]| {
        let file = folder.join(name);
        std::fs::write(&file, bytes).unwrap();
        file.to_string_lossy().into_owned()
    };
    let run = |args: &[&str]| cluster.pointsman(&[&["plugin"], args].concat());
    let run_policy = |args: &[&str]| cluster.pointsman(&[&["policy"], args].concat());
    let cache = cache.to_string_lossy().into_owned();

    // The large plugin first: the next push deletes the parts that are no longer needed.
    let labels = plugin_bytes("pointsman-example-rust-labels");
    let (first, second) = (large(&labels), with_other_digest(&labels, 2));
    let push = |file: &str| run(&["push", file, "--name", "labels", "--config", r#"{"label": "team"}"#, "--cache", &cache]);
    let said = push(&file("first.wasm", &first)).ok();
    assert!(said.contains("labels-2") && said.contains("active    "), "{said}");
    cluster.active("labels", &digest(&first)).await;
    let said = push(&file("second.wasm", &second)).ok();
    assert!(said.contains(&digest(&second)), "{said}");
    cluster.active("labels", &digest(&second)).await;
    let maps = cluster.kubectl(&["get", "configmaps", "-n", "pointsman-system", "-o", "name"]).ok();
    assert!(maps.contains("configmap/labels\n") && !maps.contains("configmap/labels-2"), "{maps}");

    let table = run(&["status"]).ok();
    assert!(table.lines().any(|line| line.starts_with("labels") && line.contains("metadata-propagation")), "{table}");
    let told: Value = serde_json::from_str(&run(&["status", "labels", "-o", "json"]).ok()).unwrap();
    assert!(told.to_string().contains(&digest(&first)), "{told}");

    let said = run(&["rollback", "labels"]).ok();
    assert!(said.contains(&digest(&first)), "{said}");
    cluster.active("labels", &digest(&first)).await;
    let refused = run(&["rollback", "labels", "--to", "sha256:0000"]).refused();
    assert!(refused.contains(&digest(&first)[..19]), "it lists those that there are: {refused}");
    let refused = push(&file("third.wasm", &with_other_digest(&labels, 3))).refused();
    assert!(refused.contains("--unpin"), "a pinned plugin isn't pushed over: {refused}");
    // One command pushes a fix, and a later rollback skips the revision that was rolled back from.
    let third = with_other_digest(&labels, 3);
    let fix = ["push", &file("third.wasm", &third), "--name", "labels", "--config", r#"{"label": "team"}"#, "--cache", &cache, "--unpin"];
    let said = run(&fix).ok();
    assert!(said.contains("unpinned") && said.contains(&format!("active    {}", digest(&third))), "{said}");
    let said = run(&["rollback", "labels", "--dry-run"]).ok();
    assert!(said.contains(&format!("would pin labels to {}", digest(&first))), "{said}");
    run(&["rollback", "labels"]).ok();
    cluster.active("labels", &digest(&first)).await;
    let refused = run(&["rollback", "labels"]).refused();
    assert!(refused.contains("no earlier revision of labels is left") && refused.contains("it was rolled back from"), "{refused}");
    run(&["rollback", "labels", "--to", &digest(&second)]).ok();
    cluster.active("labels", &digest(&second)).await;
    let would = run_policy(&["rollback", "--dry-run"]).ok();
    assert!(would.contains("would hold set-") && would.contains("plugin labels: "), "{would}");
    run(&["rollback", "labels", "--resume"]).ok();
    cluster.active("labels", &digest(&third)).await;
    let said = push(&file("second.wasm", &second)).ok();
    assert!(said.contains(&digest(&second)), "{said}");

    // An unusable plugin is refused before anything is written.
    let refused = push(&file("nonsense.wasm", b"nonsense")).refused();
    assert!(refused.contains("it is not WebAssembly"), "{refused}");
    let refused =
        run(&["push", &file("second.wasm", &second), "--name", "labels", "--config", r#"{"labell": 1}"#, "--cache", &cache]).refused();
    assert!(refused.contains("labell"), "{refused}");
    let refused = run(&["push", &file("second.wasm", &second), "--name", "pod-templating", "--cache", &cache]).refused();
    assert!(refused.contains("choose another --name"), "{refused}");
    let maps = cluster.kubectl(&["get", "configmaps", "-n", "pointsman-system", "-o", "name"]).ok();
    assert!(!maps.contains("configmap/pod-templating\n"), "{maps}");
    eventually("the plugin still decides", async || cluster.active("labels", &digest(&second)).await.active).await;
    // The manifest of a new project and a push set different fields.
    let project = folder.join("project").to_string_lossy().into_owned();
    run(&["new", "fresh", "--language", "go", "--point", "metadata-propagation", "--dir", &project]).ok();
    cluster.kubectl(&["apply", "--server-side", "-f", &format!("{project}/policy-plugin.yaml")]).ok();
    let said = run(&["push", &file("third.wasm", &third), "--name", "fresh", "--cache", &cache]).ok();
    assert!(said.contains(&format!("active    {}", digest(&third))), "{said}");
    let applied: Value = serde_json::from_str(&cluster.kubectl(&["get", "policyplugin", "fresh", "-o", "json"]).ok()).unwrap();
    assert_eq!(
        (&applied["spec"]["points"], &applied["spec"]["source"]["configMap"]["name"]),
        (&json!(["metadata-propagation"]), &json!("fresh"))
    );
    // A strategy stays until a push specifies another, and a configuration doesn't.
    let third_file = file("third.wasm", &third);
    let push = |more: &[&str]| run(&[&["push", &third_file, "--name", "sticky", "--cache", &cache], more].concat()).ok();
    push(&["--strategy", "Immediate", "--config", r#"{"label": "team"}"#]);
    for _ in 0..2 {
        let said = push(&[]);
        assert!(said.contains("strategy  Immediate (from an earlier push)"), "{said}");
    }
    let applied: Value = serde_json::from_str(&cluster.kubectl(&["get", "policyplugin", "sticky", "-o", "json"]).ok()).unwrap();
    assert_eq!((&applied["spec"]["strategy"], &applied["spec"]["config"]), (&json!({"type": "Immediate"}), &Value::Null));
    let refused = run(&["delete", "scheduling-scoring"]).refused();
    assert!(refused.contains("is built in"), "{refused}");
    let said = run(&["delete", "labels"]).ok();
    assert!(said.contains("deleted   PolicyPlugin labels") && said.contains("deleted   ConfigMap pointsman-system/labels"), "{said}");
    let maps = cluster.kubectl(&["get", "configmaps", "-n", "pointsman-system", "-o", "name"]).ok();
    assert!(!maps.contains("configmap/labels\n"), "{maps}");
    let refused = run(&["status", "nothing"]).refused();
    assert!(refused.contains("nothing"), "{refused}");
    host.stop();
}
