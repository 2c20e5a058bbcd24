//! A server with the hub's paths: a branch that moves, pages, LFS files behind a redirect to another server, tokens.

use crate::{
    site::{Body, Server, Site, json, redirect, status},
    support::{Node, bytes, hex, message, sha256, until},
};
use http::{Request, Response, header};
use hyper::body::Incoming;
use sha1::{Digest, Sha1};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

const TOKEN: &str = "hf_right";
const SIZE: usize = (5 << 20) + 3;

/// A commit and its files; large ones are LFS.
#[derive(Clone)]
struct Commit {
    sha: String,
    files: Vec<(String, Vec<u8>)>,
}

struct Hub {
    server: Server,
    cdn: Server,
    branch: Arc<Mutex<Commit>>,
    resolved: Arc<AtomicUsize>,
}

fn commit(number: u8, files: &[(&str, Vec<u8>)]) -> Commit {
    Commit { sha: format!("{number:040x}"), files: files.iter().map(|(path, content)| ((*path).to_owned(), content.clone())).collect() }
}

impl Hub {
    async fn start(first: Commit) -> Self {
        let cdn = Server::start().await;
        let (branch, resolved) = (Arc::new(Mutex::new(first)), Arc::new(AtomicUsize::new(0)));
        let (commits, count, cdn_url) = (branch.clone(), resolved.clone(), cdn.url.clone());
        let server = Server::with(move |request, site| Some(answer(request, site, &commits.lock().unwrap(), &cdn_url, &count))).await;
        let hub = Self { server, cdn, branch, resolved };
        hub.store();
        hub
    }

    /// Files stay at their commits, as on the hub.
    fn store(&self) {
        let commit = self.branch.lock().unwrap().clone();
        for (path, content) in &commit.files {
            self.server.site.put(&format!("/org/model/resolve/{}/{path}", commit.sha), content.clone());
            self.cdn.site.put(&format!("/lfs/{}", sha256(content)), content.clone());
        }
    }

    async fn fetch(
        &self,
        node: &Node,
        name: &str,
        uri: &str,
        token: &str,
    ) -> Result<pointsman_download::Outcome, pointsman_download::Error> {
        node.fetch_with(name, uri, &[("endpoint", &self.server.url), ("token", token)]).await
    }
}

fn answer(request: &Request<Incoming>, site: &Site, commit: &Commit, cdn: &str, resolved: &AtomicUsize) -> Response<Body> {
    if request.headers().get(header::AUTHORIZATION).is_none_or(|value| value != &format!("Bearer {TOKEN}")) {
        return status(401);
    }
    let path = request.uri().path();
    match path {
        "/api/models/org/model/revision/main" | "/api/models/org/model/revision/refs%2Fpr%2F1" => {
            return json(format!("{{\"sha\":\"{}\",\"siblings\":[]}}", commit.sha));
        }
        _ => {}
    }
    if let Some(sha) = path.strip_prefix("/api/models/org/model/tree/") {
        assert_eq!(sha, commit.sha);
        // Two entries a page.
        let query = request.uri().query().unwrap_or_default();
        assert!(query.contains("recursive=true"));
        let page: usize = query.split("cursor=").nth(1).map_or(0, |page| page.parse().unwrap());
        let entries: Vec<String> = commit.files.iter().skip(page * 2).take(2).map(|(path, content)| entry(path, content)).collect();
        let mut response = json(format!("[{}]", entries.join(",")));
        if commit.files.len() > page * 2 + 2 {
            let next = format!("<{path}?recursive=true&cursor={}>; rel=\"next\"", page + 1);
            response.headers_mut().insert(header::LINK, next.parse().unwrap());
        }
        return response;
    }
    let Some((_, file)) = path.strip_prefix("/org/model/resolve/").and_then(|rest| rest.split_once('/')) else { return status(404) };
    resolved.fetch_add(1, Relaxed);
    match commit.files.iter().find(|(path, _)| path == file) {
        Some((path, content)) if is_lfs(path) => redirect(&format!("{cdn}/lfs/{}", sha256(content))),
        _ => site.file(request, path),
    }
}

fn is_lfs(path: &str) -> bool {
    path.ends_with(".safetensors")
}

fn entry(path: &str, content: &[u8]) -> String {
    let blob = Sha1::digest([format!("blob {}\0", content.len()).as_bytes(), content].concat());
    let oid = hex(&blob);
    let lfs = if is_lfs(path) {
        format!(",\"lfs\":{{\"oid\":\"{}\",\"size\":{},\"pointerSize\":134}}", sha256(content), content.len())
    } else {
        String::new()
    };
    format!("{{\"type\":\"file\",\"oid\":\"{oid}\",\"size\":{},\"path\":\"{path}\"{lfs}}}", content.len())
}

