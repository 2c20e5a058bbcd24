//! The model agents' reports, and the cluster's nodes. Only the leader watches them.

use crate::{
    permissions,
    watch::{
        seen::ObjectText,
        store::{LIST_PAGE_SIZE, Name, Store, StoreKind, Unlisted, Watched},
    },
};
use k8s_openapi::api::core::v1::{self, ConfigMap};
use kube::{Api, Client, api::ApiResource, runtime::watcher};
use pointsman_core::{
    model_nodes::{report::CONFIG_MAP, reports::Reports, summary::ModelNode},
    world::MissingRole,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Nodes,
    Reports,
}

impl StoreKind for Kind {
    fn display_name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Reports => "configmaps of model agents",
        }
    }
}

/// The objects from the watches.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) nodes: BTreeMap<String, ModelNode>,
    pub(super) reports: Reports,
    changed: Changed,
    pub(super) unlisted: Unlisted<Kind>,
}

/// The changes since the last call.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Whether a node has changed, which may affect every model.
    pub(super) nodes: bool,
    /// The keys of models with changed reports.
    pub(super) keys: BTreeSet<String>,
}

impl Seen {
    pub(super) fn take_changed(&mut self) -> Changed {
        mem::take(&mut self.changed)
    }

    /// When a node starts or stops reporting, this affects every model that waits for it.
    fn note(&mut self, had_agent: bool, node: &str, keys: BTreeSet<String>) {
        self.changed.nodes |= had_agent != self.reports.has_agent(node);
        self.changed.keys.extend(keys);
    }
}

impl Store for Seen {
    type Kind = Kind;

    fn put(&mut self, kind: Kind, (_, name): &Name, text: &str) {
        match kind {
            Kind::Nodes => {
                let node = serde_json::from_str::<v1::Node>(text).unwrap_or_default();
                let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
                let node = ModelNode {
                    labels: node.metadata.labels.unwrap_or_default(),
                    is_ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
                };
                // A node's status is written all the time.
                if self.nodes.get(name) != Some(&node) {
                    self.nodes.insert(name.clone(), node);
                    self.changed.nodes = true;
                }
            }
            Kind::Reports => {
                let map = serde_json::from_str::<ConfigMap>(text).unwrap_or_default();
                let had_agent = self.reports.has_agent(name);
                let keys = self.reports.set(name, &map.data.unwrap_or_default());
                self.note(had_agent, name, keys);
            }
        }
    }

    fn remove(&mut self, kind: Kind, (_, name): &Name) {
        match kind {
            Kind::Nodes => self.changed.nodes |= self.nodes.remove(name).is_some(),
            Kind::Reports => {
                let had_agent = self.reports.has_agent(name);
                let keys = self.reports.remove(name);
                self.note(had_agent, name, keys);
            }
        }
    }

    fn names(&self, kind: Kind) -> Vec<Name> {
        let unspaced = |name: &str| (String::new(), name.to_owned());
        match kind {
            Kind::Nodes => self.nodes.keys().map(|name| unspaced(name)).collect(),
            Kind::Reports => self.reports.nodes().map(unspaced).collect(),
        }
    }

    fn unlisted(&mut self) -> &mut Unlisted<Kind> {
        &mut self.unlisted
    }
}

/// The role with the right to nodes, for a host that serves only some namespaces or all.
pub(super) fn missing_role(limited: bool) -> MissingRole {
    let folder = if limited { format!("{}/ome", permissions::BESIDE_NAMESPACES) } else { "ome".to_owned() };
    MissingRole { folder, namespaces: BTreeSet::new() }
}

/// Starts the watches; `namespace` is the agents'. `limited` means that the host serves only some namespaces.
pub(super) fn start(client: &Client, namespace: &str, limited: bool) -> Watched<Seen> {
    let mut watched = Watched::new(Seen { unlisted: Unlisted::new([Kind::Nodes, Kind::Reports]), ..Seen::default() });
    let all = || watcher::Config::default().page_size(LIST_PAGE_SIZE);
    let nodes: Api<ObjectText> = Api::all_with(client.clone(), &ApiResource::erase::<v1::Node>(&()));
    let maps = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<ConfigMap>(&()));
    watched.follow(Kind::Nodes, nodes, all(), missing_role(limited).to_string());
    let remedy = format!("apply deploy/{} to the namespace {namespace}", permissions::MODEL_REPORTS);
    watched.follow(Kind::Reports, maps, all().labels(&format!("{CONFIG_MAP}=true")), remedy);
    watched
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn name(name: &str) -> Name {
        (String::new(), name.to_owned())
    }

    #[test]
    fn only_what_matters_to_models_is_a_change() {
        let mut seen = Seen::default();
        let mut put = |kind, text: serde_json::Value| {
            seen.put(kind, &name("a"), &text.to_string());
            let Changed { nodes, keys } = seen.take_changed();
            (nodes, keys.into_iter().collect::<Vec<_>>())
        };
        let node =
            |ready: &str, beat: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": beat}]}});
        assert!(put(Kind::Nodes, node("True", "2026-01-01T00:00:00Z")).0);
        assert!(!put(Kind::Nodes, node("True", "2026-01-01T00:01:00Z")).0);
        assert!(put(Kind::Nodes, node("False", "2026-01-01T00:02:00Z")).0);
        let map = |status: &str| json!({"data": {"x": json!({"status": status}).to_string(), "y": "{}"}});
        assert_eq!(put(Kind::Reports, map("Updating")), (true, vec!["x".to_owned(), "y".to_owned()]));
        assert_eq!(put(Kind::Reports, map("Ready")), (false, vec!["x".to_owned()]));
        assert_eq!(put(Kind::Reports, map("Ready")), (false, vec![]));
        seen.remove(Kind::Reports, &name("a"));
        let Changed { nodes, keys } = seen.take_changed();
        assert!(nodes && keys.len() == 2);
    }
}
