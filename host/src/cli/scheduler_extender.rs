//! `pointsman scheduler-extender`.

use super::{
    ClusterArgs,
    cache::CacheArgs,
    certificate,
    controller::stop_signal,
    gateway::{Tasks, ended},
    policies::TrustArgs,
    process_name,
};
use crate::{
    keeper::{
        builtins,
        follow::{RecordSource, follow},
    },
    load::Loader,
    logging::{LogFormat, LogLevel},
    permissions::SCHEDULER,
    scheduler_extender::{
        Extender, ExtenderParts, Writer,
        counts::ExtenderState,
        placements,
        server::{self, Listeners},
    },
    serve::{
        admission::{
            certificates::client_roots,
            tls::{TlsListener, signed_by},
        },
        health,
    },
    source::file,
};
use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgAction, Args};
use pointsman_core::{duration, placement::Settings, settings::HOST_NAMESPACE};
use pointsman_crds::policy::plugin::PolicyPoint;
use pointsman_sandbox::engine::Engines;
use prometheus_client::registry::Registry;
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpListener, sync::watch, task::spawn_blocking};

/// The maximum number of policies that run at once.
const SLOTS: u32 = 16;

#[derive(Args, Debug)]
pub(super) struct SchedulerExtenderArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    ports: PortArgs,
    /// File with the settings of placements, as YAML. It is reloaded when it changes; while it is invalid, the previous settings stay
    /// active
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Namespace of the Pointsman controller whose active policy set is used; without one, the built-in policies are used
    #[arg(long, value_name = "NAMESPACE", env = "POINTSMAN_NAMESPACE", default_value = HOST_NAMESPACE)]
    policy_set: String,
    #[command(flatten)]
    trust: TrustArgs,
    /// Maximum time that a policy may take per pod, if its PolicyPlugin specifies none. Set the scheduler's httpTimeout above it
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = deadline)]
    policy_deadline: Duration,
    /// Namespace in which model agents report, Pointsman's or OME's; default: policies get no progress of downloads
    #[arg(long, value_name = "NAMESPACE")]
    model_agent_namespace: Option<String>,
    /// Number of placements to record for `pointsman explain pod/NAME`; 0: none. They take up to 64 MiB of memory
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=100_000))]
    record_placements: u32,
    /// Delete the pods of a gang that have nodes if the others find none in time, so that their controller recreates them and the gang
    /// starts over. Pods without a controller are not recreated. A gang with a Ready pod, or one that has been complete, is never dissolved
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    dissolve_gangs: bool,
    /// Name of this extender in events; default: the name of the pod or machine, with the process ID
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,
    /// Log filter: error, warn, info, debug, trace, or a filter such as info,pointsman=debug. `/log-level` changes it at runtime
    #[arg(long, value_name = "FILTER", env = "POINTSMAN_LOG", default_value = "info")]
    log_level: String,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

/// Addresses and ports of the extender
#[derive(Args, Debug)]
struct PortArgs {
    /// Address and port for schedulers. By default, only a scheduler in the same pod reaches it; for any other, use --secure-serving
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9404")]
    bind: SocketAddr,
    /// Serve schedulers with TLS
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    secure_serving: bool,
    /// Folder with the certificate for schedulers: tls.crt and tls.key. Default: the extender generates one, which a scheduler accepts if
    /// its configuration specifies no CA
    #[arg(long, value_name = "FOLDER", requires = "secure_serving")]
    cert_path: Option<PathBuf>,
    /// PEM file with CAs; only schedulers with a certificate signed by one of them are served
    #[arg(long, value_name = "FILE", requires = "secure_serving")]
    client_ca: Option<PathBuf>,
    /// Address and port that serve /healthz, /readyz, /metrics and /placements
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
}

