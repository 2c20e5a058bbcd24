//! The Lease during an upgrade: its holders, and the longest time without one.

use futures::StreamExt;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    jiff::Timestamp,
};
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};
use pointsman::leader::Timing;
use pointsman_core::settings::HOST_NAMESPACE;
use pointsman_tests::{TestCluster, eventually};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

const NAME: &str = "pointsman";

/// The leader.
pub(super) fn holder(cluster: &TestCluster) -> Option<String> {
    let found = cluster.kubectl(&["get", "lease", NAME, "-n", HOST_NAMESPACE, "-o", "json"]);
    let lease: Value = serde_json::from_str(&found.stdout).ok()?;
    Some(lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?.to_owned())
}

/// The states of the Lease that a watch has seen.
pub(super) struct LeaseLog {
    seen: Arc<Mutex<Vec<LeaseSpec>>>,
    task: JoinHandle<()>,
}

impl LeaseLog {
    pub(super) async fn start(cluster: &TestCluster) -> Self {
        let api = Api::<Lease>::namespaced(cluster.client().await, HOST_NAMESPACE);
        let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let seen = Arc::<Mutex<Vec<LeaseSpec>>>::default();
        let into = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut changes = std::pin::pin!(watcher::watcher(api, only).default_backoff().applied_objects());
            while let Some(change) = changes.next().await {
                into.lock().unwrap().extend(change.ok().and_then(|lease| lease.spec));
            }
        });
        // If the upgrade began earlier, it could be over before the first event.
        eventually("the Lease is there", async || (!seen.lock().unwrap().is_empty()).then_some(())).await;
        Self { seen, task }
    }

    /// Asserts that an old host was the first leader and a new one the last, and that the Lease was renewed in time.
    pub(super) fn end(self, before: &BTreeSet<String>, after: &BTreeSet<String>) {
        self.task.abort();
        let seen = self.seen.lock().unwrap();
        let mut holders: Vec<&str> =
            seen.iter().filter_map(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty()).collect();
        holders.dedup();
        assert!(before.contains(holders[0]) && after.contains(holders[holders.len() - 1]), "{before:?}, {after:?}: {holders:?}");
        let written = |spec: &LeaseSpec| spec.renew_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let longest = |only_free: bool| {
            let pairs = seen.windows(2).filter(|pair| !only_free || pair[0].holder_identity.is_none());
            pairs.map(|pair| Duration::try_from(written(&pair[1]).duration_since(written(&pair[0]))).unwrap_or_default()).max()
        };
        let (gap, free) = (longest(false).unwrap_or_default(), longest(true));
        println!("{} writes of the Lease, by {holders:?}; at most {gap:?} apart, and free for at most {free:?}", seen.len());
        assert!(gap <= Timing::default().lease, "nobody led for longer than the Lease lasts: {gap:?}");
    }
}
