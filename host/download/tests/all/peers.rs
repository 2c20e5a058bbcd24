//! Nodes that download the same version at once, each from its own root.

use crate::{
    site::Server,
    support::{Node, bytes, limits, sha256, until},
};
use async_trait::async_trait;
use futures::StreamExt;
use pointsman_download::{Access, Limits, Outcome, PartRequest, Peer, PeerError, PeerPart, Peers, Request};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Nodes that reach each other without a network.
#[derive(Default)]
struct Cluster {
    nodes: Mutex<BTreeMap<String, Arc<Node>>>,
    /// Of a node that is down, nobody gets anything.
    down: Mutex<Vec<String>>,
    /// Whether what nodes send is wrong.
    lies: AtomicBool,
    sent: AtomicU64,
}

struct View {
    cluster: Arc<Cluster>,
    own: String,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.own)
    }
}

#[async_trait]
impl Peers for View {
    fn own(&self) -> &str {
        &self.own
    }

    fn others(&self) -> Arc<[Peer]> {
        let nodes = self.cluster.nodes.lock().unwrap();
        nodes.keys().filter(|name| **name != self.own).map(|name| Peer { name: name.clone(), identity: String::new() }).collect()
    }

    async fn read(&self, node: &str, part: &PartRequest) -> Result<PeerPart, PeerError> {
        if self.cluster.down.lock().unwrap().iter().any(|down| down == node) {
            return Err(PeerError::Failed("it is down".to_owned()));
        }
        let peer = self.cluster.nodes.lock().unwrap()[node].clone();
        let wait = Duration::from_secs(if part.at_once { 0 } else { 20 });
        let PeerPart { body, sha256 } = peer.downloader.part(&peer.path("model"), "tenant", part, wait).await?;
        let (cluster, lies) = (self.cluster.clone(), self.cluster.lies.load(Relaxed));
        let body = body.map(move |chunk| {
            chunk.map(|bytes| {
                cluster.sent.fetch_add(bytes.len() as u64, Relaxed);
                if lies { bytes.iter().map(|byte| byte ^ 1).collect() } else { bytes }
            })
        });
        Ok(PeerPart { body: body.boxed(), sha256: sha256.filter(|_| !lies) })
    }
}

impl Cluster {
    fn new(count: usize) -> Arc<Self> {
        let cluster = Arc::<Self>::default();
        for at in 0..count {
            cluster
                .nodes
                .lock()
                .unwrap()
                .insert(format!("node-{at}"), Arc::new(Node::with(Limits { delay: Duration::from_millis(20), ..limits() })));
        }
        cluster
    }

    fn node(&self, name: &str) -> Arc<Node> {
        self.nodes.lock().unwrap()[name].clone()
    }

    async fn fetch(self: &Arc<Self>, name: &str, uri: &str) -> Outcome {
        let node = self.node(name);
        let peers: Arc<dyn Peers> = Arc::new(View { cluster: self.clone(), own: name.to_owned() });
        let request = Request { peers: Some(peers), ..node.request("model", uri, Access::default()) };
        node.downloader.download(request).run().await.unwrap()
    }

    /// All at once.
    async fn fetch_all(self: &Arc<Self>, uri: &str) -> Vec<Outcome> {
        let names: Vec<String> = self.nodes.lock().unwrap().keys().cloned().collect();
        let down = self.down.lock().unwrap().clone();
        let fetching = names.into_iter().filter(|name| !down.contains(name)).map(|name| {
            let (cluster, uri) = (self.clone(), uri.to_owned());
            tokio::spawn(async move { cluster.fetch(&name, &uri).await })
        });
        futures::future::join_all(fetching).await.into_iter().map(Result::unwrap).collect()
    }
}