fn deadline(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration between 1ms and 5s, such as 100ms".to_owned();
    let seconds = duration::parse(text).filter(|seconds| (0.001..=5.0).contains(seconds)).ok_or_else(wrong)?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Reads the settings of a file.
fn read_settings(file: &Path) -> Result<Arc<Settings>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("--config {}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
    Settings::from_yaml(&text).map(Arc::new).map_err(|error| wrong(&error))
}

/// The folder of a file.
fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl SchedulerExtenderArgs {
    /// The current settings, and a receiver of their changes. It is better to find an initial error before any call is served.
    fn settings(&self, tasks: &mut Tasks) -> Result<(Arc<Settings>, watch::Receiver<Arc<Settings>>)> {
        let Some(file) = self.config.clone() else {
            let settings = Arc::<Settings>::default();
            return Ok((Arc::clone(&settings), watch::channel(settings).1));
        };
        // Start to watch before the first read, so that no change is missed.
        let changes = file::watch(folder(&file)).context("watching the folder of --config")?;
        let settings = read_settings(&file).map_err(|error| anyhow!(error))?;
        let (newest, known) = watch::channel(Arc::clone(&settings));
        let take = move |read: Result<Arc<Settings>, String>| match read {
            Ok(settings) => _ = newest.send_if_modified(|before| std::mem::replace(before, Arc::clone(&settings)) != settings),
            Err(error) => tracing::warn!(error, "the settings can't be used; the previous ones stay active"),
        };
        let read = move || {
            let file = file.clone();
            async move { read_settings(&file) }
        };
        tasks.spawn(async { (file::follow(changes, read, take).await, "watching --config").1 });
        Ok((settings, known))
    }

    fn loader(&self) -> Result<Arc<Loader>> {
        let engines = Engines::with_slots(SLOTS).map_err(|error| anyhow!("{error:#}")).context("starting the engine of policies")?;
        Ok(Arc::new(Loader::new(Arc::new(engines), self.cache.compilers()?).with_hot_deadline(self.policy_deadline)))
    }
}

impl PortArgs {
    /// Clients of this port can reserve nodes, and keep other pods off them.
    fn check(&self) -> Result<()> {
        if self.bind.ip().is_loopback() || self.client_ca.is_some() {
            return Ok(());
        }
        bail!(
            "--bind {}: whoever reaches this address could reserve nodes: set --secure-serving and --client-ca, or bind to 127.0.0.1",
            self.bind
        );
    }

    async fn listener(&self, tasks: &mut Tasks) -> Result<Listeners> {
        let listener = TcpListener::bind(self.bind).await.with_context(|| format!("--bind: listening on {}", self.bind))?;
        tracing::info!(address = %listener.local_addr()?, tls = self.secure_serving, "answering schedulers");
        if !self.secure_serving {
            return Ok(Listeners::Plain(listener));
        }
        let shown = certificate::shown(self.cert_path.as_deref(), tasks)?;
        let clients = match &self.client_ca {
            None => None,
            Some(file) => {
                let context = || format!("--client-ca {}", file.display());
                let roots = client_roots(&fs::read(file).with_context(context)?).with_context(context)?;
                Some(signed_by(roots).with_context(context)?)
            }
        };
        TlsListener::new(listener, shown, clients).map(Listeners::Tls).context("setting up TLS")
    }
}

pub(super) async fn run(args: SchedulerExtenderArgs) -> Result<ExitCode> {
    // First of all: as process 1 of a container, a program without a handler gets no signals.
    let mut stopped = pin!(stop_signal()?);
    let log_level =
        LogLevel::start(&args.log_level, args.log_format, None, None).with_context(|| format!("--log-level {}", args.log_level))?;
    args.ports.check()?;
    let client = args.cluster.client().await?;
    let mut tasks = Tasks::new();
    let (settings, newest) = args.settings(&mut tasks)?;
    let loader = args.loader()?;
    let compiling = Arc::clone(&loader);
    let set =
        spawn_blocking(move || builtins(&compiling)).await.context("loading the built-in policies")?.map_err(|error| anyhow!(error))?;
    let source = RecordSource {
        client: client.clone(),
        namespace: args.policy_set.clone(),
        trust: args.trust.trust()?,
        loader: Arc::clone(&loader),
        point: PolicyPoint::SchedulingScoring,
        role: format!("apply deploy/{SCHEDULER}"),
    };
    let (followed, following) = follow(source, set);
    tasks.spawn(async { (following.await, "following the policy set").1 });
    let parts = ExtenderParts {
        client: client.clone(),
        loader,
        followed,
        agents: args.model_agent_namespace,
        record_placements: args.record_placements as usize,
        dissolve_gangs: args.dissolve_gangs,
    };
    let extender = Extender::start(parts, settings).await.map_err(|error| anyhow!("--config: {error}"))?;
    let following = Arc::clone(&extender).follow_settings(newest);
    tasks.spawn(async { (following.await, "following --config").1 });
    let writer = Writer::new(client, args.policy_set, args.identity.unwrap_or_else(process_name));
    let tidying = Arc::clone(&extender).tidy(writer);
    tasks.spawn(async { (tidying.await, "the upkeep of gangs").1 });

    let mut registry = Registry::default();
    extender.counts().register(&mut registry);
    registry.register_collector(Box::new(ExtenderState(Arc::clone(&extender))));
    let listener = TcpListener::bind(args.ports.listen).await.with_context(|| format!("--listen: listening on {}", args.ports.listen))?;
    tracing::info!(address = %listener.local_addr()?, "answering /healthz, /readyz, /metrics and /placements");
    let (probed, further) = (Arc::clone(&extender), placements::routes(Arc::clone(&extender)));
    tasks.spawn(async move {
        health::serve_ready(listener, Arc::new(move || probed.obstacle()), registry, log_level, further).await.ok();
        "answering /healthz"
    });

    let listener = args.ports.listener(&mut tasks).await?;
    let (ending, mut ends) = watch::channel(false);
    let stop = async move { _ = ends.wait_for(|ends| *ends).await };
    let mut serving = pin!(server::serve(extender, listener, stop));
    tokio::select! {
        () = &mut stopped => tracing::info!("shutting down: finishing requests in progress"),
        served = &mut serving => return served.map(|()| ExitCode::SUCCESS).context("answering schedulers"),
        ended = ended(&mut tasks) => ended?,
    }
    ending.send_replace(true);
    serving.await.context("answering schedulers")?;
    tasks.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn a_wrong_setting_is_told_with_the_file() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("placement.yaml");
        fs::write(&file, "{}\n").unwrap();
        assert_eq!(*read_settings(&file).unwrap(), Settings::default());
        fs::write(&file, "prise: example.com/price").unwrap();
        let said = read_settings(&file).unwrap_err();
        assert!(said.starts_with(&format!("--config {}: ", file.display())) && said.contains("prise"), "{said}");
        assert!(read_settings(&folder.path().join("none")).is_err());
    }

    #[test]
    fn an_address_that_others_reach_needs_their_certificates() {
        let ports = |bind: &str, client_ca: Option<&str>| PortArgs {
            bind: bind.parse().unwrap(),
            secure_serving: client_ca.is_some(),
            cert_path: None,
            client_ca: client_ca.map(PathBuf::from),
            listen: "127.0.0.1:0".parse().unwrap(),
        };
        assert!(ports("127.0.0.1:9404", None).check().is_ok() && ports("0.0.0.0:9404", Some("ca.crt")).check().is_ok());
        let refused = ports("0.0.0.0:9404", None).check().unwrap_err().to_string();
        assert!(refused.contains("--client-ca"), "{refused}");
    }

    #[test]
    fn a_deadline_is_bounded() {
        assert_eq!(deadline("50ms"), Ok(Duration::from_millis(50)));
        for wrong in ["0", "6s", "fast"] {
            assert!(deadline(wrong).is_err(), "{wrong}");
        }
    }
}
