//! Puts the engine together: what the controller does when it starts, and a test that runs the engine by itself.

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

/// What the engine needs beside a cluster.
#[derive(Debug)]
pub struct SandboxOptions {
    /// What compiles plugins, and keeps what it compiled.
    pub compilers: Compilers,
    /// Where plugins may come from.
    pub options: Options,
    /// Where a candidate is compared with what decides.
    pub stage: Arc<LiveComparison>,
    /// Who gives turns to restart pods.
    pub pacer: Arc<Pacer>,
    /// What is being done.
    pub liveness: Liveness,
}

/// Passes on what is heard of plugins and sets: the first to the keeper, the second to whoever follows the active set.
#[derive(Debug)]
struct Channels {
    news: mpsc::UnboundedSender<PluginHealthEvent>,
    changes: watch::Sender<u64>,
}

impl Listener for Channels {
    fn heard(&self, news: PluginHealthEvent) {
        // Nobody receives any more while the host ends.
        self.news.send(news).ok();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// The engine, once it runs.
#[derive(Debug)]
pub struct Started {
    /// What decides.
    pub policies: Arc<Policies>,
    /// Counts up when another set decides, or everything is to be looked at again.
    pub changes: watch::Receiver<u64>,
    /// What keeps the recorded policies from being in force, or none.
    pub obstacle: watch::Receiver<Option<String>>,
}

/// Starts the engine with the built-in policies. The future keeps the set what the cluster says, and never ends by itself.
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
