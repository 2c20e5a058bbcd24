//! `pointsman controller`.

use super::{
    ClusterArgs, external_metrics::ExternalMetricsArgs, memory_usage::MemoryUsageArgs, model_reports::ModelReportArgs,
    policies::PolicyArgs, servers::Servers, settings::SettingsArgs, traces::TracesArgs,
};
use crate::{
    api_errors::{ApiErrors, observed},
    apply::Applier,
    comparison::LiveComparison,
    controller,
    keeper::{self, start::Started},
    leader::{
        Timing,
        agreement::{Agreement, SharedSettings},
        campaign,
    },
    liveness::Liveness,
    logging::{LogFormat, LogLevel},
    metrics::{HostState, Reconciles},
    pace::{self, Pacer},
    serve::{
        admission::{
            Admission, AdmissionServer,
            certificates::{self, Certificates, ServedApi},
            counts::AdmissionCounts,
            tls::{self, CertificateExpiry, CurrentCertificate},
        },
        health,
    },
    traces::{self, Origin, TraceLayer, Traces},
    watch::{Shared, apis},
};
use anyhow::{Context, Result, bail};
use clap::{ArgAction, ArgMatches, Args, Command};
use kube::Client;
use pointsman_core::{
    claims::{Claim, Claims},
    settings::Settings,
};
use pointsman_sandbox::isolate;
use std::{net::SocketAddr, path::PathBuf, pin::pin, process::ExitCode, sync::Arc};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_rustls::rustls::{pki_types::ServerName, server::danger::ClientCertVerifier};

/// The name of the hosts' Lease.
const LEASE: &str = "pointsman";

/// The name of this subcommand.
pub(super) const SUBCOMMAND: &str = "controller";

/// The flags that may differ between hosts: they don't affect what a host writes.
const OWN_FLAGS: [&str; 12] = [
    "kubeconfig",
    "context",
    "host-namespace",
    "identity",
    "workers",
    "listen",
    "log-level",
    "log-format",
    "cache",
    "cache-key",
    "otlp-endpoint",
    "otlp-sample",
];

/// The values of all other flags, including defaults.
pub(super) fn shared_settings(matches: &ArgMatches) -> SharedSettings {
    let command = ControllerArgs::augment_args(Command::new(SUBCOMMAND));
    let flags = command.get_arguments().filter_map(|flag| Some((flag.get_long()?.to_owned(), flag.get_id().as_str())));
    let shared = flags.filter(|(name, _)| !OWN_FLAGS.contains(&name.as_str())).map(|(name, id)| {
        let values = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
        (name, values.map(|value| value.to_string_lossy().into_owned()).collect())
    });
    SharedSettings(shared.collect())
}

#[derive(Args, Debug)]
pub(super) struct ControllerArgs {
    /// Settings that all hosts must have in common
    #[arg(skip)]
    pub(super) shared: SharedSettings,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    policies: PolicyArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Kind that this controller manages, optionally in one namespace, such as InferenceService or llmisvc:team-a; may be repeated. Other
    /// kinds are not managed; default: all kinds
    #[arg(long = "control", value_name = "KIND[:NAMESPACE]")]
    claims: Vec<Claim>,
    /// Namespaces that this controller manages, separated by commas. It reads no others, and needs rights only in these; default: all
    /// namespaces
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = namespace)]
    namespaces: Vec<String>,
    /// Write labels of OME's labels page, such as serving.ome.io/model, to InferenceServices, BenchmarkJobs and TrainingJobs, so that
    /// kubectl can select by them. Labels set by others stay unchanged. With false, the controller removes those that it has written
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    subject_labels: bool,
    /// Maximum number of subjects that are reconciled at once; each uses one connection
    #[arg(long, value_name = "NUMBER", default_value_t = controller::WORKERS)]
    workers: usize,
    /// Maximum number of services that restart their pods at once after a change of policies, of a runtime or of a base configuration; 0:
    /// no limit. Edits of a service's own spec are not limited
    #[arg(long, value_name = "NUMBER", default_value_t = pace::MAX_CONCURRENT_RESTARTS)]
    pace: usize,
    /// Address and port that serve /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    #[command(flatten)]
    memory_usage: Box<MemoryUsageArgs>,
    #[command(flatten)]
    model_reports: Box<ModelReportArgs>,
    #[command(flatten)]
    webhook: Box<WebhookArgs>,
    #[command(flatten)]
    external_metrics: Box<ExternalMetricsArgs>,
    /// Log filter: error, warn, info, debug, trace, or a filter such as info,pointsman=debug. `/log-level` changes it at runtime
    #[arg(long, value_name = "FILTER", env = "POINTSMAN_LOG", default_value = "info")]
    log_level: String,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
    #[command(flatten)]
    traces: Box<TracesArgs>,
}

