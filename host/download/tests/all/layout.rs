//! What is on a node's disk: the link that pods mount, and all behind it.

use crate::{
    site::Server,
    support::{Node, bytes, limits, message, sha256, until},
};
use pointsman_download::{Access, Downloader, Limits, Request, StorageUri};
use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    process::Command,
};

fn folder(server: &Server, seed: u64) -> String {
    let (shared, own) = (bytes(100, 3 << 20), bytes(seed, 100_000));
    let base = format!("/m{seed}");
    server.site.put(&format!("{base}/shared.bin"), shared.clone());
    server.site.put(&format!("{base}/own.bin"), own.clone());
    server.site.put(&format!("{base}/SHA256SUMS"), format!("{}  shared.bin\n{}  own.bin\n", sha256(&shared), sha256(&own)));
    server.at(&format!("{base}/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_path_keeps_its_version_and_the_next_mount_gets_the_new_one() {
    let (server, node) = (Server::start().await, Node::new());
    server.site.put("/file", "old");
    let first = node.fetch("team/model", &server.at("/file")).await.unwrap();
    let link = fs::read_link(node.path("team/model")).unwrap();
    assert!(link.is_relative() && link.starts_with("../.pointsman/models"), "{}", link.display());
    // What a container runtime mounts: the link's target at that moment.
    let mounted = fs::canonicalize(node.path("team/model")).unwrap();
    server.site.put("/file", "new");
    let second = node.fetch("team/model", &server.at("/file")).await.unwrap();
    assert!(second.changed && second.version != first.version);
    assert_eq!(fs::read(mounted.join("file")).unwrap(), b"old");
    assert_eq!(node.read("team/model/file"), b"new");
    let retained = first.version.clone();
    assert!(node.downloader.prune(&node.path("team/model"), move |name| name == retained).await.unwrap().is_empty());
    assert_eq!(node.downloader.prune(&node.path("team/model"), |_| false).await.unwrap(), [first.version]);
    assert!(!mounted.exists());
    assert_eq!(node.read("team/model/file"), b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_starts_anew_finds_what_is_on_the_disk() {
    let (server, node) = (Server::start().await, Node::new());
    server.site.put("/file", "old");
    node.downloader.note(&node.path("team/model"), "early".into()).await.unwrap();
    assert_eq!(node.downloader.stored().await.unwrap()[0].note.as_deref(), Some("early"));
    let first = node.fetch("team/model", &server.at("/file")).await.unwrap();
    server.site.put("/file", "new");
    let second = node.fetch("team/model", &server.at("/file")).await.unwrap();
    node.downloader.note(&node.path("team/model"), "mine".into()).await.unwrap();
    node.fetch("absent", &server.at("/missing")).await.unwrap_err();

    let anew = Downloader::open(node.folder.path(), limits()).unwrap();
    let stored = anew.stored().await.unwrap();
    let seen: Vec<_> = stored.iter().map(|model| (model.path.clone(), model.note.as_deref(), model.versions.len())).collect();
    assert_eq!(seen, [(node.path("absent"), None, 0), (node.path("team/model"), Some("mine"), 2)]);
    assert_eq!(stored[1].current.as_ref(), Some(&second.version));
    assert!(stored[1].versions.contains(&first.version));
    anew.remove(&node.path("team/model")).await.unwrap();
    assert_eq!(anew.stored().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_may_be_mounted_elsewhere() {
    let (server, node) = (Server::start().await, Node::new());
    server.site.put("/file", "x");
    node.fetch("a/model", &server.at("/file")).await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let moved = elsewhere.path().join("models");
    fs::rename(node.folder.path(), &moved).unwrap();
    assert_eq!(fs::read(moved.join("a/model/file")).unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_files_are_on_disk_once_within_a_scope_and_twice_beyond() {
    let (server, node) = (Server::start().await, Node::new());
    let (a, b, c) = (folder(&server, 1), folder(&server, 2), folder(&server, 3));
    node.fetch("a", &a).await.unwrap();
    let second = node.fetch("b", &b).await.unwrap();
    assert_eq!(second.shared_bytes, 3 << 20);
    assert!(second.downloaded_bytes < 200_000);
    let inode = |name: &str| fs::metadata(node.path(name)).unwrap().ino();
    assert_eq!(inode("a/shared.bin"), inode("b/shared.bin"));
    let alone = Request { reuses_files: false, ..node.request("d", &b, Access::default()) };
    assert_eq!(node.downloader.download(alone).run().await.unwrap().shared_bytes, 0);
    assert_ne!(inode("a/shared.bin"), inode("d/shared.bin"));
    let other = Request { scope: "another".into(), ..node.request("c", &c, Access::default()) };
    let third = node.downloader.download(other).run().await.unwrap();
    assert_eq!(third.shared_bytes, 0);
    assert!(third.downloaded_bytes > 3 << 20);
    assert_ne!(inode("a/shared.bin"), inode("c/shared.bin"));
    // The same path under another scope isn't taken from the first.
    let other = Request { scope: "another".into(), ..node.request("a", &a, Access::default()) };
    let again = node.downloader.download(other).run().await.unwrap();
    assert_eq!((again.shared_bytes, again.downloaded_bytes > 90_000), (3 << 20, true), "its own scope has the shared file");
    assert_eq!(inode("a/shared.bin"), inode("c/shared.bin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_removes_what_is_ours_and_nothing_else() {
    let (server, node) = (Server::start().await, Node::new());
    let (a, b) = (folder(&server, 1), folder(&server, 2));
    node.fetch("team/a", &a).await.unwrap();
    node.fetch("team/b", &b).await.unwrap();
    fs::write(node.path("team/note"), "by a person").unwrap();
    node.downloader.remove(&node.path("team/a")).await.unwrap();
    assert!(fs::symlink_metadata(node.path("team/a")).is_err());
    assert_eq!(node.read("team/b/shared.bin"), bytes(100, 3 << 20));
    assert_eq!(node.read("team/note"), b"by a person");
    assert_eq!(fs::read_dir(node.path(".pointsman/models")).unwrap().count(), 1);
    // Whoever replaces the link keeps what it leads to.
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("precious"), "x").unwrap();
    fs::remove_file(node.path("team/b")).unwrap();
    symlink(data.path(), node.path("team/b")).unwrap();
    node.downloader.remove(&node.path("team/b")).await.unwrap();
    assert!(node.path("team/b/precious").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_never_replaced() {
    let (server, node) = (Server::start().await, Node::new());
    server.site.put("/file", "x");
    let url = server.at("/file");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(node.path("filled")).unwrap();
    fs::write(node.path("filled/data"), "x").unwrap();
    fs::write(node.path("plain"), "x").unwrap();
    symlink(elsewhere.path(), node.path("link")).unwrap();
    fs::create_dir(node.path("empty")).unwrap();
    for (name, expected) in [
        ("filled", "is a folder that somebody else filled: move it away, or set another storage.path"),
        ("plain", "is a file: remove it"),
        ("link", "is a link that somebody else made: remove it"),
        ("link/below", "is a file or a link where a folder is needed"),
        ("plain/below", "is a file or a link where a folder is needed"),
        (".pointsman/x", "is where this agent has its own files"),
    ] {
        let text = message(node.fetch(name, &url).await);
        assert!(text.contains(expected), "{name}: {text}");
    }
    // What a kubelet makes for a hostPath that isn't there.
    node.fetch("empty", &url).await.unwrap();
    assert_eq!(node.read("empty/file"), b"x");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "a link was followed");
    let request = Request {
        uri: StorageUri::parse(&url).unwrap(),
        access: Access::default(),
        path: "/somewhere/else".into(),
        scope: String::new(),
        peers: None,
        reuses_files: true,
    };
    let text = message(node.downloader.download(request).run().await);
    assert!(text.contains("isn't below it"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_links_below_the_models_folder_are_not_followed() {
    let (server, node) = (Server::start().await, Node::new());
    let url = folder(&server, 1);
    node.fetch("model", &url).await.unwrap();
    // Somebody with the disk replaces a version's file by a link out of the root.
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("own.bin"), bytes(1, 100_000)).unwrap();
    fs::remove_file(node.path("model/own.bin")).unwrap();
    symlink(secret.path().join("own.bin"), node.path("model/own.bin")).unwrap();
    assert!(!node.downloader.verify(&node.path("model"), true).await.unwrap().unwrap().is_intact());
    node.fetch("model", &url).await.unwrap();
    assert!(fs::symlink_metadata(node.path("model/own.bin")).unwrap().is_file());
    assert_eq!(fs::read(secret.path().join("own.bin")).unwrap(), bytes(1, 100_000));
}

/// A file system of its own, which ends with the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(mebibytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "none"])
            .arg(folder.path())
            .status()
            .expect("mount is needed: install util-linux");
        assert!(mounted.success(), "this test mounts a small tmpfs: run it as root, or in `unshare --map-root-user --mount`");
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_with_its_numbers_and_continued_once_there_is_space() {
    let disk = SmallDisk::mount(16);
    let server = Server::start().await;
    let content = bytes(9, 8 << 20);
    server.site.put("/file", content.clone());
    let downloader = Downloader::open(disk.path(), Limits { reserve_bytes: 1 << 20, ..limits() }).unwrap();
    let download = || {
        downloader.download(Request {
            uri: StorageUri::parse(&server.at("/file")).unwrap(),
            access: Access::default(),
            path: disk.path().join("model"),
            scope: String::new(),
            peers: None,
            reuses_files: true,
        })
    };
    // Known before anything is downloaded.
    fs::write(disk.path().join("others"), vec![1; 10 << 20]).unwrap();
    let sent = server.site.sent();
    let text = message(download().run().await);
    assert!(text.contains("lacks space: 8.0 MiB are needed, ") && text.contains("beyond the reserve of 1.0 MiB"), "{text}");
    assert!(server.site.sent() - sent < 100);
    fs::remove_file(disk.path().join("others")).unwrap();

    // Somebody else fills it during the download.
    server.site.per_second.store(1 << 20, std::sync::atomic::Ordering::Relaxed);
    let first = download();
    let watcher = first.watcher();
    let running = tokio::spawn(first.run());
    until(|| watcher.progress().completed_bytes >= 2 << 20).await;
    let mut others = fs::File::create(disk.path().join("others")).unwrap();
    while std::io::Write::write_all(&mut others, &[1; 4096]).is_ok() {}
    drop(others);
    let text = message(running.await.unwrap());
    assert!(text.contains("lacks space: ") && text.contains("free space, remove models, or lower the reserve"), "{text}");
    let partial = downloader.usage().await.unwrap().partial;
    assert!(partial >= 2 << 20, "{partial} bytes of the unfinished model");
    assert!(!disk.path().join("model").exists());

    fs::remove_file(disk.path().join("others")).unwrap();
    server.site.per_second.store(0, std::sync::atomic::Ordering::Relaxed);
    let outcome = download().run().await.unwrap();
    assert_eq!(fs::read(disk.path().join("model/file")).unwrap(), content);
    assert!(outcome.downloaded_bytes < 7 << 20, "{}", outcome.downloaded_bytes);
}
