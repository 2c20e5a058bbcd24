//! Servers that fail in each way that networks know.

use crate::{
    site::{Fault, Server},
    support::{Node, bytes, limits, message, sha256, until},
};
use pointsman_download::{Error, Limits, Phase};
use std::sync::atomic::Ordering::Relaxed;

const SIZE: usize = (6 << 20) + 77;

async fn served(seed: u64) -> (Server, Vec<u8>, String) {
    let server = Server::start().await;
    let content = bytes(seed, SIZE);
    server.site.put("/file.bin", content.clone());
    server.site.put("/file.bin.sha256", sha256(&content));
    let url = server.at("/file.bin");
    (server, content, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_that_pass_cost_only_what_they_broke() {
    let (server, content, url) = served(1).await;
    let node = Node::new();
    server.site.fail([
        Fault::Reset(300_000),
        Fault::Status(500),
        Fault::Busy(429),
        Fault::Short,
        Fault::Busy(503),
        Fault::Shifted,
        Fault::Reset(0),
        Fault::Status(502),
    ]);
    let outcome = node.fetch("model", &url).await.unwrap();
    assert_eq!(server.site.faults_left(), 0);
    assert!(node.read("model/file.bin") == content, "other bytes");
    let limit = SIZE as u64 * 12 / 10;
    assert!(outcome.downloaded_bytes < limit, "{} bytes for {SIZE}", outcome.downloaded_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_are_noticed_and_downloaded_once_more() {
    let (server, content, url) = served(2).await;
    let node = Node::new();
    server.site.fail([Fault::Wrong]);
    node.fetch("model", &url).await.unwrap();
    assert!(node.read("model/file.bin") == content, "other bytes");

    server.site.put("/file.bin.sha256", sha256(b"other"));
    let text = message(node.fetch("wrong", &url).await);
    let expected = format!(
        "file.bin of {url} has the SHA-256 {}, and the source publishes {}, in two downloads: upload the file to the source again",
        sha256(&content),
        sha256(b"other")
    );
    assert_eq!(text, expected);
    assert!(!node.path("wrong").exists(), "a model with a wrong checksum is there");
    // It is repaired at the source.
    server.site.put("/file.bin.sha256", sha256(&content));
    node.fetch("wrong", &url).await.unwrap();
    assert!(node.read("wrong/file.bin") == content, "other bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_goes_in_the_middle_is_continued_when_it_is_back() {
    let (server, content, url) = served(3).await;
    let node = Node::new();
    // Half of all bytes come; then every request fails.
    server.site.fail((0..14).map(|index| if index < 7 { Fault::Reset(500_000) } else { Fault::Status(503) }));
    server.site.fail((0..40).map(|_| Fault::Status(503)));
    let error = node.fetch("model", &url).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("can't be reached after 4 attempts (status 503)") && text.contains("is retained"), "{text}");
    assert!(node.downloader.usage().await.unwrap().partial > 0);
    while server.site.faults_left() > 0 {
        let _ = node.fetch("model", &url).await;
    }
    let sent = server.site.sent();
    node.fetch("model", &url).await.unwrap();
    assert!(node.read("model/file.bin") == content, "other bytes");
    let again = server.site.sent() - sent;
    assert!(again < SIZE as u64 * 6 / 10, "{again} bytes after more than half were there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_in_the_middle_is_begun_again_and_reported() {
    let (server, _, url) = served(4).await;
    // So that some parts are requested after the change.
    let node = Node::with(Limits { parallel_parts_per_model: 2, ..limits() });
    server.site.remove("/file.bin.sha256");
    server.site.per_second.store(4 << 20, Relaxed);
    let download = node.download("model", &url);
    let watcher = download.watcher();
    let running = tokio::spawn(download.run());
    until(|| watcher.progress().completed_bytes > 0).await;
    let new = bytes(5, SIZE - 1000);
    server.site.put("/file.bin", new.clone());
    let outcome = running.await.unwrap().unwrap();
    assert_eq!(outcome.source_changes, 1);
    assert!(node.read("model/file.bin") == new, "other bytes");
    assert_eq!(node.downloader.usage().await.unwrap().partial, 0);

    // A file that is gone at the end.
    let download = node.download("gone", &url);
    let watcher = download.watcher();
    let running = tokio::spawn(download.run());
    until(|| watcher.progress().completed_bytes > 0).await;
    server.site.remove("/file.bin");
    let text = message(running.await.unwrap());
    assert!(text.contains("doesn't exist: check the URL"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_download_is_continued() {
    let (server, content, url) = served(6).await;
    let node = Node::new();
    server.site.per_second.store(2 << 20, Relaxed);
    let download = node.download("model", &url);
    let watcher = download.watcher();
    let running = tokio::spawn(download.run());
    until(|| watcher.progress().completed_bytes >= 3 << 20).await;
    assert_eq!(watcher.progress().phase, Phase::Downloading);
    assert!(!node.path("model").exists());
    let text = message(node.fetch("model", &url).await);
    assert!(text.contains("another process downloads or removes") && text.ends_with("wait until it has ended"), "{text}");
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    server.site.per_second.store(0, Relaxed);
    let outcome = node.fetch("model", &url).await.unwrap();
    assert!(node.read("model/file.bin") == content, "other bytes");
    assert!(outcome.downloaded_bytes < 5 << 20, "{} bytes after 3 MiB were there", outcome.downloaded_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_counts_as_unreachable() {
    let server = Server::start().await;
    server.site.put("/file.bin", bytes(7, SIZE));
    let node = Node::with(Limits { silence: std::time::Duration::from_millis(200), attempts: 2, ..limits() });
    // A chunk takes 32 seconds.
    server.site.per_second.store(1024, Relaxed);
    let text = message(node.fetch("model", &server.at("/file.bin")).await);
    assert!(text.contains("can't be reached after 2 attempts (the server is silent"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_model_are_named_with_their_numbers() {
    let (_server, _, url) = served(8).await;
    let node = Node::with(Limits { max_model_bytes: 1 << 20, ..limits() });
    let text = message(node.fetch("model", &url).await);
    assert_eq!(text, format!("{url} has {SIZE} bytes, and the limit is 1048576: raise the limit of the agent, or choose a smaller model"));
    let node = Node::with(Limits { reserve_bytes: 1 << 60, ..limits() });
    let text = message(node.fetch("model", &url).await);
    assert!(text.contains("lacks space: 6.0 MiB are needed, 0 bytes are available beyond the reserve of 1024.0 PiB"), "{text}");
}
