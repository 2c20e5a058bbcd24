//! `pointsman endpoint-picker`.

use super::{
    ClusterArgs,
    cache::CacheArgs,
    controller::stop_signal,
    gateway::{Tasks, acceptor, duration, ended},
};
use crate::{
    endpoint_picker::{
        Policies,
        cluster::{self, PoolGroup, PoolName, PoolView},
        counts::{PickerCounts, PoolStates},
        custom,
        decisions::{self, Decisions, MAX_DECISIONS},
        grpc::{self, Settings},
        latency::Latency,
        policy::{ScoringPolicy, Terms},
        pool::Pool,
        scaling,
        scrape::Scraper,
        self_signed, unused,
    },
    load::Loader,
    logging::{LogFormat, LogLevel},
    serve::{
        admission::{
            certificates::{CertificateSink, directory},
            tls::CurrentCertificate,
        },
        health,
    },
};
use anyhow::{Context, Result, anyhow};
use clap::{ArgAction, Args};
use pointsman_picker::config::PickerConfig;
use pointsman_sandbox::engine::Engines;
use prometheus_client::registry::Registry;
use std::{
    fs,
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
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_rustls::TlsAcceptor;

/// How often deadlines of policies are looked at.
const TICK: Duration = Duration::from_micros(100);

/// How many policies run at once.
const SLOTS: u32 = 32;

/// How often what is remembered of prefixes is fitted to the engines.
const TUNE_INTERVAL: Duration = Duration::from_secs(1);

/// How long before the end requests that still wait are refused.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
pub(super) struct EndpointPickerArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// The InferencePool whose endpoints are picked.
    #[arg(long, value_name = "NAME")]
    pool_name: String,
    /// Its namespace.
    #[arg(long, value_name = "NAME", env = "NAMESPACE", default_value = "default")]
    pool_namespace: String,
    /// Its API group; by default inference.networking.k8s.io, or inference.networking.x-k8s.io where only that has a pool of the name.
    #[arg(long, value_name = "GROUP")]
    pool_group: Option<PoolGroup>,
    #[command(flatten)]
    ports: PortArgs,
    /// A file with an EndpointPickerConfig.
    #[arg(long, value_name = "FILE", conflicts_with = "config_text")]
    config_file: Option<PathBuf>,
    /// An EndpointPickerConfig as text.
    #[arg(long, value_name = "YAML")]
    config_text: Option<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// How many of the last decisions are recorded, for `pointsman explain request`; 0 is none. A decision takes up to 15 KiB of memory.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_DECISIONS)))]
    record_decisions: u32,
    /// How long the last streams may take once the picker is to end. Keep the pod's terminationGracePeriodSeconds above it.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    drain_timeout: Duration,
    /// What is logged: error, warn, info, debug, trace, or a filter such as info,pointsman=debug. `/log-level` changes it while the picker
    /// runs.
    #[arg(long, value_name = "FILTER", env = "POINTSMAN_LOG", default_value = "info")]
    log_level: String,
    /// How it is logged.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

/// Where the picker answers.
#[derive(Args, Debug)]
struct PortArgs {
    /// The address of all ports.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    address: IpAddr,
    /// Where proxies ask.
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// Where probes ask by gRPC's health protocol, without TLS.
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// Where /healthz, /readyz, /metrics, /decisions and /scaling are answered.
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Whether proxies ask by TLS.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    secure_serving: bool,
    /// The folder of the certificate that proxies are shown: tls.crt and tls.key. By default the picker makes one for itself.
    #[arg(long, value_name = "FOLDER")]
    cert_path: Option<PathBuf>,
}

/// What scores endpoints before the configuration's scorers.
#[derive(Args, Debug)]
struct PolicyArgs {
    /// A plugin at scheduling-scoring that scores endpoints in place of the configuration's scorers. It is loaded again whenever the file
    /// changes; while it can't be loaded the former one decides, and where it gives no answer the configuration's scorers do.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The same in the key plugin.wasm of a ConfigMap of the pool's namespace, with its configuration in the key config.yaml. May be repeated
    /// for a plugin in several parts, in their order. Until it can be loaded, the configuration's scorers decide.
    #[arg(long = "policy-config-map", value_name = "NAME", conflicts_with = "policy")]
    policy_config_maps: Vec<String>,
    /// A file with the policy's configuration, as JSON or YAML.
    #[arg(long, value_name = "FILE", requires = "policy")]
    policy_config: Option<PathBuf>,
    /// How long a policy may take for one request.
    #[arg(long, value_name = "DURATION", default_value = "500us", value_parser = deadline)]
    policy_deadline: Duration,
}

fn deadline(text: &str) -> Result<Duration, String> {
    let wrong = || "it is a duration between 100us and 100ms, such as 500us".to_owned();
    let seconds = pointsman_core::duration::parse(text).ok_or_else(wrong)?;
    let deadline = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if (TICK..=Duration::from_millis(100)).contains(&deadline) { Ok(deadline) } else { Err(wrong()) }
}

impl EndpointPickerArgs {
    /// The configuration; what has no counterpart is logged.
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

    /// What decides from the beginning, and what loads it.
    fn policies(&self, config: &PickerConfig) -> Result<(Policies, Arc<Loader>, Terms)> {
        let engines = Engines::with_clock(SLOTS, TICK).map_err(|error| anyhow!("{error:#}")).context("starting the engine of policies")?;
        let terms = Terms { namespace: self.pool_namespace.clone(), deadline: self.policy.policy_deadline };
        let loader = Loader::new(Arc::new(engines), self.cache.compilers()?).with_hot_deadline(terms.deadline);
        let scorers = |profile| ScoringPolicy::of_profile(&loader, profile, &terms).map(Arc::new).map_err(|error| anyhow!("{error}"));
        let primary = scorers(config.profiles.primary()).context("loading the default policy")?;
        let prefill = config.profiles.prefill().map(scorers).transpose().context("loading the default policy")?;
        let custom = match &self.policy.policy {
            None => None,
            // An error that is there from the beginning is better found before anybody is answered.
            Some(file) => {
                Some(Arc::new(custom::load(&loader, file, self.policy.policy_config.as_deref(), &terms).map_err(|error| anyhow!(error))?))
            }
        };
        Ok((Policies { custom, primary, prefill }, Arc::new(loader), terms))
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
        let shown = Arc::<CurrentCertificate>::default();
        match &self.cert_path {
            None => shown.show(self_signed::certificate().context("making a certificate")?),
            Some(folder) => {
                let sink = CertificateSink { shown: Arc::clone(&shown), bundle: watch::Sender::new(None) };
                let keeping = directory::keep(folder.clone(), sink).context("watching the folder of --cert-path")?;
                tasks.spawn(async { (keeping.await, "the watch of certificates").1 });
            }
        }
        acceptor(shown).context("setting up TLS").map(Some)
    }
}

pub(super) async fn run(args: EndpointPickerArgs) -> Result<ExitCode> {
    // Before all else: as process 1 of a container, a program that doesn't listen gets no signal at all.
    let mut stopped = pin!(stop_signal()?);
    let log_level = LogLevel::start(&args.log_level, args.log_format, None).with_context(|| format!("--log-level {}", args.log_level))?;
    let client = args.cluster.client().await?;
    let config = args.config()?;
    let (policies, loader, terms) = args.policies(&config)?;
    let mut tasks = Tasks::new();
    let clock = Instant::now();
    let pool_name =
        PoolName { group: args.pool_group.unwrap_or_default(), namespace: args.pool_namespace.clone(), name: args.pool_name.clone() };
    let view = Arc::new(PoolView::new(&pool_name));
    let (latency, learning) = Latency::new();
    let counts = Arc::<PickerCounts>::default();
    let scraper = Scraper::new(Arc::clone(&view.fleet), config.scrape.clone(), clock).map_err(|error| anyhow!(error))?;
    let pool = Pool::new(pool_name.to_string(), Arc::clone(&view), config, policies, latency, Arc::clone(&counts), clock);
    let pool = Arc::new(pool.recording(Decisions::new(args.record_decisions)));

    let mut registry = Registry::default();
    counts.register(&mut registry);
    registry.register_collector(Box::new(PoolStates(vec![Arc::clone(&pool)])));
    let listener = args.ports.listen(args.ports.metrics_port, "metrics-port").await?;
    tracing::info!(address = %listener.local_addr()?, "answering /healthz, /readyz, /metrics, /decisions and /scaling");
    let watched = Arc::clone(&view);
    let further = decisions::route::routes(Arc::clone(pool.decisions())).merge(scaling::route::routes(vec![Arc::clone(&pool)]));
    tasks.spawn(async move {
        health::serve_ready(listener, Arc::new(move || watched.obstacle()), registry, log_level, further).await.ok();
        "answering /healthz"
    });
    tasks.spawn(async { (learning.await, "learning what answers take").1 });
    tasks.spawn(async { (scraper.run().await, "reading metrics").1 });
    let watching = Arc::clone(&view);
    let (maps, reader) = (args.policy.policy_config_maps.clone(), client.clone());
    tasks.spawn(async move { (cluster::keep(client, pool_name, watching).await, "the watch of the cluster").1 });
    let kept = Arc::clone(&pool);
    tasks.spawn(async move { (kept.keep().await, "letting requests go on").1 });
    let tuned = Arc::clone(&pool);
    tasks.spawn(async move {
        let mut beat = interval(TUNE_INTERVAL);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            tuned.tune();
        }
    });
    if !maps.is_empty() {
        let following = custom::config_map::follow(reader, maps, Arc::clone(&loader), terms.clone(), Arc::clone(&pool));
        tasks.spawn(async { (following.await, "following the policy").1 });
    }
    if let Some(file) = args.policy.policy.clone() {
        let following = custom::follow(loader, file, args.policy.policy_config.clone(), terms, Arc::clone(&pool)).context("--policy")?;
        tasks.spawn(async { (following.await, "following the policy").1 });
    }
    let tls = args.ports.tls(&mut tasks)?;
    serve(&args, pool, tls, tasks, &mut stopped).await
}

