//! Listening by TLS, with a certificate that may be another for the next connection.

use arc_swap::ArcSwapOption;
use axum::serve::Listener;
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinHandle,
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
    server::TlsStream,
};

/// How long a client may take to say hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many clients may say hello at once.
const HELLOS: usize = 128;

/// How many connections there may be. Further ones wait to be taken.
const CONNECTIONS: usize = 512;

/// How long a connection stays on which nobody says anything. The API server gives one up after 90 seconds, and mustn't find it closed as it
/// asks.
const SILENT: Duration = Duration::from_mins(3);

/// How long to wait after a connection couldn't be taken: mostly there are too many open files.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// The certificate that clients are shown; none until there is one, and no connection succeeds until then.
#[derive(Debug, Default)]
pub struct CurrentCertificate(ArcSwapOption<CertifiedKey>);

impl CurrentCertificate {
    /// Shows another from now on. Connections that are there stay.
    pub fn show(&self, key: CertifiedKey) {
        self.0.store(Some(Arc::new(key)));
    }

    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.0.load().is_some()
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

/// A connection, which keeps its place among all that there may be.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    silence: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl<S> Connection<S> {
    fn new(stream: S, place: OwnedSemaphorePermit) -> Self {
        Self { stream, silence: Box::pin(sleep(SILENT)), _place: place }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, into) {
            self.silence.as_mut().reset(Instant::now() + SILENT);
            return Poll::Ready(read);
        }
        self.silence.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Connections with a handshake behind them, and where they are from.
type Accepted = (Connection<TlsStream<TcpStream>>, SocketAddr);

/// A listener whose connections have a handshake behind them.
#[derive(Debug)]
pub struct TlsListener {
    address: SocketAddr,
    connections: mpsc::Receiver<Accepted>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    /// Takes the connections of a listener.
    pub fn new(listener: TcpListener, shown: Arc<CurrentCertificate>) -> io::Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(config(shown).map_err(io::Error::other)?));
        let address = listener.local_addr()?;
        let (sender, connections) = mpsc::channel(HELLOS);
        // Beside whoever serves: a client that says nothing would keep all others waiting.
        let accepting = tokio::spawn(accept(listener, acceptor, sender));
        Ok(Self { address, connections, accepting })
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn config(shown: Arc<CurrentCertificate>) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder.with_safe_default_protocol_versions()?.with_no_client_auth().with_cert_resolver(shown);
    // The API server speaks nothing else with webhooks, so that its requests spread over all replicas.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, sender: mpsc::Sender<Accepted>) {
    let (places, hellos) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(Semaphore::new(HELLOS)));
    loop {
        // They are never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok(hello) = Arc::clone(&hellos).acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection to the webhook can't be taken");
                sleep(AFTER_A_FAILURE).await;
                continue;
            }
        };
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            // Answers are small, and each is waited for.
            stream.set_nodelay(true).ok();
            match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(sender.send((Connection::new(stream, place), from)).await),
                Ok(Err(error)) => tracing::debug!(%from, %error, "a client of the webhook can't be talked to"),
                Err(_) => tracing::debug!(%from, "a client of the webhook says nothing"),
            }
            drop(hello);
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
    use std::collections::VecDeque;
    use tokio_rustls::{
        TlsConnector,
        rustls::{
            ClientConfig, RootCertStore,
            pki_types::{CertificateDer, ServerName, pem::PemObject},
        },
    };

    fn made() -> SelfSignedKeys {
        made::renewed(None, &["localhost".to_owned()], made::now()).unwrap().unwrap()
    }

    /// Whether a client is served that trusts only the CA of these.
    async fn served(address: SocketAddr, trusted: &SelfSignedKeys) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(trusted.bundle.as_bytes()).flatten());
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await.is_ok()
    }

    /// A client that says a word at each of these times, and nothing after.
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
        let places = Arc::new(Semaphore::new(1));
        let words = (1..=3).map(|number| Box::pin(sleep(SILENT / 3 * 2 * number))).collect();
        let mut connection = Connection::new(Rare(words), Arc::clone(&places).try_acquire_owned().unwrap());
        let mut read = async || {
            let mut bytes = [0; 8];
            std::future::poll_fn(|context| Pin::new(&mut connection).poll_read(context, &mut ReadBuf::new(&mut bytes))).await
        };
        for _ in 0..3 {
            read().await.unwrap();
        }
        assert_eq!(read().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(places.available_permits(), 0);
        drop(connection);
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn connections_succeed_once_there_is_a_certificate_and_the_next_one_is_shown_another() {
        let shown = Arc::<CurrentCertificate>::default();
        let mut listener = TlsListener::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::clone(&shown)).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                drop(listener.accept().await);
            }
        });
        // One that says nothing keeps nobody waiting.
        let _silent = TcpStream::connect(address).await.unwrap();
        let (one, other) = (made(), made());
        assert!(!shown.any() && !served(address, &one).await);
        for (kept, untrusted) in [(&one, &other), (&other, &one)] {
            shown.show(kept.certified().unwrap());
            assert!(served(address, kept).await && !served(address, untrusted).await);
        }
    }
}
