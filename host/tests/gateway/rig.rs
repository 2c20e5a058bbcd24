//! A gateway in this process, and its clients.

use super::backend::Backend;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pointsman::gateway::{
    backend::{Backends, tls_settings},
    callers::Authentication,
    catalog::{AllowList, Definition, Models},
    error::GatewayError,
    limits::Limits,
    model::{Gate, Model, Shared},
    proxy::{PATHS, Proxy, Rules},
    quota::Quotas,
    resolve::Resolver,
    server,
    target::Target,
};
use pointsman_core::allocation::{ObjectName, records::ModelActivity};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::{interval, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls::pki_types::CertificateDer};

/// The timeout of all waits.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) type ClientBody = BoxBody<Bytes, Infallible>;

/// A gateway.
pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) proxy: Arc<Proxy>,
    definitions: Mutex<BTreeMap<String, Definition>>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: JoinHandle<()>,
}

/// The settings of a gateway.
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) authentication: Authentication,
    pub(crate) quotas: Quotas,
    pub(crate) resolver: Resolver,
    /// TLS for clients.
    pub(crate) tls: Option<TlsAcceptor>,
    /// Additional CAs for backends.
    pub(crate) backend_ca: Vec<CertificateDer<'static>>,
}

impl Default for Setup {
    fn default() -> Self {
        let authentication = Authentication::new(None, None);
        let resolver = Resolver { allow_loopback: true, ..Resolver::default() };
        Self { limits: Limits::default(), authentication, quotas: Quotas::default(), resolver, tls: None, backend_ca: Vec::new() }
    }
}

pub(crate) fn open(url: &str) -> Gate {
    Gate::Open(Arc::new(Target::parse(url, "ml", "cluster.local").unwrap()))
}

pub(crate) fn closed(drain: Option<u64>) -> Gate {
    Gate::Closed { drain, answer: GatewayError::model_not_ready("The model sleeps.", Some(7)) }
}

impl Rig {
    pub(crate) async fn start(setup: Setup) -> Self {
        let limits = Arc::new(setup.limits);
        let shared = Arc::new(Shared::new(limits.concurrency, limits.held));
        let models = Arc::new(Models::new(shared));
        let Setup { resolver, tls, backend_ca, .. } = setup;
        let backends = Arc::new(Backends::new(resolver, Arc::new(tls_settings(&backend_ca).unwrap()), Arc::clone(&limits)));
        let paths = PATHS.map(str::to_owned).to_vec();
        let rules = Rules { authentication: setup.authentication, quotas: Arc::new(setup.quotas), paths };
        let proxy = Arc::new(Proxy::new(models, backends, rules, limits));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = Arc::clone(&proxy);
        let serving = tokio::spawn(async move {
            let stop = async { drop(stopped.await) };
            server::serve(served, listener, tls, stop, PATIENCE).await.unwrap();
        });
        Self { address, proxy, definitions: Mutex::default(), stop: Some(stop), serving }
    }

    /// A gateway with an open model `a`.
    pub(crate) async fn with(backend: &Backend) -> Self {
        let rig = Self::start(Setup::default()).await;
        rig.set("a", open(&backend.url()));
        rig
    }

    /// Adds a model, or changes its gate.
    pub(crate) fn set(&self, name: &str, gate: Gate) -> Arc<Model> {
        self.define(name, gate, AllowList::default())
    }

    pub(crate) fn define(&self, name: &str, gate: Gate, allowed: AllowList) -> Arc<Model> {
        let key = ObjectName(format!("ml/{name}"));
        let definition = Definition { key, name: name.to_owned(), created: 1, allowed, gate };
        let mut definitions = self.definitions.lock().unwrap();
        definitions.insert(name.to_owned(), definition);
        let namespaces = BTreeMap::from([("labelled".to_owned(), BTreeMap::from([("team".to_owned(), "ml".to_owned())]))]);
        self.proxy.models.update(definitions.values().cloned().collect(), &BTreeMap::new(), namespaces);
        Arc::clone(&self.proxy.models.catalog().find(name).unwrap().model)
    }

    pub(crate) fn activity(&self, name: &str) -> Option<ModelActivity> {
        self.proxy.models.catalog().find(name).unwrap().model.activity()
    }

    /// Starts the shutdown.
    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn http1(&self) -> http1::SendRequest<ClientBody> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    pub(crate) async fn http2(&self) -> http2::SendRequest<ClientBody> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// Sends a request on its own connection.
    pub(crate) async fn send(&self, request: Request<ClientBody>) -> Response<Incoming> {
        if request.version() == Version::HTTP_2 {
            return self.http2().await.send_request(request).await.unwrap();
        }
        self.http1().await.send_request(request).await.unwrap()
    }

    /// Sends a chat request for a model, with headers.
    pub(crate) async fn chat(&self, model: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
        self.send(chat(model, headers)).await
    }

    /// Sends bytes, and reads until the gateway closes the connection. With `ends`, the client shuts down its side after sending.
    pub(crate) async fn raw(&self, bytes: &[u8], ends: bool) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The gateway may close the connection before everything is sent.
        stream.write_all(bytes).await.ok();
        if ends {
            stream.shutdown().await.ok();
        }
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap_or_else(|_| panic!("no end after {answer:?}")).ok();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> ClientBody {
    Full::new(bytes.into()).boxed()
}

pub(crate) fn chat(model: &str, headers: &[(&str, &str)]) -> Request<ClientBody> {
    let body = serde_json::json!({"model": model, "messages": []}).to_string();
    let builder = Request::post("/v1/chat/completions").header("host", "gateway").header("content-type", "application/json");
    headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(full(body)).unwrap()
}

/// Converts a request to HTTP/2.
pub(crate) fn over_http2(mut request: Request<ClientBody>) -> Request<ClientBody> {
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = format!("http://gateway{}", request.uri()).parse().unwrap();
    request.headers_mut().remove("host");
    request
}

pub(crate) async fn json(response: Response<Incoming>) -> Value {
    serde_json::from_slice(&bytes(response).await).unwrap()
}

pub(crate) async fn bytes(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// The status and the code of an error that the gateway itself returns.
pub(crate) async fn error(response: Response<Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = json(response).await;
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

/// Polls until a condition is true.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut looks = interval(Duration::from_millis(5));
    let waiting = async {
        while !is_so() {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what} never is so"));
}
