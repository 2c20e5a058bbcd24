//! Idle connections to backends.

use super::connect::Stream;
use crate::gateway::{body::RequestBody, target::Server};
use http::{Request, Response};
use hyper::{
    body::{Body, Bytes, Frame, Incoming},
    client::conn::{
        TrySendError,
        http1::{self, Builder, SendRequest},
    },
};
use hyper_util::rt::TokioIo;
use pointsman_sandbox::sync::locked;
use std::{
    collections::HashMap,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Mutex,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

/// How long a connection may be idle. Uvicorn, in most model servers, closes a connection after 5 seconds, and a request that is just being
/// sent is lost.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// The maximum number of idle connections per server.
const MAX_KEPT: usize = 64;

/// How long the end of a response may take until the connection is ready for another request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum size of a response's headers, in bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// The maximum number of headers in a response.
const MAX_HEADERS: usize = 128;

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    server: Server,
    sender: SendRequest<RequestBody>,
    driver: Driver,
}

/// The driver of the connection's I/O.
#[derive(Debug)]
enum Driver {
    /// The caller that awaits the response: waking another task would take longer than the rest of a small request.
    Caller(Box<http1::Connection<TokioIo<Stream>, RequestBody>>),
    /// A task, because a response has begun before its request's body has ended: each continues independently.
    Task,
    /// The connection has ended.
    Nobody,
}

impl Driver {
    fn drive(&mut self, context: &mut Context<'_>) {
        let Self::Caller(connection) = self else { return };
        if let Poll::Ready(ended) = Pin::new(connection).poll(context) {
            log(ended);
            *self = Self::Nobody;
        }
    }
}

fn log(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to a backend has failed");
    }
}

impl Connection {
    /// Sends a request.
    pub(super) async fn send(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let Self { sender, driver, .. } = self;
        let mut answer = pin!(sender.try_send_request(request));
        poll_fn(|context| {
            driver.drive(context);
            answer.as_mut().poll(context)
        })
        .await
    }

    /// Waits until the connection is ready for another request.
    async fn ready(&mut self) -> Result<(), hyper::Error> {
        let Self { sender, driver, .. } = self;
        let mut ready = pin!(sender.ready());
        poll_fn(|context| {
            driver.drive(context);
            ready.as_mut().poll(context)
        })
        .await
    }

    /// Drives the connection in a task of its own.
    pub(super) fn detach(&mut self) {
        if let Driver::Caller(connection) = std::mem::replace(&mut self.driver, Driver::Task) {
            tokio::spawn(async { log(connection.await) });
        }
    }

    /// The next part of the connection's response.
    pub fn poll_frame(&mut self, answer: &mut Incoming, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut answer = Pin::new(answer);
        // If nothing is buffered, drive the I/O and poll again: this request makes the connection read.
        match answer.as_mut().poll_frame(context) {
            Poll::Pending if matches!(self.driver, Driver::Caller(_)) => {
                self.driver.drive(context);
                answer.poll_frame(context)
            }
            polled => polled,
        }
    }

    /// Whether it is ready for another request. Without a task, only this check notices that the server has closed it.
    fn is_usable(&mut self) -> bool {
        self.driver.drive(&mut Context::from_waker(Waker::noop()));
        self.sender.is_ready() && !self.sender.is_closed()
    }
}

impl Drop for Connection {
    /// Closes it as hyper does, which also notifies the server over TLS.
    fn drop(&mut self) {
        if Handle::try_current().is_ok() {
            self.detach();
        }
    }
}

#[derive(Debug)]
struct Kept {
    connection: Connection,
    since: Instant,
}

impl Kept {
    fn is_usable(&mut self) -> bool {
        self.since.elapsed() < MAX_IDLE && self.connection.is_usable()
    }
}

/// The idle connections.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<HashMap<Server, Vec<Kept>>>);

impl Pool {
    /// Takes the connection that was used last.
    pub(super) fn take(&self, server: &Server) -> Option<Connection> {
        let mut kept = locked(&self.0);
        let of_server = kept.get_mut(server)?;
        while let Some(mut kept) = of_server.pop() {
            if kept.is_usable() {
                return Some(kept.connection);
            }
        }
        None
    }

    /// Starts HTTP on a stream.
    pub(super) async fn open(&self, server: &Server, stream: Stream) -> Result<Connection, hyper::Error> {
        let mut builder = Builder::new();
        let builder = builder.max_buf_size(MAX_HEADER_BYTES).max_headers(MAX_HEADERS);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Connection { server: server.clone(), sender, driver: Driver::Caller(Box::new(connection)) })
    }

    /// Takes a connection back if it is ready for another request; otherwise it is returned.
    pub(super) fn try_give_back(&self, mut connection: Connection) -> Result<(), Connection> {
        if !connection.is_usable() {
            return Err(connection);
        }
        self.keep(connection);
        Ok(())
    }

    /// Takes a connection back once it is ready for another request.
    pub(super) async fn give_back(&self, mut connection: Connection) {
        let ready = timeout(READY_TIMEOUT, connection.ready()).await;
        if matches!(ready, Ok(Ok(()))) {
            self.keep(connection);
        }
    }

    fn keep(&self, connection: Connection) {
        let mut kept = locked(&self.0);
        let of_server = kept.entry(connection.server.clone()).or_default();
        if of_server.len() < MAX_KEPT {
            of_server.push(Kept { connection, since: Instant::now() });
        }
    }

    pub(super) fn sweep(&self) {
        locked(&self.0).retain(|_, kept| {
            kept.retain_mut(Kept::is_usable);
            !kept.is_empty()
        });
    }
}
