//! A backend whose behaviour a request's header `x-behave` selects, and whose steps the test controls.

use futures::stream;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

type Body = BoxBody<Bytes, io::Error>;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Bytes>,
}

/// A backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    seen: Mutex<Vec<Seen>>,
    /// The number of requests whose responses haven't ended.
    open: watch::Sender<usize>,
    connections: watch::Sender<usize>,
    steps: Semaphore,
}

struct Open(Arc<State>);

impl Open {
    fn new(state: &Arc<State>) -> Self {
        state.open.send_modify(|open| *open += 1);
        Self(Arc::clone(state))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

impl Backend {
    pub(crate) async fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        Self::with(listener, None)
    }

    /// A backend, optionally with TLS.
    pub(crate) fn with(listener: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        let address = listener.local_addr().unwrap();
        let (open, connections) = (watch::Sender::new(0), watch::Sender::new(0));
        let state = Arc::new(State { seen: Mutex::default(), open, connections, steps: Semaphore::new(0) });
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.connections.send_modify(|count| *count += 1);
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                all.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&state), request));
                    let server = http1::Builder::new();
                    match tls {
                        None => drop(server.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                server.serve_connection(TokioIo::new(stream), service).await.ok();
                            }
                        }
                    }
                });
            }
        });
        Self { address, state, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// Lets waiting responses make this many steps.
    pub(crate) fn step(&self, steps: usize) {
        self.state.steps.add_permits(steps);
    }

    /// Waits until this many requests are being served.
    pub(crate) async fn opened(&self, count: usize) {
        self.state.open.subscribe().wait_for(|open| *open == count).await.unwrap();
    }

    pub(crate) fn connections(&self) -> usize {
        *self.state.connections.borrow()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
    let open = Open::new(&state);
    let (parts, body) = request.into_parts();
    let seen = Seen { line: format!("{} {}", parts.method, parts.uri), headers: parts.headers.clone(), body: None };
    let place = {
        let mut all = state.seen.lock().unwrap();
        all.push(seen);
        all.len() - 1
    };
    let behave = parts.headers.get("x-behave").map_or("", |value| value.to_str().unwrap()).to_owned();
    if behave == "echo" {
        let body = body.map_err(io::Error::other).map_frame(move |frame| {
            let _open = &open;
            frame
        });
        return Ok(Response::new(body.boxed()));
    }
    if behave == "refuse" {
        return Err(io::Error::other("refused"));
    }
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    state.seen.lock().unwrap()[place].body = Some(body.clone());
    let json = |value: serde_json::Value| {
        Response::builder().header("content-type", "application/json").header("keep-alive", "5").body(full(value.to_string())).unwrap()
    };
    Ok(match behave.as_str() {
        "wait" => {
            state.steps.acquire().await.unwrap().forget();
            drop(open);
            json(json!({"bytes": body.len()}))
        }
        "close" => {
            let mut response = json(json!({"bytes": body.len()}));
            response.headers_mut().insert("connection", "close".parse().unwrap());
            response
        }
        "redirect" => Response::builder().status(302).header("location", "http://169.254.169.254/latest").body(full("")).unwrap(),
        "switch" => Response::builder().status(101).header("upgrade", "x").header("connection", "upgrade").body(full("")).unwrap(),
        "error" => {
            Response::builder().status(418).header("content-type", "application/json").body(full(r#"{"error":{"code":"teapot"}}"#)).unwrap()
        }
        "events" => {
            // One event per step, and the end one step after the last event.
            let events = stream::unfold((state, open, 0), |(state, open, number)| async move {
                state.steps.acquire().await.unwrap().forget();
                let event = format!("data: {{\"number\":{number}}}\n\n");
                (number < 3).then(|| (Ok(Frame::data(Bytes::from(event))), (state, open, number + 1)))
            });
            Response::builder().header("content-type", "text/event-stream").body(BodyExt::boxed(StreamBody::new(events))).unwrap()
        }
        "truncate" => {
            // Breaks off one step after its start.
            let frames = stream::unfold((state, open, false), |(state, open, begun)| async move {
                if !begun {
                    return Some((Ok(Frame::data(Bytes::from_static(b"begin"))), (state, open, true)));
                }
                state.steps.acquire().await.unwrap().forget();
                Some((Err(io::Error::other("cut")), (state, open, true)))
            });
            Response::new(BodyExt::boxed(StreamBody::new(frames)))
        }
        "flood" => {
            let chunk = Bytes::from(vec![b'x'; 64 << 10]);
            let frames = stream::unfold(open, move |open| {
                let chunk = chunk.clone();
                async move { Some((Ok(Frame::data(chunk)), open)) }
            });
            Response::new(BodyExt::boxed(StreamBody::new(frames)))
        }
        "trailers" => {
            let trailers = HeaderMap::from_iter([("x-checksum".parse().unwrap(), "abc".parse().unwrap())]);
            let frames = [Ok(Frame::data(Bytes::from_static(b"body"))), Ok(Frame::trailers(trailers))];
            Response::builder().header("trailer", "x-checksum").body(BodyExt::boxed(StreamBody::new(stream::iter(frames)))).unwrap()
        }
        _ => json(json!({"bytes": body.len(), "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}})),
    })
}
