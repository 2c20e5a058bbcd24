//! The exchange between agents: each serves its parts of models over TLS to the agents of other nodes that should have the same models. So
//! a model is read from its source about once, regardless of the number of nodes.
//!
//! Two agents identify each other by the fingerprints in their ConfigMaps (`identity`), and the server checks that the model selects the
//! other node. A model of one namespace is never served as another's: requests name a model by its origin, which includes the namespace.

mod client;
mod identity;
mod server;

pub(super) use identity::IdentityError;

use super::bring::origin;
use client::NodePeers;
use identity::Identity;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PartialObjectMeta},
};
use pointsman_core::model_nodes::{assignment::ModelObject, names::node_label, report::CONFIG_MAP};
use pointsman_download::{Downloader, PartRequest, Peers};
use pointsman_sandbox::sync::locked;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, Weak},
};
use tokio::net::TcpListener;

/// The annotation of an agent's ConfigMap with its address.
pub(super) const PEER: &str = "pointsman.dev/model-peer";

/// The maximum number of nodes that together read a model from its source; other nodes read everything from them.
const MAX_READERS: u32 = 64;

/// The content of the annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Address {
    address: SocketAddr,
    /// The fingerprint of the agent's certificate.
    fingerprint: String,
}

/// A request to another agent.
#[derive(Debug, Serialize, Deserialize)]
struct Ask {
    /// The node of the requesting agent.
    node: String,
    /// The origin of the model.
    origin: String,
    /// Whether the requesting node reads some of the model from its source.
    reads: bool,
    part: PartRequest,
}

/// A model that is served.
#[derive(Clone, Debug)]
struct Share {
    folder: PathBuf,
    model: ModelObject,
}

/// This agent's part in the exchange.
pub(super) struct Exchange {
    client: Client,
    node: String,
    namespace: String,
    identity: Identity,
    address: SocketAddr,
    /// The served models, by their origin.
    shares: Mutex<HashMap<String, Share>>,
    /// The running downloads.
    downloads: Mutex<Vec<Weak<NodePeers>>>,
}

impl Exchange {
    /// Starts to serve, until it is dropped. `address` is the address at which others reach the listener.
    pub(super) fn start(
        client: Client,
        node: &str,
        namespace: &str,
        downloader: Downloader,
        (listener, address): (TcpListener, SocketAddr),
    ) -> Result<Arc<Self>, IdentityError> {
        let exchange = Arc::new(Self {
            client,
            node: node.to_owned(),
            namespace: namespace.to_owned(),
            identity: Identity::make()?,
            address,
            shares: Mutex::default(),
            downloads: Mutex::default(),
        });
        tokio::spawn(server::serve(Arc::downgrade(&exchange), exchange.identity.acceptor()?, listener, downloader));
        Ok(exchange)
    }

    /// The annotation with this agent's address.
    pub(super) fn annotation(&self) -> String {
        let address = Address { address: self.address, fingerprint: self.identity.fingerprint.clone() };
        serde_json::to_string(&address).unwrap_or_default()
    }

    /// Sets the models that are served from now on.
    pub(super) fn share<'m>(&self, models: impl Iterator<Item = (&'m ModelObject, PathBuf)>) {
        let shares = models.map(|(model, folder)| (origin(model), Share { folder, model: model.clone() })).collect();
        *locked(&self.shares) = shares;
    }

    /// The nodes that should have a model, by their ConfigMaps. None if they can't be listed: then only the source is read.
    pub(super) async fn peers(self: &Arc<Self>, model: &ModelObject) -> Option<Arc<dyn Peers>> {
        let selector = format!("{CONFIG_MAP}=true,{}", node_label(&model.namespace, &model.name));
        // The first nodes by name, so that all agents choose the same.
        let params = ListParams::default().labels(&selector).limit(MAX_READERS);
        let maps = match self.maps().list_metadata(&params).await {
            Ok(maps) => maps,
            Err(error) => {
                tracing::warn!(model = model.display_name(), %error, "the agents of other nodes can't be listed: all models are \
                                                                      downloaded from their source");
                return None;
            }
        };
        let is_reader = maps.metadata.continue_.as_deref().is_none_or(str::is_empty) || maps.iter().any(|map| map.name_any() == self.node);
        let others: BTreeMap<String, Address> =
            maps.iter().filter(|map| map.name_any() != self.node).filter_map(|map| Some((map.name_any(), address(map)?))).collect();
        let peers = Arc::new(NodePeers::new(Arc::clone(self), origin(model), others, is_reader));
        let mut downloads = locked(&self.downloads);
        downloads.retain(|download| download.strong_count() > 0);
        downloads.push(Arc::downgrade(&peers));
        Some(peers)
    }

    /// Adds a node that reads the same source, and that wasn't listed when the download here began.
    fn joins(&self, origin: &str, node: &str, address: &Address) {
        for download in locked(&self.downloads).iter().filter_map(Weak::upgrade).filter(|download| download.origin == origin) {
            download.add(node, address);
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// The address of the agent with this ConfigMap, if it has one.
fn address(map: &PartialObjectMeta<ConfigMap>) -> Option<Address> {
    serde_json::from_str(map.annotations().get(PEER)?).ok()
}
