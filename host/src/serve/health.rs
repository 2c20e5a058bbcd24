//! /healthz, /readyz and /metrics.

use super::{
    admission::{
        certificates::ServedApi,
        counts::AdmissionCounts,
        tls::{CertificateExpiry, CurrentCertificate},
    },
    external_metrics::front_proxy::FrontProxy,
};
use crate::{
    api_errors::ApiErrors,
    liveness::Liveness,
    logging::LogLevel,
    metrics::{Format, HostState, Reconciles, single},
    watch::{self as watches, Shared, apis::Apis},
};
use axum::{
    Router,
    extract::{ConnectInfo, DefaultBodyLimit, State},
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, registry::Registry};
use std::{collections::BTreeSet, fmt, net::SocketAddr, sync::Arc};
use tokio::{net::TcpListener, sync::watch};

/// The maximum length of a log filter, in bytes.
const LONGEST_FILTER: usize = 1 << 10;

/// An API that a host serves to the API server, as far as the host's readiness depends on it.
#[derive(Clone, Debug)]
pub struct Served {
    /// The API.
    pub api: ServedApi,
    /// Its certificate.
    pub certificate: Arc<CurrentCertificate>,
    /// The accepted clients, if they must be read first.
    pub front_proxy: Option<Arc<FrontProxy>>,
}

impl Served {
    fn obstacle(&self) -> Option<String> {
        let called = self.api.called();
        self.certificate.obstacle(called).or_else(|| self.front_proxy.as_ref()?.obstacle(called))
    }
}

/// The state that this host's readiness depends on.
#[derive(Clone, Debug)]
pub struct Readiness {
    /// The kinds that the cluster serves.
    pub apis: watch::Receiver<Apis>,
    /// The reason why the policies aren't active, or none.
    pub obstacle: watch::Receiver<Option<String>>,
    /// The kinds that aren't listed yet, or none.
    pub listed: watch::Receiver<Option<String>>,
    /// The world, with the kinds that the host may not list.
    pub shared: Shared,
    /// The work in progress.
    pub liveness: Liveness,
    /// The differences between this host's flags and the leader's, or none.
    pub differs: watch::Receiver<Option<String>>,
    /// The APIs that this host serves to the API server.
    pub served: Vec<Served>,
}

impl Readiness {
    /// The reasons why this host isn't ready.
    fn obstacles(&self) -> BTreeSet<String> {
        let Self { apis, obstacle, listed, served, .. } = self;
        let of_host = [apis.borrow().obstacle(), obstacle.borrow().clone(), listed.borrow().clone()];
        of_host.into_iter().chain(served.iter().map(Served::obstacle)).flatten().collect()
    }

    /// Problems for an administrator that don't affect services that can be served.
    fn notes(&self) -> Vec<String> {
        let Self { apis, shared, differs, .. } = self;
        let denied = watches::denied_messages(shared.lock().denied());
        denied.into_iter().chain(apis.borrow().outdated().map(str::to_owned)).chain(differs.borrow().clone()).collect()
    }
}

impl Collector for Readiness {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        single(&mut page, "pointsman_ready", "1 while /readyz answers ok, else 0.", self.obstacles().is_empty().into())?;
        let denied = self.shared.lock().denied().len() as u64;
        single(&mut page, "pointsman_denied_kinds", "Kinds that the host has no right to list; /readyz names them.", denied)
    }
}

/// The metrics of this host, with the webhook's if it is served.
pub fn registry(
    state: HostState,
    readiness: Readiness,
    reconciles: &Reconciles,
    api_errors: &ApiErrors,
    admission: Option<(&AdmissionCounts, CertificateExpiry)>,
) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(state));
    registry.register_collector(Box::new(readiness));
    reconciles.register(&mut registry);
    api_errors.register(&mut registry);
    if let Some((counts, expiry)) = admission {
        counts.register(&mut registry);
        registry.register_collector(Box::new(expiry));
    }
    registry
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, readiness: Readiness, registry: Registry, log_level: LogLevel) -> std::io::Result<()> {
    let routes = common_routes(registry, log_level)
        .route("/healthz", get(alive).with_state(readiness.clone()))
        .route("/readyz", get(ready).with_state(readiness));
    axum::serve(listener, routes.into_make_service_with_connect_info::<SocketAddr>()).await
}

/// Serves for a gateway, a picker or an agent until the process ends, with further routes of its own. It is ready while there is no
/// obstacle.
pub async fn serve_ready(
    listener: TcpListener,
    obstacle: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    registry: Registry,
    log_level: LogLevel,
    further: Router,
) -> std::io::Result<()> {
    let ready = get(async move || match obstacle() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    });
    let routes = common_routes(registry, log_level).route("/healthz", get(async || "ok\n")).route("/readyz", ready).merge(further);
    axum::serve(listener, routes.into_make_service_with_connect_info::<SocketAddr>()).await
}

fn common_routes(registry: Registry, log_level: LogLevel) -> Router {
    let levels = get(log_filter).put(change_log_filter).layer(DefaultBodyLimit::max(LONGEST_FILTER)).with_state(log_level);
    Router::new().route("/log-level", levels).route("/metrics", get(metrics).with_state(Arc::new(registry)))
}

async fn log_filter(State(level): State<LogLevel>) -> String {
    level.filter() + "\n"
}

/// Kubernetes has authorized whoever reaches this from within the pod: by a forwarded port, or a command in the pod.
async fn change_log_filter(
    State(level): State<LogLevel>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    filter: String,
) -> (StatusCode, String) {
    if !peer.ip().to_canonical().is_loopback() {
        let advice = "only from within the pod: use `kubectl port-forward`, and the address 127.0.0.1";
        return (StatusCode::FORBIDDEN, format!("the log level changes {advice}\n"));
    }
    match level.change(filter.trim()) {
        Ok(()) => (StatusCode::OK, level.filter() + "\n"),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

async fn metrics(State(registry): State<Arc<Registry>>, headers: HeaderMap) -> Response {
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok()).collect();
    let format = Format::for_accept(&accept.join(","));
    match format.page(&registry) {
        Ok(page) => ([(CONTENT_TYPE, format.content_type())], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("writing the metrics failed: {error}\n")).into_response(),
    }
}

/// Alive unless something hangs.
async fn alive(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.liveness.stuck() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
    }
}

/// Ready once the served kinds are known, the recorded policies are active and each served API has its certificate, and while the cluster
/// serves the required kinds. Notes follow: a right that only some services need, a CRD without some fields, flags that differ from the
/// leader's. They don't affect Ready, because otherwise a rollout of other flags or CRDs would never finish.
async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let obstacles = readiness.obstacles();
    let (code, first) =
        if obstacles.is_empty() { (StatusCode::OK, Some("ok".to_owned())) } else { (StatusCode::SERVICE_UNAVAILABLE, None) };
    let lines: BTreeSet<String> = obstacles.into_iter().chain(readiness.notes()).collect();
    (code, first.into_iter().chain(lines).map(|line| line + "\n").collect())
}
