//! `pointsman gateway`.

use super::{ClusterArgs, HostNamespaceArgs, certificate, controller::stop_signal, settings::ClusterDomainArgs};
use crate::{
    gateway::{
        backend::{Backends, tls_settings},
        callers::Authentication,
        catalog::Models,
        cluster::{Watches, activity::ActivityMap, review::reviewer},
        counts::GatewayState,
        key_folder,
        limits::Limits,
        model::Shared,
        proxy::{PATHS, Proxy, Rules},
        quota::Quotas,
        resolve::{Override, Resolver},
        server,
    },
    logging::{LogFormat, LogLevel},
    serve::{
        admission::{certificates::certificates, tls::CurrentCertificate},
        health,
    },
};
use anyhow::{Context, Result, anyhow, bail};
use arc_swap::ArcSwap;
use axum::Router;
use clap::Args;
use kube::Client;
use pointsman_core::{duration, quantity};
use prometheus_client::registry::Registry;
use std::{
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring},
};

#[derive(Args, Debug)]
pub(super) struct GatewayArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    host: HostNamespaceArgs,
    /// Name of this gateway, unique in the cluster; default: the name of the pod or machine, with the process ID
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,
    /// Address and port for clients
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8000")]
    serve: SocketAddr,
    /// Address and port that serve /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    #[command(flatten)]
    backends: BackendArgs,
    #[command(flatten)]
    clients: ClientArgs,
    #[command(flatten)]
    limits: Box<LimitArgs>,
    /// Log filter: error, warn, info, debug, trace, or a filter such as info,pointsman=debug. Each request is logged with the target
    /// pointsman::access: info,pointsman::access=off omits these lines. `/log-level` changes it at runtime
    #[arg(long, value_name = "FILTER", env = "POINTSMAN_LOG", default_value = "info")]
    log_level: String,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

/// Connections to backends
#[derive(Args, Debug)]
struct BackendArgs {
    #[command(flatten)]
    domain: ClusterDomainArgs,
    /// Address to connect to for a name and a port, instead of DNS; may be repeated. The address is checked like any other
    #[arg(long = "resolve", value_name = "HOST:PORT:ADDRESS[:PORT]")]
    overrides: Vec<Override>,
    /// Allow connections to loopback addresses. Whoever may write an InferenceModel can then reach services that listen only on this
    /// machine
    #[arg(long)]
    allow_loopback: bool,
    /// PEM file with CAs that are trusted for backends with https, in addition to the system's
    #[arg(long, value_name = "FILE")]
    backend_ca: Option<PathBuf>,
}

/// Clients that are served
#[derive(Args, Debug)]
struct ClientArgs {
    /// Folder with the certificate for clients, as cert-manager writes it: tls.crt and tls.key; default: no TLS
    #[arg(long, value_name = "FOLDER")]
    tls_certs: Option<PathBuf>,
    /// Folder of keys and quotas, such as a mounted Secret: files NAME.yaml with `keys` and `namespaces`. Without --keys and
    /// --token-review, every client that reaches the gateway is served
    #[arg(long, value_name = "FOLDER")]
    keys: Option<PathBuf>,
    /// Serve clients with a token that the API server accepts, such as that of a ServiceAccount
    #[arg(long)]
    token_review: bool,
    /// Audience of such a token; may be repeated, and one match is enough. Default: the API server's own
    #[arg(long = "audience", value_name = "NAME", requires = "token_review")]
    audiences: Vec<String>,
    /// Path to serve; one that ends with a slash includes all paths below it. May be repeated. Default: /v1/, /v2/, /rerank, /score,
    /// /classify, /pooling, /tokenize and /detokenize
    #[arg(long = "path", value_name = "PATH", value_parser = served_path)]
    paths: Vec<String>,
}

