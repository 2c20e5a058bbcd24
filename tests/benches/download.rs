//! The download of a model's weights from a web server on loopback, alternating between the model agent's downloader and curl. The server
//! is this process. Both write to the same disk; curl computes no checksum. Times are medians of rounds.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use pointsman_download::{Access, Downloader, Limits, Request, StorageUri};
use pointsman_harness::target_dir;
use pointsman_tests::{
    FileServer,
    measure::{goal, is_quick, keep, quantile},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The size of the weights, in bytes.
const SIZE: usize = 1 << 30;
const SIZE_QUICK: usize = 256 << 20;

const ROUNDS: u32 = 7;
const ROUNDS_QUICK: u32 = 3;

/// The goal: this share of curl's throughput.
const GOAL: f64 = 0.8;

fn main() {
    let quick = is_quick();
    let (size, rounds) = if quick { (SIZE_QUICK, ROUNDS_QUICK) } else { (SIZE, ROUNDS) };
    let folder = target_dir().join("bench-download");
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(measure(&folder, size, rounds));
    fs::remove_dir_all(&folder).unwrap();
}

async fn measure(folder: &Path, size: usize, rounds: u32) {
    let server = FileServer::start().await;
    let weights: Vec<u8> = (0..size).map(|at| u8::try_from((at >> 3 ^ at) % 251).unwrap()).collect();
    let url = server.put_folder("/llama", &[("model.safetensors", weights)]);
    let file = format!("{url}model.safetensors");
    let (mut by_curl, mut by_us) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each runs first equally often.
        for ours in [round % 2 == 0, round % 2 == 1] {
            if ours { by_us.push(downloader(folder, &url, size).await) } else { by_curl.push(curl(folder, &file, size).await) }
        }
    }
    let (native, ours) = (quantile(&by_curl, 0.5), quantile(&by_us, 0.5));
    let ratio = native.as_secs_f64() / ours.as_secs_f64();
    println!("\n{} MiB, {rounds} rounds: curl {native:.2?}, the downloader {ours:.2?} with the SHA-256 of all bytes", size >> 20);
    goal("throughput, beside curl", &format!("{ratio:.2} x"), &format!(">= {GOAL} x"), ratio >= GOAL);
    keep("downloading a model", &[("native", native), ("downloader", ours)]);
}

async fn downloader(folder: &Path, url: &str, size: usize) -> Duration {
    let root = folder.join("models");
    fs::create_dir_all(&root).unwrap();
    let limits = Limits { reserve_bytes: 0, loopback: true, ..Limits::default() };
    let downloader = Downloader::open(&root, limits).unwrap();
    let path = root.join("llama");
    let request = Request {
        uri: StorageUri::parse(url).unwrap(),
        access: Access::default(),
        path: path.clone(),
        scope: String::new(),
        peers: None,
        reuses_files: true,
    };
    let begun = Instant::now();
    let outcome = downloader.download(request).run().await.unwrap();
    let took = begun.elapsed();
    assert!(outcome.bytes >= size as u64, "{outcome:?}");
    drop(downloader);
    fs::remove_dir_all(root).unwrap();
    took
}

async fn curl(folder: &Path, url: &str, size: usize) -> Duration {
    let (file, url): (PathBuf, String) = (folder.join("by-curl"), url.to_owned());
    let output = file.clone();
    let begun = Instant::now();
    let status = tokio::task::spawn_blocking(move || {
        Command::new("curl").args(["--silent", "--show-error", "--fail", "--output"]).arg(&output).arg(url).stdin(Stdio::null()).status()
    });
    let status = status.await.unwrap().expect("curl is missing: install it, for example with apt-get");
    let took = begun.elapsed();
    assert!(status.success(), "{status}");
    assert_eq!(fs::metadata(&file).unwrap().len(), size as u64);
    fs::remove_file(file).unwrap();
    took
}
