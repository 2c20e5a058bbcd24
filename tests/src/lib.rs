//! What the end-to-end tests share: one control plane for all of them, a namespace for each, kubectl, and fixtures.
//!
//! A helper that can't do its work ends the test: that is what a test is for.
#![allow(clippy::panic, clippy::expect_used, clippy::missing_panics_doc)]

mod cluster;
mod command;
pub mod faults;
pub mod fixtures;
mod gateway;
pub mod grants;
pub mod guide;
mod host;
pub mod kubelet;
pub mod measure;
mod policies;
pub mod relay;
pub mod reload;
pub mod rules;

pub use cluster::{OwnClusterPermit, TestCluster, TestNamespace, client};
pub use command::{CommandOutput, compiled, helm, pointsman, xtask};
pub use gateway::GatewayProcess;
pub use host::Host;
pub use pointsman_harness::plugins::example_plugin;
pub use policies::{Engine, PolicyCluster, condition, plugin_bytes, with_other_digest, with_section};

use std::time::{Duration, Instant};

/// How long something may take that has no bound of its own. Generous: it only bounds a test that fails.
const TEST_TIMEOUT: Duration = Duration::from_mins(5);

/// The variable by which `cargo xtask test --full` asks for the longer runs.
pub const FULL: &str = "POINTSMAN_TEST_FULL";

/// Whether this is a run with `--full`.
pub fn is_full() -> bool {
    std::env::var_os(FULL).is_some()
}

/// Asks until there is an answer.
pub async fn eventually<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = answer().await {
            return answer;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "it never happened: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
