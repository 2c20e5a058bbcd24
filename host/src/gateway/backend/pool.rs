//! Connections to backends that wait for another request.

use super::connect::Stream;
use crate::gateway::{body::RequestBody, target::Server};
use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{
        TrySendError,
        http1::{Builder, SendRequest},
    },
};
use hyper_util::rt::TokioIo;
use pointsman_sandbox::sync::locked;
use std::{collections::HashMap, sync::Mutex, time::Duration};
use tokio::time::{Instant, timeout};

/// How long one may wait. Uvicorn, below most model servers, closes a connection after 5 seconds, and a request that is just then on its way is
/// lost.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// How many may wait, of one server.
const MAX_KEPT: usize = 64;

/// How long the end of an answer may take until the connection can have another request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// The bytes of an answer's headers together.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// How many headers an answer may have.
const MAX_HEADERS: usize = 128;

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    server: Server,
    sender: SendRequest<RequestBody>,
}

impl Connection {
    /// Sends a request.
    pub(super) async fn send(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        self.sender.try_send_request(request).await
    }
}

#[derive(Debug)]
struct Kept {
    sender: SendRequest<RequestBody>,
    since: Instant,
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<HashMap<Server, Vec<Kept>>>);

impl Pool {
    /// The one that was used last.
    pub(super) fn take(&self, server: &Server) -> Option<Connection> {
        let mut kept = locked(&self.0);
        let of_server = kept.get_mut(server)?;
        while let Some(Kept { sender, since }) = of_server.pop() {
            if since.elapsed() < MAX_IDLE && sender.is_ready() && !sender.is_closed() {
                return Some(Connection { server: server.clone(), sender });
            }
        }
        None
    }

    /// Begins to speak HTTP.
    pub(super) async fn open(&self, server: &Server, stream: Stream) -> Result<Connection, hyper::Error> {
        let mut builder = Builder::new();
        let builder = builder.max_buf_size(MAX_HEADER_BYTES).max_headers(MAX_HEADERS);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        // It ends when the sender is dropped, or the backend closes it.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a backend has failed");
            }
        });
        Ok(Connection { server: server.clone(), sender })
    }

    pub(super) async fn give_back(&self, connection: Connection) {
        let Connection { server, mut sender } = connection;
        if !matches!(timeout(READY_TIMEOUT, sender.ready()).await, Ok(Ok(()))) {
            return;
        }
        let mut kept = locked(&self.0);
        let of_server = kept.entry(server).or_default();
        if of_server.len() < MAX_KEPT {
            of_server.push(Kept { sender, since: Instant::now() });
        }
    }

    pub(super) fn sweep(&self) {
        locked(&self.0).retain(|_, kept| {
            kept.retain(|kept| kept.since.elapsed() < MAX_IDLE && !kept.sender.is_closed());
            !kept.is_empty()
        });
    }
}
