//! What tests have in common: a root, a request, bytes that nobody guesses.

use pointsman_download::{Access, Download, Downloader, Error, Limits, Outcome, Request, StorageUri};
use std::{path::PathBuf, time::Duration};
use tempfile::TempDir;

/// A root of models that goes with the test.
pub(crate) struct Node {
    pub(crate) folder: TempDir,
    pub(crate) downloader: Downloader,
}

/// Limits under which a test of faults ends soon.
pub(crate) fn limits() -> Limits {
    Limits {
        part_bytes: 1 << 20,
        reserve_bytes: 0,
        attempts: 4,
        delay: Duration::from_millis(5),
        silence: Duration::from_secs(20),
        loopback: true,
        ..Limits::default()
    }
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::with(limits())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let downloader = Downloader::open(folder.path(), limits).unwrap();
        Self { folder, downloader }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn request(&self, name: &str, uri: &str, access: Access) -> Request {
        Request {
            uri: StorageUri::parse(uri).unwrap(),
            access,
            path: self.path(name),
            scope: "tenant".to_owned(),
            peers: None,
            reuses_files: true,
        }
    }

    pub(crate) fn download(&self, name: &str, uri: &str) -> Download {
        self.downloader.download(self.request(name, uri, Access::default()))
    }

    pub(crate) async fn fetch(&self, name: &str, uri: &str) -> Result<Outcome, Error> {
        self.download(name, uri).run().await
    }

    pub(crate) async fn fetch_with(&self, name: &str, uri: &str, parameters: &[(&str, &str)]) -> Result<Outcome, Error> {
        let access = Access::new(parameters.iter().copied(), []);
        self.downloader.download(self.request(name, uri, access)).run().await
    }

    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

/// Waits for a condition that nothing announces.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(5), waiting).await.expect("the condition holds within five minutes");
}

/// Bytes that differ at each place and with each seed.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(next());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex(&Sha256::digest(bytes))
}

/// The message of a download that must fail.
pub(crate) fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}
