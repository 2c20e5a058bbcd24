//! The delivery of plugins: their bytes are read from each source and become active.

use super::{decided_by, digest, propagated};
use base64::Engine as _;
use flate2::{Compression, write::GzEncoder};
use pointsman::source::config_map::split;
use pointsman_core::decide::Standing;
use pointsman_sandbox::digest::Digest;
use pointsman_tests::{Engine, Host, PolicyCluster, compiled, condition, eventually, plugin_bytes, with_other_digest, with_section};
use serde_json::{Value, json};
use std::io::Write;

const LABELS: &str = "pointsman-example-rust-labels";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn the_built_in_policies_decide_without_anything_else_and_are_policyplugins_like_others() {
    let cluster = PolicyCluster::start().await;
    let host = Host::start(&cluster, &[]).await;
    host.ready().await;
    for name in ["runtime-selection", "pod-templating", "metadata-propagation", "scheduling-scoring"] {
        let status = cluster.status(name, "it is ready", |status| condition(status, "Ready").is_some_and(|(is, ..)| is == "True")).await;
        assert_eq!(serde_json::to_value(&status.points).unwrap(), json!([name]));
        assert_eq!(status.source.as_deref(), Some(format!("builtin/{name}").as_str()));
    }
    let listed = cluster.kubectl(&["get", "pp"]).ok();
    assert!(listed.lines().any(|line| line.starts_with("runtime-selection") && line.contains("Extend   0")), "{listed}");
    // A deleted built-in is created again. To disable it, replace it.
    cluster.delete_plugin("pod-templating").await;
    cluster.status("pod-templating", "it is back", |status| condition(status, "Ready").is_some_and(|(is, ..)| is == "True")).await;
    host.stop();
}

#[tokio::test]
async fn a_config_map_brings_a_plugin_and_each_update_decides_without_a_restart() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start(&cluster, "one", &compiled()).await;
    let first = plugin_bytes(LABELS);
    assert_eq!(decided_by(&engine, "labels", 0), None);

    cluster.config_map("labels", &first).await;
    cluster.plugin_of_config_map("labels", json!({"points": ["metadata-propagation"]})).await;
    cluster.active("labels", &digest(&first)).await;
    assert_eq!(decided_by(&engine, "labels", 1), Some(digest(&first)));
    let carried = propagated(&engine.policies.pin(Standing::New), 2);
    assert_eq!((carried.answer.labels[0].key.as_str(), carried.answer.labels[0].value.as_str()), ("cost-centre", "r-7"));

    // An update of the bytes, this time compressed.
    let second = with_other_digest(&first, 2);
    cluster.config_map("labels", &gzip(&second)).await;
    let status = cluster.active("labels", &digest(&second)).await;
    assert_eq!(status.previous.unwrap().digest, digest(&first));
    assert_eq!(decided_by(&engine, "labels", 3), Some(digest(&second)));

    // An update of only the configuration.
    cluster.plugin_of_config_map("labels", json!({"points": ["metadata-propagation"], "config": {"label": "team"}})).await;
    eventually("the configuration is in force", async || {
        propagated(&engine.policies.pin(Standing::New), 4).answer.labels.is_empty().then_some(())
    })
    .await;

    // With an invalid configuration, the previous one stays active, and the status names the field.
    cluster.plugin_of_config_map("labels", json!({"points": ["metadata-propagation"], "config": {"labell": "x"}})).await;
    let (reason, message) = cluster.refused("labels").await;
    assert_eq!(reason, "InvalidConfig");
    assert!(message.contains("labell"), "{message}");
    assert_eq!(decided_by(&engine, "labels", 5), Some(digest(&second)));

    // The plugin is only called for matching subjects.
    let matching = json!({"points": ["metadata-propagation"], "match": {"kinds": [{"group": "ome.io", "kind": "InferenceService"}]}});
    cluster.plugin_of_config_map("labels", matching).await;
    eventually("it isn't asked any more", async || decided_by(&engine, "labels", 6).is_none().then_some(())).await;

    cluster.delete_plugin("labels").await;
    eventually("it is out of the set", async || engine.policies.active().member("labels").is_none().then_some(())).await;
    engine.stop().await;
}

#[tokio::test]
async fn a_large_plugin_in_parts_is_used_whole_or_not_at_all() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start(&cluster, "one", &compiled()).await;
    let plugin = plugin_bytes(LABELS);
    // Data that can't be compressed: a chain of digests.
    let large = |seed: u8| {
        let mut last = Digest::hash(&[seed]);
        let mut noise = Vec::new();
        while noise.len() < 2_000_000 {
            last = Digest::hash(&last.0);
            noise.extend(last.0);
        }
        with_section(&plugin, &noise)
    };
    let (first, second) = (large(1), large(2));
    let (old, new) = (split("labels", "plugin.wasm", &first).unwrap(), split("labels", "plugin.wasm", &second).unwrap());
    assert!(old.len() >= 3, "{} parts", old.len());
    for part in &old {
        cluster.apply_config_map(part).await;
    }
    let parts: Vec<Value> = old[1..].iter().map(|part| json!(part.metadata.name)).collect();
    let source = json!({"source": {"configMap": {"name": "labels", "parts": parts}}});
    cluster.plugin("labels", source).await;
    cluster.active("labels", &digest(&first)).await;

    // Half of the new parts: the old bytes stay active, and the status names the missing parts.
    cluster.apply_config_map(&new[0]).await;
    let (reason, message) = cluster.refused("labels").await;
    assert_eq!(reason, "WaitingForParts", "{message}");
    assert!(message.contains("labels-2"), "{message}");
    assert_eq!(decided_by(&engine, "labels", 1), Some(digest(&first)));
    for part in &new[1..] {
        cluster.apply_config_map(part).await;
    }
    cluster.active("labels", &digest(&second)).await;

    // If two parts are swapped, both are wrong.
    let mut swapped = [new[1].clone(), new[2].clone()];
    let [a, b] = &mut swapped;
    std::mem::swap(&mut a.binary_data, &mut b.binary_data);
    for part in &swapped {
        cluster.apply_config_map(part).await;
    }
    cluster.refused("labels").await;
    assert_eq!(decided_by(&engine, "labels", 2), Some(digest(&second)));
    engine.stop().await;
}

