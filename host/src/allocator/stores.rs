//! The inputs of an allocation in addition to the models: nodes, all pods, reservations, and the activity reported by gateways. Watched
//! only on the leader, and only while there are models.

use crate::{
    permissions,
    watch::{
        seen::ObjectText,
        store::{LIST_PAGE_SIZE, Name, Obstacle, Store, StoreKind, Unlisted, Watched},
    },
};
use k8s_openapi::api::core::v1::{self, ConfigMap};
use kube::{Api, Client, api::ApiResource, runtime::watcher};
use pointsman_core::{
    allocation::{
        Node,
        inputs::PodUsage,
        records::{self, GATEWAY_ACTIVITY, GATEWAY_PATIENCE, GatewayActivity, NODE, PLACES, RESERVATIONS, Reservations},
    },
    model_placement::ClusterView,
    world::MissingRole,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Nodes,
    Pods,
    Reservations,
    Gateways,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Nodes, Self::Pods, Self::Reservations, Self::Gateways];
}

impl StoreKind for Kind {
    fn display_name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Reservations => "configmaps with reservations",
            Self::Gateways => "configmaps of gateways",
        }
    }

    fn has_namespace(self) -> bool {
        self == Self::Pods
    }
}

/// The objects from the watches.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) nodes: BTreeMap<String, Node>,
    /// The mistakes in annotations of nodes.
    problems: BTreeMap<String, String>,
    pub(super) pods: BTreeMap<Name, PodUsage>,
    /// The same nodes and pods, for policies.
    pub(super) view: ClusterView,
    /// The ConfigMaps with reservations.
    pub(super) reserved: BTreeMap<String, ReservedOnNode>,
    /// The ConfigMaps that were deleted since the last allocation.
    pub(super) removed: BTreeSet<String>,
    pub(super) gateways: BTreeMap<String, Gateway>,
    unlisted: Unlisted<Kind>,
}

/// A ConfigMap with the reservations of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReservedOnNode {
    pub(super) node: String,
    pub(super) version: u64,
    pub(super) places: Reservations,
}

/// A gateway, from its ConfigMap.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) activity: GatewayActivity,
    /// When the activity was seen. The gateway's own clock doesn't matter.
    seen: Instant,
}

impl Gateway {
    /// When the gateway expires, unless it writes again.
    pub(super) fn gone_at(&self) -> Instant {
        self.seen + Duration::from_secs(GATEWAY_PATIENCE)
    }
}

impl Seen {
    /// The reason why no allocation is possible, if any.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        self.unlisted.obstacle()
    }

    /// The gateways that haven't expired.
    pub(super) fn living_gateways(&self) -> impl Iterator<Item = &Gateway> {
        let now = Instant::now();
        self.gateways.values().filter(move |gateway| now < gateway.gone_at())
    }

    /// Records a gateway's activity, unless it is known.
    pub(super) fn put_gateway(&mut self, name: String, map: &ConfigMap) {
        let activity = map.data.as_ref().map(records::activity).unwrap_or_default();
        match self.gateways.get(&name) {
            Some(known) if known.activity == activity => {}
            _ => _ = self.gateways.insert(name, Gateway { activity, seen: Instant::now() }),
        }
    }
}

impl Store for Seen {
    type Kind = Kind;

    fn put(&mut self, kind: Kind, name: &Name, text: &str) {
        match kind {
            Kind::Nodes => {
                let (name, node, problem) = Node::from_object(text);
                match problem {
                    Some(problem) if self.problems.get(&name) != Some(&problem) => {
                        tracing::warn!(
                            node = name,
                            "the annotation {problem}; until then, models may use all memory that other pods leave"
                        );
                        self.problems.insert(name.clone(), problem);
                    }
                    Some(_) => {}
                    None => _ = self.problems.remove(&name),
                }
                self.view.put_node(&name, text);
                self.nodes.insert(name, node);
            }
            Kind::Pods => {
                if let Some(pod) = PodUsage::from_object(text) {
                    self.view.put_pod(name, text, pod.model.as_ref());
                    self.pods.insert(name.clone(), pod);
                } else {
                    self.remove(kind, name);
                }
            }
            Kind::Reservations => {
                let map = serde_json::from_str(text).unwrap_or_default();
                if let Some(reserved) = ReservedOnNode::from_config_map(&map) {
                    self.reserved.insert(name.1.clone(), reserved);
                }
            }
            Kind::Gateways => self.put_gateway(name.1.clone(), &serde_json::from_str(text).unwrap_or_default()),
        }
    }

