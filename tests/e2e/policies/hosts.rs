//! Restarts, lost caches and several hosts: the last good revision is active in all of them.

use super::digest;
use pointsman_tests::{Host, PolicyCluster, condition, eventually, plugin_bytes, with_other_digest};
use serde_json::json;

const LABELS: &str = "pointsman-example-rust-labels";

/// The digest of a plugin that is active in a host, by the host's metrics.
fn decides(host: &Host<'_>, plugin: &str) -> Option<String> {
    let (_, metrics) = host.get("/metrics").ok()?;
    let line =
        metrics.lines().find(|line| line.starts_with("pointsman_policy_plugin_info") && line.contains(&format!("plugin=\"{plugin}\"")))?;
    line.ends_with(" 1").then(|| line.split("digest=\"").nth(1)?.split('"').next().map(str::to_owned))?
}

async fn decides_in(host: &Host<'_>, plugin: &str, digest: &str) {
    eventually("it decides", async || (decides(host, plugin).as_deref() == Some(digest)).then_some(())).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn after_a_restart_with_a_broken_newest_version_and_a_lost_cache_the_last_good_one_decides_in_every_host() {
    let cluster = PolicyCluster::start().await;
    let cache = cluster.folder("cache");
    let flags = ["--cache", cache.to_str().unwrap()];
    let host = Host::start(&cluster, &flags).await;
    let good = plugin_bytes(LABELS);
    cluster.config_map("labels", &good).await;
    cluster.plugin_of_config_map("labels", json!({"config": {"label": "team"}})).await;
    cluster.active("labels", &digest(&good)).await;

    // The newest bytes aren't a plugin, and the newest configuration is invalid.
    cluster.config_map("labels", b"\0asm\x01\0\0\0 and then nonsense").await;
    cluster.plugin_of_config_map("labels", json!({"config": {"nonsense": true}})).await;
    let (reason, message) = cluster.refused("labels").await;
    assert_eq!(reason, "NoPlugin", "{message}");
    assert_eq!(decides(&host, "labels"), Some(digest(&good)));
    host.stop();
    std::fs::remove_dir_all(&cache).unwrap();

    let first = Host::start(&cluster, &flags).await;
    let other_cache = cluster.folder("other-cache");
    let second = Host::start(&cluster, &["--cache", other_cache.to_str().unwrap()]).await;
    for host in [&first, &second] {
        host.ready().await;
        assert_eq!(decides(host, "labels"), Some(digest(&good)), "a ready host has the last good one");
    }
    let last_good = |status: &_| condition(status, "Active").is_some_and(|(_, reason, _)| reason == "LastGood");
    let status = cluster.status("labels", "it is still told", last_good).await;
    assert_eq!(status.active.unwrap().digest, digest(&good));

    // A fixed version becomes active in both.
    let mended = with_other_digest(&good, 1);
    cluster.config_map("labels", &mended).await;
    cluster.plugin_of_config_map("labels", json!({})).await;
    cluster.active("labels", &digest(&mended)).await;
    for host in [&first, &second] {
        decides_in(host, "labels", &digest(&mended)).await;
    }
    first.stop();
    second.stop();
}

#[tokio::test]
async fn when_the_leader_goes_another_host_leads_on() {
    let cluster = PolicyCluster::start().await;
    let caches = [cluster.folder("one"), cluster.folder("two")];
    let mut hosts = Vec::new();
    for cache in &caches {
        let host = Host::start(&cluster, &["--cache", cache.to_str().unwrap()]).await;
        host.ready().await;
        hosts.push(host);
    }
    let leads = |host: &Host<'_>| host.get("/metrics").is_ok_and(|(_, metrics)| metrics.contains("\npointsman_leader 1\n"));
    let leader = eventually("one leads", async || hosts.iter().position(&leads)).await;
    assert!(!leads(&hosts[1 - leader]), "two lead");
    hosts.remove(leader).stop();
    let good = plugin_bytes(LABELS);
    cluster.config_map("labels", &good).await;
    cluster.plugin_of_config_map("labels", json!({})).await;
    cluster.active("labels", &digest(&good)).await;
    for host in hosts {
        host.stop();
    }
}

#[tokio::test]
async fn a_pinned_digest_rolls_back_without_a_rebuild_and_old_revisions_go() {
    let cluster = PolicyCluster::start().await;
    let host = Host::start(&cluster, &[]).await;
    let plugin = plugin_bytes(LABELS);
    let versions: Vec<Vec<u8>> = (0..5).map(|number| with_other_digest(&plugin, number)).collect();
    for version in &versions {
        cluster.config_map("labels", version).await;
        cluster.plugin_of_config_map("labels", json!({"revisionHistoryLimit": 1})).await;
        cluster.active("labels", &digest(version)).await;
    }
    // With the limit, the active revision, the previous one and one more are kept.
    let before = digest(&versions[3]);
    cluster.plugin_of_config_map("labels", json!({"revisionHistoryLimit": 1, "digest": before})).await;
    let status = cluster.active("labels", &before).await;
    assert_eq!(status.previous.unwrap().digest, digest(&versions[4]));

    // The first revision was deleted.
    let gone = digest(&versions[0]);
    cluster.plugin_of_config_map("labels", json!({"revisionHistoryLimit": 1, "digest": gone})).await;
    let (reason, message) = cluster.refused("labels").await;
    assert_eq!(reason, "RevisionNotFound", "{message}");
    assert_eq!(decides(&host, "labels"), Some(before));
    host.stop();
}

#[tokio::test]
#[ignore = "long: `cargo xtask test --full` runs it"]
async fn a_lost_record_is_written_anew_and_a_lost_revision_is_told_and_mended_by_its_source() {
    let cluster = PolicyCluster::start().await;
    let host = Host::start(&cluster, &[]).await;
    let good = plugin_bytes(LABELS);
    cluster.config_map("labels", &good).await;
    cluster.plugin_of_config_map("labels", json!({})).await;
    cluster.active("labels", &digest(&good)).await;
    let record = ["configmap", "-n", "pointsman-system", "pointsman-active"];
    cluster.kubectl(&[&["delete"], &record[..]].concat()).ok();
    eventually("the record is back", async || {
        let told = cluster.kubectl(&[&["get", "-o", "json"], &record[..]].concat());
        (told.success && told.stdout.contains(&digest(&good))).then_some(())
    })
    .await;
    assert_eq!(decides(&host, "labels"), Some(digest(&good)));
    host.stop();

    // Without its source, the plugin has no bytes.
    cluster.kubectl(&["delete", "configmap", "-n", "pointsman-system", "labels"]).ok();
    cluster.kubectl(&["delete", "configmap", "-n", "pointsman-system", "-l", "policy.pointsman.dev/revision"]).ok();
    let host = Host::start(&cluster, &[]).await;
    let missing = |status: &_| condition(status, "Active").is_some_and(|(is, reason, _)| is == "False" && reason == "RevisionMissing");
    cluster.status("labels", "it can't be asked", missing).await;
    assert_eq!(decides(&host, "labels"), None);
    cluster.config_map("labels", &good).await;
    cluster.active("labels", &digest(&good)).await;
    decides_in(&host, "labels", &digest(&good)).await;
    host.stop();
}