/// Limits that depend on the use of the gateway
#[derive(Args, Debug)]
struct LimitArgs {
    /// Maximum time that a request waits for its model to wake
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    hold_timeout: Duration,
    /// Maximum number of waiting requests, of all models
    #[arg(long, value_name = "NUMBER", default_value_t = Limits::default().held)]
    max_held: usize,
    /// Maximum number of requests in flight per model; further requests wait, those with the highest priority first. 0: no limit
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    max_in_flight: u64,
    /// Maximum size of a request's body
    #[arg(long, value_name = "QUANTITY", default_value = "512Mi", value_parser = bytes)]
    max_body: u64,
    /// Maximum size of the buffer of one request, until its model is known or while it waits
    #[arg(long, value_name = "QUANTITY", default_value = "32Mi", value_parser = bytes)]
    max_buffer: u64,
    /// Maximum size of the buffers of all requests
    #[arg(long, value_name = "QUANTITY", default_value = "512Mi", value_parser = bytes)]
    max_buffers: u64,
    /// Maximum number of client connections
    #[arg(long, value_name = "NUMBER", default_value_t = Limits::default().connections)]
    max_connections: usize,
    /// Maximum time until a backend's response begins, and of pauses within it
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    backend_timeout: Duration,
    /// Maximum time of a request after it has been sent to a backend
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    request_timeout: Duration,
    /// Maximum time that a client leaves sent data unread
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    stall_timeout: Duration,
    /// Time that the gateway still accepts requests after it begins to shut down, so that load balancers notice that it isn't ready
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    shutdown_delay: Duration,
    /// Maximum time for the last responses after that. Set the pod's terminationGracePeriodSeconds above the sum of both
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    shutdown_timeout: Duration,
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = duration::parse(text).filter(|seconds| (0.0..=604_800.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a duration of at most a week, such as 90s, 5m or 1h30m".to_owned())
}

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const NANO: i128 = 1_000_000_000;
    let parsed = quantity::parse_text(text).map(|quantity| quantity / NANO).and_then(|bytes| u64::try_from(bytes).ok());
    parsed.filter(|bytes| *bytes > 0).ok_or_else(|| "expected a number of bytes, such as 32Mi".to_owned())
}

fn served_path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') || text.contains(['?', '#']) {
        return Err("expected a path that begins with a slash, such as /v1/".to_owned());
    }
    Ok(text.to_owned())
}

impl LimitArgs {
    fn limits(&self) -> Limits {
        Limits {
            connections: self.max_connections.max(1),
            body_bytes: self.max_body,
            buffered_bytes: usize::try_from(self.max_buffer).unwrap_or(usize::MAX),
            all_buffered_bytes: usize::try_from(self.max_buffers).unwrap_or(usize::MAX),
            held: self.max_held,
            concurrency: self.max_in_flight,
            hold_timeout: self.hold_timeout,
            backend_timeout: self.backend_timeout,
            request_timeout: self.request_timeout,
            stall_timeout: self.stall_timeout,
            ..Limits::default()
        }
    }
}

fn identity(given: Option<String>) -> String {
    given.unwrap_or_else(|| {
        let machine = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        format!("{machine}-{}", std::process::id())
    })
}

/// TLS with the certificate that is current at each connection.
pub(super) fn acceptor(shown: Arc<CurrentCertificate>) -> Result<TlsAcceptor> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(shown);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl BackendArgs {
    fn backends(&self, limits: Arc<Limits>) -> Result<Backends> {
        let ca = match &self.backend_ca {
            None => Vec::new(),
            Some(file) => {
                let context = || format!("--backend-ca {}", file.display());
                certificates("the file", &std::fs::read(file).with_context(context)?).with_context(context)?
            }
        };
        let tls = tls_settings(&ca).context("--backend-ca")?;
        let resolver = Resolver { overrides: self.overrides.clone(), allow_loopback: self.allow_loopback };
        Ok(Backends::new(resolver, Arc::new(tls), limits))
    }
}

/// The tasks of the process, each with its description: none of them ends by itself.
pub(super) type Tasks = JoinSet<&'static str>;

impl ClientArgs {
    fn rules(&self, client: &Client, tasks: &mut Tasks) -> Result<Rules> {
        let quotas = Arc::<Quotas>::default();
        let keys = match &self.keys {
            None => None,
            Some(folder) => {
                // It is better to find an initial error before any request is served.
                let read = key_folder::read(folder).map_err(|error| anyhow!("--keys: {error}"))?;
                quotas.set_namespaces(read.namespaces.clone());
                let keys = Arc::new(ArcSwap::from_pointee(read));
                let keeping = key_folder::keep(folder.clone(), Arc::clone(&keys), Arc::clone(&quotas));
                let keeping = keeping.context("watching the folder of --keys")?;
                tasks.spawn(async { (keeping.await, "the watch of keys").1 });
                Some(keys)
            }
        };
        let review = self.token_review.then(|| reviewer(client.clone(), self.audiences.clone()));
        let authentication = Authentication::new(keys, review);
        if authentication.is_open() {
            tracing::warn!("every client that reaches the gateway is served: restrict this with --keys or --token-review");
        }
        let paths = if self.paths.is_empty() { PATHS.map(str::to_owned).to_vec() } else { self.paths.clone() };
        Ok(Rules { authentication, quotas, paths })
    }

    /// The certificate that clients are shown, and the TLS acceptor that uses it.
    fn tls(&self, tasks: &mut Tasks) -> Result<Option<(TlsAcceptor, Arc<CurrentCertificate>)>> {
        let Some(folder) = &self.tls_certs else { return Ok(None) };
        let shown = certificate::watched(folder, "--tls-certs", tasks)?;
        Ok(Some((acceptor(Arc::clone(&shown)).context("setting up TLS")?, shown)))
    }
}

/// The stage of a gateway.
#[derive(Debug, Default)]
struct Stage {
    serves: AtomicBool,
    ends: AtomicBool,
}

