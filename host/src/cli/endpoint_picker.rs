//! `pointsman endpoint-picker`.

mod policies;
mod pools;

use self::{
    policies::PolicyArgs,
    pools::{PoolArgs, ServedPool, SharedParts},
};
use super::{
    ClusterArgs,
    cache::CacheArgs,
    certificate,
    controller::stop_signal,
    gateway::{Tasks, acceptor, duration, ended},
    process_name,
    traces::TracesArgs,
    upstream_flags::UpstreamArgs,
};
use crate::{
    endpoint_picker::{
        counts::{PickerCounts, PoolStates},
        decisions::{self, Decisions, MAX_DECISIONS},
        grpc::{self, Settings},
        policy_set::SetInfo,
        pool::Pool,
        scaling,
        threads::Threads,
        unused,
    },
    logging::{LogFormat, LogLevel},
    serve::health,
    traces::{Origin, Traces},
};
use anyhow::{Context, Result, anyhow};
use clap::{ArgAction, Args};
use opentelemetry_sdk::trace::SdkTracer;
use pointsman_picker::config::PickerConfig;
use prometheus_client::registry::Registry;
use std::{
    env, fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_rustls::TlsAcceptor;

/// The interval at which policies' deadlines are checked.
const TICK: Duration = Duration::from_micros(100);

/// The maximum number of policies that run at once.
const SLOTS: u32 = 32;

/// How long before the end waiting requests are refused.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
pub(super) struct EndpointPickerArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    pools: PoolArgs,
    #[command(flatten)]
    ports: PortArgs,
    /// File with an EndpointPickerConfig
    #[arg(long, value_name = "FILE", conflicts_with = "config_text")]
    config_file: Option<PathBuf>,
    /// EndpointPickerConfig as text
    #[arg(long, value_name = "YAML")]
    config_text: Option<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Number of decisions to record for `pointsman explain request`; 0: none. A decision takes up to 15 KiB of memory
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_DECISIONS)))]
    record_decisions: u32,
    /// Maximum time that the last streams may take after the picker begins to shut down. Set the pod's terminationGracePeriodSeconds above
    /// it
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    drain_timeout: Duration,
    /// Log filter: error, warn, info, debug, trace, or a filter such as info,pointsman=debug. `/log-level` changes it at runtime
    #[arg(long, value_name = "FILTER", env = "POINTSMAN_LOG", default_value = "info")]
    log_level: String,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
    #[command(flatten)]
    traces: TracesArgs,
    #[command(flatten)]
    upstream: UpstreamArgs,
}

/// Addresses and ports of the picker
#[derive(Args, Debug)]
struct PortArgs {
    /// Address of all ports
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    address: IpAddr,
    /// Port for proxies
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// Port for probes with gRPC's health protocol, without TLS
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// Port that serves /healthz, /readyz, /metrics, /decisions and /scaling
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Serve proxies with TLS
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    secure_serving: bool,
    /// Folder with the certificate for proxies: tls.crt and tls.key; default: the picker generates one
    #[arg(long, value_name = "FOLDER")]
    cert_path: Option<PathBuf>,
}

impl EndpointPickerArgs {
    /// Parses the configuration, and logs settings without a counterpart.
    fn config(&self) -> Result<PickerConfig> {
        let (source, text) = match (&self.config_file, &self.config_text) {
            (Some(file), _) => {
                let read = fs::read_to_string(file).with_context(|| format!("--config-file {}", file.display()))?;
                (format!("--config-file {}", file.display()), read)
            }
            (None, Some(text)) => ("--config-text".to_owned(), text.clone()),
            (None, None) => return Ok(PickerConfig::default()),
        };
        let (config, remarks) = PickerConfig::read(&text).map_err(|error| anyhow!("{source}: {error}"))?;
        for remark in remarks {
            tracing::warn!(source, place = %remark.place, subject = remark.subject, "{}", remark.message);
        }
        for sentence in unused(&config) {
            tracing::warn!(source, "{sentence}");
        }
        Ok(config)
    }

    /// Starts to send traces, if there is a collector.
    fn start_traces(&self) -> Result<Option<(Traces, SdkTracer)>> {
        let pod = env::var("POD_NAME").ok().filter(|name| !name.is_empty());
        let identity = pod.unwrap_or_else(process_name);
        self.traces.start(Origin { service: "pointsman-endpoint-picker", identity: &identity, namespace: self.pools.namespace() })
    }
}

impl PortArgs {
    async fn listen(&self, port: u16, flag: &str) -> Result<TcpListener> {
        let address = SocketAddr::new(self.address, port);
        TcpListener::bind(address).await.with_context(|| format!("--{flag}: listening on {address}"))
    }

