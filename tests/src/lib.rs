//! What the end-to-end tests share: one control plane for all of them, a namespace for each, kubectl, and fixtures.
//!
//! A helper that can't do its work ends the test: that is what a test is for.
#![allow(clippy::panic, clippy::expect_used, clippy::missing_panics_doc)]

mod cluster;
mod command;
mod endpoint_picker;
mod envoy;
pub mod faults;
mod file_server;
pub mod fixtures;
mod gateway;
pub mod grants;
pub mod guide;
mod host;
mod istio;
pub mod kubelet;
pub mod load;
pub mod measure;
pub mod model_agent;
pub mod model_server;
mod policies;
mod pool;
pub mod relay;
pub mod reload;
pub mod rules;
mod scheduler_extender;

pub use cluster::{OwnClusterPermit, TestCluster, TestNamespace, client};
pub use command::{CommandOutput, compiled, helm, pointsman, xtask};
pub use endpoint_picker::{ACCOUNT as PICKER_ACCOUNT, PickerProcess};
pub use envoy::{Envoy, EnvoySettings, EnvoyStyle};
pub use file_server::FileServer;
pub use gateway::GatewayProcess;
pub use host::Host;
pub use istio::Istio;
pub use model_agent::ModelAgent;
pub use pointsman_harness::plugins::example_plugin;
pub use policies::{Engine, PolicyCluster, condition, plugin_bytes, with_other_digest, with_section};
pub use scheduler_extender::{ExtenderAddress, SchedulerExtender};

use std::time::{Duration, Instant};

/// How long something may take that has no bound of its own. Generous: it only bounds a test that fails.
const TEST_TIMEOUT: Duration = Duration::from_mins(10);

/// The variable that changes it, in seconds: whoever writes a test doesn't wait as long for one that fails.
const PATIENCE: &str = "POINTSMAN_TEST_PATIENCE";

/// How long something may take in this run.
fn patience() -> Duration {
    let seconds = std::env::var(PATIENCE).ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(TEST_TIMEOUT, Duration::from_secs)
}

/// Whether this is a run with `--full`.
pub fn is_full() -> bool {
    std::env::var_os(pointsman_harness::FULL).is_some()
}

/// The most that one look counts for. A machine that stands still for minutes, as virtual ones do, must not use patience up at once.
const MAX_LOOK: Duration = Duration::from_secs(10);

/// How long there is no look after one, at least and at most; in between for as long as the look took.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Asks until there is an answer.
pub async fn eventually<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let (mut waited, mut last) = (Duration::ZERO, Instant::now());
    loop {
        let looked = Instant::now();
        if let Some(answer) = answer().await {
            return answer;
        }
        // A look by kubectl takes long on a busy machine, and a test that looks all the time keeps it busy.
        let pause = looked.elapsed().clamp(MIN_PAUSE, MAX_PAUSE);
        waited += last.elapsed().min(MAX_LOOK);
        last = Instant::now();
        assert!(waited < patience(), "it never happened: {what}");
        tokio::time::sleep(pause).await;
    }
}