#[derive(Args, Debug)]
struct WebhookArgs {
    /// Address and port of the admission webhook, with TLS; default: no webhook
    #[arg(long, value_name = "ADDRESS:PORT")]
    webhook: Option<SocketAddr>,
    /// Folder with the webhook's certificate, as cert-manager writes it: tls.crt, tls.key and, for the caBundle, ca.crt. Default: the host
    /// generates certificates, and stores them in the Secret pointsman-webhook
    #[arg(long, value_name = "FOLDER", requires = "webhook")]
    webhook_certs: Option<PathBuf>,
    /// Name or address by which the API server calls the webhook; may be repeated. Default: pointsman-webhook.NAMESPACE.svc
    #[arg(long = "webhook-host", value_name = "NAME", value_parser = webhook_host, requires = "webhook", conflicts_with = "webhook_certs")]
    webhook_hosts: Vec<String>,
    /// PEM file with the CAs of client certificates, which clients of the webhook must then present; the API server presents one if its
    /// admission configuration specifies it. Default: every client is served
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_client_ca: Option<PathBuf>,
    /// Name of the ValidatingWebhookConfiguration and the MutatingWebhookConfiguration whose caBundle the leader maintains
    #[arg(long, value_name = "NAME", default_value = "pointsman")]
    webhook_configuration: String,
}

fn namespace(name: &str) -> Result<String, String> {
    let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(is_known) {
        return Err("expected the names of namespaces, separated by commas without spaces".to_owned());
    }
    Ok(name.to_owned())
}

/// A name for which a certificate can be issued.
pub(super) fn webhook_host(name: &str) -> Result<String, String> {
    match ServerName::try_from(name) {
        Ok(_) if !name.ends_with('.') => Ok(name.to_owned()),
        _ => {
            let example = "such as pointsman-webhook.pointsman-system.svc, without a dot at its end";
            Err(format!("write a DNS name, {example}, or an IP address without brackets; a port isn't part of it"))
        }
    }
}

impl WebhookArgs {
    /// The listener of the webhook, if it is served.
    async fn listen(&self) -> Result<Option<TcpListener>> {
        let Some(address) = self.webhook else { return Ok(None) };
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address} for the webhook"))?;
        tracing::info!(webhook = %listener.local_addr()?, "answering the admission webhook");
        Ok(Some(listener))
    }

    /// Verifies clients, if they need a certificate.
    fn clients(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>> {
        let Some(file) = &self.webhook_client_ca else { return Ok(None) };
        let context = || format!("--webhook-client-ca {}", file.display());
        let bytes = std::fs::read(file).with_context(context)?;
        let roots = certificates::client_roots(&bytes).with_context(context)?;
        tls::signed_by(roots).map(Some).with_context(context)
    }

    fn certificates(&self, namespace: &str) -> Certificates {
        Certificates::new(ServedApi::Webhook, namespace, self.webhook_certs.clone(), self.webhook_hosts.clone())
    }
}

impl ControllerArgs {
    /// Starts to send traces, if there is a collector. The layer converts spans of `tracing`.
    fn start_traces(&self) -> Result<Option<(Traces, TraceLayer)>> {
        let origin = Origin { service: "pointsman", identity: &self.policies.identity(), namespace: self.policies.namespace() };
        Ok(self.traces.start(origin)?.map(|(traces, tracer)| (traces, traces::layer(tracer))))
    }

    /// Starts the log. Rights that the API server reports as missing are logged once.
    fn start_log(&self, layer: Option<TraceLayer>) -> Result<(LogLevel, Arc<ApiErrors>)> {
        let errors = Arc::new(ApiErrors::new(self.policies.namespace(), self.namespaces.iter().cloned().collect()));
        let level = LogLevel::start(&self.log_level, self.log_format, layer, Some(errors.missing_rights()))
            .with_context(|| format!("--log-level {}", self.log_level))?;
        Ok((level, errors))
    }