/// Serves a model of two files with their checksums.
fn put(server: &Server, large: &[u8]) -> String {
    let small = b"{}".to_vec();
    let sums = format!("{}  model.bin\n{}  config.json\n", sha256(large), sha256(&small));
    for (name, bytes) in [("model.bin", large.to_vec()), ("config.json", small), ("SHA256SUMS", sums.into_bytes())] {
        server.site.put(&format!("/m/{name}"), bytes);
    }
    server.at("/m/")
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_nodes_read_the_source_about_once() {
    const SIZE: u64 = 64 << 20;
    let (server, cluster) = (Server::start().await, Cluster::new(8));
    let content = bytes(1, usize::try_from(SIZE).unwrap());
    let uri = put(&server, &content);
    let outcomes = cluster.fetch_all(&uri).await;
    for (name, node) in cluster.nodes.lock().unwrap().iter() {
        assert!(node.read("model/model.bin") == content, "{name}");
    }
    let ratio = |bytes: u64| f64::from(u32::try_from(bytes * 1000 / SIZE).unwrap()) / 1000.0;
    let by_peers: u64 = outcomes.iter().map(|outcome| outcome.peer_bytes).sum();
    println!(
        "the source sends {:.3} times the size for 8 nodes, and they send each other {:.3}",
        ratio(server.site.sent()),
        ratio(by_peers)
    );
    assert!(ratio(server.site.sent()) <= 1.5, "{}", server.site.sent());
    assert!(ratio(by_peers) >= 6.5, "{by_peers}");

    // A node that comes later reads nothing from the source but the list.
    let (before, late) = (server.site.sent(), Arc::new(Node::new()));
    cluster.nodes.lock().unwrap().insert("node-late".to_owned(), late.clone());
    let outcome = cluster.fetch("node-late", &uri).await;
    assert!(late.read("model/model.bin") == content);
    let own = outcome.downloaded_bytes - outcome.peer_bytes;
    assert!(own < 4096 && server.site.sent() - before < 4096, "{own}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_down_is_replaced_and_one_that_sends_wrong_bytes_isn_t_believed() {
    let (server, cluster) = (Server::start().await, Cluster::new(4));
    let content = bytes(2, 20 << 20);
    let uri = put(&server, &content);
    cluster.down.lock().unwrap().extend(["node-1".to_owned(), "node-2".to_owned()]);
    for outcome in cluster.fetch_all(&uri).await {
        assert!(outcome.peer_bytes > 0, "{outcome:?}");
    }
    for name in ["node-0", "node-3"] {
        assert!(cluster.node(name).read("model/model.bin") == content, "{name}");
    }
    cluster.down.lock().unwrap().clear();
    cluster.lies.store(true, Relaxed);
    let outcome = cluster.fetch("node-1", &uri).await;
    assert!(cluster.node("node-1").read("model/model.bin") == content);
    assert!(outcome.peer_bytes > 0 && outcome.downloaded_bytes - outcome.peer_bytes >= 20 << 20, "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_sent_only_of_its_version_and_within_its_scope() {
    let (server, node) = (Server::start().await, Node::new());
    let content = bytes(3, 3 << 20);
    let uri = put(&server, &content);
    let outcome = node.fetch("model", &uri).await.unwrap();
    let path = node.path("model");
    let part = |version: &str, name: &str, end: u64| PartRequest {
        version: version.to_owned(),
        path: pointsman_download::RelativePath::parse(name).unwrap(),
        start: 1000,
        end,
        at_once: true,
    };
    let ask = async |scope: &str, part: PartRequest| node.downloader.part(&path, scope, &part, Duration::ZERO).await;
    let mut sent = ask("tenant", part(&outcome.version, "model.bin", 200_000)).await.unwrap();
    let mut received = Vec::new();
    while let Some(chunk) = sent.body.next().await {
        received.extend(chunk.unwrap());
    }
    assert!(received == content[1000..200_000] && sent.sha256 == Some(sha256(&content)));
    for (scope, version, name, end) in [
        ("another", &*outcome.version, "model.bin", 2000),
        ("tenant", "another", "model.bin", 2000),
        ("tenant", &*outcome.version, "absent.bin", 2000),
        ("tenant", &*outcome.version, "model.bin", 4 << 20),
    ] {
        let refused = ask(scope, part(version, name, end)).await;
        assert!(matches!(refused, Err(PeerError::Absent)), "{scope} {version} {name} {end}: {refused:?}");
    }
    assert!(matches!(
        node.downloader.part(&node.path("../x"), "tenant", &part("v", "a", 2000), Duration::ZERO).await,
        Err(PeerError::Failed(_))
    ));
    until(|| server.site.faults_left() == 0).await;
}
