//! Shared by the end-to-end tests: one control plane for all of them, a namespace for each, kubectl, and fixtures.
//!
//! A helper that fails panics, which fails the test.
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

/// The timeout of steps without their own. It is generous, because only a failing test reaches it.
const TEST_TIMEOUT: Duration = Duration::from_mins(10);

/// The variable that overrides it, in seconds: authors of tests use a shorter one.
const PATIENCE: &str = "POINTSMAN_TEST_PATIENCE";

/// The timeout of this run.
fn patience() -> Duration {
    let seconds = std::env::var(PATIENCE).ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(TEST_TIMEOUT, Duration::from_secs)
}

/// Whether this is a run with `--full`.
pub fn is_full() -> bool {
    std::env::var_os(pointsman_harness::FULL).is_some()
}

/// The maximum time that one attempt counts for. A machine that stalls for minutes, as virtual ones do, must not use up the timeout at
/// once.
const MAX_LOOK: Duration = Duration::from_secs(10);

/// The minimum and the maximum pause after an attempt; in between, the pause is as long as the attempt.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Tries until there is an answer.
pub async fn eventually<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let (mut waited, mut last) = (Duration::ZERO, Instant::now());
    loop {
        let looked = Instant::now();
        if let Some(answer) = answer().await {
            return answer;
        }
        // An attempt with kubectl takes long on a busy machine, and a test without pauses would keep it busy.
        let pause = looked.elapsed().clamp(MIN_PAUSE, MAX_PAUSE);
        waited += last.elapsed().min(MAX_LOOK);
        last = Instant::now();
        assert!(waited < patience(), "it never happened: {what}");
        tokio::time::sleep(pause).await;
    }
}
