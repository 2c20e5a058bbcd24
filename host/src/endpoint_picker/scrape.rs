//! Reads the load metrics of a pool's model servers.

mod connection;
#[cfg(test)]
mod tests;
mod tls;

use super::micros;
use connection::MetricsConnection;
use http::{
    HeaderValue, Request, Uri,
    header::{ACCEPT, HOST},
    uri::PathAndQuery,
};
use http_body_util::Empty;
use hyper::{StatusCode, body::Bytes};
use pointsman_picker::{
    config::ScrapeSettings,
    engine_metrics::{self, Engine, EngineMetrics, MetricsError},
    fleet::{Endpoint, EndpointState, Fleet, Report},
    random::nth,
};
use pointsman_sandbox::sync::locked;
use std::{
    collections::HashMap,
    error::Error,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tls::tls_settings;
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

/// The labels of pods with their engine, unless the settings specify one.
const ENGINE_LABELS: [&str; 2] = ["llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"];

/// The default path.
const DEFAULT_PATH: &str = "/metrics";

/// The path of Prometheus text in trtllm-serve; its default path has JSON.
const TRTLLM_SERVE_PATH: &str = "/prometheus/metrics";

/// The maximum numbers of concurrent reads of endpoints whose last read succeeded, and of those whose last read failed: unresponsive
/// servers delay only each other.
const MAX_HEALTHY_READS: usize = 32;
const MAX_FAILING_READS: usize = 32;

/// The timeout of a read, including the connection.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of consecutive failures after which an endpoint is read less often, and avoided if it can't be connected to.
const MAX_FAILURES: u32 = 3;

/// The maximum delay before a failing endpoint is read again, unless the interval is longer.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// The minimum time that an endpoint is avoided.
const AVOID_TIME: Duration = Duration::from_secs(5);

/// The minimum and maximum interval at which the tasks are compared with the endpoints.
const MIN_ROUND: Duration = Duration::from_millis(5);
const MAX_ROUND: Duration = Duration::from_secs(1);

/// A larger buffer isn't reused.
const MAX_KEPT_BUFFER: usize = 1 << 20;

/// Reads the metrics of the endpoints of a pool while it runs.
#[derive(Debug)]
pub struct Scraper {
    fleet: Arc<Fleet>,
    settings: ScrapeSettings,
    clock: Instant,
    path: PathAndQuery,
    /// None for http.
    tls: Option<Arc<ClientConfig>>,
    healthy_reads: Semaphore,
    failing_reads: Semaphore,
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// Why the metrics of an endpoint can't be read.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error("the connection failed: {0}: check that the pod listens on the port of its metrics")]
    Connect(io::Error),
    #[error(
        "the connection wasn't established within {} s: check that no NetworkPolicy denies it, and that the node of the pod is reachable",
        READ_TIMEOUT.as_secs()
    )]
    ConnectTimeout,
    #[error("TLS fails: {0}: check whether the metrics are served by http or https, and the certificates")]
    Tls(io::Error),
    #[error("the server doesn't speak HTTP: {}: check the port and the scheme of the metrics", with_source(.0))]
    Http(hyper::Error),
    #[error("the page isn't complete within {} s: check the load of the server", READ_TIMEOUT.as_secs())]
    Timeout,
    #[error("the server answers with the status {0}: check the path of the metrics, and that the server reports them to everyone")]
    Status(StatusCode),
    #[error(transparent)]
    Page(#[from] MetricsError),
}

/// The cause of a failure, which is logged once per endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureCause {
    Connect(io::ErrorKind),
    ConnectTimeout,
    Tls,
    Http,
    Timeout,
    /// The first digit of the status.
    Status(u16),
    TooLarge,
    NotText,
    NoFamilies,
}

impl ScrapeError {
    fn cause(&self) -> FailureCause {
        match self {
            Self::Connect(error) => FailureCause::Connect(error.kind()),
            Self::ConnectTimeout => FailureCause::ConnectTimeout,
            Self::Tls(_) => FailureCause::Tls,
            Self::Http(_) => FailureCause::Http,
            Self::Timeout => FailureCause::Timeout,
            Self::Status(status) => FailureCause::Status(status.as_u16() / 100),
            Self::Page(MetricsError::TooLarge(_)) => FailureCause::TooLarge,
            Self::Page(MetricsError::NotText(_)) => FailureCause::NotText,
            Self::Page(MetricsError::NoFamilies { .. }) => FailureCause::NoFamilies,
        }
    }

    /// Whether the endpoint can't be connected to. If this process has no more sockets, the endpoint isn't at fault.
    fn is_unreachable(&self) -> bool {
        match self {
            Self::ConnectTimeout => true,
            Self::Connect(error) => matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::TimedOut
            ),
            _ => false,
        }
    }
}

