//! The endpoint picker's protocol with a real Envoy, configured as gateways do, in front of simulated model servers. No control plane.

use axum::body::{Body, Bytes, to_bytes};
use futures::StreamExt;
use http::{HeaderMap, Request, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use pointsman::endpoint_picker::{
    grpc::{Health, Picks, Settings as PickerSettings, serve},
    threads::Threads,
};
use pointsman_harness::target_dir;
use pointsman_picker::protocol::{Placement, Refusal, RequestHead, ResponseHead, messages::HttpBody};
use pointsman_tests::{
    Envoy, EnvoySettings, EnvoyStyle, eventually,
    model_server::{ModelServer, SERVED_BY, Settings},
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

/// The servers, by index. The last one generates one token and then hangs.
pub(crate) const NAMES: [&str; 3] = ["first", "second", "stuck"];
const STUCK: usize = 2;

/// A request with this text is refused.
const REFUSE: &str = "refuse";

const CHAT: &str = "/v1/chat/completions";

/// What a picker has observed about responses.
#[derive(Debug, Default)]
struct Noted {
    heads: Vec<ResponseHead>,
    chunks: Vec<u8>,
    ends: usize,
}

/// Places a request on the servers whose indexes the body's field `user` lists, separated by commas.
#[derive(Debug)]
struct ByUser {
    endpoints: Vec<SocketAddr>,
    noted: Mutex<Noted>,
    in_flight: Arc<AtomicUsize>,
}

/// Counts its live instances.
struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ByUser {
    fn endpoints(&self, user: &str) -> Vec<String> {
        user.split(',').map(|place| self.endpoints[place.parse::<usize>().unwrap()].to_string()).collect()
    }
}

impl Health for ByUser {
    fn health(&self, _: &str) -> Option<bool> {
        Some(true)
    }
}

impl Picks for ByUser {
    type Placed = InFlight;

    async fn pick(self: Arc<Self>, _: RequestHead, body: Vec<Bytes>) -> Result<(Placement, InFlight), Refusal> {
        let body: Value = serde_json::from_slice(&body.concat()).unwrap();
        let user = body["user"].as_str().unwrap();
        if user == REFUSE {
            let headers = vec![("x-reason".to_owned(), "full".to_owned())];
            return Err(Refusal { status: 429, headers, body: Bytes::from_static(b"no room"), details: "full".to_owned() });
        }
        let endpoints = self.endpoints(user);
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Ok((Placement { endpoints, ..Placement::default() }, InFlight(Arc::clone(&self.in_flight))))
    }

    fn response(&self, _: &mut InFlight, head: &ResponseHead) -> Vec<(String, String)> {
        self.noted.lock().unwrap().heads.push(head.clone());
        vec![("x-picker".to_owned(), "seen".to_owned())]
    }

    fn chunk(&self, _: &mut InFlight, chunk: HttpBody) -> (Vec<Bytes>, bool) {
        let mut noted = self.noted.lock().unwrap();
        noted.chunks.extend_from_slice(&chunk.body);
        noted.ends += usize::from(chunk.end_of_stream);
        (vec![chunk.body], chunk.end_of_stream)
    }
}

/// Servers, a picker, and a proxy in front of them.
pub(crate) struct Scene {
    servers: Vec<Option<ModelServer>>,
    picks: Arc<ByUser>,
    envoy: Envoy,
    _picker: JoinSet<()>,
}

impl Scene {
    /// The name is also that of its folder.
    async fn start(name: &str, style: impl FnOnce(Vec<SocketAddr>) -> EnvoyStyle, tls: Option<TlsAcceptor>) -> Self {
        let servers = (0..NAMES.len()).map(|place| server(SocketAddr::from(([127, 0, 0, 1], 0)), place)).collect();
        let picker_tls = tls.is_some();
        let envoy = async |endpoints: Vec<SocketAddr>, picker| {
            let settings = EnvoySettings { picker, picker_tls, style: style(endpoints), failure_mode_allow: false };
            start_envoy(name, &settings).await
        };
        Self::around(servers, tls, envoy).await
    }

    /// Starts the proxy with the addresses of the servers and the picker.
    pub(crate) async fn around(
        servers: Vec<ModelServer>,
        tls: Option<TlsAcceptor>,
        envoy: impl AsyncFnOnce(Vec<SocketAddr>, SocketAddr) -> Envoy,
    ) -> Self {
        let endpoints: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
        let picks = Arc::new(ByUser { endpoints: endpoints.clone(), noted: Mutex::default(), in_flight: Arc::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let picker = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(
            Arc::clone(&picks),
            listener,
            tls,
            PickerSettings::default(),
            Arc::new(Threads::start("proxies").unwrap()),
            std::future::pending(),
        ));
        let envoy = envoy(endpoints, picker).await;
        Self { servers: servers.into_iter().map(Some).collect(), picks, envoy, _picker: tasks }
    }

    fn server(&self, place: usize) -> &ModelServer {
        self.servers[place].as_ref().unwrap()
    }

    fn noted(&self) -> Noted {
        std::mem::take(&mut self.picks.noted.lock().unwrap())
    }

    async fn ask(&self, body: &Value) -> Answer {
        ask(self.envoy.address(), post(body)).await.whole().await
    }

    async fn none_is_in_flight(&self) {
        eventually("what went along with requests is dropped", async || (self.picks.in_flight.load(Ordering::SeqCst) == 0).then_some(()))
            .await;
    }
}

/// The server with this index.
pub(crate) fn server(address: SocketAddr, place: usize) -> ModelServer {
    let mut settings = Settings::new(NAMES[place], &["llama"]);
    if place == STUCK {
        settings.engine.decode_us = u64::from(u32::MAX);
    }
    ModelServer::start(address, settings)
}

async fn start_envoy(name: &str, settings: &EnvoySettings) -> Envoy {
    Envoy::start(&target_dir().join("tmp/proxies").join(name), settings).await
}

/// An address that nothing listens at.
pub(crate) async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A certificate that no client trusts.
pub(crate) fn certificate() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(vec!["picker".to_owned()]).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A response whose body is still arriving. Its connection is closed with it.
pub(crate) struct Begun {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    body: Body,
    connection: JoinSet<()>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Begun {
    pub(crate) async fn whole(self) -> Answer {
        let Self { status, headers, body, connection: _connection } = self;
        Answer { status: status.as_u16(), headers, body: to_bytes(body, usize::MAX).await.unwrap() }
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The data of its events.
    fn events(&self) -> Vec<&str> {
        let text = std::str::from_utf8(&self.body).unwrap();
        text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect()
    }
}

/// Sends a request on its own connection.
pub(crate) async fn ask(address: SocketAddr, request: Request<Body>) -> Begun {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let mut connection = JoinSet::new();
    connection.spawn(async { _ = driver.await });
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    Begun { status: parts.status, headers: parts.headers, body: Body::new(body), connection }
}

pub(crate) fn post(body: &Value) -> Request<Body> {
    post_to("models", body)
}

pub(crate) fn post_to(host: &str, body: &Value) -> Request<Body> {
    let request = Request::post(CHAT).header("host", host).header("content-type", "application/json");
    request.body(Body::from(body.to_string())).unwrap()
}

fn request(user: &str) -> Value {
    json!({"model": "llama", "user": user, "max_tokens": 8, "messages": [{"role": "user", "content": "Say something."}]})
}

fn answer_text(server: &str) -> String {
    (0..8).map(|number| format!("{server}-{number}")).collect::<Vec<_>>().join(" ")
}

/// The behaviour that all styles share. Not every style reports which endpoint has served.
async fn passes_requests_on(scene: &Scene, says_who_served: bool) {
    for (place, server) in NAMES[..STUCK].iter().enumerate() {
        let endpoint = scene.picks.endpoints[place].to_string();
        let whole = scene.ask(&request(&place.to_string())).await;
        assert_eq!((whole.status, whole.header(SERVED_BY), whole.header("x-picker")), (200, *server, "seen"));
        assert_eq!(whole.json()["choices"][0]["message"]["content"], answer_text(server));
        let noted = scene.noted();
        assert_eq!(noted.heads.len(), 1);
        assert_eq!((noted.heads[0].status, noted.heads[0].served.as_ref()), (Some(200), says_who_served.then_some(&endpoint)));
        assert_eq!((&*noted.chunks, noted.ends), (&*whole.body, 1));

        let mut asked = request(&place.to_string());
        asked["stream"] = true.into();
        asked["stream_options"] = json!({"include_usage": true});
        let stream = scene.ask(&asked).await;
        assert_eq!((stream.status, stream.header(SERVED_BY), stream.header("x-picker")), (200, *server, "seen"));
        let events = stream.events();
        let (done, events) = events.split_last().unwrap();
        assert_eq!(*done, "[DONE]");
        let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, answer_text(server));
        assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 8);
        let noted = scene.noted();
        assert_eq!((&*noted.chunks, noted.ends), (&*stream.body, 1));
        assert!(noted.heads[0].content_type.as_ref().unwrap().starts_with("text/event-stream"));
        assert_eq!(scene.server(place).requests_seen(), 2);
    }
    scene.none_is_in_flight().await;
}

/// The second server gets the request in the end.
async fn passes_a_long_body_on(scene: &Scene, user: &str) {
    let mut state = 1_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from_u32(u32::from('!') + (state >> 24) % 90).unwrap()
    };
    let text: String = (0..100 << 10).map(|_| letter()).collect();
    let mut asked = request(user);
    asked["messages"][0]["content"] = text.into();
    let answer = scene.ask(&asked).await;
    assert_eq!((answer.status, answer.header(SERVED_BY)), (200, NAMES[1]));
    let seen = scene.server(1).seen();
    assert!(seen.last.back().unwrap().body == asked.to_string(), "the body arrives as it was sent");
    assert_eq!(seen.last.back().unwrap().headers["x-gateway-destination-endpoint"], scene.picks.endpoints(user).join(","));
}

async fn passes_refusals_on(scene: &Scene) {
    let answer = scene.ask(&request(REFUSE)).await;
    assert_eq!((answer.status, answer.header("x-reason"), &*answer.body), (429, "full", &b"no room"[..]));
    scene.none_is_in_flight().await;
}

/// If a client disconnects, its request ends in the picker and in the server.
async fn ends_with_the_client(scene: &Scene) {
    let mut asked = request(&STUCK.to_string());
    asked["stream"] = true.into();
    let mut begun = ask(scene.envoy.address(), post(&asked)).await;
    let first = std::pin::pin!(begun.body.into_data_stream()).next().await.unwrap().unwrap();
    assert!(first.starts_with(b"data: "));
    assert_eq!((scene.picks.in_flight.load(Ordering::SeqCst), scene.server(STUCK).counts().running), (1, 1));
    begun.connection.shutdown().await;
    scene.none_is_in_flight().await;
    eventually("the server learns it too", async || (scene.server(STUCK).counts().running == 0).then_some(())).await;
}

/// The behaviour of a proxy that knows the endpoints and prefers the picked ones.
pub(crate) async fn overrides_hosts(mut scene: Scene) {
    passes_requests_on(&scene, true).await;
    passes_a_long_body_on(&scene, "1").await;
    passes_refusals_on(&scene).await;
    ends_with_the_client(&scene).await;
    scene.servers[0] = None;
    scene.noted();
    let answer = scene.ask(&request("0,1")).await;
    assert_eq!((answer.status, answer.header(SERVED_BY)), (200, NAMES[1]));
    assert_eq!(scene.noted().heads[0].served, Some(scene.picks.endpoints[1].to_string()));
    passes_a_long_body_on(&scene, "0,1").await;
    scene.none_is_in_flight().await;
}

#[tokio::test]
async fn a_gateway_that_connects_to_the_header_s_address_passes_on_what_the_picker_decides() {
    let mut scene = Scene::start("original-dst", |_| EnvoyStyle::OriginalDst, None).await;
    passes_requests_on(&scene, false).await;
    passes_a_long_body_on(&scene, "1").await;
    passes_refusals_on(&scene).await;
    ends_with_the_client(&scene).await;
    scene.servers[0] = None;
    scene.noted();
    let answer = scene.ask(&request("0")).await;
    assert_eq!(answer.status, 503, "{:?}", answer.body);
    // The picker sees the proxy's own 503 as a response.
    assert_eq!(scene.noted().heads[0].status, Some(503));
    // This style doesn't support fallbacks: a list isn't an address.
    assert_eq!(scene.ask(&request("1,0")).await.status, 503);
    scene.none_is_in_flight().await;
}

#[tokio::test]
async fn a_gateway_that_overrides_hosts_passes_on_what_the_picker_decides_and_retries_down_the_list() {
    let scene = Scene::start("override-host", EnvoyStyle::OverrideHost, Some(certificate())).await;
    overrides_hosts(scene).await;
}

#[tokio::test]
async fn a_gateway_without_its_picker_fails_requests_unless_it_may_go_on_alone() {
    let server = server(SocketAddr::from(([127, 0, 0, 1], 0)), 0);
    let picker = nobody().await;
    for (failure_mode_allow, status) in [(false, 500), (true, 200)] {
        let style = EnvoyStyle::OverrideHost(vec![server.address()]);
        let settings = EnvoySettings { picker, picker_tls: false, style, failure_mode_allow };
        let envoy = start_envoy(&format!("failure-mode-allow-{failure_mode_allow}"), &settings).await;
        // Envoy continues without the picker only until it has sent a part of the body, which can happen before the connection is refused.
        let bodyless = Request::get("/v1/models").header("host", "models").body(Body::empty()).unwrap();
        let answer = ask(envoy.address(), bodyless).await.whole().await;
        assert_eq!(answer.status, status, "{:?}", answer.body);
        if !failure_mode_allow {
            assert_eq!(ask(envoy.address(), post(&request("0"))).await.whole().await.status, status);
        }
    }
    assert_eq!(server.requests_seen(), 1);
}
