//! An agent's watches: its node, the models, and its own report.

use crate::watch::{
    seen::ObjectText,
    store::{LIST_PAGE_SIZE, Name, Obstacle, Store, StoreKind, Unlisted, Watched},
};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client, api::ApiResource, runtime::watcher};
use pointsman_core::{
    model_nodes::assignment::ModelObject,
    resource::{BASE_MODEL, CLUSTER_BASE_MODEL, Resource},
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Node,
    ClusterBaseModels,
    BaseModels,
    Report,
}

impl StoreKind for Kind {
    fn display_name(self) -> &'static str {
        match self {
            Self::Node => "the node",
            Self::ClusterBaseModels => CLUSTER_BASE_MODEL.plural,
            Self::BaseModels => BASE_MODEL.plural,
            Self::Report => "the report",
        }
    }

    fn has_namespace(self) -> bool {
        self == Self::BaseModels
    }
}

/// The node's fields that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnNode {
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// The report in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LiveReport {
    pub(super) version: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// The uid of its owner, the node.
    pub(super) owner: Option<String>,
    pub(super) data: BTreeMap<String, String>,
}

/// The objects from the watches.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The name of the node and of the report.
    own: String,
    pub(super) node: Option<OwnNode>,
    pub(super) report: Option<LiveReport>,
    models: BTreeMap<(Kind, Name), ModelObject>,
    /// The models that can't be parsed: the files they need are unknown.
    unreadable: BTreeSet<(Kind, Name)>,
    unlisted: Unlisted<Kind>,
}

impl Seen {
    pub(super) fn models(&self) -> impl Iterator<Item = &ModelObject> {
        self.models.values()
    }

    /// The reason why something isn't known, if any.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        self.unlisted.obstacle()
    }

    /// Whether a model couldn't be parsed. Its files must not seem unneeded.
    pub(super) fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }
}

impl Store for Seen {
    type Kind = Kind;

    fn put(&mut self, kind: Kind, name: &Name, text: &str) {
        match kind {
            Kind::Node => {
                let Node { metadata, .. } = serde_json::from_str(text).unwrap_or_default();
                self.node = Some(OwnNode { uid: metadata.uid.unwrap_or_default(), labels: metadata.labels.unwrap_or_default() });
            }
            Kind::Report => {
                let ConfigMap { metadata, data, .. } = serde_json::from_str(text).unwrap_or_default();
                self.report = Some(LiveReport {
                    version: metadata.resource_version.unwrap_or_default(),
                    labels: metadata.labels.unwrap_or_default(),
                    annotations: metadata.annotations.unwrap_or_default(),
                    owner: metadata.owner_references.into_iter().flatten().next().map(|owner| owner.uid),
                    data: data.unwrap_or_default(),
                });
            }
            Kind::ClusterBaseModels | Kind::BaseModels => {
                let key = (kind, name.clone());
                match serde_json::from_str::<Value>(text).and_then(|object| ModelObject::from_object(&object)) {
                    Ok(model) => {
                        self.unreadable.remove(&key);
                        self.models.insert(key, model);
                    }
                    Err(error) => {
                        if self.unreadable.insert(key) {
                            let (namespace, name) = name;
                            tracing::warn!(kind = kind.display_name(), namespace, name, %error, "a model can't be read; no files are removed meanwhile");
                        }
                    }
                }
            }
        }
    }

    fn remove(&mut self, kind: Kind, name: &Name) {
        match kind {
            Kind::Node => self.node = None,
            Kind::Report => self.report = None,
            Kind::ClusterBaseModels | Kind::BaseModels => {
                let key = (kind, name.clone());
                self.models.remove(&key);
                self.unreadable.remove(&key);
            }
        }
    }

    fn names(&self, kind: Kind) -> Vec<Name> {
        let own = |is_there: bool| is_there.then(|| (String::new(), self.own.clone())).into_iter().collect();
        match kind {
            Kind::Node => own(self.node.is_some()),
            Kind::Report => own(self.report.is_some()),
            _ => self.models.keys().chain(&self.unreadable).filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect(),
        }
    }

    fn unlisted(&mut self) -> &mut Unlisted<Kind> {
        &mut self.unlisted
    }
}

/// Starts the watches of the agent of a node; reports are in `namespace`.
pub(super) fn start(client: &Client, node: &str, namespace: &str) -> Watched<Seen> {
    let kinds = [Kind::Node, Kind::ClusterBaseModels, Kind::BaseModels, Kind::Report];
    let mut watched = Watched::new(Seen { own: node.to_owned(), unlisted: Unlisted::new(kinds), ..Seen::default() });
    let all = || watcher::Config::default().page_size(LIST_PAGE_SIZE);
    let own = || watcher::Config::default().fields(&format!("metadata.name={node}"));
    let remedy = || format!("apply deploy/{}", crate::permissions::MODEL_AGENT);
    let everywhere = |resource: ApiResource| Api::<ObjectText>::all_with(client.clone(), &resource);
    let models = |resource: &Resource| everywhere(resource.api_resource());
    watched.follow(Kind::Node, everywhere(ApiResource::erase::<Node>(&())), own(), remedy());
    watched.follow(Kind::ClusterBaseModels, models(&CLUSTER_BASE_MODEL), all(), remedy());
    watched.follow(Kind::BaseModels, models(&BASE_MODEL), all(), remedy());
    let reports = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<ConfigMap>(&()));
    watched.follow(Kind::Report, reports, own(), remedy());
    watched
}
