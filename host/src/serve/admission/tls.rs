//! A TLS listener whose certificate may change between connections.

use super::{
    certificates::expires,
    connections::{Connections, Place},
};
use crate::metrics::single;
use arc_swap::ArcSwapOption;
use axum::{Router, serve::Listener};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig,
        crypto::ring,
        server::{
            ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier,
        },
        sign::CertifiedKey,
    },
    server::TlsStream,
};

/// The timeout of a client's handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of connections that wait to be served.
const BACKLOG: usize = 128;

/// How long an idle connection stays open. The API server closes one after 90 seconds, and must not find it closed when it sends a request.
const SILENT: Duration = Duration::from_mins(3);

/// How long the host waits for running requests when it ends.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// The delay after a connection couldn't be accepted: usually there are too many open files.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// The certificate that clients are shown; without one, no connection succeeds.
#[derive(Debug, Default)]
pub struct CurrentCertificate {
    shown: ArcSwapOption<CertifiedKey>,
    /// Why there is none, and the remedy.
    absent: ArcSwapOption<String>,
}

impl CurrentCertificate {
    /// Presents another certificate from now on. Existing connections stay.
    pub fn show(&self, key: CertifiedKey) {
        self.shown.store(Some(Arc::new(key)));
    }

    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.shown.load().is_some()
    }

    /// Records why there is none, and the remedy. An existing one stays.
    pub fn note_failure(&self, why: &str) {
        self.absent.store(Some(Arc::new(why.to_owned())));
    }

    /// The reason why the server of this name, such as "the webhook", can't respond, or none.
    pub fn obstacle(&self, served: &str) -> Option<String> {
        let why = || self.absent.load_full().map_or_else(|| "it hasn't been read yet".to_owned(), |why| (*why).clone());
        (!self.any()).then(|| format!("{served} has no certificate: {}", why()))
    }

    /// When it expires, in seconds since 1970.
    pub fn expires(&self) -> Option<i64> {
        expires(self.shown.load_full()?.cert.first()?)
    }
}

/// The metric with the certificate's expiry.
#[derive(Debug)]
pub struct CertificateExpiry(pub Arc<CurrentCertificate>);

impl Collector for CertificateExpiry {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "When the certificate of the admission webhook ends, in seconds since 1970; 0 while there is none.";
        let expires = self.0.expires().and_then(|expires| u64::try_from(expires).ok()).unwrap_or_default();
        single(&mut page, "pointsman_webhook_certificate_expiry_timestamp_seconds", help, expires)
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.shown.load_full()
    }
}

/// A connection, with its place among all.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    silence: Pin<Box<Sleep>>,
    place: Place,
}

impl<S> Connection<S> {
    fn new(stream: S, place: Place) -> Self {
        Self { stream, silence: Box::pin(sleep(SILENT)), place }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.place.poll_ended(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, into) {
            self.silence.as_mut().reset(Instant::now() + SILENT);
            return Poll::Ready(read);
        }
        self.silence.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.place.answered();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.place.answered();
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Connections after the handshake, and their addresses.
type Accepted = (Connection<TlsStream<TcpStream>>, SocketAddr);

/// A listener that yields connections after the handshake.
#[derive(Debug)]
pub struct TlsListener {
    address: SocketAddr,
    connections: mpsc::Receiver<Accepted>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    /// Accepts the connections of a listener; if clients are verified, only those with an accepted certificate.
    pub fn new(listener: TcpListener, shown: Arc<CurrentCertificate>, clients: Option<Arc<dyn ClientCertVerifier>>) -> io::Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(config(shown, clients).map_err(io::Error::other)?));
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(BACKLOG);
        // In a task of its own: otherwise a silent client would delay all others.
        let accepting = tokio::spawn(accept(listener, acceptor, sender));
        Ok(Self { address, connections, accepting })
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Accepts clients whose certificates one of these CAs has signed.
pub fn signed_by(roots: RootCertStore) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider())).build()
}

/// Serves these routes until `stop`, and completes the last responses.
pub async fn serve(listener: TlsListener, routes: Router, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let (stopping, mut stopped) = watch::channel(false);
    let ending = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let mut answering = pin!(axum::serve(listener, routes).with_graceful_shutdown(ending).into_future());
    tokio::select! {
        result = &mut answering => result,
        // A client that keeps its connection open isn't waited for.
        () = async { _ = stopped.wait_for(|stopped| *stopped).await } => timeout(LAST_ANSWERS, answering).await.unwrap_or(Ok(())),
    }
}

