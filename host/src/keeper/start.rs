//! Assembles the engine, as the controller does at startup, and a test that runs only the engine.

use crate::{
    comparison::LiveComparison,
    keeper::{self, Inputs, Options, builtins},
    leader::Leadership,
    liveness::Liveness,
    load::Loader,
    pace::Pacer,
    source::file,
};
use kube::Client;
use pointsman_core::decide::{Listener, PluginHealthEvent, Policies};
use pointsman_sandbox::{compile::Compilers, engine::Engines};
use std::{io, sync::Arc};
use tokio::sync::{mpsc, watch};

/// Why the engine can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sandbox can't be set up.
    #[error("the engine for plugins can't be set up: {0}")]
    Engine(String),
    /// The built-in plugins don't work, which is a fault of this build.
    #[error("{0}")]
    Builtins(String),
    /// The plugin directory can't be watched.
    #[error("the plugin directory can't be watched: {0}")]
    Directory(#[from] io::Error),
}

/// The engine's options, except for the cluster.
#[derive(Debug)]
pub struct SandboxOptions {
    /// Compiles plugins and caches the results.
    pub compilers: Compilers,
    /// The possible sources of plugins.
    pub options: Options,
    /// Compares candidates with the active set.
    pub stage: Arc<LiveComparison>,
    /// Limits the restarts of pods.
    pub pacer: Arc<Pacer>,
    /// The work in progress.
    pub liveness: Liveness,
}

/// Forwards events: on plugins to the keeper, and on the active set to its followers.
#[derive(Debug)]
struct Channels {
    news: mpsc::UnboundedSender<PluginHealthEvent>,
    changes: watch::Sender<u64>,
}

impl Listener for Channels {
    fn heard(&self, news: PluginHealthEvent) {
        // No task receives them while the host ends.
        self.news.send(news).ok();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// The running engine.
#[derive(Debug)]
pub struct Started {
    /// The active policies.
    pub policies: Arc<Policies>,
    /// Counts up when another policy set becomes active, or when all subjects must be reconciled again.
    pub changes: watch::Receiver<u64>,
    /// The reason why the recorded policies aren't active, or none.
    pub obstacle: watch::Receiver<Option<String>>,
}

/// Starts the engine with the built-in policies. The future keeps the set in line with the cluster, and never ends by itself.
pub async fn start(
    client: Client,
    settings: SandboxOptions,
    leadership: Leadership,
) -> Result<(Started, impl Future<Output = ()>), StartError> {
    let SandboxOptions { compilers, options, stage, pacer, liveness } = settings;
    let prepared = tokio::task::spawn_blocking(move || -> Result<_, StartError> {
        let engines = Engines::new().map_err(|error| StartError::Engine(format!("{error:#}")))?;
        let loader = Loader::new(Arc::new(engines), compilers);
        let set = builtins(&loader).map_err(StartError::Builtins)?;
        Ok((Arc::new(loader), set))
    });
    let (loader, set) = prepared.await.map_err(|error| StartError::Engine(error.to_string()))??;
    let files = options.directory.as_deref().map(file::watch).transpose()?;
    let (news_sender, news) = mpsc::unbounded_channel();
    let (changes_sender, changes) = watch::channel(0);
    let policies = Arc::new(Policies::new(set, Arc::new(Channels { news: news_sender, changes: changes_sender })));
    let inputs = Inputs { leadership, news, files, stage, pacer, liveness };
    let (obstacle, keep) = keeper::keep(client, options, loader, Arc::clone(&policies), inputs);
    Ok((Started { policies, changes, obstacle }, keep))
}
