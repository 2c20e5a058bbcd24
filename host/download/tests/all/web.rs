//! A file, an archive and a folder of a web server.

use crate::{
    site::{Server, redirect},
    support::{Node, bytes, message, sha256},
};
use pointsman_download::{Access, Phase, Problem};
use std::os::unix::fs::PermissionsExt;

const SIZE: usize = (5 << 20) + 12_345;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_comes_in_parts_with_the_checksum_beside_it() {
    let (server, node) = (Server::start().await, Node::new());
    let content = bytes(1, SIZE);
    server.site.put("/m/model.gguf", content.clone());
    server.site.put("/m/model.gguf.sha256", format!("{}  model.gguf\n", sha256(&content)));
    let download = node.download("llama", &server.at("/m/model.gguf"));
    let watcher = download.watcher();
    assert_eq!(watcher.progress().phase, Phase::Queued);
    let outcome = download.run().await.unwrap();
    assert!(node.read("llama/model.gguf") == content, "other bytes");
    assert_eq!((outcome.files, outcome.bytes, outcome.changed), (1, SIZE as u64, true));
    let progress = watcher.progress();
    assert_eq!((progress.phase, progress.completed_bytes, progress.completed_files), (Phase::Complete, SIZE as u64, 1));
    // The probe for the size, and six parts of at most a mebibyte.
    assert_eq!(server.site.requests("/m/model.gguf").len(), 7);

    let sent = server.site.sent();
    let again = node.fetch("llama", &server.at("/m/model.gguf")).await.unwrap();
    assert!(!again.changed && again.version == outcome.version);
    assert!(server.site.sent() - sent < 200, "what is there is downloaded again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_has_what_its_sums_list() {
    let (server, node) = (Server::start().await, Node::new());
    let (a, b) = (bytes(1, 100), bytes(2, SIZE));
    server.site.put("/m/config.json", a.clone());
    server.site.put("/m/w/x%20y.bin", b.clone());
    server.site.put("/m/empty", "");
    let sums = format!("{}  config.json\n{} *./w/x y.bin\n{}  empty\n", sha256(&a), sha256(&b), sha256(b""));
    server.site.put("/m/SHA256SUMS", sums);
    let outcome = node.fetch("model", &server.at("/m/")).await.unwrap();
    assert_eq!(outcome.files, 3);
    assert!(node.read("model/w/x y.bin") == b, "other bytes");
    assert_eq!(node.read("model/empty"), b"");

    server.site.put("/m/SHA256SUMS", format!("{}  ../../evil\n", sha256(&a)));
    let text = message(node.fetch("evil", &server.at("/m/")).await);
    assert!(text.contains("\"../../evil\" has the part \"..\": rename it at the source"), "{text}");
    server.site.remove("/m/SHA256SUMS");
    let text = message(node.fetch("none", &server.at("/m/")).await);
    assert!(text.contains("SHA256SUMS of") && text.contains("put the output of `sha256sum`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_unpacked_after_its_checksum_holds() {
    let (server, node) = (Server::start().await, Node::new());
    let weights = bytes(3, SIZE);
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, content) in [("model/config.json", &b"{}"[..]), ("model/weights.bin", &weights)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o6755);
        builder.append_data(&mut header, path, content).unwrap();
    }
    server.site.put("/model.tar.gz", builder.into_inner().unwrap().finish().unwrap());
    let outcome = node.fetch("model", &server.at("/model.tar.gz")).await.unwrap();
    assert!(node.read("model/model/weights.bin") == weights, "other bytes");
    assert_eq!((outcome.files, outcome.bytes), (2, SIZE as u64 + 2));
    let mode = std::fs::metadata(node.path("model/model/config.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644);
    assert_eq!(node.downloader.usage().await.unwrap().partial, 0, "the archive is still there");

    let text = message(node.fetch_with("kept", &server.at("/model.tar.gz"), &[("sha256", &"0".repeat(64))]).await);
    assert!(text.contains("model.tar.gz of http://") && text.contains("the source publishes 000000"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_stay_with_the_server_they_are_for() {
    let elsewhere = Server::start().await;
    let target = elsewhere.at("/cdn/file.bin");
    let server = Server::with(move |request, _| {
        let authorized = request.headers().get("authorization").is_some_and(|value| value == "Bearer secret-token");
        if !authorized {
            return Some(crate::site::status(401));
        }
        (request.uri().path() == "/file.bin").then(|| redirect(&target))
    })
    .await;
    let node = Node::new();
    elsewhere.site.put("/cdn/file.bin", bytes(5, SIZE));
    node.fetch_with("model", &server.at("/file.bin"), &[("token", "secret-token")]).await.unwrap();
    assert!(node.read("model/file.bin") == bytes(5, SIZE), "other bytes");
    assert!(elsewhere.site.seen.lock().unwrap().iter().all(|seen| seen.authorization.is_none()));

    let text = message(node.fetch_with("refused", &server.at("/file.bin?sig=hidden"), &[("token", "wrong-token")]).await);
    assert!(text.contains("refuses the credentials (401): set `token`"), "{text}");
    assert!(!text.contains("wrong-token") && !text.contains("hidden"), "{text}");
    assert_eq!(
        server.site.requests("/file.bin").iter().filter(|seen| seen.authorization.as_deref() == Some("Bearer wrong-token")).count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_ranges_is_read_whole() {
    let (server, node) = (Server::start().await, Node::new());
    server.site.ignore_ranges.store(true, std::sync::atomic::Ordering::Relaxed);
    server.site.put("/file.bin", bytes(6, SIZE));
    node.fetch("model", &server.at("/file.bin")).await.unwrap();
    assert!(node.read("model/file.bin") == bytes(6, SIZE), "other bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_disk_is_verified_and_repaired() {
    let (server, node) = (Server::start().await, Node::new());
    let (a, b) = (bytes(1, 1000), bytes(2, SIZE));
    server.site.put("/m/a", a.clone());
    server.site.put("/m/b", b.clone());
    server.site.put("/m/SHA256SUMS", format!("{}  a\n{}  b\n", sha256(&a), sha256(&b)));
    node.fetch("model", &server.at("/m/")).await.unwrap();
    let path = node.path("model");
    for full in [false, true] {
        assert!(node.downloader.verify(&path, full).await.unwrap().unwrap().is_intact());
    }
    // A bit that changes behind the file system's back.
    let file = path.join("a");
    let time = std::fs::metadata(&file).unwrap().modified().unwrap();
    let mut damaged = a.clone();
    damaged[500] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    assert!(node.downloader.verify(&path, false).await.unwrap().unwrap().is_intact());
    let found = node.downloader.verify(&path, true).await.unwrap().unwrap();
    assert_eq!(found.damage.iter().map(|damage| (damage.path.as_str(), damage.problem)).collect::<Vec<_>>(), [("a", Problem::Damaged)]);
    // From then on the cheap verification knows it too.
    assert!(!node.downloader.verify(&path, false).await.unwrap().unwrap().is_intact());
    let sent = server.site.sent();
    let outcome = node.fetch("model", &server.at("/m/")).await.unwrap();
    assert!(outcome.changed);
    assert_eq!((node.read("model/a"), node.read("model/b")), (a, b));
    assert!(server.site.sent() - sent < 5000, "more than the damaged file is downloaded: {}", server.site.sent() - sent);
    assert!(node.downloader.verify(&path, true).await.unwrap().unwrap().is_intact());
    std::fs::remove_file(path.join("b")).unwrap();
    std::fs::write(path.join("c"), "x").unwrap();
    let found = node.downloader.verify(&path, false).await.unwrap().unwrap();
    let problems: Vec<_> = found.damage.iter().map(|damage| (damage.path.as_str(), damage.problem)).collect();
    assert_eq!(problems, [("b", Problem::Missing), ("c", Problem::Unknown)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_itself_is_no_source() {
    let node = Node::with(pointsman_download::Limits { loopback: false, ..crate::support::limits() });
    for uri in ["http://127.0.0.1:1/x", "http://169.254.169.254/latest/meta-data/x", "http://[::ffff:127.0.0.1]/x"] {
        let text = message(node.fetch("model", uri).await);
        assert!(text.contains("belongs to the node itself"), "{text}");
    }
    // Not even with the machine's identity, which is published there.
    let mut request = node.request("model", "s3://latest/meta-data", Access::new([("endpoint", "http://169.254.169.254")], []));
    request.access.ambient = true;
    let text = message(node.downloader.download(request).run().await);
    assert!(text.contains("endpoint of the storage 169.254.169.254 belongs to the node itself"), "{text}");
    let server = Server::with(|_, _| Some(redirect("http://169.254.169.254/latest/meta-data/"))).await;
    let text = message(Node::new().fetch("model", &server.at("/x")).await);
    assert!(text.contains("169.254.169.254 belongs to the node itself"), "{text}");
}
