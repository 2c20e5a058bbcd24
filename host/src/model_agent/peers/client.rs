//! Asks the agents of other nodes for parts.

use super::{Address, Ask, Exchange, identity::NAME};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use pointsman_download::{PartRequest, PeerError, PeerPart, Peers};
use std::{collections::BTreeMap, fmt, io, sync::Arc, time::Duration};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::rustls::pki_types::ServerName;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long another agent may be silent. It waits for a part that isn't there yet before it answers.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// The header with the digest of a whole file.
pub(super) const SHA256: &str = "x-sha256";

/// The agents that are asked for the parts of a model.
pub(super) struct NodePeers {
    pub(super) exchange: Arc<Exchange>,
    pub(super) origin: String,
    pub(super) others: BTreeMap<String, Address>,
    /// Whether this node reads some of the model from its source.
    pub(super) is_reader: bool,
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

    fn others(&self) -> Vec<String> {
        self.others.keys().cloned().collect()
    }

    async fn read(&self, node: &str, part: &PartRequest) -> Result<PeerPart, PeerError> {
        let Some(address) = self.others.get(node) else { return Err(PeerError::Absent) };
        match timeout(SILENCE_TIMEOUT, self.request(address, part)).await {
            Ok(answer) => answer,
            Err(_) => Err(PeerError::Failed(format!("it doesn't answer within {} s", SILENCE_TIMEOUT.as_secs()))),
        }
    }
}

impl NodePeers {
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
        // It ends with the answer, or with whoever reads that.
        tokio::spawn(connection);
        let ask = Ask { node: self.exchange.node.clone(), origin: self.origin.clone(), part: part.clone() };
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
