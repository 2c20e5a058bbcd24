//! Calls an endpoint picker as Envoy does, without Envoy: one stream per request, on a few persistent connections.

use crate::chats::Exchanges;
use axum::body::Bytes;
use http::{Request, Uri, header::CONTENT_TYPE};
use hyper::{
    body::{Body, Frame, Incoming},
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pointsman_picker::protocol::{
    framing::{self, Framing},
    messages::{
        Answer, ProcessingResponse,
        response::Part::{self, Immediate, RequestBody, ResponseBody},
    },
};
use pointsman_tests::load::{Round, on_a_thread};
use std::{
    convert::Infallible,
    error::Error,
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    net::TcpStream,
    sync::mpsc::{self, UnboundedReceiver},
    task::JoinSet,
};

/// The number of connections: Envoy has one per thread.
const CONNECTIONS: usize = 2;

/// The number of concurrent streams.
pub(crate) const STREAMS: usize = 32;

const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// The maximum length of a message. The longest has a body of 2 KiB.
const MAX_MESSAGE: usize = 64 << 10;

type Failure = Box<dyn Error + Send + Sync>;

/// The number of the next request, for all pickers together: no two requests have the same prompt.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Sends this number of requests, on all streams together. Returns the times until each request could proceed. Each stream is read to its
/// end.
pub(crate) fn ask(address: SocketAddr, requests: u64) -> Round {
    on_a_thread(async move {
        let mut proxies = Vec::new();
        for _ in 0..CONNECTIONS {
            proxies.push(Proxy::connect(address).await.unwrap());
        }
        let end = NEXT.fetch_add(requests, Ordering::Relaxed) + requests;
        let (exchanges, next) = (Arc::new(Exchanges::new()), Arc::new(AtomicU64::new(end - requests)));
        let begun = Instant::now();
        let mut streams = JoinSet::new();
        for proxy in proxies.iter().cycle().take(STREAMS) {
            let (mut proxy, exchanges, next) = (proxy.clone(), Arc::clone(&exchanges), Arc::clone(&next));
            streams.spawn(async move {
                let mut latencies = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return latencies;
                    }
                    latencies.push(proxy.ask(exchanges.request(number), exchanges.response()).await.unwrap());
                }
            });
        }
        let latencies = streams.join_all().await.concat();
        Round::new(&latencies, begun)
    })
}

/// Whether a picker can place a request yet.
pub(crate) async fn places(address: SocketAddr) -> bool {
    let Ok(mut proxy) = Proxy::connect(address).await else { return false };
    let exchanges = Exchanges::new();
    proxy.ask(exchanges.request(NEXT.fetch_add(1, Ordering::Relaxed)), exchanges.response()).await.is_ok()
}

/// A connection to the picker.
#[derive(Clone)]
struct Proxy {
    sender: SendRequest<Outgoing>,
    uri: Uri,
}

impl Proxy {
    async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, uri: format!("http://{address}{PROCESS}").parse()? })
    }

    /// One exchange. Returns the time until the request could proceed.
    async fn ask(&mut self, request: Bytes, response: Bytes) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let (outgoing, receiver) = mpsc::unbounded_channel();
        outgoing.send(request)?;
        let call = Request::post(self.uri.clone()).header(CONTENT_TYPE, "application/grpc").header("te", "trailers");
        let answer = self.sender.send_request(call.body(Outgoing(receiver))?).await?;
        let mut answers = Answers { body: answer.into_body(), framing: Framing::new(MAX_MESSAGE) };
        answers.read_body(|part| if let RequestBody(answer) = part { Some(answer) } else { None }).await?;
        let took = begun.elapsed();
        outgoing.send(response)?;
        drop(outgoing);
        answers.read_body(|part| if let ResponseBody(answer) = part { Some(answer) } else { None }).await?;
        while answers.next().await?.is_some() {}
        Ok(took)
    }
}

/// The outgoing messages of a stream. It ends when all senders are dropped.
struct Outgoing(UnboundedReceiver<Bytes>);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|sent| sent.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The incoming messages of a stream.
struct Answers {
    body: Incoming,
    framing: Framing,
}

impl Answers {
    /// Reads to the end of the body that `answer` selects.
    async fn read_body(&mut self, answer: impl Fn(&Part) -> Option<&Answer>) -> Result<(), Failure> {
        loop {
            let part = self.next().await?.ok_or("the picker ended the stream before its answer")?;
            if let Immediate(refusal) = &part {
                return Err(format!("the picker refused the request: {refusal:?}").into());
            }
            let mutation = answer(&part).and_then(|answer| answer.response.as_ref()?.body_mutation.as_ref());
            if mutation.and_then(|mutation| mutation.streamed_response.as_ref()).is_some_and(|body| body.end_of_stream) {
                return Ok(());
            }
        }
    }

    /// The next message, or none after the last. The call must not have failed.
    async fn next(&mut self) -> Result<Option<Part>, Failure> {
        loop {
            let message = self.framing.next_message().map_err(|error| format!("{error:?}"))?;
            if let Some(message) = message {
                let message: ProcessingResponse = framing::decode(message)?;
                return Ok(Some(message.part.ok_or("the picker sends an empty message")?));
            }
            let Some(frame) = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await else { return Ok(None) };
            match frame?.into_data() {
                Ok(data) => self.framing.push(data),
                Err(frame) => {
                    let status = frame.trailers_ref().and_then(|trailers| trailers.get("grpc-status"));
                    if status.is_none_or(|status| status != "0") {
                        return Err(format!("the call has failed: {frame:?}").into());
                    }
                }
            }
        }
    }
}