fn config(shown: Arc<CurrentCertificate>, clients: Option<Arc<dyn ClientCertVerifier>>) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions()?;
    let is_verified = clients.is_some();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(shown);
    if is_verified {
        // A resumed session could be that of a client that is no longer accepted.
        config.session_storage = Arc::new(NoServerSessionStorage {});
    }
    // The API server uses only HTTP/1.1 with webhooks, so that its requests spread over all replicas.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, sender: mpsc::Sender<Accepted>) {
    let connections = Connections::default();
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection can't be accepted");
                sleep(AFTER_A_FAILURE).await;
                continue;
            }
        };
        let (acceptor, sender, place) = (acceptor.clone(), sender.clone(), connections.enter(from.ip()));
        tokio::spawn(async move {
            // Responses are small, and a client waits for each.
            stream.set_nodelay(true).ok();
            let handshake = tokio::select! {
                handshake = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => handshake,
                () = poll_fn(|context| place.poll_ended(context)) => return,
            };
            match handshake {
                Ok(Ok(stream)) => drop(sender.send((Connection::new(stream, place), from)).await),
                Ok(Err(error)) => tracing::debug!(%from, %error, "the connection to a client failed"),
                Err(_) => tracing::debug!(%from, "a client sends nothing"),
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = Connection<TlsStream<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::certificates::made::{self, SelfSignedKeys},
        *,
    };
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    use std::collections::VecDeque;
    use tokio_rustls::{
        TlsConnector,
        rustls::{
            ClientConfig,
            pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
        },
    };

    fn made() -> SelfSignedKeys {
        made::renewed(None, &["localhost".to_owned()], made::now()).unwrap().unwrap()
    }

    fn roots(bundle: &str) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten());
        roots
    }

    /// Whether a client is served that trusts only this CA, and presents a certificate and its key.
    async fn served_to(address: SocketAddr, trusted: &SelfSignedKeys, own: Option<&(String, String)>) -> bool {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots(&trusted.bundle));
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        };
        let stream = TcpStream::connect(address).await.unwrap();
        let connected = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await;
        let Ok(mut stream) = connected else { return false };
        // Only now does a client learn that its certificate is rejected. An accepted client reads the end.
        let mut byte = [0];
        poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut ReadBuf::new(&mut byte))).await.is_ok()
    }

    async fn served(address: SocketAddr, trusted: &SelfSignedKeys) -> bool {
        served_to(address, trusted, None).await
    }

    /// A CA, and a client certificate signed by it with its key, all as PEM.
    fn client() -> (String, (String, String)) {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let bundle = ca.self_signed(&ca_key).unwrap().pem();
        let mut leaf = CertificateParams::default();
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem();
        (bundle, (leaf, key.serialize_pem()))
    }

    /// Accepts connections, and closes each one after its handshake.
    async fn listen(shown: &Arc<CurrentCertificate>, clients: Option<RootCertStore>) -> SocketAddr {
        let clients = clients.map(|roots| signed_by(roots).unwrap());
        let mut listener = TlsListener::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::clone(shown), clients).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await;
                poll_fn(|context| Pin::new(&mut connection).poll_shutdown(context)).await.ok();
            }
        });
        address
    }

    #[tokio::test]
    async fn where_clients_have_a_ca_only_those_with_a_certificate_of_it_are_served() {
        let (shown, keys) = (Arc::<CurrentCertificate>::default(), made());
        shown.show(keys.certified().unwrap());
        let ((bundle, own), (_, other)) = (client(), client());
        let address = listen(&shown, Some(roots(&bundle))).await;
        assert!(served_to(address, &keys, Some(&own)).await);
        assert!(!served_to(address, &keys, Some(&other)).await && !served_to(address, &keys, None).await);
    }

    /// A client that sends a byte at each of these times, and nothing afterwards.
    struct Rare(VecDeque<Pin<Box<Sleep>>>);

    impl AsyncRead for Rare {
        fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let Some(next) = self.0.front_mut() else { return Poll::Pending };
            if next.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.0.pop_front();
            into.put_slice(b"a");
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_nobody_says_anything_ends_and_gives_its_place_back() {
        let connections = Connections::default();
        let words = (1..=3).map(|number| Box::pin(sleep(SILENT / 3 * 2 * number))).collect();
        let mut connection = Connection::new(Rare(words), connections.enter([10, 0, 0, 1].into()));
        let mut read = async || {
            let mut bytes = [0; 8];
            std::future::poll_fn(|context| Pin::new(&mut connection).poll_read(context, &mut ReadBuf::new(&mut bytes))).await
        };
        for _ in 0..3 {
            read().await.unwrap();
        }
        assert_eq!(read().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(connections.count(), 1);
        drop(connection);
        assert_eq!(connections.count(), 0);
    }

    #[tokio::test]
    async fn connections_succeed_once_there_is_a_certificate_and_the_next_one_is_shown_another() {
        let shown = Arc::<CurrentCertificate>::default();
        let address = listen(&shown, None).await;
        // A silent client delays no one.
        let _silent = TcpStream::connect(address).await.unwrap();
        let (one, other) = (made(), made());
        assert!(!shown.any() && !served(address, &one).await);
        for (kept, untrusted) in [(&one, &other), (&other, &one)] {
            shown.show(kept.certified().unwrap());
            assert!(served(address, kept).await && !served(address, untrusted).await);
        }
    }
}
