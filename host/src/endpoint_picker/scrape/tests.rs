use super::*;
use pointsman_picker::engine_metrics::MAX_PAGE;
use pointsman_picker::fleet::EndpointSpec;
use rcgen::{CertificateParams, KeyPair};
use std::collections::BTreeMap;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
};

/// A server's response.
#[derive(Clone)]
enum Answer {
    Page(String),
    Status(u16),
    /// A page, after which the server closes the connection.
    Last(String),
    Nothing,
}

fn page(waiting: u32) -> String {
    format!("vllm:num_requests_waiting{{model_name=\"m\"}} {waiting}\nvllm:num_requests_running{{model_name=\"m\"}} 1\n")
}

/// A server's current response, and the requested paths.
struct Script {
    answer: Answer,
    paths: Vec<String>,
}

struct Server {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    async fn start(answer: Answer) -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").await.unwrap(), None, answer)
    }

    fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, answer: Answer) -> Self {
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(Script { answer, paths: Vec::new() }));
        let shared = Arc::clone(&script);
        let accepting = tokio::spawn(async move {
            // They end with the task.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, script) = (tls.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    match tls {
                        None => converse(stream, &script).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => converse(stream, &script).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { address, script, accepting }
    }

    fn set(&self, answer: Answer) {
        locked(&self.script).answer = answer;
    }

    fn requests(&self) -> usize {
        locked(&self.script).paths.len()
    }
}