    /// The client, whose errors are counted, and the URL of its cluster.
    async fn observed_client(&self, errors: &Arc<ApiErrors>) -> Result<(Client, String)> {
        let (client, url) = self.cluster.client_with_url().await?;
        Ok((observed(client, Arc::clone(errors)), url))
    }

    /// The settings for all subjects; none if the host is stopped before they are known.
    async fn settings_of_all(&self, client: &Client, url: &str, stopped: &mut (impl Future<Output = ()> + Unpin)) -> Option<Settings> {
        let identity = self.policies.identity();
        tokio::select! {
            settings = self.settings.settings_in_cluster(client, url, self.policies.namespace(), &identity) => Some(settings),
            () = stopped => None,
        }
    }
}

pub(super) async fn run(args: ControllerArgs) -> Result<ExitCode> {
    // First of all: as process 1 of a container, a program without a handler gets no signals.
    let mut stopped = pin!(stop_signal()?);
    let (traces, layer) = args.start_traces()?.unzip();
    let (log_level, api_errors) = args.start_log(layer)?;
    end_on_panic();
    let (client, url) = args.observed_client(&api_errors).await?;
    let Some(settings_of_all) = args.settings_of_all(&client, &url, &mut stopped).await else { return Ok(ExitCode::SUCCESS) };
    let memory_usage = args.memory_usage.source(settings_of_all.prometheus.as_deref())?;
    let (unlisted, listed) = watch::channel(Some("the watches haven't begun yet".to_owned()));
    let (shared, claims) = (Shared::default(), Claims { kinds: args.claims, namespaces: args.namespaces.into_iter().collect() });
    let stage = LiveComparison::new(shared.clone(), claims.clone(), settings_of_all.clone(), listed.clone())
        // Dry runs write nothing, so they need no fence.
        .with_dry_runs(Applier::new(client.clone(), shared.clone()));
    let (pacer, liveness) = (Arc::new(Pacer::new(Some(args.pace).filter(|most| *most > 0))), Liveness::default());
    let settings = args.policies.settings(stage, Arc::clone(&pacer), liveness.clone())?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    tracing::info!(address = %listener.local_addr()?, "answering /healthz, /readyz and /metrics");
    let (webhook, clients) = (args.webhook.listen().await?, args.webhook.clients()?);
    let external_metrics = args.external_metrics.listen().await?;

    // First the writers end, then the lease is released.
    let (end, ending) = watch::channel(false);
    let (stop, stopping) = watch::channel(false);
    let (namespace, identity) = (settings.options.namespace.clone(), settings.options.identity.clone());
    let (agreement, differs) = Agreement::new(args.shared);
    let (leadership, campaign) =
        campaign(client.clone(), &namespace, LEASE, &identity, Timing::default(), agreement, is_set(stopping.clone()));
    let campaign = tokio::spawn(campaign);

    let started = tokio::select! {
        started = keeper::start::start(client.clone(), settings, leadership.clone()) => started?,
        () = &mut stopped => {
            tracing::info!("stopping before everything has started");
            return give_back(&stop, campaign).await;
        }
    };
    let (Started { policies, changes, obstacle }, keep_policies) = started;
    let (served, apis) = watch::channel(apis::Apis::default());
    let admission = Admission {
        policies: Arc::clone(&policies),
        // The built-in set, with which every host starts, has an evaluator.
        evaluator: policies.active().rules().evaluator().cloned(),
        shared: shared.clone(),
        claims: claims.clone(),
        obstacles: [obstacle.clone(), listed.clone()],
        counts: Arc::<AdmissionCounts>::default(),
    };
    let reconciles = Arc::<Reconciles>::default();
    let inputs = controller::Inputs {
        client: client.clone(),
        namespace: namespace.clone(),
        apis: apis.clone(),
        policies: Arc::clone(&policies),
        changes,
        obstacle: obstacle.clone(),
        leadership: leadership.clone(),
        identity: identity.clone(),
        settings: settings_of_all,
        memory_usage,
        model_reports: args.model_reports.reports(),
        claims,
        subject_labels: args.subject_labels,
        shared: shared.clone(),
        pacer: Arc::clone(&pacer),
        workers: args.workers,
        reconciles: Arc::clone(&reconciles),
        liveness: liveness.clone(),
        unlisted,
    };
    let (counts, shown) = (Arc::clone(&admission.counts), Arc::<CurrentCertificate>::default());
    let answered = webhook.is_some().then(|| (&*counts, CertificateExpiry(Arc::clone(&shown))));
    let mut servers = Servers::default();
    if let Some(listener) = external_metrics {
        let server = args.external_metrics.server(listener, &namespace, client.clone(), leadership.clone());
        servers.start_external_metrics(server, is_set(stopping.clone()));
    }
    if let Some(listener) = webhook {
        let (configuration, certificates) = (args.webhook.webhook_configuration.clone(), args.webhook.certificates(&namespace));
        let (client, leadership) = (client.clone(), leadership.clone());
        let serving = AdmissionServer { listener, certificates, shown, clients, configuration, namespace, client, leadership };
        servers.start_webhook(admission, serving, is_set(stopping.clone()));
    }
    let readiness = health::Readiness { apis, obstacle, listed, shared, liveness, differs, served: servers.served() };
    let mut registry = health::registry(HostState { policies, pacer, leadership }, readiness.clone(), &reconciles, &api_errors, answered);
    if let Some(traces) = &traces {
        traces.counts().register(&mut registry);
    }
    let mut controlled = pin!(controller::run(inputs, is_set(ending)));
    tokio::select! {
        result = health::serve(listener, readiness, registry, log_level) => result.context("answering /healthz")?,
        () = apis::keep(client, served) => bail!("the watch of CustomResourceDefinitions has stopped"),
        () = keep_policies => bail!("the watch of PolicyPlugins has stopped"),
        () = &mut controlled => bail!("the controller has stopped"),
        ended = servers.ended() => bail!("{} has stopped", ended?),
        () = stopped => tracing::info!("stopping"),
    }
    end.send_replace(true);
    controlled.await;
    // Nothing writes any more, so another host can take the lease at once.
    let code = give_back(&stop, campaign).await?;
    servers.finish().await?;
    if let Some(traces) = traces {
        traces.flush().await;
    }
    Ok(code)
}