#[tokio::test]
async fn a_plugin_directory_brings_plugins_too() {
    let cluster = PolicyCluster::start().await;
    let folder = cluster.folder("plugins");
    let host = Host::start(&cluster, &["--plugin-dir", folder.to_str().unwrap()]).await;
    let plugin = plugin_bytes(LABELS);
    cluster.plugin("labels", json!({"source": {"file": {"path": "labels.wasm"}}})).await;
    let (reason, message) = cluster.refused("labels").await;
    assert_eq!(reason, "FileMissing", "{message}");
    std::fs::write(folder.join("labels.wasm"), &plugin).unwrap();
    cluster.active("labels", &digest(&plugin)).await;
    // Replaced like an editor or a mounted ConfigMap does it.
    let second = with_other_digest(&plugin, 2);
    std::fs::write(folder.join("new"), &second).unwrap();
    std::fs::rename(folder.join("new"), folder.join("labels.wasm")).unwrap();
    cluster.active("labels", &digest(&second)).await;
    host.stop();
}

#[tokio::test]
async fn the_newest_of_many_updates_wins_and_a_delete_while_one_is_compiled_stays_one() {
    let cluster = PolicyCluster::start().await;
    let engine = Engine::start(&cluster, "one", &compiled()).await;
    let plugin = plugin_bytes(LABELS);
    cluster.config_map("labels", &plugin).await;
    cluster.plugin_of_config_map("labels", json!({})).await;
    cluster.active("labels", &digest(&plugin)).await;
    let mut last = String::new();
    for number in 0..20 {
        let bytes = with_other_digest(&plugin, number);
        cluster.config_map("labels", &bytes).await;
        last = digest(&bytes);
    }
    cluster.active("labels", &last).await;
    // A deletion after the newest update must not be undone by it.
    cluster.config_map("labels", &with_other_digest(&plugin, 100)).await;
    cluster.delete_plugin("labels").await;
    eventually("it is out of the set", async || engine.policies.active().member("labels").is_none().then_some(())).await;
    cluster.config_map("other", &plugin).await;
    cluster.plugin_of_config_map("other", json!({})).await;
    cluster.active("other", &digest(&plugin)).await;
    assert!(engine.policies.active().member("labels").is_none(), "a deleted plugin has come back");
    engine.stop().await;
}

/// A base64 signature with the test's key.
fn signed(bytes: &[u8]) -> String {
    use ed25519_dalek::{Signer, SigningKey};
    let key = SigningKey::from_bytes(&[7; 32]);
    base64::engine::general_purpose::STANDARD.encode(key.sign(bytes).to_bytes())
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn where_signatures_are_demanded_only_signed_bytes_decide_and_a_mended_signature_heals() {
    let cluster = PolicyCluster::start().await;
    let keys = cluster.folder("keys");
    let public = ed25519_dalek::SigningKey::from_bytes(&[7; 32]).verifying_key();
    std::fs::write(keys.join("release.pub"), base64::engine::general_purpose::STANDARD.encode(public.as_bytes())).unwrap();
    let plugin = plugin_bytes(LABELS);
    // An unsigned plugin is no longer active once signatures are required.
    let lax = Host::start(&cluster, &[]).await;
    cluster.config_map("labels", &plugin).await;
    cluster.plugin_of_config_map("labels", json!({})).await;
    cluster.active("labels", &digest(&plugin)).await;
    lax.stop();

    let flags = ["--trusted-keys", keys.to_str().unwrap(), "--require-signatures"];
    let host = Host::start(&cluster, &flags).await;
    let (reason, message) = cluster.refused("labels").await;
    assert_eq!(reason, "SignatureRequired", "{message}");
    let (_, metrics) = host.get("/metrics").unwrap();
    assert!(metrics.lines().any(|line| line.contains("plugin_info{plugin=\"labels\"") && line.ends_with(" 0")), "{metrics}");
    cluster.plugin_of_config_map("labels", json!({"signature": {"keyName": "release", "ed25519": signed(b"other")}})).await;
    let (reason, message) = cluster.refused("labels").await;
    assert_eq!(reason, "WrongSignature", "{message}");
    cluster.plugin_of_config_map("labels", json!({"signature": {"keyName": "release", "ed25519": signed(&plugin)}})).await;
    cluster.active("labels", &digest(&plugin)).await;

    // A digest that is pinned before its bytes exist becomes active once they do.
    let second = with_other_digest(&plugin, 2);
    let spec = json!({"digest": digest(&second), "signature": {"ed25519": signed(&second)}});
    cluster.plugin_of_config_map("labels", spec).await;
    let (reason, message) = cluster.refused("labels").await;
    assert_eq!(reason, "RevisionNotFound", "{message}");
    cluster.config_map("labels", &second).await;
    cluster.active("labels", &digest(&second)).await;
    host.stop();
}
