//! The proxy of one host: HTTP without TLS for the host, and its own client to the API server.

use super::{Call, CrashPoint, Fault, Faults, Number, Verb};
use axum::body::{Body, Bytes, to_bytes};
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body as ClientBody};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep,
};

/// The delay of late responses and events.
const LATE: Duration = Duration::from_millis(700);

/// How long a watch stalls.
const FROZEN: Duration = Duration::from_secs(3);

/// How long a response is delayed before the connection is closed: longer than a host waits for one.
const HUNG: Duration = Duration::from_secs(12);

/// More than the API server accepts or sends.
const MAX_BYTES: usize = 64 << 20;

/// Headers of a connection, which each side sets itself.
const OF_CONNECTION: [HeaderName; 5] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::ACCEPT_ENCODING];

/// The part of the API server that a host can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everything.
    All,
    /// Everything except the lease.
    NotTheLease,
    /// Nothing.
    Nothing,
}

impl Reach {
    fn contains(self, call: &Call) -> bool {
        match self {
            Self::All => true,
            Self::NotTheLease => !call.is_of_lease,
            Self::Nothing => false,
        }
    }
}

/// The connection is closed without a response.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut")]
struct Cut;

/// The proxy of one host. It ends with the test.
#[derive(Debug)]
pub struct Proxy {
    /// The host's kubeconfig for this proxy.
    pub kubeconfig: PathBuf,
    reach: watch::Sender<Reach>,
}

/// The shared state of its connections.
struct Way {
    host: Number,
    client: Client,
    faults: Arc<Faults>,
    reach: watch::Receiver<Reach>,
}

impl Proxy {
    /// Listens, and forwards requests to the client's API server. Writes its kubeconfig to the folder.
    pub async fn start(host: Number, client: Client, folder: &Path, faults: &Arc<Faults>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of loopback");
        let address = listener.local_addr().expect("it listens");
        let (reach, reaches) = watch::channel(Reach::All);
        let way = Arc::new(Way { host, client, faults: Arc::clone(faults), reach: reaches });
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&way)));
            }
        });
        let kubeconfig = folder.join(format!("through-proxy-{host}.json"));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "host", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "host"}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).expect("writing a kubeconfig");
        Self { kubeconfig, reach }
    }

    /// Changes what the host can reach. Other requests hang, and their connections are closed once it can reach them again.
    pub fn reaches(&self, reach: Reach) {
        self.reach.send_replace(reach);
    }
}

/// Waits, then closes the connection.
async fn hung(call: &Call) -> Result<Response<Body>, Cut> {
    // A watch has no timeout.
    sleep(if call.verb == Verb::Watch { FROZEN } else { HUNG }).await;
    Err(Cut)
}

async fn serve(connection: TcpStream, way: Arc<Way>) {
    let answer = service_fn(|request| {
        let way = Arc::clone(&way);
        async move { way.answer(request).await }
    });
    // An error is an intended cut, or the host has disconnected.
    http1::Builder::new().serve_connection(TokioIo::new(connection), answer).await.ok();
}

