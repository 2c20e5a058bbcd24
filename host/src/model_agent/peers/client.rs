//! Requests parts of models from the agents of other nodes.

use super::{Address, Ask, Exchange, MAX_READERS, identity::NAME};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use pointsman_download::{PartRequest, Peer, PeerError, PeerPart, Peers};
use pointsman_sandbox::sync::locked;
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::rustls::pki_types::ServerName;

/// The timeout of establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout for another agent's next byte. It waits for a part that isn't there yet before it responds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The header with the digest of a whole file.
pub(super) const SHA256: &str = "x-sha256";

/// The agents that may have the parts of a model.
pub(super) struct NodePeers {
    exchange: Arc<Exchange>,
    pub(super) origin: String,
    others: Mutex<Others>,
    /// Whether this node reads some of the model from its source.
    is_reader: bool,
}

#[derive(Debug)]
struct Others {
    addresses: BTreeMap<String, Address>,
    list: Arc<[Peer]>,
}

impl Others {
    fn new(addresses: BTreeMap<String, Address>) -> Self {
        let peer = |(name, Address { fingerprint, .. }): (&String, &Address)| Peer { name: name.clone(), identity: fingerprint.clone() };
        Self { list: addresses.iter().map(peer).collect(), addresses }
    }
}

impl fmt::Debug for NodePeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePeers").field("others", &self.others).field("is_reader", &self.is_reader).finish_non_exhaustive()
    }
}

#[async_trait]
impl Peers for NodePeers {
    fn own(&self) -> &str {
        &self.exchange.node
    }

    fn is_reader(&self) -> bool {
        self.is_reader
    }

    fn others(&self) -> Arc<[Peer]> {
        Arc::clone(&locked(&self.others).list)
    }

    async fn read(&self, node: &str, part: &PartRequest) -> Result<PeerPart, PeerError> {
        let Some(address) = locked(&self.others).addresses.get(node).cloned() else { return Err(PeerError::Absent) };
        match timeout(SILENCE_TIMEOUT, self.request(&address, part)).await {
            Ok(answer) => answer,
            Err(_) => Err(PeerError::Failed(format!("it doesn't answer within {} s", SILENCE_TIMEOUT.as_secs()))),
        }
    }
}

impl NodePeers {
    pub(super) fn new(exchange: Arc<Exchange>, origin: String, others: BTreeMap<String, Address>, is_reader: bool) -> Self {
        Self { exchange, origin, others: Mutex::new(Others::new(others)), is_reader }
    }

    /// Adds a node, or updates one whose agent has restarted.
    pub(super) fn add(&self, node: &str, address: &Address) {
        let mut others = locked(&self.others);
        let has_room = others.addresses.contains_key(node) || others.addresses.len() < MAX_READERS as usize;
        if has_room && others.addresses.get(node) != Some(address) {
            let mut addresses = std::mem::take(&mut others.addresses);
            addresses.insert(node.to_owned(), address.clone());
            *others = Others::new(addresses);
        }
    }

    async fn request(&self, address: &Address, part: &PartRequest) -> Result<PeerPart, PeerError> {
        let failed = |error: &dyn fmt::Display| PeerError::Failed(error.to_string());
        let connector = self.exchange.identity.connector(&address.fingerprint).map_err(|error| failed(&error))?;
        let name = ServerName::try_from(NAME).map_err(|error| failed(&error))?;
        let connecting = async {
            let stream = TcpStream::connect(address.address).await?;
            stream.set_nodelay(true)?;
            connector.connect(name, stream).await
        };
        let stream = match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(stream) => stream.map_err(|error| failed(&error))?,
            Err(_) => return Err(PeerError::Failed("it can't be reached".to_owned())),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        // The task ends with the response, or when the reader is dropped.
        tokio::spawn(connection);
        let ask = Ask { node: self.exchange.node.clone(), origin: self.origin.clone(), reads: self.is_reader, part: part.clone() };
        let body = serde_json::to_vec(&ask).map_err(|error| failed(&error))?;
        let request =
            Request::post("/part").header(header::HOST, NAME).body(Full::new(Bytes::from(body))).map_err(|error| failed(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::SERVICE_UNAVAILABLE => return Err(PeerError::NotYet),
            StatusCode::NOT_FOUND => return Err(PeerError::Absent),
            status => return Err(PeerError::Failed(format!("it answers {status}"))),
        }
        let sha256 = answer.headers().get(SHA256).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = stream::unfold(Some((answer.into_body(), sender)), |state| async move {
            let (mut body, sender) = state?;
            loop {
                match timeout(SILENCE_TIMEOUT, body.frame()).await {
                    Ok(None) => return None,
                    Ok(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            return Some((Ok(data), Some((body, sender))));
                        }
                    }
                    Ok(Some(Err(error))) => return Some((Err(io::Error::other(error)), None)),
                    Err(_) => return Some((Err(io::ErrorKind::TimedOut.into()), None)),
                }
            }
        });
        Ok(PeerPart { body: body.boxed(), sha256 })
    }
}