/// Releases the lease, if this host holds it.
async fn give_back(stop: &watch::Sender<bool>, campaign: JoinHandle<()>) -> Result<ExitCode> {
    stop.send_replace(true);
    campaign.await.context("releasing the lease")?;
    Ok(ExitCode::SUCCESS)
}

/// Resolves when the flag is set, or when its sender is gone.
async fn is_set(mut flag: watch::Receiver<bool>) {
    _ = flag.wait_for(|set| *set).await;
}

/// If a task panics, except while planning one subject, the process ends: otherwise the rest of the host would stay the leader and respond
/// as if it were healthy. Another host, or this one restarted, does better.
fn end_on_panic() {
    isolate::install_hook(|| {
        tracing::error!("a task has panicked: the host ends");
        std::process::abort();
    });
}

/// Resolves on SIGTERM, which a kubelet sends, and on Ctrl-C.
pub(super) fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_must_have_all_flags_in_common_but_those_that_are_a_host_s_own() {
        let command = || ControllerArgs::augment_args(Command::new(SUBCOMMAND));
        for own in OWN_FLAGS {
            assert!(command().get_arguments().any(|flag| flag.get_long() == Some(own)), "there is no --{own}");
        }
        let matches = command().get_matches_from([SUBCOMMAND, "--pace=3", "--control=llmisvc:a", "--control=isvc", "--workers=9"]);
        let SharedSettings(shared) = shared_settings(&matches);
        assert_eq!(
            (&shared["pace"][..], &shared["control"][..]),
            (&["3".to_owned()][..], &["llmisvc:a".to_owned(), "isvc".to_owned()][..])
        );
        assert_eq!((&shared["cluster-domain"][..], &shared["gateway"][..]), (&["cluster.local".to_owned()][..], &[][..]));
        assert!(!shared.contains_key("workers"), "{shared:?}");
    }

    #[test]
    fn a_host_of_the_webhook_is_what_a_certificate_can_be_for() {
        for name in ["pointsman-webhook.pointsman-system.svc", "localhost", "127.0.0.1", "fd00::1"] {
            assert_eq!(webhook_host(name).as_deref(), Ok(name));
        }
        for wrong in ["", "a.svc.", "[::1]", "127.0.0.1:9443", "https://a.svc", "a b"] {
            assert!(webhook_host(wrong).unwrap_err().starts_with("write a DNS name, such as "), "{wrong}");
        }
    }
}