impl Way {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
        let call = Call::new(&request);
        self.within_reach(&call).await?;
        let (head, body) = request.into_parts();
        let body = to_bytes(Body::new(body), MAX_BYTES).await.map_err(|_| Cut)?;
        self.faults.ledger.received(self.host, &call);
        let request = || {
            let mut request = Request::new(ClientBody::from(body.to_vec()));
            *request.method_mut() = head.method.clone();
            *request.uri_mut() = head.uri.clone();
            *request.headers_mut() = passed_on(&head.headers);
            request
        };
        if let Some(point) = self.faults.crash_point(&call, &body) {
            if point == CrashPoint::After {
                self.pass_on(&call, request()).await?;
            }
            // The host crashes without a response.
            return std::future::pending().await;
        }
        let Some(fault) = self.faults.choose(&call) else { return self.pass_on(&call, request()).await };
        match fault {
            Fault::Refused => {
                let overloaded = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
                Ok(refused(self.faults.any(overloaded), "InternalError", "the API server is overloaded"))
            }
            Fault::Hung => hung(&call).await,
            Fault::Conflict => Ok(refused(
                StatusCode::CONFLICT,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version",
            )),
            Fault::Expired => Ok(refused(StatusCode::GONE, "Expired", "too old resource version")),
            Fault::StaleList => match self.faults.stale(&call) {
                Some(answer) => Ok(Response::new(Body::from(answer))),
                None => Err(Cut),
            },
            Fault::Late => {
                sleep(LATE).await;
                self.pass_on(&call, request()).await
            }
            Fault::RefusedAfter => {
                self.pass_on(&call, request()).await?;
                Ok(refused(
                    self.faults.any([StatusCode::INTERNAL_SERVER_ERROR, StatusCode::GATEWAY_TIMEOUT]),
                    "Timeout",
                    "the request has timed out",
                ))
            }
            Fault::CutAfter => {
                self.pass_on(&call, request()).await?;
                Err(Cut)
            }
            Fault::HungAfter => {
                self.pass_on(&call, request()).await?;
                hung(&call).await
            }
            Fault::Twice => {
                self.pass_on(&call, request()).await?;
                self.pass_on(&call, request()).await
            }
            Fault::Torn => {
                let (head, body) = self.pass_on(&call, request()).await?.into_parts();
                let whole = to_bytes(body, MAX_BYTES).await.map_err(|_| Cut)?;
                let half = whole.slice(..whole.len() / 2);
                let torn = stream::iter([Ok(half), Err(Cut)]);
                Ok(Response::from_parts(head, Body::from_stream(torn)))
            }
            // `Cut`: the remaining faults don't occur for requests.
            _ => Err(Cut),
        }
    }

    /// An unreachable request hangs.
    async fn within_reach(&self, call: &Call) -> Result<(), Cut> {
        let mut reach = self.reach.clone();
        if reach.borrow().contains(call) {
            return Ok(());
        }
        reach.wait_for(|reach| reach.contains(call)).await.ok();
        Err(Cut)
    }

    async fn pass_on(&self, call: &Call, request: Request<ClientBody>) -> Result<Response<Body>, Cut> {
        let (mut head, body) = self.client.send(request).await.map_err(|_| Cut)?.into_parts();
        head.headers = passed_on(&head.headers);
        if call.verb == Verb::Watch && head.status == StatusCode::OK {
            let events = Body::new(body).into_data_stream().map(|chunk| chunk.map_err(|_| Cut));
            return Ok(Response::from_parts(head, Body::from_stream(self.events(call, events))));
        }
        let whole = to_bytes(Body::new(body), MAX_BYTES).await.map_err(|_| Cut)?;
        if call.is_of_lease {
            self.faults.ledger.answered(self.host, call, &whole);
        }
        self.faults.keep(call, head.status, &whole);
        Ok(Response::from_parts(head, Body::from(whole)))
    }

    /// The events of a watch, with faults.
    fn events(
        &self,
        call: &Call,
        events: impl Stream<Item = Result<Bytes, Cut>> + Send + 'static,
    ) -> impl Stream<Item = Result<Bytes, Cut>> + Send + 'static {
        let watch = Watch {
            events: events.boxed(),
            faults: Arc::clone(&self.faults),
            reach: self.reach.clone(),
            event: Call { verb: Verb::Event, ..call.clone() },
            whole_lines: true,
            ending: None,
        };
        stream::unfold(watch, Watch::next)
    }
}

/// How a watch ends.
#[derive(Clone, Copy)]
enum Ending {
    /// It is to be cut.
    Cut,
    /// The API server has ended it, or it has been cut.
    Over,
}

/// A watch on its way to a host.
struct Watch {
    events: stream::BoxStream<'static, Result<Bytes, Cut>>,
    faults: Arc<Faults>,
    reach: watch::Receiver<Reach>,
    event: Call,
    /// Whether the forwarded data ends with a complete event.
    whole_lines: bool,
    /// How it ends, if that is decided.
    ending: Option<Ending>,
}

impl Watch {
    async fn next(mut self) -> Option<(Result<Bytes, Cut>, Self)> {
        match self.ending {
            Some(Ending::Over) => return None,
            Some(Ending::Cut) => return Some(self.cut()),
            None => {}
        }
        let mut reach = self.reach.clone();
        let gone = async {
            _ = reach.wait_for(|reach| !reach.contains(&self.event)).await;
            // Later events are lost.
            _ = reach.wait_for(|reach| reach.contains(&self.event)).await;
        };
        let chunk = tokio::select! {
            chunk = self.events.next() => chunk?,
            () = gone => Err(Cut),
        };
        let Ok(chunk) = chunk else { return Some(self.cut()) };
        match self.faults.choose(&self.event) {
            Some(Fault::WatchFrozen) => {
                sleep(FROZEN).await;
                Some(self.cut())
            }
            Some(Fault::WatchTorn) => {
                self.ending = Some(Ending::Cut);
                Some((Ok(chunk.slice(..chunk.len() / 2)), self))
            }
            Some(Fault::WatchExpired) if self.whole_lines => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too old resource version", "reason": "Expired", "code": 410});
                let event = json!({"type": "ERROR", "object": status});
                self.ending = Some(Ending::Over);
                Some((Ok(Bytes::from(format!("{event}\n"))), self))
            }
            // Another event can't be inserted in the middle of one.
            Some(Fault::WatchCut | Fault::WatchExpired) => Some(self.cut()),
            late => {
                if late.is_some() {
                    sleep(LATE).await;
                }
                self.whole_lines = chunk.ends_with(b"\n");
                Some((Ok(chunk), self))
            }
        }
    }

    fn cut(mut self) -> (Result<Bytes, Cut>, Self) {
        self.ending = Some(Ending::Over);
        (Err(Cut), self)
    }
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut passed_on = headers.clone();
    for header in OF_CONNECTION {
        passed_on.remove(header);
    }
    passed_on
}

/// A rejection in the API server's format.
fn refused(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code.as_u16(),
    });
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