    fn remove(&mut self, kind: Kind, name: &Name) {
        match kind {
            Kind::Nodes => {
                self.nodes.remove(&name.1);
                self.problems.remove(&name.1);
                self.view.remove_node(&name.1);
            }
            Kind::Pods => {
                self.pods.remove(name);
                self.view.remove_pod(name);
            }
            Kind::Reservations => {
                self.reserved.remove(&name.1);
                self.removed.insert(name.1.clone());
            }
            Kind::Gateways => _ = self.gateways.remove(&name.1),
        }
    }

    fn names(&self, kind: Kind) -> Vec<Name> {
        let unspaced = |name: &String| (String::new(), name.clone());
        match kind {
            Kind::Nodes => self.nodes.keys().map(unspaced).collect(),
            Kind::Pods => self.pods.keys().cloned().collect(),
            Kind::Reservations => self.reserved.keys().map(unspaced).collect(),
            Kind::Gateways => self.gateways.keys().map(unspaced).collect(),
        }
    }

    fn unlisted(&mut self) -> &mut Unlisted<Kind> {
        &mut self.unlisted
    }
}

impl ReservedOnNode {
    /// Parses a ConfigMap; none if it isn't a node's.
    pub(super) fn from_config_map(map: &ConfigMap) -> Option<Self> {
        let data = map.data.as_ref()?;
        // Unreadable reservations are written again, from the running pods.
        let unread = |error: &serde_json::Error| {
            tracing::warn!(config_map = map.metadata.name, "its key {PLACES} can't be read, and counts as empty: {error}");
        };
        Some(Self {
            node: data.get(NODE)?.clone(),
            version: map.metadata.resource_version.as_ref()?.parse().ok()?,
            places: records::reservations(data)?.inspect_err(unread).unwrap_or_default(),
        })
    }
}

/// Starts the watches. `limited` means that the host serves only some namespaces.
pub(super) fn start(client: &Client, namespace: &str, limited: bool) -> Watched<Seen> {
    let mut watched = Watched::new(Seen { unlisted: Unlisted::new(Kind::ALL), ..Seen::default() });
    let feature =
        if limited { format!("{}/{}", permissions::BESIDE_NAMESPACES, permissions::EH_OPS) } else { permissions::EH_OPS.to_owned() };
    for kind in Kind::ALL {
        let all = watcher::Config::default().page_size(LIST_PAGE_SIZE);
        let maps = || Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<ConfigMap>(&()));
        let (api, config): (Api<ObjectText>, _) = match kind {
            Kind::Nodes => (Api::all_with(client.clone(), &ApiResource::erase::<v1::Node>(&())), all),
            Kind::Pods => (Api::all_with(client.clone(), &ApiResource::erase::<v1::Pod>(&())), all),
            Kind::Reservations => (maps(), all.labels(RESERVATIONS)),
            Kind::Gateways => (maps(), all.labels(GATEWAY_ACTIVITY)),
        };
        let role = match kind {
            Kind::Nodes => feature.clone(),
            Kind::Pods if limited => feature.clone(),
            Kind::Pods | Kind::Reservations | Kind::Gateways => permissions::BASE.to_owned(),
        };
        let role = MissingRole { folder: role, namespaces: BTreeSet::new() };
        watched.follow(kind, api, config, role.to_string());
    }
    watched
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_config_map_of_a_node_is_read_and_one_that_is_broken_counts_as_empty() {
        let read = |data: serde_json::Value| {
            let map = json!({"metadata": {"name": "pointsman-node-a", "resourceVersion": "7"}, "data": data});
            ReservedOnNode::from_config_map(&serde_json::from_value(map).unwrap())
        };
        let places = r#"{"ml/llama":{"amounts":{"memory":5},"phase":"Stopping","since":3}}"#;
        let whole = read(json!({"node": "a", "places": places})).unwrap();
        assert_eq!((whole.node.as_str(), whole.version, whole.places.len()), ("a", 7, 1));
        assert!(read(json!({"node": "a", "places": "["})).unwrap().places.is_empty());
        assert_eq!(read(json!({"places": places})), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_writes_nothing_new_for_a_while_counts_as_gone() {
        let mut seen = Seen::default();
        let map = |written: u64| {
            serde_json::from_value(json!({"data": {"activity": json!({"written": written, "models": {}}).to_string()}})).unwrap()
        };
        let living = |seen: &Seen| seen.living_gateways().count();
        seen.put_gateway("a".to_owned(), &map(1));
        tokio::time::advance(Duration::from_secs(GATEWAY_PATIENCE - 1)).await;
        assert_eq!(living(&seen), 1);
        // A list repeats a known state.
        seen.put_gateway("a".to_owned(), &map(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(living(&seen), 0);
        seen.put_gateway("a".to_owned(), &map(2));
        assert_eq!(living(&seen), 1);
    }
}