fn first() -> Commit {
    commit(
        1,
        &[
            (".gitattributes", b"x".to_vec()),
            ("config.json", b"{\"model_type\":\"llama\"}".to_vec()),
            ("model-1.safetensors", bytes(1, SIZE)),
            ("model-2.safetensors", bytes(2, SIZE)),
            ("sub/tokenizer.json", bytes(3, 5000)),
        ],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_brought_at_the_commit_of_its_branch() {
    let (hub, node) = (Hub::start(first()).await, Node::new());
    let outcome = hub.fetch(&node, "llama", "hf://org/model", TOKEN).await.unwrap();
    assert_eq!((outcome.version.as_str(), outcome.files), (first().sha.as_str(), 4));
    for (path, content) in &first().files[1..] {
        assert!(node.read(&format!("llama/{path}")) == *content, "other bytes");
    }
    // Parts of an LFS file go to where the hub redirected once or, at the beginning, a few times.
    assert!(hub.resolved.load(Relaxed) < 18, "{} requests to the hub for 14 parts", hub.resolved.load(Relaxed));
    assert!(hub.cdn.site.seen.lock().unwrap().iter().all(|seen| seen.authorization.is_none()), "the token went to the CDN");

    // The branch moves: only what differs is downloaded.
    let mut second = first();
    second.sha = format!("{:040x}", 2);
    second.files[3].1 = bytes(20, SIZE);
    *hub.branch.lock().unwrap() = second.clone();
    hub.store();
    let outcome = hub.fetch(&node, "llama", "hf://org/model@main", TOKEN).await.unwrap();
    assert_eq!((outcome.version.as_str(), outcome.changed), (second.sha.as_str(), true));
    assert!(outcome.downloaded_bytes < SIZE as u64 + 100_000, "{}", outcome.downloaded_bytes);
    assert!(node.read("llama/model-2.safetensors") == bytes(20, SIZE), "other bytes");
    assert!(node.read("llama/model-1.safetensors") == bytes(1, SIZE), "other bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_moves_in_the_middle_changes_nothing_of_the_commit() {
    let (hub, node) = (Hub::start(first()).await, Node::new());
    hub.cdn.site.per_second.store(4 << 20, Relaxed);
    let access = pointsman_download::Access::new([("endpoint", hub.server.url.as_str()), ("token", TOKEN)], []);
    let download = node.downloader.download(node.request("llama", "hf://org/model", access));
    let watcher = download.watcher();
    let running = tokio::spawn(download.run());
    until(|| watcher.progress().completed_bytes >= 1 << 20).await;
    hub.branch.lock().unwrap().sha = format!("{:040x}", 9);
    let outcome = running.await.unwrap().unwrap();
    assert_eq!(outcome.version, first().sha);
    assert!(node.read("llama/model-2.safetensors") == bytes(2, SIZE), "other bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_that_expires_is_requested_again() {
    let (hub, node) = (Hub::start(first()).await, Node::new());
    hub.cdn.site.fail([crate::site::Fault::Status(403), crate::site::Fault::Status(403)]);
    hub.fetch(&node, "llama", "hf://org/model", TOKEN).await.unwrap();
    assert!(node.read("llama/model-1.safetensors") == bytes(1, SIZE), "other bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_and_a_missing_repository_are_told_apart_as_far_as_the_hub_does() {
    let (hub, node) = (Hub::start(first()).await, Node::new());
    let text = message(hub.fetch(&node, "a", "hf://org/model", "hf_wrong").await);
    assert_eq!(
        text,
        "hf://org/model refuses the credentials (401): set a token that may read the repository as `token` in the Secret of storage.key, \
         and accept the model's terms on the hub"
    );
    let text = message(hub.fetch(&node, "a", "hf://org/other", TOKEN).await);
    assert!(text.starts_with("hf://org/other doesn't exist: check the repository and the revision"), "{text}");
    assert!(!node.path("a").exists());
    hub.fetch(&node, "a", "hf://org/model@refs/pr/1", TOKEN).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_file_has_gits_digest() {
    let (hub, node) = (Hub::start(first()).await, Node::new());
    hub.server.site.put(&format!("/org/model/resolve/{}/sub/tokenizer.json", first().sha), bytes(4, 5000));
    let text = message(hub.fetch(&node, "llama", "hf://org/model", TOKEN).await);
    assert!(text.starts_with("sub/tokenizer.json of hf://org/model has the Git digest "), "{text}");
}