impl Stage {
    fn obstacle(&self) -> Option<String> {
        if self.ends.load(Ordering::Relaxed) {
            return Some("the gateway is shutting down".to_owned());
        }
        (!self.serves.load(Ordering::Relaxed)).then(|| "the gateway isn't registered with the hosts yet".to_owned())
    }
}

/// Fails when a task ends, which none should.
pub(super) async fn ended(tasks: &mut Tasks) -> Result<()> {
    bail!("{} has stopped", tasks.join_next().await.and_then(Result::ok).unwrap_or("a task"))
}

pub(super) async fn run(args: GatewayArgs) -> Result<ExitCode> {
    // First of all: as process 1 of a container, a program without a handler gets no signals.
    let mut stopped = pin!(stop_signal()?);
    let log_level =
        LogLevel::start(&args.log_level, args.log_format, None, None).with_context(|| format!("--log-level {}", args.log_level))?;
    let client = args.cluster.client().await?;
    let limits = Arc::new(args.limits.limits());
    let models = Arc::new(Models::new(Arc::new(Shared::new(limits.concurrency, limits.held))));
    let activity = ActivityMap::new(client.clone(), &args.host.host_namespace, &identity(args.identity), Arc::clone(&models));
    let activity = Arc::new(activity.map_err(|error| anyhow!("--identity: {error}"))?);
    let mut tasks = Tasks::new();
    let backends = Arc::new(args.backends.backends(Arc::clone(&limits))?);
    let rules = args.clients.rules(&client, &mut tasks)?;
    let has_namespaces = !rules.authentication.is_open();
    let (acceptor, shown) = args.clients.tls(&mut tasks)?.unzip();
    let proxy = Arc::new(Proxy::new(Arc::clone(&models), Arc::clone(&backends), rules, limits));
    let watches = Arc::new(Watches::new(Arc::clone(&models), args.backends.domain.cluster_domain));
    let stage = Arc::<Stage>::default();

    let (watched, reached) = (Arc::clone(&watches), Arc::clone(&stage));
    let obstacle = move || {
        let certificate = || {
            let is_missing = shown.as_ref().is_some_and(|shown| !shown.any());
            is_missing.then(|| "the gateway has no certificate yet: its log has the reason".to_owned())
        };
        reached.obstacle().or_else(|| watched.obstacle()).or_else(certificate)
    };
    let mut registry = Registry::default();
    proxy.counts.register(&mut registry);
    registry.register_collector(Box::new(GatewayState { models, backends, buffered: proxy.buffered.clone() }));
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    tracing::info!(address = %listener.local_addr()?, "answering /healthz, /readyz and /metrics");
    tasks.spawn(async move {
        health::serve_ready(listener, Arc::new(obstacle), registry, log_level, Router::new()).await.ok();
        "answering /healthz"
    });

    // Hosts must know this gateway before it reads the models' reservations: otherwise they could stop a model to which it sends a request.
    tokio::select! {
        () = activity.register() => {}
        ended = ended(&mut tasks) => ended?,
        () = &mut stopped => return Ok(ExitCode::SUCCESS),
    }
    let (watching, writing, host_namespace) = (Arc::clone(&watches), Arc::clone(&activity), args.host.host_namespace);
    tasks.spawn(async move {
        watching.keep(client, &host_namespace, has_namespaces).await;
        "the watch of the cluster"
    });
    tasks.spawn(async move {
        writing.keep().await;
        "writing the gateway's observations"
    });
    tokio::select! {
        () = watches.listed() => {}
        ended = ended(&mut tasks) => ended?,
        () = &mut stopped => {
            tasks.shutdown().await;
            activity.delete().await;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let listener = TcpListener::bind(args.serve).await.with_context(|| format!("listening on {}", args.serve))?;
    tracing::info!(address = %listener.local_addr()?, "answering clients");
    stage.serves.store(true, Ordering::Relaxed);
    let stop = async {
        stopped.await;
        tracing::info!("shutting down: no longer ready");
        stage.ends.store(true, Ordering::Relaxed);
        sleep(args.limits.shutdown_delay).await;
        tracing::info!("shutting down: finishing requests in progress");
    };
    tokio::select! {
        served = server::serve(proxy, listener, acceptor, stop, args.limits.shutdown_timeout) => served.context("answering clients")?,
        ended = ended(&mut tasks) => ended?,
    }
    // After the last response, when no task could write it again.
    tasks.shutdown().await;
    activity.delete().await;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_written_as_kubernetes_has_them() {
        assert_eq!((bytes("32Mi"), bytes("1k")), (Ok(32 << 20), Ok(1000)));
        assert_eq!((duration("1m30s"), duration("0")), (Ok(Duration::from_secs(90)), Ok(Duration::ZERO)));
        for wrong in ["", "0", "-1", "x"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "-1s", "9000h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(served_path("/v1/").is_ok() && served_path("v1").is_err() && served_path("/v1?a").is_err());
    }
}
