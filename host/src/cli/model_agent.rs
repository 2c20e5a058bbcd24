//! `pointsman model-agent`.

use super::{
    ClusterArgs,
    controller::stop_signal,
    gateway::{bytes, duration},
};
use crate::{
    logging::{LogFormat, LogLevel},
    model_agent::{self, Counts, Settings},
    permissions::MODEL_AGENT_NAMESPACE,
    serve::health,
};
use anyhow::{Context, Result, bail};
use axum::Router;
use clap::Args;
use pointsman_download::Limits;
use prometheus_client::registry::Registry;
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpListener, sync::watch};

#[derive(Args, Debug)]
pub(super) struct ModelAgentArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Node that this agent runs on: that of its pod
    #[arg(long, value_name = "NODE", env = "NODE_NAME")]
    node: String,
    /// Namespace of the agent's report, and of the Secrets of ClusterBaseModels
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = MODEL_AGENT_NAMESPACE)]
    namespace: String,
    /// Folder of the node for models: storage.path of each model must be below it
    #[arg(long, value_name = "FOLDER", default_value = "/mnt/models")]
    root: PathBuf,
    /// Path at which the agent sees that folder; default: the same path
    #[arg(long, value_name = "FOLDER")]
    mount: Option<PathBuf>,
    /// IP address at which agents of other nodes reach this one to exchange models; default: no exchange
    #[arg(long, value_name = "IP", env = "POD_IP")]
    peer_address: Option<IpAddr>,
    /// Address and port for agents of other nodes, with TLS
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8081")]
    peer_listen: SocketAddr,
    /// Maximum number of models that are downloaded at once
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    parallel_models: u16,
    /// Maximum number of parts of files that are requested at once, over all models
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    parallel_parts: u16,
    /// Maximum number of bytes per second that are downloaded, over all models, such as 500Mi; default: no limit
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    bandwidth: Option<u64>,
    /// Amount of the disk that stays free
    #[arg(long, value_name = "BYTES", default_value = "10Gi", value_parser = bytes)]
    disk_reserve: u64,
    /// Maximum size of a model that is downloaded
    #[arg(long, value_name = "BYTES", default_value = "4Ti", value_parser = bytes)]
    max_model_size: u64,
    /// Time that files of unneeded models and previous versions of a model are retained, because pods may still use them. Files of a
    /// deleted model are deleted immediately, as are all of these files if the disk lacks space
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    retention: Duration,
    /// Delay before a failed download is retried. It doubles with each failure, up to 15 minutes
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    retry_delay: Duration,
    /// Time between two reports of the progress of downloads
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    progress_interval: Duration,
    /// Compare every byte on the disk with its checksum at startup, instead of only sizes and times
    #[arg(long)]
    full_verification: bool,
    /// Use the agent's own identity (environment, instance metadata) for sources of ClusterBaseModels without a Secret
    #[arg(long)]
    ambient_credentials: bool,
    /// Allow sources on loopback addresses. Whoever may write a model can then reach services that listen only on this machine
    #[arg(long)]
    allow_loopback: bool,
    /// Address and port that serve /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Log filter: error, warn, info, debug, trace, or a filter such as info,pointsman=debug
    #[arg(long, value_name = "FILTER", env = "POINTSMAN_LOG", default_value = "info")]
    log_level: String,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

impl ModelAgentArgs {
    async fn settings(&self) -> Result<Settings> {
        let Some(root) = self.root.to_str().filter(|root| root.starts_with('/') && *root != "/") else {
            bail!("--root {}: expected an absolute path of a folder, such as /mnt/models", self.root.display());
        };
        let parts = usize::from(self.parallel_parts);
        Ok(Settings {
            node: self.node.clone(),
            namespace: self.namespace.clone(),
            mount: self.mount.clone().unwrap_or_else(|| root.trim_end_matches('/').into()),
            root: PathBuf::from(root.trim_end_matches('/')),
            peers: self.peers().await?,
            limits: Limits {
                parallel_parts: parts,
                parallel_parts_per_model: parts,
                bytes_per_second: self.bandwidth,
                reserve_bytes: self.disk_reserve,
                max_model_bytes: self.max_model_size,
                loopback: self.allow_loopback,
                ..Limits::default()
            },
            parallel_models: self.parallel_models.into(),
            retention: self.retention,
            retry_delay: self.retry_delay.max(Duration::from_secs(1)),
            progress_interval: self.progress_interval.max(Duration::from_secs(1)),
            verifies_fully: self.full_verification,
            ambient: self.ambient_credentials,
        })
    }

    /// The listener for other agents, and the address at which they reach it.
    async fn peers(&self) -> Result<Option<(TcpListener, SocketAddr)>> {
        let Some(ip) = self.peer_address else {
            tracing::info!("models aren't exchanged with the agents of other nodes: --peer-address would be this pod's address");
            return Ok(None);
        };
        let listener =
            TcpListener::bind(self.peer_listen).await.with_context(|| format!("listening on {} for other agents", self.peer_listen))?;
        let address = SocketAddr::new(ip, listener.local_addr()?.port());
        Ok(Some((listener, address)))
    }
}

pub(super) async fn run(args: ModelAgentArgs) -> Result<ExitCode> {
    // First of all: as process 1 of a container, a program without a handler gets no signals.
    let stopped = pin!(stop_signal()?);
    let log_level =
        LogLevel::start(&args.log_level, args.log_format, None, None).with_context(|| format!("--log-level {}", args.log_level))?;
    let settings = args.settings().await?;
    let client = args.cluster.client().await?;
    let (obstacle, known) = watch::channel(Some("the models haven't been listed yet".to_owned()));
    let counts = Arc::<Counts>::default();
    let mut registry = Registry::default();
    counts.register(&mut registry);
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    tracing::info!(address = %listener.local_addr()?, node = settings.node, "answering /healthz, /readyz and /metrics");
    let mount = settings.mount.clone();
    let known = Arc::new(move || known.borrow().clone());
    tokio::select! {
        served = health::serve_ready(listener, known, registry, log_level, Router::new()) => served.context("answering /healthz")?,
        ended = model_agent::run(client, settings, counts, obstacle) => ended.with_context(|| format!("the folder {}", mount.display()))?,
        // Partial downloads stay on the disk, and the next agent continues them.
        () = stopped => tracing::info!("stopping"),
    }
    Ok(ExitCode::SUCCESS)
}
