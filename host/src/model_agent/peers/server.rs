//! Serves the agents of other nodes.

use super::{Address, Ask, Exchange, Share, address, client::SHA256, identity::fingerprint};
use futures::{StreamExt, TryStreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use pointsman_download::{Downloader, PeerError, PeerPart};
use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The maximum number of concurrent connections. Each has at most two pieces of 128 KiB in memory; further connections wait.
const MAX_CONNECTIONS: usize = 32;

/// The timeout of a client's handshake and request.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for a part that isn't there yet.
const PART_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of a whole response.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);

/// The maximum size of a request, in bytes.
const MAX_ASK: usize = 8 << 10;

/// How long the data on a node is cached.
const NODE_LIFE: Duration = Duration::from_secs(30);

/// The minimum interval between two lookups of a node that presents another certificate: its agent has restarted, or it is an impostor.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of cached nodes.
const MAX_NODES: usize = 4096;

/// The delay after a connection couldn't be accepted: usually there are too many open files.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// The maximum length of a node's name.
const MAX_NAME: usize = 253;

/// The data on a client's node.
#[derive(Clone, Debug)]
struct Client {
    address: Option<Address>,
    labels: BTreeMap<String, String>,
    since: Instant,
}

struct Server {
    exchange: Weak<Exchange>,
    downloader: Downloader,
    clients: Mutex<HashMap<String, Client>>,
}

/// Serves until the exchange is dropped.
pub(super) async fn serve(exchange: Weak<Exchange>, acceptor: TlsAcceptor, listener: TcpListener, downloader: Downloader) {
    let server = Arc::new(Server { exchange, downloader, clients: Mutex::default() });
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while server.exchange.strong_count() > 0 {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection of another agent can't be accepted");
                sleep(AFTER_A_FAILURE).await;
                continue;
            }
        };
        let (server, acceptor) = (Arc::clone(&server), acceptor.clone());
        tokio::spawn(async move {
            timeout(ANSWER_TIMEOUT, server.connection(acceptor, stream)).await.ok();
            drop(permit);
        });
    }
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

impl Server {
    async fn connection(self: Arc<Self>, acceptor: TlsAcceptor, stream: TcpStream) {
        let Ok(Ok(stream)) = timeout(HELLO_TIMEOUT, acceptor.accept(stream)).await else { return };
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(fingerprint);
        let Some(shown) = shown else { return };
        let service = service_fn(move |request| {
            let (server, shown) = (Arc::clone(&self), shown.clone());
            async move { Ok::<_, io::Error>(server.answer(request, &shown).await.unwrap_or_else(status)) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HELLO_TIMEOUT).keep_alive(false);
        builder.serve_connection(TokioIo::new(stream), service).await.ok();
    }

    async fn answer(&self, request: Request<Incoming>, shown: &str) -> Result<Response<Body>, StatusCode> {
        let reading = timeout(HELLO_TIMEOUT, Limited::new(request.into_body(), MAX_ASK).collect()).await;
        let body = reading.map_err(|_| StatusCode::REQUEST_TIMEOUT)?.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?.to_bytes();
        let Ask { node, origin, reads, part } = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
        let exchange = self.exchange.upgrade().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let client = self.client(&exchange, &node, shown).await?;
        let Some(address) = client.address.filter(|address| address.fingerprint == shown) else {
            tracing::warn!(node, "another agent's certificate isn't the one in its ConfigMap: its requests are rejected");
            return Err(StatusCode::FORBIDDEN);
        };
        let Some(Share { folder, model }) = locked(&exchange.shares).get(&origin).cloned() else { return Err(StatusCode::NOT_FOUND) };
        if !model.selects(&node, &client.labels) {
            return Err(StatusCode::FORBIDDEN);
        }
        if reads {
            exchange.joins(&origin, &node, &address);
        }
        let wait = if part.at_once { Duration::ZERO } else { PART_TIMEOUT };
        match self.downloader.part(&folder, &model.namespace, &part, wait).await {
            Ok(PeerPart { body, sha256 }) => {
                let mut response = Response::new(StreamBody::new(body.map_ok(Frame::data).boxed()).boxed_unsync());
                if let Some(sha256) = sha256.and_then(|sha256| sha256.parse().ok()) {
                    response.headers_mut().insert(SHA256, sha256);
                }
                Ok(response)
            }
            Err(PeerError::NotYet) => Err(StatusCode::SERVICE_UNAVAILABLE),
            Err(PeerError::Absent) => Err(StatusCode::NOT_FOUND),
            Err(PeerError::Failed(error)) => {
                tracing::warn!(node, error, "a part can't be sent to another node");
                Err(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// The data on a node, which is looked up again at intervals, and if the node presents another certificate.
    async fn client(&self, exchange: &Exchange, node: &str, shown: &str) -> Result<Client, StatusCode> {
        let known = locked(&self.clients).get(node).cloned();
        let is_shown = |client: &Client| client.address.as_ref().is_some_and(|address| address.fingerprint == shown);
        let life = |client: &Client| if is_shown(client) { NODE_LIFE } else { LOOKUP_INTERVAL };
        if let Some(client) = known.filter(|client| client.since.elapsed() < life(client)) {
            return Ok(client);
        }
        if node.len() > MAX_NAME || !node.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')) {
            return Err(StatusCode::BAD_REQUEST);
        }
        let params = ListParams::default().fields(&format!("metadata.name={node}"));
        let (maps, nodes) = (exchange.maps(), Api::<Node>::all(exchange.client.clone()));
        let (maps, nodes) = tokio::join!(maps.list_metadata(&params), nodes.list_metadata(&params));
        let (Ok(maps), Ok(nodes)) = (maps, nodes) else { return Err(StatusCode::SERVICE_UNAVAILABLE) };
        let labels = nodes.iter().next().map(|node| node.labels().clone()).ok_or(StatusCode::FORBIDDEN)?;
        let client = Client { address: maps.iter().next().and_then(address), labels, since: Instant::now() };
        let mut clients = locked(&self.clients);
        if clients.len() >= MAX_NODES {
            clients.clear();
        }
        clients.insert(node.to_owned(), client.clone());
        Ok(client)
    }
}