    fn tls(&self, tasks: &mut Tasks) -> Result<Option<TlsAcceptor>> {
        if !self.secure_serving {
            return Ok(None);
        }
        let shown = certificate::shown(self.cert_path.as_deref(), tasks)?;
        acceptor(shown).context("setting up TLS").map(Some)
    }
}

pub(super) async fn run(args: EndpointPickerArgs) -> Result<ExitCode> {
    // First of all: as process 1 of a container, a program without a handler gets no signals.
    let mut stopped = pin!(stop_signal()?);
    let log_level =
        LogLevel::start(&args.log_level, args.log_format, None, None).with_context(|| format!("--log-level {}", args.log_level))?;
    for note in args.upstream.notes() {
        tracing::warn!("{note}");
    }
    let (traces, tracer) = args.start_traces()?.unzip();
    let names = args.pools.pools(args.ports.grpc_port)?;
    let client = args.cluster.client().await?;
    let config = args.config()?;
    let (policies, loader) = args.policy.load(&config, &args.cache)?;
    let mut tasks = Tasks::new();
    let clock = Instant::now();
    let counts = Arc::<PickerCounts>::default();
    let decisions = Arc::new(Decisions::new(args.record_decisions));
    let parts = SharedParts { config, policies, counts: Arc::clone(&counts), decisions: Arc::clone(&decisions), tracer, clock };
    let served = parts.start_all(names, &client, &mut tasks)?;
    let probes = Arc::new(args.pools.probes(&served));
    let pools: Vec<Arc<Pool>> = served.iter().map(|served| Arc::clone(&served.pool)).collect();
    args.policy.follow(&client, args.pools.namespace(), &loader, &pools, &mut tasks)?;

    let mut registry = Registry::default();
    counts.register(&mut registry);
    registry.register_collector(Box::new(PoolStates(pools.clone())));
    registry.register_collector(Box::new(SetInfo(pools.clone())));
    if let Some(traces) = &traces {
        traces.counts().register(&mut registry);
    }
    let listener = args.ports.listen(args.ports.metrics_port, "metrics-port").await?;
    tracing::info!(address = %listener.local_addr()?, "answering /healthz, /readyz, /metrics, /decisions and /scaling");
    let further = decisions::route::routes(decisions).merge(scaling::route::routes(pools));
    let probed = Arc::clone(&probes);
    tasks.spawn(async move {
        health::serve_ready(listener, Arc::new(move || probed.obstacle()), registry, log_level, further).await.ok();
        "answering /healthz"
    });
    let tls = args.ports.tls(&mut tasks)?;
    let listener = args.ports.listen(args.ports.grpc_health_port, "grpc-health-port").await?;
    tracing::info!(address = %listener.local_addr()?, "answering probes");
    tasks.spawn(async move { (grpc::serve_probes(probes, listener).await, "answering probes").1 });
    let code = serve(&args.ports, args.drain_timeout, served, tls, tasks, &mut stopped).await?;
    if let Some(traces) = traces {
        traces.flush().await;
    }
    Ok(code)
}

/// Serves proxies until the process is stopped, and then the open streams.
async fn serve(
    ports: &PortArgs,
    drain: Duration,
    served: Vec<ServedPool>,
    tls: Option<TlsAcceptor>,
    mut tasks: Tasks,
    stopped: &mut (impl Future<Output = ()> + Unpin),
) -> Result<ExitCode> {
    let settings = Settings { drain, ..Settings::default() };
    let ending = watch::Sender::new(false);
    let pools: Vec<Arc<Pool>> = served.iter().map(|served| Arc::clone(&served.pool)).collect();
    let threads = Arc::new(Threads::start("proxies").context("starting the threads that serve proxies")?);
    let mut serving = JoinSet::new();
    for ServedPool { pool, port, flag } in served {
        let listener = ports.listen(port, &flag).await?;
        tracing::info!(address = %listener.local_addr()?, tls = tls.is_some(), pool = pool.name(), "answering proxies");
        let mut ends = ending.subscribe();
        let stop = async move { _ = ends.wait_for(|ends| *ends).await };
        serving.spawn(grpc::serve(pool, listener, tls.clone(), settings, Arc::clone(&threads), stop));
    }
    let end = async {
        stopped.await;
        tracing::info!("shutting down: no longer ready, finishing requests in progress");
        for pool in &pools {
            pool.drain();
        }
        ending.send_replace(true);
        // Waiting requests should get a response rather than a closed connection.
        sleep(drain.saturating_sub(LAST_ANSWERS)).await;
        for pool in &pools {
            pool.end();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = end => {}
        () = async { while serving.join_next().await.is_some() {} } => {}
        ended = ended(&mut tasks) => ended?,
    }
    tasks.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
