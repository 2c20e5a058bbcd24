//! The host, running against a test's cluster.

use crate::{
    TestCluster,
    command::{CACHE, compiled},
    eventually, pointsman,
};
use pointsman_harness::{http_get, listening_address, log_lines};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A running `pointsman controller`; it ends with its cluster.
#[derive(Debug)]
pub struct Host<'a> {
    cluster: &'a TestCluster,
    /// Its name among the cluster's parts.
    pub part: String,
    /// Where it listens.
    pub address: String,
    log: PathBuf,
}

impl<'a> Host<'a> {
    /// Starts it with a kubeconfig and waits until it listens.
    pub async fn start(cluster: &'a TestCluster, kubeconfig: &Path, flags: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let part = format!("host-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = vec![pointsman().display().to_string(), "controller".into(), "--listen".into(), "127.0.0.1:0".into()];
        command.extend(flags.iter().map(ToString::to_string));
        let environment = [("KUBECONFIG", kubeconfig.to_owned()), (CACHE, compiled())];
        let environment = BTreeMap::from(environment.map(|(name, path)| (name.to_owned(), path.display().to_string())));
        let log = cluster.run(&part, &command, &environment).unwrap_or_else(|error| panic!("{error}"));
        let address = eventually("the host tells where it listens", async || listening_address(&log)).await;
        Self { cluster, part, address, log }
    }

    /// The status code and body of one of its pages.
    pub fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        http_get(&self.address, path)
    }

    /// Waits until it is ready.
    pub async fn ready(&self) {
        eventually("the host is ready", async || matches!(self.get("/readyz"), Ok((200, _))).then_some(())).await;
    }

    /// Where it answers the admission webhook, which it was told to do anywhere.
    pub async fn webhook(&self) -> String {
        let told = || self.logged().iter().find_map(|line| Some(line["webhook"].as_str()?.to_owned()));
        eventually("the host tells where the webhook is", async || told()).await
    }

    /// The lines that it has logged.
    pub fn logged(&self) -> Vec<Value> {
        log_lines(&self.log)
    }

    /// Ends it in good order.
    pub fn stop(self) {
        self.cluster.stop_part(&self.part).unwrap_or_else(|error| panic!("{error}"));
    }
}
