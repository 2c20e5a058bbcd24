//! Models that are read where they are.

use crate::{
    site::{Fault, Server},
    support::{bytes, limits, message, sha256},
};
use pointsman_download::{Access, Error, RemoteModel, StorageUri};
use std::sync::atomic::Ordering::Relaxed;

async fn open(uri: &str) -> Result<RemoteModel, Error> {
    RemoteModel::open(&StorageUri::parse(uri)?, &Access::default(), limits()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_read_through_faults_and_nothing_else_is() {
    let server = Server::start().await;
    let content = bytes(1, 1 << 20);
    server.site.put("/m/model.safetensors", content.clone());
    server.site.put("/m/SHA256SUMS", format!("{}  model.safetensors\n", sha256(&content)));
    let model = open(&server.at("/m/")).await.unwrap();
    let files: Vec<_> = model.files().iter().map(|file| (file.path.as_str(), file.size)).collect();
    assert_eq!(files, [("model.safetensors", 1 << 20)]);
    let before = server.site.sent();
    server.site.fail([Fault::Status(503), Fault::Reset(100), Fault::Short]);
    assert!(model.read("model.safetensors", 1000, 50_000).await.unwrap() == content[1000..51_000], "other bytes");
    assert_eq!(server.site.faults_left(), 0);
    let sent = server.site.sent() - before;
    assert!(sent < 200_000, "{sent}");
    assert!(model.read("model.safetensors", (1 << 20) - 10, 100).await.unwrap() == content[(1 << 20) - 10..], "the end");
    assert!(model.read("model.safetensors", 1 << 20, 100).await.unwrap().is_empty());
    let text = message(model.read("absent", 0, 1).await);
    assert!(text.starts_with("absent of ") && text.contains("doesn't exist: check its name"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_ranges_sends_small_files_whole_and_no_large_ones() {
    let server = Server::start().await;
    server.site.ignore_ranges.store(true, Relaxed);
    let (small, large) = (bytes(1, 5000), vec![7; 65 << 20]);
    server.site.put("/m/small", small.clone());
    server.site.put("/m/large", large.clone());
    server.site.put("/m/SHA256SUMS", format!("{}  small\n{}  large\n", sha256(&small), sha256(&large)));
    let model = open(&server.at("/m/")).await.unwrap();
    assert!(model.read("small", 10, 100).await.unwrap() == small[10..110], "other bytes");
    let text = message(model.read("large", 10, 100).await);
    assert!(text.contains("isn't supported: download the model"), "{text}");
}
