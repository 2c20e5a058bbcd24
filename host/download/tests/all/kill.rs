//! Downloads of a process that is killed again and again: complete and right in the end, with little downloaded twice, in little memory.

use crate::{
    site::Server,
    support::{bytes, limits, sha256, until},
};
use pointsman_download::{Access, Downloader, Limits, Request, StorageUri};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::Ordering::Relaxed,
};

const CHILD: &str = "POINTSMAN_DOWNLOAD_CHILD";
/// What the process may have in memory at its peak, in KiB.
const MAX_MEMORY_KIB: u64 = 64 << 10;

/// The process that other tests start and kill: `URI ROOT`.
#[test]
#[ignore = "other tests start this as a process of its own"]
fn child() {
    let arguments = std::env::var(CHILD).expect("this test is a process of other tests: run those");
    let (uri, root) = arguments.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let downloader = Downloader::open(Path::new(root), Limits { part_bytes: 8 << 20, ..limits() }).unwrap();
        let request = Request {
            uri: StorageUri::parse(uri).unwrap(),
            access: Access::default(),
            path: PathBuf::from(root).join("model"),
            scope: String::new(),
            peers: None,
            reuses_files: true,
        };
        downloader.download(request).run().await.unwrap();
    });
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    std::fs::write(Path::new(root).join("peak"), peak.trim().trim_end_matches(" kB")).unwrap();
}

fn start(uri: &str, root: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "kill::child"])
        .env(CHILD, format!("{uri} {}", root.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

async fn killed(size: usize, kills: u64, per_second: u64) {
    let (server, root) = (Server::start().await, tempfile::tempdir().unwrap());
    let content = bytes(size as u64, size);
    server.site.put("/model.bin", content.clone());
    server.site.put("/model.bin.sha256", sha256(&content));
    let uri = server.at("/model.bin");
    // So slow that what is sent is received, and a kill is in the middle.
    server.site.per_second.store(per_second / 8, Relaxed);
    // Random points: anywhere in the part of the download that is this kill's.
    let points = bytes(u64::from(std::process::id()), usize::try_from(kills).unwrap());
    for (kill, chance) in (0u64..).zip(points) {
        let share = size as u64 / kills;
        let point = share * kill + share * u64::from(chance) / 256;
        let mut child = start(&uri, root.path());
        until(|| {
            assert!(child.try_wait().unwrap().is_none(), "the process ended before it was killed");
            server.site.sent() >= point
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!root.path().join("model").exists(), "a model that isn't complete is there");
    }
    server.site.per_second.store(0, Relaxed);
    assert!(start(&uri, root.path()).wait().unwrap().success());
    assert!(std::fs::read(root.path().join("model/model.bin")).unwrap() == content, "other bytes");
    let sent = server.site.sent();
    let limit = size as u64 * 12 / 10;
    let peak: u64 = std::fs::read_to_string(root.path().join("peak")).unwrap().trim().parse().unwrap();
    println!("{kills} kills of {size} bytes: {sent} bytes sent ({}%), {peak} KiB of memory at the peak", sent * 100 / size as u64);
    assert!(sent <= limit, "{sent} bytes were sent for {size}");
    assert!(peak <= MAX_MEMORY_KIB, "{peak} KiB of memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_survives_kills_at_any_point() {
    killed(64 << 20, 5, 32 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_download_survives_many_kills() {
    // Without the variable, a smaller one of many files' worth of kills would say nothing new.
    if std::env::var_os("POINTSMAN_TEST_FULL").is_some() {
        killed(1 << 30, 50, 96 << 20).await;
    }
}

/// The memory of eight parts at full speed.
#[tokio::test(flavor = "multi_thread")]
async fn eight_parts_at_full_speed_fit_into_memory() {
    let (server, root) = (Server::start().await, tempfile::tempdir().unwrap());
    let content = bytes(3, 256 << 20);
    server.site.put("/model.bin", content);
    assert!(start(&server.at("/model.bin"), root.path()).wait().unwrap().success());
    let peak: u64 = std::fs::read_to_string(root.path().join("peak")).unwrap().trim().parse().unwrap();
    println!("256 MiB in eight parts: {peak} KiB of memory at the peak");
    assert!(peak <= MAX_MEMORY_KIB, "{peak} KiB of memory");
}
