//! The server for clients: accepts connections, speaks HTTP/1.1 and HTTP/2 on each, and closes idle ones.

use super::{
    limits::Limits,
    proxy::Proxy,
    response::{Guard, ResponseBody},
};
use http::{Request, Response, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

/// The interval of checks of connections and responses for their time limits.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of bytes of a response that are buffered for a client of HTTP/2.
const SEND_BUFFER: usize = 64 << 10;

/// The delay after a connection couldn't be accepted: usually there are too many open files.
const ACCEPT_DELAY: Duration = Duration::from_millis(200);

/// Serves clients until `stop`, and then until the last response or the end of the grace period.
pub async fn serve(
    proxy: Arc<Proxy>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    stop: impl Future<Output = ()>,
    drain: Duration,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(proxy.limits.connections));
    let (stopping, _) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            _ = checks.tick() => {
                proxy.backends.sweep();
                proxy.flights.sweep(&proxy.limits);
                continue;
            }
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, client, place)) => {
                let (proxy, tls, stopped) = (Arc::clone(&proxy), tls.clone(), stopping.subscribe());
                connections.spawn(async move {
                    let _place = place;
                    connection(proxy, stream, tls, client, stopped).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection can't be accepted");
                sleep(ACCEPT_DELAY).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let ended = async {
        loop {
            tokio::select! {
                next = connections.join_next() => if next.is_none() { return },
                _ = checks.tick() => proxy.flights.sweep(&proxy.limits),
            }
        }
    };
    if timeout(drain, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "the time for the last answers is over: ending the remaining connections");
        connections.shutdown().await;
    }
    Ok(())
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, client) = listener.accept().await?;
    Ok((stream, client, place))
}

async fn connection(proxy: Arc<Proxy>, stream: TcpStream, tls: Option<TlsAcceptor>, client: SocketAddr, stopped: watch::Receiver<bool>) {
    // Parts of a response are small, and the client waits for each.
    stream.set_nodelay(true).ok();
    match tls {
        None => speak(proxy, stream, client, stopped).await,
        Some(tls) => match timeout(proxy.limits.header_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => speak(proxy, stream, client, stopped).await,
            Ok(Err(error)) => tracing::debug!(%client, %error, "the connection to a client failed"),
            Err(_) => tracing::debug!(%client, "a client doesn't start the TLS handshake"),
        },
    }
}

async fn speak(
    proxy: Arc<Proxy>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    client: SocketAddr,
    mut stopped: watch::Receiver<bool>,
) {
    let limits = Arc::clone(&proxy.limits);
    let progress = Arc::new(Progress::new());
    let io = TokioIo::new(Watched { stream, progress: Arc::clone(&progress) });
    let mut builder = Builder::new(TokioExecutor::new());
    // `Progress` limits heads and idle connections, without a timer for each request.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.header_bytes.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX));
    let served = Arc::clone(&progress);
    let service = service_fn(move |request: Request<Incoming>| {
        served.http2.store(request.version() == Version::HTTP_2, Ordering::Relaxed);
        let (proxy, guard) = (Arc::clone(&proxy), Active::new(&served));
        async move {
            let mut response: Response<ResponseBody> = proxy.handle(request, client).await;
            let guard: Guard = Box::new(guard);
            response.body_mut().hold(guard);
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ending = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%client, error = %error, "a connection has failed");
                }
                return;
            }
            _ = stopped.wait_for(|stopped| *stopped), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = checks.tick() => {
                if progress.is_over(&limits) {
                    return;
                }
            }
        }
    }
}

/// The activity on a connection. Times are in milliseconds since its start.
#[derive(Debug)]
struct Progress {
    began: Instant,
    last: AtomicU64,
    /// Since when nothing can be written; 0 if something can.
    blocked: AtomicU64,
    /// Since when the incomplete head of a request has been arriving; 0 if there is none. Only in HTTP/1: in HTTP/2, other frames also
    /// arrive.
    begun: AtomicU64,
    http2: AtomicBool,
    active: AtomicUsize,
    requests: AtomicU64,
}

impl Progress {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let (last, blocked, begun, requests) = (zero(), zero(), zero(), zero());
        Self { began: Instant::now(), last, blocked, begun, http2: AtomicBool::new(false), active: AtomicUsize::new(0), requests }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Whether it is idle for too long, or its client reads nothing.
    fn is_over(&self, limits: &Limits) -> bool {
        let now = self.now();
        let late = |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_millis();
        let blocked = self.blocked.load(Ordering::Relaxed);
        if blocked > 0 && late(blocked, limits.stall_timeout) {
            return true;
        }
        if self.active.load(Ordering::Relaxed) > 0 {
            return false;
        }
        if self.requests.load(Ordering::Relaxed) == 0 {
            return late(0, limits.header_timeout);
        }
        let begun = self.begun.load(Ordering::Relaxed);
        if begun > 0 && !self.http2.load(Ordering::Relaxed) && late(begun, limits.header_timeout) {
            return true;
        }
        late(self.last.load(Ordering::Relaxed), limits.idle_timeout)
    }
}

/// A request in progress on a connection.
struct Active(Arc<Progress>);

impl Active {
    fn new(progress: &Arc<Progress>) -> Self {
        progress.active.fetch_add(1, Ordering::Relaxed);
        progress.requests.fetch_add(1, Ordering::Relaxed);
        progress.begun.store(0, Ordering::Relaxed);
        Self(Arc::clone(progress))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.last.store(self.0.now(), Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that records its activity.
struct Watched<S> {
    stream: S,
    progress: Arc<Progress>,
}

impl<S> Watched<S> {
    fn note<T>(&self, polled: &Poll<io::Result<T>>) {
        let now = self.progress.now();
        if polled.is_pending() {
            self.progress.blocked.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).ok();
        } else {
            self.progress.blocked.store(0, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        if polled.is_ready() {
            let now = self.progress.now();
            self.progress.last.store(now, Ordering::Relaxed);
            if self.progress.active.load(Ordering::Relaxed) == 0 {
                // The timeout of a request's head doesn't restart with each byte.
                self.progress.begun.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).ok();
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(&polled);
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        if polled.is_pending() {
            self.note(&polled);
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
