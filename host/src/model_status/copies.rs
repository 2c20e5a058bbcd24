//! Chooses the nodes of models that only some nodes should have, with the policies at scheduling-scoring. Nodes and pods are watched only
//! while there is such a model.

use super::stores::missing_role;
use crate::watch::{
    seen::ObjectText,
    store::{LIST_PAGE_SIZE, Name, Store, StoreKind, Unlisted, Watched},
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, api::ApiResource, runtime::watcher};
use pointsman_core::{
    decide::{Policies, Standing},
    model_nodes::{assignment::ModelObject, copies::Kept},
    model_placement::{
        ClusterView, QUESTION_TIME,
        copies::{ChosenNodes, choose},
    },
    world::ObjectKey,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Nodes,
    Pods,
}

impl StoreKind for Kind {
    fn display_name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
        }
    }

    fn has_namespace(self) -> bool {
        self == Self::Pods
    }
}

/// The objects from the watches.
#[derive(Debug, Default)]
struct Seen {
    view: ClusterView,
    unlisted: Unlisted<Kind>,
}

impl Store for Seen {
    type Kind = Kind;

    fn put(&mut self, kind: Kind, name: &Name, text: &str) {
        match kind {
            Kind::Nodes => self.view.put_node(&name.1, text),
            Kind::Pods => self.view.put_pod(name, text, None),
        }
    }

    fn remove(&mut self, kind: Kind, name: &Name) {
        match kind {
            Kind::Nodes => self.view.remove_node(&name.1),
            Kind::Pods => self.view.remove_pod(name),
        }
    }

    fn names(&self, kind: Kind) -> Vec<Name> {
        match kind {
            Kind::Nodes => self.view.nodes().map(|name| (String::new(), name.to_owned())).collect(),
            Kind::Pods => self.view.pods().collect(),
        }
    }

    fn unlisted(&mut self) -> &mut Unlisted<Kind> {
        &mut self.unlisted
    }
}

/// Chooses nodes.
#[derive(Default)]
pub(super) struct Copying {
    watched: Option<Watched<Seen>>,
    /// The models that only some nodes should have.
    models: BTreeSet<ObjectKey>,
    /// Why no nodes could be chosen for these models.
    failures: BTreeMap<ObjectKey, String>,
    /// When the policy calls of this round began.
    asked_at: Option<Instant>,
}

/// The chosen nodes.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// The nodes that should have the model: those that stay, and new ones.
    pub(super) nodes: BTreeSet<String>,
    /// Whether another round may choose more, even without a change of the model or the nodes.
    pub(super) is_unfinished: bool,
}

impl Copying {
    /// Starts a round, with a new time limit for policy calls.
    pub(super) fn begin(&mut self) {
        self.asked_at = None;
    }

    /// Removes a model that is gone or should be on all selected nodes. If it was the last, the watches end.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.failures.remove(key);
        if self.models.remove(key) && self.models.is_empty() {
            self.watched = None;
        }
    }

    /// Why no nodes could be chosen for a model, as a sentence.
    pub(super) fn failure(&self, key: &ObjectKey) -> Option<&str> {
        self.failures.get(key).map(String::as_str)
    }

    /// Chooses the missing nodes of a model. `limited` means that the host serves only some namespaces: the pods of others aren't known,
    /// and nodes seem empty.
    pub(super) fn choose(
        &mut self,
        (client, limited): (&Client, bool),
        policies: &Policies,
        (key, model): (&ObjectKey, &ModelObject),
        namespace_labels: &BTreeMap<String, String>,
        kept: Kept,
    ) -> Choice {
        self.models.insert(key.clone());
        if kept.missing == 0 || kept.candidates.is_empty() {
            self.failures.remove(key);
            return Choice { nodes: kept.nodes, is_unfinished: false };
        }
        let watched = self.watched.get_or_insert_with(|| start(client, limited));
        let view = {
            let mut seen = watched.lock();
            match seen.unlisted().obstacle() {
                None => seen.view.clone(),
                Some(obstacle) => {
                    let why = obstacle.failure().map(str::to_owned);
                    drop(seen);
                    self.note(key, why.map(|why| format!("nodes and pods can't be listed: {why}")));
                    return Choice { nodes: kept.nodes, is_unfinished: true };
                }
            }
        };
        let asked_at = *self.asked_at.get_or_insert_with(Instant::now);
        let is_late = || asked_at.elapsed() > QUESTION_TIME;
        let ChosenNodes { nodes, failed } =
            tokio::task::block_in_place(|| choose(&policies.pin(Standing::New), &view, model, namespace_labels, &kept, &is_late));
        self.note(key, failed.map(|failed| failed.to_string()));
        if !nodes.is_empty() {
            tracing::info!(subject = %key, nodes = ?nodes, "nodes are chosen to hold a copy of the model");
        }
        let is_unfinished = nodes.len() < kept.missing.min(kept.candidates.len());
        Choice { nodes: kept.nodes.into_iter().chain(nodes).collect(), is_unfinished }
    }

    /// Records why nodes can't be chosen for a model, and logs it once.
    fn note(&mut self, key: &ObjectKey, why: Option<String>) {
        match why {
            None => _ = self.failures.remove(key),
            Some(why) => {
                if self.failures.get(key) != Some(&why) {
                    tracing::warn!(subject = %key, "no nodes can be chosen for copies of the model: {why}");
                }
                self.failures.insert(key.clone(), why);
            }
        }
    }
}

/// Starts the watches.
fn start(client: &Client, limited: bool) -> Watched<Seen> {
    let kinds: &[Kind] = if limited { &[Kind::Nodes] } else { &[Kind::Nodes, Kind::Pods] };
    let mut watched = Watched::new(Seen { unlisted: Unlisted::new(kinds.iter().copied()), ..Seen::default() });
    let role = missing_role(limited);
    for kind in kinds {
        let resource = match kind {
            Kind::Nodes => ApiResource::erase::<Node>(&()),
            Kind::Pods => ApiResource::erase::<Pod>(&()),
        };
        let api: Api<ObjectText> = Api::all_with(client.clone(), &resource);
        watched.follow(*kind, api, watcher::Config::default().page_size(LIST_PAGE_SIZE), role.to_string());
    }
    watched
}
