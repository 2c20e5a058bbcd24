//! A server with the paths of GitHub's releases.

use crate::{
    site::{Server, json, redirect, status},
    support::{Node, bytes, message, sha256},
};
use http::header;

#[tokio::test(flavor = "multi_thread")]
async fn a_releases_assets_are_a_model() {
    let (elsewhere, node) = (Server::start().await, Node::new());
    elsewhere.site.put("/asset", bytes(1, 3 << 20));
    let target = elsewhere.at("/asset");
    let release = format!(
        "{{\"assets\":[{{\"id\":7,\"name\":\"model.gguf\",\"size\":{},\"digest\":\"sha256:{}\",\"updated_at\":\"2026-01-01T00:00:00Z\"}}]}}",
        3 << 20,
        sha256(&bytes(1, 3 << 20))
    );
    let server = Server::with(move |request, _| {
        let accepts = |kind: &str| request.headers().get(header::ACCEPT).is_some_and(|accept| accept == kind);
        Some(match request.uri().path() {
            "/repos/org/repo/releases/latest" | "/repos/org/repo/releases/tags/v1" => json(release.clone()),
            "/repos/org/repo/releases/assets/7" if accepts("application/octet-stream") => redirect(&target),
            _ => status(404),
        })
    })
    .await;
    for (name, uri) in [("latest", "github://org/repo"), ("tagged", "github://org/repo@v1")] {
        node.fetch_with(name, uri, &[("endpoint", &server.url), ("token", "ghp_x")]).await.unwrap();
        assert!(node.read(&format!("{name}/model.gguf")) == bytes(1, 3 << 20), "other bytes");
    }
    assert!(elsewhere.site.seen.lock().unwrap().iter().all(|seen| seen.authorization.is_none()));
    let text = message(node.fetch_with("none", "github://org/repo@v2", &[("endpoint", &server.url)]).await);
    assert!(text.contains("github://org/repo@v2 doesn't exist: check the repository and that it has this release"), "{text}");
}