/// Answers proxies and probes until the process is to end, and then what has begun.
async fn serve(
    args: &EndpointPickerArgs,
    pool: Arc<Pool>,
    tls: Option<TlsAcceptor>,
    mut tasks: Tasks,
    stopped: &mut (impl Future<Output = ()> + Unpin),
) -> Result<ExitCode> {
    let health = args.ports.listen(args.ports.grpc_health_port, "grpc-health-port").await?;
    tracing::info!(address = %health.local_addr()?, "answering probes");
    let listener = args.ports.listen(args.ports.grpc_port, "grpc-port").await?;
    tracing::info!(address = %listener.local_addr()?, tls = tls.is_some(), pool = pool.name(), "answering proxies");
    let probed = Arc::clone(&pool);
    tasks
        .spawn(async move { (grpc::serve(probed, health, None, Settings::default(), std::future::pending()).await, "answering probes").1 });
    let settings = Settings { drain: args.drain_timeout, ..Settings::default() };
    let ending = Arc::clone(&pool);
    let drain = args.drain_timeout;
    let stop = async {
        stopped.await;
        tracing::info!("ending: no longer ready, answering what has begun");
        ending.drain();
        // What waits until the end had better be answered than cut off.
        tokio::spawn(async move {
            sleep(drain.saturating_sub(LAST_ANSWERS)).await;
            ending.end();
        });
    };
    tokio::select! {
        () = grpc::serve(pool, listener, tls, settings, stop) => {}
        ended = ended(&mut tasks) => ended?,
    }
    tasks.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
