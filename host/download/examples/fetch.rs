//! Downloads a model and prints what it does: `fetch URI ROOT NAME [SETTING=VALUE...]`. With `--curl`, compares with curl.
//!
//! Settings are those of a Secret or of `storage.parameters`; `token=@FILE` reads one from a file.

use pointsman_download::{Access, Downloader, Limits, Request, StorageUri};
use std::{
    error::Error,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument == "--curl");
    let [uri, root, name, settings @ ..] = &arguments[..] else {
        return Err("usage: fetch [--curl] URI ROOT NAME [SETTING=VALUE...]".into());
    };
    let mut secret = Vec::new();
    for setting in settings {
        let (name, value) = setting.split_once('=').ok_or("write a setting as NAME=VALUE")?;
        let value = value.strip_prefix('@').map_or_else(|| Ok(value.to_owned()), std::fs::read_to_string)?;
        secret.push((name, value));
    }
    let root = std::path::absolute(root)?;
    let elapsed = fetch(uri, &root, name, secret).await?;
    if !flags.is_empty() {
        let curl = curl(uri, &root)?;
        println!(
            "curl takes {:.2} s and this {:.2} s: throughput ratio {:.2}",
            curl.as_secs_f64(),
            elapsed.as_secs_f64(),
            curl.as_secs_f64() / elapsed.as_secs_f64()
        );
    }
    Ok(())
}

async fn fetch(uri: &str, root: &Path, name: &str, secret: Vec<(&str, String)>) -> Result<Duration, Box<dyn Error>> {
    let limits = Limits { loopback: true, reserve_bytes: 1 << 30, ..Limits::default() };
    let downloader = Downloader::open(root, limits)?;
    let access = Access::new([], secret);
    let request = Request {
        uri: StorageUri::parse(uri)?,
        access,
        path: root.join(name),
        scope: "example".to_owned(),
        peers: None,
        reuses_files: true,
    };
    let download = downloader.download(request);
    let watcher = download.watcher();
    let start = Instant::now();
    let mut running = tokio::spawn(download.run());
    let outcome = loop {
        match tokio::time::timeout(Duration::from_secs(2), &mut running).await {
            Ok(outcome) => break outcome??,
            Err(_) => eprintln!("{:?}", watcher.progress()),
        }
    };
    let elapsed = start.elapsed();
    println!("{outcome:#?}");
    Ok(elapsed)
}

/// The same file by curl, stored as durably.
fn curl(uri: &str, root: &Path) -> Result<Duration, Box<dyn Error>> {
    let path: PathBuf = root.join("curl.part");
    let start = Instant::now();
    let status = Command::new("curl").args(["--silent", "--fail", "--output"]).arg(&path).arg(uri).status()?;
    if !status.success() {
        return Err("curl fails".into());
    }
    let written = start.elapsed();
    std::fs::File::open(&path)?.sync_all()?;
    let stored = start.elapsed();
    println!("curl wrote the file after {:.2} s, and the disk had it after {:.2} s", written.as_secs_f64(), stored.as_secs_f64());
    std::fs::remove_file(path)?;
    Ok(stored)
}