/// hyper's errors leave out their cause.
fn with_source(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl Scraper {
    /// Reads the files in the settings. Times are microseconds since `clock`.
    pub fn new(fleet: Arc<Fleet>, settings: ScrapeSettings, clock: Instant) -> Result<Self, String> {
        let path = match PathAndQuery::try_from(settings.path.as_str()) {
            Ok(path) if settings.path.starts_with('/') => path,
            _ => return Err(format!("the path of the metrics, {:?}, isn't the path of a URL: begin it with a slash", settings.path)),
        };
        let tls = if settings.https { Some(Arc::new(tls_settings(&settings)?)) } else { None };
        Ok(Self {
            fleet,
            settings,
            clock,
            path,
            tls,
            healthy_reads: Semaphore::new(MAX_HEALTHY_READS),
            failing_reads: Semaphore::new(MAX_FAILING_READS),
            buffers: Mutex::default(),
        })
    }

    /// Reads the metrics of all endpoints, until the future is dropped.
    pub async fn run(self) {
        let scraper = Arc::new(self);
        let round = scraper.settings.interval.clamp(MIN_ROUND, MAX_ROUND);
        let mut tasks = HashMap::new();
        let mut compared: Option<Arc<Vec<Endpoint>>> = None;
        loop {
            let endpoints = scraper.fleet.endpoints();
            if compared.as_ref().is_none_or(|compared| !Arc::ptr_eq(compared, &endpoints)) {
                scraper.update_tasks(&endpoints, &mut tasks);
                compared = Some(endpoints);
            }
            sleep(round).await;
        }
    }

    /// Starts to read new endpoints, and stops reading those that are gone.
    fn update_tasks(self: &Arc<Self>, endpoints: &[Endpoint], tasks: &mut HashMap<u32, ReadTask>) {
        let mut previous = std::mem::take(tasks);
        for endpoint in endpoints {
            let (id, engine) = (endpoint.state.id().0, self.engine(endpoint));
            // A number is reused; the state is the endpoint's own.
            let running = previous.remove(&id).filter(|task| task.engine == engine && Arc::ptr_eq(&task.state, &endpoint.state));
            tasks.insert(id, running.unwrap_or_else(|| self.start(endpoint, engine)));
        }
    }

    fn start(self: &Arc<Self>, endpoint: &Endpoint, engine: Engine) -> ReadTask {
        let state = Arc::clone(&endpoint.state);
        let target = self.target(endpoint, engine);
        let handle = tokio::spawn(read_repeatedly(Arc::clone(self), target));
        ReadTask { state, engine, handle }
    }

    /// The engine of an endpoint.
    fn engine(&self, endpoint: &Endpoint) -> Engine {
        let value = match &self.settings.engine_label {
            Some(label) => endpoint.label(label),
            None => ENGINE_LABELS.into_iter().find_map(|label| endpoint.label(label)),
        };
        value.and_then(Engine::parse).unwrap_or(self.settings.default_engine)
    }

    /// The target of an endpoint's reads.
    fn target(&self, endpoint: &Endpoint, engine: Engine) -> ScrapeTarget {
        let port = self.settings.port.unwrap_or_else(|| endpoint.spec.address.port());
        let address = SocketAddr::new(endpoint.spec.address.ip(), port);
        let path = if engine == Engine::TrtllmServe && self.settings.path == DEFAULT_PATH {
            PathAndQuery::from_static(TRTLLM_SERVE_PATH)
        } else {
            self.path.clone()
        };
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = Uri::from(path);
        if let Ok(host) = HeaderValue::try_from(address.to_string()) {
            request.headers_mut().insert(HOST, host);
        }
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/plain;version=0.0.4"));
        let is_own_port = address == endpoint.spec.address;
        ScrapeTarget { pod: Arc::clone(&endpoint.spec.pod), address, engine, state: Arc::clone(&endpoint.state), is_own_port, request }
    }

    /// Microseconds since the clock began.
    fn now(&self) -> u64 {
        micros(self.clock.elapsed())
    }

    /// Reads an endpoint once, when a permit is free.
    async fn read(
        &self,
        target: &ScrapeTarget,
        kept: &mut Option<MetricsConnection>,
        is_failing: bool,
    ) -> Result<EngineMetrics, ScrapeError> {
        let reads = if is_failing { &self.failing_reads } else { &self.healthy_reads };
        // The semaphore is never closed.
        let _permit = reads.acquire().await.ok();
        let mut page = locked(&self.buffers).pop().unwrap_or_default();
        let read = self.read_page(target, kept, &mut page).await;
        let metrics = read.and_then(|()| Ok(engine_metrics::parse(target.engine, &page)?));
        if page.capacity() <= MAX_KEPT_BUFFER {
            locked(&self.buffers).push(page);
        }
        metrics
    }

    /// Reads the page of an endpoint. The connection is retained for the next read only after a success.
    async fn read_page(&self, target: &ScrapeTarget, kept: &mut Option<MetricsConnection>, page: &mut Vec<u8>) -> Result<(), ScrapeError> {
        let deadline = Instant::now() + READ_TIMEOUT;
        if let Some(mut connection) = kept.take()
            && connection.is_usable()
        {
            let read = timeout_at(deadline, connection.exchange(target.request.clone(), page)).await;
            match read {
                Ok(Ok(())) => {
                    *kept = Some(connection);
                    return Ok(());
                }
                // The server may have just closed it. Reading twice does no harm.
                Ok(Err(ScrapeError::Http(_))) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(ScrapeError::Timeout),
            }
        }
        let mut connection = self.connect(target, deadline).await?;
        timeout_at(deadline, connection.exchange(target.request.clone(), page)).await.map_err(|_| ScrapeError::Timeout)??;
        *kept = Some(connection);
        Ok(())
    }

    async fn connect(&self, target: &ScrapeTarget, deadline: Instant) -> Result<MetricsConnection, ScrapeError> {
        let connecting = timeout_at(deadline, TcpStream::connect(target.address));
        let stream = connecting.await.map_err(|_| ScrapeError::ConnectTimeout)?.map_err(ScrapeError::Connect)?;
        stream.set_nodelay(true).map_err(ScrapeError::Connect)?;
        let Some(tls) = &self.tls else { return MetricsConnection::open(stream).await };
        let name = ServerName::from(target.address.ip());
        let connecting = timeout_at(deadline, TlsConnector::from(Arc::clone(tls)).connect(name, stream));
        let stream = connecting.await.map_err(|_| ScrapeError::Timeout)?.map_err(ScrapeError::Tls)?;
        MetricsConnection::open(stream).await
    }
}

/// The target of an endpoint's reads.
#[derive(Debug)]
struct ScrapeTarget {
    pod: Arc<str>,
    address: SocketAddr,
    engine: Engine,
    state: Arc<EndpointState>,
    /// Whether requests go to the same port. Otherwise a failed read doesn't mean that requests fail.
    is_own_port: bool,
    request: Request<Empty<Bytes>>,
}

/// The task that reads an endpoint. It ends when this is dropped.
#[derive(Debug)]
struct ReadTask {
    state: Arc<EndpointState>,
    engine: Engine,
    handle: JoinHandle<()>,
}

impl Drop for ReadTask {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Reads an endpoint until the task is aborted.
async fn read_repeatedly(scraper: Arc<Scraper>, target: ScrapeTarget) {
    let (id, interval) = (target.state.id().0, scraper.settings.interval);
    sleep(interval.saturating_mul(spread(id, 0, 1_000)) / 1_000).await;
    let mut connection = None;
    let mut health = ReadHealth::default();
    let mut round = 0_u64;
    loop {
        round = round.wrapping_add(1);
        let started = Instant::now();
        let read = scraper.read(&target, &mut connection, health.failures > 0).await;
        let now = scraper.now();
        match read {
            Ok(metrics) => {
                target.state.set_report(Report { at: now, metrics });
                if target.is_own_port {
                    target.state.note_report();
                }
                if health.succeed() {
                    tracing::info!(pod = %target.pod, address = %target.address, "the metrics of an endpoint are read again");
                }
                let delay = with_jitter(interval, id, round);
                // It pauses even if reads take longer than the interval.
                sleep_until((started + delay).max(Instant::now() + delay / 4)).await;
            }
            Err(error) => {
                connection = None;
                if health.fail(error.cause()) {
                    tracing::warn!(pod = %target.pod, address = %target.address, %error, "the metrics of an endpoint can't be read");
                }
                let delay = with_jitter(back_off(interval, health.failures), id, round);
                if target.is_own_port && health.failures >= MAX_FAILURES && error.is_unreachable() {
                    // Until the next read has finished, so that no request is sent there between two failures.
                    target.state.note_silent(now.saturating_add(micros(AVOID_TIME.max(delay.saturating_add(READ_TIMEOUT)))));
                }
                sleep(delay).await;
            }
        }
    }
}

/// Whether an endpoint responds, and the logged failures.
#[derive(Debug, Default)]
struct ReadHealth {
    /// The number of consecutive failed reads.
    failures: u32,
    logged: Vec<FailureCause>,
    /// Whether a failure was logged since the last success.
    is_failure_logged: bool,
}

impl ReadHealth {
    /// Records a failure. Returns whether to log it.
    fn fail(&mut self, cause: FailureCause) -> bool {
        self.failures = self.failures.saturating_add(1);
        let is_new = !self.logged.contains(&cause);
        if is_new {
            self.logged.push(cause);
            self.is_failure_logged = true;
        }
        is_new
    }

    /// Records a success. Returns whether to log it.
    fn succeed(&mut self) -> bool {
        self.failures = 0;
        std::mem::take(&mut self.is_failure_logged)
    }
}

/// The delay before the next read after this number of failures.
fn back_off(interval: Duration, failures: u32) -> Duration {
    let doublings = failures.saturating_sub(MAX_FAILURES - 1).min(16);
    interval.saturating_mul(1 << doublings).min(MAX_DELAY).max(interval)
}

/// A delay that is up to a tenth shorter or longer, so that reads of many endpoints don't coincide.
fn with_jitter(delay: Duration, id: u32, round: u64) -> Duration {
    delay.saturating_mul(900 + spread(id, round, 201)) / 1_000
}

/// A number below `below` that differs between endpoints and rounds.
fn spread(id: u32, round: u64, below: u32) -> u32 {
    let number = nth(0, (u64::from(id) << 32) ^ round);
    u32::try_from(number % u64::from(below.max(1))).unwrap_or(0)
}
