//! Plugins for several versions of the interfaces in one policy set.

use crate::services::{Space, fixed, own_cluster, with_model};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pointsman_harness::workspace;
use pointsman_tests::{Host, eventually, plugin_bytes};
use serde_json::{Value, json};

/// The plugins that were built for 0.1.0. On a busy machine, those in JavaScript and Python take a minute to compile, which is the host's
/// limit: they are only part of `--full`, and of `host/tests/interfaces.rs`, which only uses the sandbox.
fn old() -> Vec<&'static str> {
    let mut names = vec!["go-labels", "rust-labels"];
    if pointsman_tests::is_full() {
        names.extend(["javascript-labels", "python-labels"]);
    }
    names
}

const SELECTOR: &str = "serving.ome.io/inferenceservice=chat";

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn plugins_for_0_1_0_and_one_for_the_draft_label_a_service_together() {
    let cluster = own_cluster(Some(&[]));
    let host = Host::start(&cluster, &["--draft-interfaces"]).await;
    host.ready().await;
    let space = Space::on(&cluster, "interfaces").await;
    let names = || old().into_iter().chain(["today"]);
    let labels: Value =
        names().map(|name| (format!("from-{name}"), json!(format!("value-{name}")))).collect::<serde_json::Map<_, _>>().into();
    let change = Patch::Merge(json!({"metadata": {"labels": labels}}));
    Api::<Namespace>::all(space.0.client.clone()).patch(&space.0.name, &PatchParams::default(), &change).await.unwrap();
    space.serves("chat", with_model(json!({"engine": fixed(1)}))).await;
    space.ready("chat").await;

    let today = cluster.dir.join("today.wasm");
    std::fs::write(&today, plugin_bytes("pointsman-example-rust-labels")).unwrap();
    let cache = cluster.dir.join("cache");
    for name in names() {
        let file = if name == "today" { today.clone() } else { workspace().join(format!("tests/fixtures/plugins-0.1.0/{name}.wasm.gz")) };
        let run = |args: &[&str]| {
            let file = file.to_string_lossy().into_owned();
            cluster
                .pointsman(&[&["plugin", args[0], &file, "--draft-interfaces", "--cache", &cache.to_string_lossy()], &args[1..]].concat())
                .ok()
        };
        let inspected: Value = serde_json::from_str(&run(&["inspect", "-o", "json"])).unwrap();
        assert_eq!(inspected["interface"], if name == "today" { "0.2.0-draft" } else { "0.1.0" }, "{name}");
        let config = json!({"label": format!("from-{name}")}).to_string();
        run(&["push", "--name", name, "--config", &config, "--strategy", "Immediate", "--order", "100"]);
    }
    for name in names() {
        eventually(&format!("pods have the label of {name}"), async || {
            let pods = space.pods_with(SELECTOR).await;
            let carried = pods.values().all(|pod| pod["metadata"]["labels"][format!("from-{name}")] == format!("value-{name}"));
            (!pods.is_empty() && carried).then_some(())
        })
        .await;
    }
    space.ready("chat").await;

    // Without the flag, a plugin that only supports the draft is refused with the reason.
    let refused = cluster.dir.join("draft.wasm");
    let draft = ["pointsman:policy/plugin@0.2.0-draft", "pointsman:policy/pod-templating@0.2.0-draft"];
    std::fs::write(&refused, super::text::component_exporting(&draft)).unwrap();
    let said = cluster.pointsman(&["plugin", "inspect", &refused.to_string_lossy(), "--cache", &cache.to_string_lossy()]).refused();
    assert!(said.contains("a draft that may change") && said.contains("--draft-interfaces"), "{said}");
    host.stop();
}
