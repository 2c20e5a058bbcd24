//! Listening by TLS, with a certificate that may be another for the next connection.

use arc_swap::ArcSwapOption;
use axum::serve::Listener;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::{sleep, timeout},
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
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How many clients may say hello at once.
const HELLOS: usize = 128;

/// How long to wait after a connection couldn't be taken: mostly there are too many open files.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// The certificate that clients are shown; none until there is one, and no connection succeeds until then.
#[derive(Debug, Default)]
pub struct Shown(ArcSwapOption<CertifiedKey>);

impl Shown {
    /// Shows another from now on. Connections that are there stay.
    pub fn show(&self, key: CertifiedKey) {
        self.0.store(Some(Arc::new(key)));
    }

    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.0.load().is_some()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

/// A listener whose connections have a handshake behind them.
#[derive(Debug)]
pub struct TlsListener {
    address: SocketAddr,
    connections: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    /// Takes the connections of a listener.
    pub fn new(listener: TcpListener, shown: Arc<Shown>) -> io::Result<Self> {
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

fn config(shown: Arc<Shown>) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder.with_safe_default_protocol_versions()?.with_no_client_auth().with_cert_resolver(shown);
    // The API server speaks nothing else with webhooks, so that its requests spread over all replicas.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, sender: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let hellos = Arc::new(Semaphore::new(HELLOS));
    loop {
        // It is never closed.
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
            match timeout(HELLO_WITHIN, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(sender.send((stream, from)).await),
                Ok(Err(error)) => tracing::debug!(%from, %error, "a client of the webhook can't be talked to"),
                Err(_) => tracing::debug!(%from, "a client of the webhook says nothing"),
            }
            drop(hello);
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
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
        super::certificates::made::{self, Kept},
        *,
    };
    use tokio_rustls::{
        TlsConnector,
        rustls::{
            ClientConfig, RootCertStore,
            pki_types::{CertificateDer, ServerName, pem::PemObject},
        },
    };

    fn made() -> Kept {
        made::renewed(None, &["localhost".to_owned()], made::now()).unwrap().unwrap()
    }

    /// Whether a client is served that trusts only the CA of these.
    async fn served(address: SocketAddr, trusted: &Kept) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(trusted.bundle.as_bytes()).flatten());
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await.is_ok()
    }

    #[tokio::test]
    async fn connections_succeed_once_there_is_a_certificate_and_the_next_one_is_shown_another() {
        let shown = Arc::<Shown>::default();
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
