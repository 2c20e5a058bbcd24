//! The server for proxies.

use super::{
    Code, HEALTH, PROCESS,
    authority::ReadableAuthority,
    conversation::{Conversation, Health, Picks, trailers},
};
use crate::endpoint_picker::threads::Threads;
use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http2::Builder,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use pointsman_picker::protocol::{
    Limits,
    framing::{self, Framing},
    health::{HealthCheckRequest, HealthCheckResponse, ServingStatus},
};
use std::{convert::Infallible, io, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

/// The server's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The limits of a stream.
    pub limits: Limits,
    /// The maximum number of connections. A proxy has one or a few.
    pub connections: usize,
    /// The maximum number of concurrent streams per connection.
    pub streams: u32,
    /// How long open streams may continue after the server stops accepting new ones.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), connections: 1024, streams: 10_000, drain: Duration::from_secs(30) }
    }
}

/// The number of bytes of a stream and of a connection that are received before they are read. A proxy sends bodies in one go.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The interval of keep-alive pings, and the timeout of a response.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a health check's request.
const MAX_QUESTION: usize = 1024;

/// The delay after a connection couldn't be accepted: usually there are too many open files.
const ACCEPT_DELAY: Duration = Duration::from_millis(200);

/// Serves proxies until `stop` resolves, then waits for open streams, for at most `settings.drain`. Each connection has a place, with all
/// of its streams, on one of the threads.
pub async fn serve<P: Picks>(
    picks: Arc<P>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    settings: Settings,
    threads: Arc<Threads>,
    stop: impl Future<Output = ()>,
) {
    let service = move |request: Request<Incoming>| answer(Arc::clone(&picks), request, settings);
    listen(service, listener, tls, settings, Some(threads), stop).await;
}

/// Serves only probes. It never ends by itself.
pub async fn serve_probes<H: Health>(health: Arc<H>, listener: TcpListener) {
    let service = move |request: Request<Incoming>| {
        let health = Arc::clone(&health);
        async move { Ok(if is_grpc(&request) { answer_probe(&*health, request).await } else { no_grpc() }) }
    };
    listen(service, listener, None, Settings::default(), None, std::future::pending()).await;
}

/// Handles the calls of a connection.
trait Answers: Fn(Request<Incoming>) -> <Self as Answers>::Future + Clone + Send + 'static {
    type Future: Future<Output = Result<Response<Answer>, Infallible>> + Send + 'static;
}

impl<S, F> Answers for S
where
    S: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Answer>, Infallible>> + Send + 'static,
{
    type Future = F;
}

async fn listen(
    service: impl Answers,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    settings: Settings,
    threads: Option<Arc<Threads>>,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(settings.connections));
    let (stopping, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                let (service, tls, stopped) = (service.clone(), tls.clone(), stopping.subscribe());
                let talk = async move {
                    let _place = place;
                    // The runtime that accepted it would otherwise drive its I/O.
                    match stream.into_std().and_then(TcpStream::from_std) {
                        Ok(stream) => connection(service, stream, tls, settings, stopped).await,
                        Err(error) => tracing::debug!(%error, "a connection can't be accepted"),
                    }
                };
                match &threads {
                    Some(threads) => threads.spawn(&mut connections, talk),
                    None => _ = connections.spawn(talk),
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a connection can't be accepted");
                sleep(ACCEPT_DELAY).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(settings.drain, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "the time for the last streams is over: ending the remaining streams");
        connections.shutdown().await;
    }
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true).ok();
    Ok((stream, place))
}

async fn connection(
    service: impl Answers,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    settings: Settings,
    stopped: watch::Receiver<bool>,
) {
    match tls {
        None => speak(service, stream, settings, stopped).await,
        Some(tls) => match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => speak(service, stream, settings, stopped).await,
            Ok(Err(error)) => tracing::debug!(%error, "the connection to a proxy failed"),
            Err(_) => tracing::debug!("a proxy doesn't start the TLS handshake"),
        },
    }
}

async fn speak(
    service: impl Answers,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    settings: Settings,
    mut stopped: watch::Receiver<bool>,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(ReadableAuthority::new(stream)), service_fn(service)));
    let stop = async { _ = stopped.wait_for(|stopped| *stopped).await };
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a proxy's connection has ended");
    }
}

type Answer = UnsyncBoxBody<Bytes, Infallible>;

fn is_grpc(request: &Request<Incoming>) -> bool {
    request.method() == Method::POST
        && request.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// The response to a request that isn't gRPC.
fn no_grpc() -> Response<Answer> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

async fn answer<P: Picks>(picks: Arc<P>, request: Request<Incoming>, settings: Settings) -> Result<Response<Answer>, Infallible> {
    if !is_grpc(&request) {
        return Ok(no_grpc());
    }
    if request.uri().path() != PROCESS {
        return Ok(answer_probe(&*picks, request).await);
    }
    let conversation = Conversation::new(picks, request.into_body(), settings.limits);
    Ok(call(stream::unfold(conversation, |mut conversation| async move {
        let frame = conversation.next().await?;
        Some((frame, conversation))
    })))
}

async fn answer_probe<H: Health>(health: &H, request: Request<Incoming>) -> Response<Answer> {
    if request.uri().path() != HEALTH {
        return failure(Code::Unimplemented, "no such call");
    }
    match check(health, request.into_body()).await {
        Ok(status) => {
            let message = framing::encode(&[HealthCheckResponse { status: status.into() }]);
            call(stream::iter([Frame::data(message), Frame::trailers(trailers(Code::Ok, ""))]))
        }
        Err((code, message)) => failure(code, message),
    }
}

/// The response to a call.
fn call(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Response<Answer> {
    let mut response = Response::new(StreamBody::new(frames.map(Ok)).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// The response to a call that failed before it began: its trailers are its headers.
fn failure(code: Code, message: &str) -> Response<Answer> {
    let mut response = Response::new(Full::default().boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response.headers_mut().extend(trailers(code, message));
    response
}

/// Handles a health check of a service.
async fn check<H: Health>(health: &H, body: Incoming) -> Result<ServingStatus, (Code, &'static str)> {
    let body = Limited::new(body, MAX_QUESTION).collect().await.map_err(|_| (Code::InvalidArgument, "the request can't be read"))?;
    let mut framing = Framing::new(MAX_QUESTION);
    framing.push(body.to_bytes());
    let message = framing.next_message().ok().flatten().ok_or((Code::InvalidArgument, "the message is incomplete"))?;
    let question: HealthCheckRequest = framing::decode(message).map_err(|_| (Code::InvalidArgument, "the request can't be read"))?;
    match health.health(&question.service) {
        Some(true) => Ok(ServingStatus::Serving),
        Some(false) => Ok(ServingStatus::NotServing),
        None => Err((Code::NotFound, "no such service")),
    }
}