/// Serves the requests on a connection until it ends.
async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: &Mutex<Script>) -> Option<()> {
    let mut received = Vec::new();
    loop {
        while !received.ends_with(b"\r\n\r\n") {
            received.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(std::mem::take(&mut received)).ok()?;
        let answer = {
            let mut script = locked(script);
            script.paths.push(head.split(' ').nth(1)?.to_owned());
            script.answer.clone()
        };
        let (text, is_last) = match answer {
            Answer::Page(page) => (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len()), false),
            Answer::Last(page) => (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len()), true),
            Answer::Status(status) => (format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n"), false),
            Answer::Nothing => std::future::pending().await,
        };
        stream.write_all(text.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        if is_last {
            return None;
        }
    }
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A scraper that runs until the test ends.
struct Running {
    fleet: Arc<Fleet>,
    clock: Instant,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn fast() -> ScrapeSettings {
    ScrapeSettings { interval: Duration::from_millis(5), ..ScrapeSettings::default() }
}

fn spec(pod: &str, address: SocketAddr, labels: &[(&str, &str)]) -> EndpointSpec {
    let labels: BTreeMap<String, String> = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    EndpointSpec { uid: format!("uid-of-{pod}").into(), pod: pod.into(), address, labels: Arc::new(labels) }
}

impl Running {
    fn start(settings: ScrapeSettings, specs: Vec<EndpointSpec>) -> Self {
        let (fleet, clock) = (Arc::new(Fleet::default()), Instant::now());
        fleet.replace(specs);
        let scraper = Scraper::new(Arc::clone(&fleet), settings, clock).unwrap();
        Self { fleet, clock, task: tokio::spawn(scraper.run()) }
    }

    fn state(&self, pod: &str) -> Arc<EndpointState> {
        let endpoints = self.fleet.endpoints();
        Arc::clone(&endpoints.iter().find(|endpoint| &*endpoint.spec.pod == pod).unwrap().state)
    }

    fn is_avoided(&self, pod: &str) -> bool {
        self.state(pod).is_avoided(micros(self.clock.elapsed()))
    }
}

fn waiting(state: &EndpointState) -> Option<f64> {
    state.report().and_then(|report| report.metrics.waiting)
}

#[tokio::test]
async fn a_report_arrives_and_is_renewed_on_one_connection_or_on_another() {
    let server = Server::start(Answer::Page(page(3))).await;
    let running = Running::start(fast(), vec![spec("a", server.address, &[])]);
    let state = running.state("a");
    eventually("the first report", || waiting(&state) == Some(3.0)).await;
    let first = state.report().unwrap().at;
    server.set(Answer::Last(page(4)));
    eventually("another report", || waiting(&state) == Some(4.0)).await;
    let requests = server.requests();
    eventually("reports on further connections", || server.requests() > requests + 5).await;
    assert!(state.report().unwrap().at > first);
    assert!(locked(&server.script).paths.iter().all(|path| path == "/metrics"));
}

#[tokio::test]
async fn a_page_that_is_no_metrics_leaves_the_old_report() {
    let server = Server::start(Answer::Page(page(3))).await;
    let running = Running::start(fast(), vec![spec("a", server.address, &[])]);
    let state = running.state("a");
    eventually("the first report", || waiting(&state) == Some(3.0)).await;
    let bad = [Answer::Page("<html></html>".to_owned()), Answer::Page("#".repeat(MAX_PAGE + 1)), Answer::Status(500)];
    for (answer, next) in bad.into_iter().zip([4_u32, 5, 6]) {
        let before = waiting(&state);
        let requests = server.requests();
        server.set(answer);
        eventually("failures", || server.requests() > requests + 2).await;
        assert_eq!(waiting(&state), before);
        assert!(!running.is_avoided("a"), "it can be reached");
        server.set(Answer::Page(page(next)));
        eventually("a new report", || waiting(&state) == Some(f64::from(next))).await;
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_connections_is_avoided_until_it_answers() {
    let server = Server::start(Answer::Page(page(3))).await;
    let address = server.address;
    let running = Running::start(fast(), vec![spec("a", address, &[])]);
    let state = running.state("a");
    eventually("the first report", || waiting(&state) == Some(3.0)).await;
    assert!(!running.is_avoided("a"));
    drop(server);
    // A socket that has the port, and doesn't listen: no other process gets the port.
    let mut socket = None;
    let bind = || {
        let free = TcpSocket::new_v4().unwrap();
        free.set_reuseaddr(true).unwrap();
        free.bind(address).is_ok().then_some(free)
    };
    eventually("the port is free", || {
        socket = bind();
        socket.is_some()
    })
    .await;
    eventually("it is avoided", || running.is_avoided("a")).await;
    assert_eq!(waiting(&state), Some(3.0), "the old report stays");
    let _server = Server::serve(socket.unwrap().listen(16).unwrap(), None, Answer::Page(page(7)));
    eventually("a new report", || waiting(&state) == Some(7.0)).await;
    eventually("it isn't avoided", || !running.is_avoided("a")).await;
}

#[tokio::test]
async fn servers_that_never_answer_hold_up_nobody() {
    let server = Server::start(Answer::Page(page(3))).await;
    let silent = Server::serve(TcpListener::bind("0.0.0.0:0").await.unwrap(), None, Answer::Nothing);
    // More than are read concurrently, each at its own loopback address.
    let at = |last: u8| SocketAddr::from(([127, 0, 0, last], silent.address.port()));
    let mut specs: Vec<EndpointSpec> = (1..=100).map(|last| spec(&format!("silent-{last}"), at(last), &[])).collect();
    specs.push(spec("a", server.address, &[]));
    let running = Running::start(fast(), specs);
    let state = running.state("a");
    eventually("the first report", || waiting(&state) == Some(3.0)).await;
    server.set(Answer::Page(page(4)));
    eventually("a new report", || waiting(&state) == Some(4.0)).await;
    let silent = running.fleet.endpoints().iter().filter(|endpoint| endpoint.state.report().is_none()).count();
    assert_eq!(silent, 100);
}

#[tokio::test]
async fn endpoints_that_come_are_read_and_those_that_go_are_not() {
    let (one, other) = (Server::start(Answer::Page(page(1))).await, Server::start(Answer::Page(page(2))).await);
    let running = Running::start(fast(), vec![spec("a", one.address, &[])]);
    let first = running.state("a");
    eventually("the first report", || waiting(&first) == Some(1.0)).await;
    running.fleet.replace(vec![spec("b", other.address, &[])]);
    let second = running.state("b");
    eventually("the report of the new one", || waiting(&second) == Some(2.0)).await;
    // The round that started the new endpoint's task ended the old one's; requests in flight still arrive.
    let mut seen = one.requests();
    let mut quiet = 0;
    eventually("nobody reads the old one", || {
        quiet = if one.requests() == seen { quiet + 1 } else { 0 };
        seen = one.requests();
        quiet > 20
    })
    .await;
}

#[tokio::test]
async fn https_needs_no_certificate_of_a_known_ca_unless_it_is_verified() {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions().unwrap();
    let private = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::serve(listener, Some(TlsAcceptor::from(Arc::new(config))), Answer::Page(page(3)));

    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.crt").to_str().unwrap().to_owned();
    std::fs::write(&ca_file, certificate.pem()).unwrap();
    let https = ScrapeSettings { https: true, ..fast() };
    let verified = ScrapeSettings { verify: true, ca_file: Some(ca_file), ..https.clone() };
    for settings in [https, verified] {
        let running = Running::start(settings, vec![spec("a", server.address, &[])]);
        let state = running.state("a");
        eventually("a report", || waiting(&state) == Some(3.0)).await;
    }
}

#[test]
fn files_and_paths_that_cannot_be_used_are_named() {
    let reason = |settings| Scraper::new(Arc::default(), settings, Instant::now()).unwrap_err();
    let https = ScrapeSettings { https: true, ..fast() };
    let absent = || "/nonexistent/ca.crt".to_owned();
    let message = reason(ScrapeSettings { verify: true, ca_file: Some(absent()), ..https.clone() });
    assert!(message.starts_with("/nonexistent/ca.crt can't be read: "), "{message}");
    let message = reason(ScrapeSettings { client_files: Some((absent(), absent())), ..https });
    assert!(message.starts_with("/nonexistent/ca.crt can't be read: "), "{message}");
    let message = reason(ScrapeSettings { path: "metrics".to_owned(), ..fast() });
    assert!(message.contains("\"metrics\""), "{message}");
}

#[test]
fn the_engine_and_the_address_are_those_of_labels_and_settings() {
    let address = SocketAddr::from(([10, 0, 0, 1], 8000));
    let target = |settings: ScrapeSettings, labels: &[(&str, &str)]| {
        let fleet = Arc::new(Fleet::default());
        fleet.replace(vec![spec("a", address, labels)]);
        let scraper = Scraper::new(Arc::clone(&fleet), settings, Instant::now()).unwrap();
        let endpoint = fleet.endpoints()[0].clone();
        let target = scraper.target(&endpoint, scraper.engine(&endpoint));
        (target.engine, target.request.uri().to_string(), target.address.port())
    };
    let plain = |engine| (engine, "/metrics".to_owned(), 8000);
    let [new, old] = ENGINE_LABELS;
    assert_eq!(target(fast(), &[]), plain(Engine::Vllm));
    assert_eq!(target(fast(), &[(new, "unheard-of")]), plain(Engine::Vllm));
    assert_eq!(target(fast(), &[(new, "sglang"), (old, "triton")]), plain(Engine::Sglang));
    assert_eq!(target(fast(), &[(old, "triton")]), plain(Engine::Triton));
    let own = ScrapeSettings { engine_label: Some("engine".to_owned()), default_engine: Engine::Triton, ..fast() };
    assert_eq!(target(own.clone(), &[("engine", "sglang")]), plain(Engine::Sglang));
    assert_eq!(target(own, &[(new, "sglang")]), plain(Engine::Triton));
    let trtllm = [(new, "trtllm-serve")];
    assert_eq!(target(fast(), &trtllm), (Engine::TrtllmServe, "/prometheus/metrics".to_owned(), 8000));
    let other = ScrapeSettings { path: "/m?x=1".to_owned(), port: Some(9000), ..fast() };
    assert_eq!(target(other, &trtllm), (Engine::TrtllmServe, "/m?x=1".to_owned(), 9000));
}

#[test]
fn delays_double_up_to_their_limit_and_differ_by_a_tenth() {
    let interval = Duration::from_millis(50);
    let delays: Vec<u128> = [0, 2, 3, 4, 9, 10, u32::MAX].map(|failures| back_off(interval, failures).as_millis()).to_vec();
    assert_eq!(delays, [50, 50, 100, 200, 5_000, 5_000, 5_000]);
    assert_eq!(back_off(Duration::from_secs(9), 7), Duration::from_secs(9));
    let jittered: Vec<Duration> = (0..1_000).map(|round| with_jitter(interval, 7, round)).collect();
    assert!(jittered.iter().all(|delay| (45..=55).contains(&delay.as_millis())));
    assert!(jittered.iter().any(|delay| *delay < Duration::from_millis(46)));
    assert!(jittered.iter().any(|delay| *delay > Duration::from_millis(54)));
}

#[test]
fn a_cause_is_logged_once_and_that_it_is_over_too() {
    let mut health = ReadHealth::default();
    assert!(!health.succeed());
    assert!(health.fail(FailureCause::Timeout) && !health.fail(FailureCause::Timeout) && health.fail(FailureCause::Http));
    assert_eq!(health.failures, 3);
    assert!(health.succeed() && !health.succeed());
    assert!(!health.fail(FailureCause::Timeout) && !health.succeed(), "it was logged before");
}
