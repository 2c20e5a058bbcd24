//! Connections to backends: reused if possible, otherwise opened, and none while a backend fails.

mod breaker;
mod connect;
mod pool;

use super::{
    body::RequestBody,
    error::GatewayError,
    limits::Limits,
    resolve::Resolver,
    target::{Server, Target},
};
use breaker::Breaker;
use connect::Connector;
use http::{Request, Response};
use hyper::body::Incoming;
use pointsman_sandbox::sync::locked;
pub use pool::Connection;
use pool::Pool;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};

/// The delays before further attempts to connect: a Service lists a pod a moment after it is ready.
const RETRY_DELAYS: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(400), Duration::from_secs(1)];

/// The maximum number of servers whose failures are remembered.
const MAX_SERVERS: usize = 10_000;

/// The state of all backends.
#[derive(Debug)]
pub struct Backends {
    connector: Connector,
    pool: Pool,
    breakers: Mutex<HashMap<Server, Breaker>>,
    limits: Arc<Limits>,
    retries: AtomicU64,
}

/// A response that has begun, and its connection.
#[derive(Debug)]
pub struct Answer {
    /// The response.
    pub response: Response<Incoming>,
    /// To be returned once the response has ended.
    pub connection: Connection,
}

impl Backends {
    /// Creates the state with these settings. The TLS settings are for backends whose URL begins with https.
    pub fn new(resolver: Resolver, tls: Arc<ClientConfig>, limits: Arc<Limits>) -> Self {
        let connector = Connector { resolver, tls, within: limits.connect_timeout };
        Self { connector, pool: Pool::default(), breakers: Mutex::default(), limits, retries: AtomicU64::new(0) }
    }

    /// The number of attempts to connect beyond the first.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// The number of servers that get no connections now because they fail.
    pub fn broken(&self) -> usize {
        let now = Instant::now();
        locked(&self.breakers).values().filter(|breaker| breaker.is_broken(now)).count()
    }

    /// Closes connections that have been idle for a while.
    pub fn sweep(&self) {
        self.pool.sweep();
    }

    /// Sends a request, and waits until its response begins. Nothing is sent twice: a request is retried only if no byte of it was sent.
    pub async fn send(&self, target: &Target, mut request: Request<RequestBody>) -> Result<Answer, GatewayError> {
        let server = &target.server;
        let failure = request.body().failure();
        let own = || failure.get().cloned();
        for fresh in [false, true] {
            let kept = if fresh { None } else { self.pool.take(server) };
            let (mut connection, is_kept) = match kept {
                Some(kept) => (kept, true),
                None => (self.connect(server).await?, false),
            };
            let sent = timeout(self.limits.backend_timeout, connection.send(request)).await;
            match sent {
                Err(_) => {
                    let seconds = self.limits.backend_timeout.as_secs();
                    return Err(own().unwrap_or_else(|| {
                        GatewayError::backend_timeout(format!("The backend's answer hasn't begun within {seconds} seconds."))
                    }));
                }
                Ok(Ok(response)) => {
                    self.record(server, true);
                    // The body shares it until it has been sent.
                    if Arc::strong_count(&failure) > 1 {
                        connection.detach();
                    }
                    return Ok(Answer { response, connection });
                }
                Ok(Err(mut error)) => match error.take_message() {
                    // The backend had closed the connection.
                    Some(unsent) if is_kept => request = unsent,
                    _ => {
                        if let Some(own) = own() {
                            return Err(own);
                        }
                        // It doesn't count as a failure of the server, because one client's requests could then block all others.
                        tracing::debug!(?server, error = %error.error(), "a backend ended the connection before its answer");
                        let message = "The backend ended the connection before its answer began.";
                        return Err(GatewayError::backend_unavailable(message, None));
                    }
                },
            }
        }
        Err(GatewayError::backend_unavailable("The backend closes its connections before a request is sent.", None))
    }

    async fn connect(&self, server: &Server) -> Result<Connection, GatewayError> {
        if let Some(wait) = self.try_pass(server) {
            let seconds = wait.as_secs() + 1;
            let message = format!("The backend has failed repeatedly and gets no requests for now: try again in {seconds} s.");
            return Err(GatewayError::backend_unavailable(message, Some(seconds)));
        }
        let mut delays = RETRY_DELAYS.iter();
        loop {
            let error = match self.connector.connect(server).await {
                Ok(stream) => match self.pool.open(server, stream).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) => io::Error::other(error),
                },
                Err(error) => error,
            };
            let is_final =
                matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput);
            match delays.next() {
                Some(delay) if !is_final => {
                    self.retries.fetch_add(1, Ordering::Relaxed);
                    sleep(*delay).await;
                }
                _ => {
                    self.record(server, false);
                    tracing::debug!(?server, %error, "a backend can't be reached");
                    return Err(GatewayError::backend_unavailable(format!("The backend can't be reached: {}.", reason(&error)), None));
                }
            }
        }
    }

    /// The remaining pause of a server, if it has one.
    fn try_pass(&self, server: &Server) -> Option<Duration> {
        let (now, trial) = (Instant::now(), self.limits.connect_timeout);
        locked(&self.breakers).get_mut(server).and_then(|breaker| breaker.try_pass(now, trial).err())
    }

    fn record(&self, server: &Server, well: bool) {
        let mut breakers = locked(&self.breakers);
        if well {
            breakers.remove(server);
        } else if breakers.len() < MAX_SERVERS || breakers.contains_key(server) {
            breakers.entry(server.clone()).or_default().fail(Instant::now());
        }
    }

    /// Returns a connection whose response has ended.
    pub fn give_back(self: &Arc<Self>, connection: Connection) {
        // Usually it has read the end of the response by now.
        let Err(connection) = self.pool.try_give_back(connection) else { return };
        let backends = Arc::clone(self);
        tokio::spawn(async move { backends.pool.give_back(connection).await });
    }
}

/// The TLS settings for backends: their certificates must be signed by the system's CAs or by these.
pub fn tls_settings(further: &[CertificateDer<'static>]) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in further {
        roots.add(certificate.clone())?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The reason of a failure for clients: complete if the gateway refused it, otherwise only the kind of network error, without addresses.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied if error.get_ref().is_some() => error.to_string(),
        io::ErrorKind::ConnectionRefused => "it refuses connections".to_owned(),
        io::ErrorKind::TimedOut => "it doesn't answer".to_owned(),
        io::ErrorKind::InvalidData => "its certificate isn't trusted, or it doesn't speak TLS".to_owned(),
        io::ErrorKind::NotFound => "its name has no address".to_owned(),
        _ => "the connection fails".to_owned(),
    }
}
