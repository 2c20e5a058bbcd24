//! Starts and steers the embedded Kubernetes control plane (`tests/cluster`), for the end-to-end tests and the demo.
//!
//! Blocking and without a Kubernetes client on purpose: `cargo xtask` compiles it before anything else.

mod cluster;
mod host;
mod http;
mod lost;
pub mod plugins;
mod processes;

pub use cluster::{Behaviour, Cluster, Options};
pub use host::{listening_address, log_lines};
pub use http::{http_get, http_request};
pub use lost::lost;
pub use processes::{RUN_MARK, processes_of_run};

use std::{path::PathBuf, process::Command};

/// The environment variable by which `cargo xtask test` hands the tests a control plane: what `Cluster::ready` told.
pub const SHARED_CLUSTER: &str = "POINTSMAN_TEST_CLUSTER";

/// The variable by which `cargo xtask test --full` asks for the longer runs.
pub const FULL: &str = "POINTSMAN_TEST_FULL";

/// The variable by which cargo compiles the crates of the workspace with another program than rustc. `cargo xtask test` names clippy's, for the
/// host and the tests. Plugins are built without: their bytes are those that are shipped.
pub const RUSTC_WORKSPACE_WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// Cargo tells us of our own package. Passed on to another cargo, that would be another environment than a user's shell has, in which the
/// build scripts of some crates want to run again: half of the dependencies would be built anew each time.
pub fn forget_our_package(command: &mut Command) {
    const OURS: [&str; 5] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    command.env_remove(RUSTC_WORKSPACE_WRAPPER);
    for (name, _) in std::env::vars_os() {
        if OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            command.env_remove(name);
        }
    }
}

/// What can go wrong with the control plane, each in a sentence for the person who started it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The binary isn't there.
    #[error("the control plane isn't built: {path} is missing; `cargo xtask cluster` builds and starts it")]
    NotBuilt {
        /// Where it should be.
        path: String,
    },
    /// The supervisor ended before it was ready. It has said why.
    #[error("the control plane did not start: {why}")]
    NotStarted {
        /// Its own last words.
        why: String,
    },
    /// The supervisor refused or failed a request.
    #[error("the control plane could not {request}: {why}")]
    Refused {
        /// What was asked.
        request: String,
        /// Its answer.
        why: String,
    },
    /// Talking to the supervisor failed.
    #[error("no answer from the control plane's supervisor ({what}): {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the operating system says.
        source: std::io::Error,
    },
}

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    // tests/harness is two levels down.
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(PathBuf::from).unwrap_or_default()
}

/// Where cargo, and we beside it, put what is built.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Where the OpenAI clients are put.
pub fn clients_dir() -> PathBuf {
    target_dir().join("clients")
}

/// Where Envoy is put.
pub fn envoy_dir() -> PathBuf {
    target_dir().join("envoy")
}

/// Envoy's binary.
pub fn envoy() -> PathBuf {
    envoy_dir().join("envoy")
}

/// Where the control plane's binaries and the neighbours' CRDs are put.
pub fn cluster_dir() -> PathBuf {
    target_dir().join("cluster")
}

/// Istio's control plane for tests without a cluster.
pub fn istio() -> PathBuf {
    cluster_dir().join("bin/istio-for-tests")
}
